/* TensorBoard's event files of a run folder, which the next start cuts. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/events_read.h"
#include "torture/fuzz/fuzz.h"
#include "run/sp_events.h"

enum { STEPS = 6, HEAD = 12 };
static const char folder[] = "events";

static void write_good(void)
{
    sp_events *e;

    if (sp_events_create(&e, folder, "node12", 1) != SP_OK)
        fuzz_fault("no event file: %s", sp_error_last()->message);
    for (int64_t step = 1; step <= STEPS; step++) {
        sp_events_begin(e, step, 1.7e9 + (double)step);
        sp_events_scalar(e, "train", "loss", 1.0 / (double)step);
        sp_events_text(e, "run", "deck", "run : { };");
        if (sp_events_end(e) != SP_OK)
            fuzz_fault("no record: %s", sp_error_last()->message);
    }
    sp_events_destroy(e);
}

/* The name of the one file that is there. */
static void find(char path[512])
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    path[0] = 0;
    while (dir && (entry = readdir(dir)))
        if (strstr(entry->d_name, "tfevents"))
            snprintf(path, 512, "%s/%s", folder, entry->d_name);
    if (dir)
        closedir(dir);
}

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

/* Gives a record the checksums of its present bytes, as a stranger would. */
static void seal(blob *b)
{
    uint64_t length = 0;

    if (b->n < HEAD + 4)
        return;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | b->at[i];
    put_u32(b->at + 8, events_checksum(b->at, 8));
    if (length <= b->n - HEAD - 4)
        put_u32(b->at + HEAD + length, events_checksum(b->at + HEAD, length));
}

static bool run_events(uint64_t *rng)
{
    static const sp_status allowed[] = {SP_EDATA, SP_EIO, SP_OK};
    const bool is_sealed = mutate_below(rng, 3) == 0;
    const int64_t step = (int64_t)mutate_below(rng, STEPS + 2);
    char path[512];
    CLOSED_BY(events_free) event_list list;
    const char *wrong;
    sp_status rc;
    blob b;

    fuzz_shell("rm -rf %s", folder);
    write_good();
    find(path);
    b = blob_read(path);
    for (size_t k = mutate_below(rng, 3); k > 0; k--)
        mutate_bytes(&b, rng);
    if (is_sealed)
        seal(&b);
    fuzz_give(path, b);
    rc = sp_events_cut(folder, step);
    wrong = events_read(folder, &list);
    if (rc == SP_OK && ((wrong && !is_sealed) || list.torn > 0))
        fuzz_fault("%s behind the cut", wrong ? wrong : "a torn record");
    for (int i = 0; rc == SP_OK && !is_sealed && i < list.n; i++)
        if (list.value[i].step > step)
            fuzz_fault("step %lld behind the cut at %lld",
                       (long long)list.value[i].step, (long long)step);
    return fuzz_status_is_ok(rc, folder, allowed);
}

const fuzz_kind fuzz_events = {"events", 30, NULL, run_events};
