/* The data after the points of a copy of a LAS or LAZ file: extended records, and
 * anything else that the source has there. All is kept but
 *
 *     records of COPC    if the copy is no COPC file: they are the index of its chunks
 *     descriptions of    if the copy describes other extra bytes than the source: they
 *     extra bytes        move to the VLR that describes all of them
 *
 * Offsets of the header follow. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_las_copy.h"

enum {
    COPY_BYTES = 1 << 20,
    AT_WAVES = 227,
    AT_EVLRS = 235,
    AT_N_EVLRS = 243,
    MOST_MOVED = 65535 /* bytes of descriptions in a VLR, at most */
};

/* ---- records that are left out ---- */

static sp_status rest_cut(sp_las_copy *c, const sp_las_record *record)
{
    if (record->head_at < c->rest_at)
        return SP_OK;
    if (!sp_list_grow(&c->cut, c->n_cuts, sizeof *c->cut))
        return SP_FAIL(SP_EMEM, "%s: no memory to copy it", c->scan->path);
    c->cut[c->n_cuts++] = *record;
    return SP_OK;
}

/* Keeps the descriptions of extra bytes that a record has. */
static sp_status rest_keep_extra(sp_las_copy *c, const sp_las_record *record)
{
    const int64_t bytes = record->bytes / SP_LAS_EXTRA_BYTES * SP_LAS_EXTRA_BYTES;
    const size_t old = c->extra.moved_bytes;

    if (bytes > MOST_MOVED - (int64_t)old)
        return SP_FAIL(SP_EDATA, "%s: no room to describe more fields", c->scan->path);
    if (!sp_list_resize(&c->extra.moved, old + (size_t)bytes + 1))
        return SP_FAIL(SP_EMEM, "%s: no memory to copy it", c->scan->path);
    c->extra.moved_bytes += (size_t)bytes;
    return sp_scan_pread(c->scan, c->extra.moved + old, (size_t)bytes, record->at);
}

sp_status sp_las_rest_plan(sp_las_copy *c)
{
    const bool is_described = c->extra.n_new > 0 || c->extra.n_changed > 0;
    sp_las_record record = {0};

    for (;;) {
        SP_TRY(sp_las_next_record(c->scan, &record));
        if (record.is_end)
            return SP_OK;
        if (!record.is_extended)
            continue;
        if (!c->is_copc && strcmp(record.user, SP_LAS_COPC) == 0)
            SP_TRY(rest_cut(c, &record));
        if (is_described && sp_las_is_record(&record, "LASF_Spec", 4)) {
            SP_TRY(rest_keep_extra(c, &record));
            SP_TRY(rest_cut(c, &record));
        }
    }
}

/* ---- offsets ---- */

int64_t sp_las_rest_moved(const sp_las_copy *c, int64_t at)
{
    int64_t to = at + c->rest_by;

    for (int i = 0; i < c->n_cuts; i++)
        if (c->cut[i].head_at < at)
            to -= c->cut[i].at + c->cut[i].bytes - c->cut[i].head_at;
    return to;
}

sp_status sp_las_rest_move(sp_las_copy *c, int at)
{
    uint64_t x = sp_get64(c->head + at);

    if (x == 0 || x >= (uint64_t)c->scan->file_bytes)
        return SP_OK; /* there is nothing */
    if (x < (uint64_t)c->rest_at)
        return x < (uint64_t)c->header->data_at
                   ? SP_OK
                   : SP_FAIL(SP_EDATA,
                             "%s: records at byte %" PRIu64
                             ", within the points, which end at %" PRId64,
                             c->scan->path, x, c->rest_at);
    sp_put64(c->head + at, (uint64_t)sp_las_rest_moved(c, (int64_t)x));
    return SP_OK;
}

static sp_status rest_move_all(sp_las_copy *c)
{
    if (c->header->minor >= 3 && c->header->header_bytes >= AT_EVLRS)
        SP_TRY(sp_las_rest_move(c, AT_WAVES));
    if (c->header->minor < 4)
        return SP_OK;
    SP_TRY(sp_las_rest_move(c, AT_EVLRS));
    if (c->n_cuts > 0)
        sp_put32(c->head + AT_N_EVLRS, c->header->n_evlrs - (uint32_t)c->n_cuts);
    if (c->n_cuts > 0 && (uint32_t)c->n_cuts == c->header->n_evlrs)
        sp_put64(c->head + AT_EVLRS, 0);
    return SP_OK;
}

/* ---- the bytes ---- */

static sp_status rest_copy(sp_las_copy *c, unsigned char *b, int64_t at, int64_t end)
{
    for (; at < end; at += COPY_BYTES) {
        int64_t n = sp_least(end - at, COPY_BYTES);

        SP_TRY(sp_scan_pread(c->scan, b, (size_t)n, at));
        SP_TRY(sp_las_put_bytes(c, b, (size_t)n));
    }
    return SP_OK;
}

sp_status sp_las_rest_put(sp_las_copy *c)
{
    SP_FREED unsigned char *b = NULL;
    int64_t at = c->rest_at;

    SP_TRY(SP_NEW(&b, COPY_BYTES, c->scan->path));
    c->rest_by = ftello(c->to) - c->rest_at;
    for (int i = 0; i < c->n_cuts; i++) {
        SP_TRY(rest_copy(c, b, at, c->cut[i].head_at));
        at = c->cut[i].at + c->cut[i].bytes;
    }
    SP_TRY(rest_copy(c, b, at, c->rest_end));
    return rest_move_all(c);
}
