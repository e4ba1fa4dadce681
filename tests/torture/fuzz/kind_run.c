/* Files of a run folder: heartbeat.bin, status.json, lock, metrics.jsonl; and the
 * report that is made of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/sp_report.h"
#include "run/sp_run.h"
#include "torture/fuzz/fuzz.h"

enum { RANKS = 3 };
static const char folder[] = "folder";

static const char status_text[] =
    "{\"state\":\"running\",\"exit_code\":0,\"rank\":0,\"host\":\"node12\","
    "\"pid\":1234567,\"phase\":\"save\",\"epoch\":2,\"step\":17,\"message\":\"\"}";
static const char lock_text[] = "node12 1234567\n";
static const char metrics_text[] =
    "{\"event\":\"start\",\"ranks\":3,\"step\":0}\n"
    "{\"event\":\"step\",\"step\":1,\"loss\":1.5,\"iou\":[0.5,0.25]}\n"
    "{\"event\":\"end\",\"step\":17,\"exit_code\":0}\n";
static const char report_text[] =
    "{\"event\":\"start\",\"ranks\":3,\"step\":0,\"device\":\"cpu\"}\n"
    "{\"event\":\"step\",\"step\":1,\"loss\":1.5,\"step_s\":0.25}\n"
    "{\"event\":\"step\",\"step\":2,\"loss\":0.5,\"step_s\":0.25}\n"
    "{\"event\":\"eval\",\"step\":2,\"miou\":0.5,\"iou\":{\"a\":0.5,\"b\":null},"
    "\"confusion\":[[3,1],[0,0]]}\n"
    "{\"event\":\"end\",\"state\":\"done\",\"total_s\":7}\n";
static const char pictures_text[] =
    "{\"samples\":[{\"which\":\"best\",\"name\":\"a\",\"miou\":0.5}]}";

/* clang-format off */
static const char *const json_words[] = {
    "{", "}", "[", "]", ",", ":", "null", "true", "\"state\"", "\"done\"", "\"failed\"",
    "\"running\"", "\"pid\"", "\"step\"", "\"message\"", "\"phase\"", "\"event\"",
    "\"end\"", "\\", "\\u0000", "\\ud800", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{\"a\":", "-9223372036854775809", "1e99999", "\"host\":7",
    "\x1b]0;x\x07"};
/* clang-format on */
static const vocabulary words = {json_words, sizeof json_words / sizeof *json_words};

/* Each of the first records has these fields. */
static const field fields[] = {
    {64, 8, 'u'},  {72, 8, 'u'},  {80, 8, 'u'},  {88, 8, 'f'},  {96, 4, 'u'},
    {100, 4, 'u'}, {104, 8, 'u'}, {112, 8, 'u'}, {192, 8, 'u'}, {216, 8, 'f'},
    {224, 4, 'u'}, {228, 4, 'u'}, {232, 8, 'u'}, {0, 8, 'u'},   {56, 8, 'u'},
};

/* ---- mutants ---- */

static blob heartbeat(void)
{
    sp_heartbeat record[RANKS] = {0};

    for (int r = 0; r < RANKS; r++) {
        snprintf(record[r].host, sizeof record[r].host, "node%d", 12 + r);
        record[r].pid = 1234567 + r;
        record[r].step = 17;
        record[r].epoch = 2;
        record[r].time = 1.7e9 + r;
        record[r].phase = SP_PHASE_LOAD;
        record[r].counter = 99;
    }
    return blob_copy((blob){(unsigned char *)record, sizeof record});
}

static void put(const char *name, blob b)
{
    char path[64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fuzz_give(path, b);
}

static blob damaged_text(const char *text, bool is_damaged, uint64_t *rng)
{
    blob b = blob_of_text(text);

    for (size_t k = is_damaged ? 1 + mutate_below(rng, 3) : 0; k > 0; k--) {
        if (mutate_below(rng, 3) == 0)
            mutate_bytes(&b, rng);
        else
            mutate_words(&b, b.n, &words, rng);
    }
    return b;
}

static blob damaged_heartbeat(bool is_damaged, uint64_t *rng)
{
    blob b = heartbeat();

    for (size_t k = is_damaged ? 1 + mutate_below(rng, 3) : 0; k > 0; k--) {
        if (mutate_below(rng, 2))
            mutate_bytes(&b, rng);
        else
            mutate_field(&b, fields, sizeof fields / sizeof *fields, rng);
    }
    return b;
}

typedef enum part { HEARTBEAT = 1, STATUS = 2, LOCK = 4, METRICS = 8 } part;

static void make_folder(unsigned damaged, uint64_t *rng)
{
    fuzz_shell("rm -rf %s && mkdir %s", folder, folder);
    put("heartbeat.bin", damaged_heartbeat(damaged & HEARTBEAT, rng));
    put("status.json", damaged_text(status_text, damaged & STATUS, rng));
    put("lock", damaged_text(damaged & LOCK ? lock_text : "", damaged & LOCK, rng));
    put("metrics.jsonl", damaged_text(metrics_text, damaged & METRICS, rng));
}

/* ---- reading ---- */

static bool print_status(void)
{
    static const sp_status allowed[] = {SP_EDATA, SP_EIO, SP_OK};
    FILE *to = fopen("printed", "w");
    sp_status rc;

    mutate_check(to, "printed");
    rc = sp_run_print_status(folder, to);
    fclose(to);
    return fuzz_status_is_ok(rc, folder, allowed);
}

/* Reads the files that every start reads. */
static bool look_back(void)
{
    sp_run_state state;

    sp_run_report_lost(folder);
    sp_run_has_ended(folder);
    sp_run_is_done(folder);
    return sp_run_read_state(folder, "", &state) == SP_OK;
}

static bool run_heartbeat(uint64_t *rng)
{
    make_folder(HEARTBEAT, rng);
    look_back();
    return print_status();
}

static bool run_status(uint64_t *rng)
{
    make_folder(STATUS | (mutate_below(rng, 2) ? METRICS : 0), rng);
    print_status();
    return look_back();
}

/* Starts a new run in the folder, which uses what is readable and reports the rest. */
static bool run_folder(uint64_t *rng)
{
    static const sp_status allowed[] = {SP_EIO, SP_EDATA, SP_OK};
    unsigned damaged;
    sp_comm alone;
    sp_run run;
    sp_status rc;

    /* A lock with the name of another host is watched for seconds. */
    damaged = (unsigned)mutate_below(rng, 16);
    if (mutate_below(rng, 4))
        damaged &= ~(unsigned)LOCK;
    make_folder(damaged, rng);
    sp_comm_open_self(&alone);
    rc = sp_run_open(&run, folder, &alone);
    if (rc == SP_OK) {
        sp_run_beat(&run, SP_PHASE_LOAD, 1, 2);
        rc = sp_run_truncate_metrics(&run, (int64_t)mutate_below(rng, 400));
    }
    if (rc == SP_OK)
        rc = sp_run_event(&run, "{\"event\":\"start\"}", NULL);
    if (rc == SP_OK)
        rc = sp_run_status(&run, "done", SP_OK, 1, 2, NULL);
    sp_run_close(&run);
    sp_comm_close(&alone);
    if (rc == SP_OK && !sp_run_is_done(folder))
        fuzz_fault("the status that was written is not read back");
    return fuzz_status_is_ok(rc, folder, allowed);
}

/* Writes the report of a folder, whatever is in it. */
static bool run_report(uint64_t *rng)
{
    static const sp_status allowed[] = {SP_EDATA, SP_EIO, SP_OK};
    char *const dirs[] = {(char *)(uintptr_t)folder};
    const unsigned damaged = (unsigned)mutate_below(rng, 16);

    make_folder(damaged & (HEARTBEAT | STATUS), rng);
    put("metrics.jsonl", damaged_text(report_text, true, rng));
    fuzz_shell("mkdir %s/pictures", folder);
    put("pictures/pictures.json", damaged_text(pictures_text, damaged & LOCK, rng));
    put("deck.resolved",
        damaged_text("train : { lr = 0.1; };\n", damaged & METRICS, rng));
    return fuzz_status_is_ok(sp_report_write("folder/report.html", 1, dirs, true),
                             folder, allowed);
}

const fuzz_kind fuzz_report = {"report", 50, NULL, run_report};
const fuzz_kind fuzz_heartbeat = {"heartbeat", 50, NULL, run_heartbeat};
const fuzz_kind fuzz_status = {"status", 50, NULL, run_status};
const fuzz_kind fuzz_folder = {"run-folder", 40, NULL, run_folder};
