/* A copy of a LAS or LAZ file with other classes and added fields, as LAS or LAZ. All
 * other bytes are kept; what compression and added fields need comes or goes: the bit
 * in the point format, the length of records, VLRs, and the offsets of what follows the
 * points. A count of VLRs that is too high becomes the number that is there. Records of
 * COPC stay in copies that are COPC only.
 *
 *     source  | header | VLRs | points              | EVLRs and whatever else |
 *     copy    | header | VLRs +- LAZ | points, other length | the same        |  */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_number.h"
#include "scan/sp_scan_las_copy.h"

enum {
    COMPRESSED = 0x80,
    VLR_HEAD = SP_LAS_VLR_HEAD,
    /* Places in the header. */
    AT_VLR_BYTES = 20, /* in the head of a VLR */
    AT_POINTS = 96,
    AT_N_VLRS = 100,
    AT_FORMAT = 104
};

/* The index of COPC (sp_scan_copc.c): in the VLR "copc" 1 the place of the root, in
 * EVLRs "copc" 1000 entries of 32 bytes: key, offset u64, bytes i32, points i32; -1
 * points say that the offset leads to further entries. */
enum {
    COPC_PAGE = 1000,
    AT_ROOT = 40,
    ENTRY = 32,
    AT_OFFSET = 16,
    AT_BYTES = 24,
    AT_COUNT = 28
};

/* ---- header and VLRs ---- */

/* Replaces `old` bytes at `at` of the head by the n bytes at `by`; there is room. */
static void splice(sp_las_copy *c, size_t at, size_t old, const unsigned char *by,
                   size_t n)
{
    memmove(c->head + at + n, c->head + at + old, c->head_bytes - at - old);
    if (n > 0)
        memcpy(c->head + at, by, n);
    c->head_bytes += n - old;
}

/* Changes the number of VLRs in the head. */
static void las_write_count_vlrs(sp_las_copy *c, int by)
{
    sp_put32(c->head + AT_N_VLRS, sp_get32(c->head + AT_N_VLRS) + (uint32_t)by);
}

/* Puts the LAZ VLR after the others. */
static sp_status add_vlr(sp_las_copy *c)
{
    unsigned char b[VLR_HEAD + SP_LAZ_VLR_BYTES] = {0};
    sp_las_record vlr = {0};
    size_t n, at = (size_t)c->header->header_bytes;

    for (;;) {
        SP_TRY(sp_las_next_vlr(c->scan, &vlr));
        if (vlr.is_end)
            break;
        at = (size_t)(vlr.at + vlr.bytes);
    }
    sp_laz_format_default(&c->format, c->header->format, c->extra.record_bytes);
    n = sp_laz_format_write(&c->format, b + VLR_HEAD);
    memcpy(b + 2, SP_LAZ_USER_ID, sizeof SP_LAZ_USER_ID - 1);
    sp_put16(b + 18, SP_LAZ_RECORD_ID);
    sp_put16(b + 20, n);
    splice(c, at, 0, b, VLR_HEAD + n);
    las_write_count_vlrs(c, 1);
    return SP_OK;
}

/* Adapts the format to the longer records, with unchanged chunks. */
static void lengthen(sp_las_copy *c)
{
    const uint32_t chunk_points = c->format.chunk_points;

    sp_laz_format_default(&c->format, c->header->format, c->extra.record_bytes);
    c->format.chunk_points = chunk_points;
}

/* Removes the LAZ VLR, or brings it to the format of the copy. */
static void change_vlr(sp_las_copy *c)
{
    unsigned char before[SP_LAZ_VLR_BYTES], after[SP_LAZ_VLR_BYTES];
    const sp_las *source = sp_las_of(c->scan);
    const sp_las_record vlr = source->vlr;
    size_t old, n;

    c->format = source->format;
    if (!c->is_laz) {
        splice(c, (size_t)vlr.head_at, VLR_HEAD + (size_t)vlr.bytes, NULL, 0);
        las_write_count_vlrs(c, -1);
        return;
    }
    old = sp_laz_format_write(&c->format, before);
    sp_laz_format_current(&c->format);
    if (c->format.chunk_points == UINT32_MAX &&
        (c->labels->window || !sp_laz_chunks(source->reader, NULL)))
        c->format.chunk_points = SP_LAZ_CHUNK;
    if (c->extra.n_new > 0)
        lengthen(c);
    n = sp_laz_format_write(&c->format, after);
    if (n != old || memcmp(before, after, n) != 0)
        splice(c, (size_t)vlr.at, old, after, n);
    sp_put16(c->head + vlr.head_at + AT_VLR_BYTES, (uint64_t)vlr.bytes + n - old);
}

/* Sets the number of VLRs, and the length of the last one, to the existing VLRs: other
 * records may follow in the copy. */
static sp_status count_there(sp_las_copy *c)
{
    sp_las_record vlr = {0};

    sp_put32(c->head + AT_N_VLRS, c->header->n_vlrs);
    for (;;) {
        SP_TRY(sp_las_next_vlr(c->scan, &vlr));
        if (vlr.is_end)
            return SP_OK;
        sp_put16(c->head + vlr.head_at + AT_VLR_BYTES, (uint64_t)vlr.bytes);
    }
}

/* Removes the VLRs of COPC. */
static void drop_copc(sp_las_copy *c)
{
    size_t at = (size_t)c->header->header_bytes;

    for (uint32_t n = sp_get32(c->head + AT_N_VLRS); n > 0; n--) {
        const unsigned char *vlr = c->head + at;
        const size_t bytes = VLR_HEAD + (size_t)sp_get16(vlr + AT_VLR_BYTES);
        char user[SP_LAS_USER];

        assert(at + bytes <= c->head_bytes);
        sp_las_user(vlr, user);
        if (strcmp(user, SP_LAS_COPC) == 0) {
            splice(c, at, bytes, NULL, 0);
            las_write_count_vlrs(c, -1);
        } else {
            at += bytes;
        }
    }
}

/* Adapts the VLRs of compression, COPC and extra bytes to the copy. */
static sp_status change_vlrs(sp_las_copy *c)
{
    SP_TRY(count_there(c));
    if (sp_las_is_laz(c->scan))
        change_vlr(c);
    else if (c->is_laz)
        SP_TRY(add_vlr(c));
    if (!c->is_copc)
        drop_copc(c);
    return sp_las_extra_describe(&c->extra, c->scan, c->head, &c->head_bytes);
}

/* Is the copy a COPC file? The source is one, and the copy has the same chunks. */
static sp_status find_copc(sp_las_copy *c)
{
    sp_laz_reader *reader = sp_las_of(c->scan)->reader;
    sp_las_record vlr;

    if (!c->is_laz || !reader || c->header->minor < 4 || c->labels->window)
        return SP_OK;
    SP_TRY(sp_copc_info(c->scan, &vlr, &c->is_copc));
    c->is_copc = c->is_copc && sp_laz_chunks(reader, NULL) &&
                 sp_las_of(c->scan)->format.chunk_points == UINT32_MAX;
    return SP_OK;
}

/* Makes the head of the copy, and finds its format and what follows the points. */
static sp_status make_head(sp_las_copy *c)
{
    size_t n = (size_t)c->header->data_at;

    if (c->header->data_at > c->scan->file_bytes)
        return SP_FAIL(SP_EDATA, "%s: truncated: its points begin at byte %" PRId64,
                       c->scan->path, c->header->data_at);
    c->rest_at = c->header->data_at + c->scan->n_points * c->scan->record_bytes;
    c->rest_end = c->scan->file_bytes;
    if (sp_las_is_laz(c->scan))
        sp_laz_rest(sp_las_of(c->scan)->reader, &c->rest_at, &c->rest_end);
    SP_TRY(find_copc(c));
    SP_TRY(sp_las_rest_plan(c));
    SP_TRY(SP_NEW(&c->head,
                  n + VLR_HEAD + SP_LAZ_VLR_BYTES + sp_las_extra_room(&c->extra),
                  c->scan->path));
    SP_TRY(sp_scan_pread(c->scan, c->head, n, 0));
    c->head_bytes = n;
    SP_TRY(change_vlrs(c));
    if (c->head_bytes > UINT32_MAX)
        return SP_FAIL(SP_EDATA, "%s: no room for one more record before its points",
                       c->scan->path);
    sp_put32(c->head + AT_POINTS, c->head_bytes);
    c->head[AT_FORMAT] =
        (unsigned char)(c->header->format | (c->is_laz ? COMPRESSED : 0));
    return SP_OK;
}

int32_t sp_las_most_code(const sp_scan *scan)
{
    if (!sp_las_is(scan))
        return 0;
    return sp_las_of(scan)->header.format < 6 && sp_las_of(scan)->wide_class_at == 0
               ? 31
               : UINT8_MAX;
}

/* ---- COPC ---- */

static sp_status mend_entry(const sp_las_copy *c, const sp_laz_place *to,
                            unsigned char *entry)
{
    const int64_t at = (int64_t)sp_get64(entry + AT_OFFSET);
    const uint32_t count = sp_get32(entry + AT_COUNT);
    int64_t chunk;

    if (count == 0)
        return SP_OK;
    if (count == UINT32_MAX) {
        sp_put64(entry + AT_OFFSET, (uint64_t)sp_las_rest_moved(c, at));
        return SP_OK;
    }
    SP_TRY(sp_copc_find_chunk(c->scan, at, count, &chunk));
    sp_put64(entry + AT_OFFSET, (uint64_t)to[chunk].at);
    sp_put32(entry + AT_BYTES, (uint64_t)to[chunk].bytes);
    return SP_OK;
}

/* Brings the entries of one page, a record of the source, to the chunks of the copy. */
static sp_status mend_page(sp_las_copy *c, const sp_laz_writer *laz,
                           const sp_las_record *page)
{
    unsigned char entry[ENTRY];
    int64_t n;
    const sp_laz_place *to = sp_laz_written(laz, &n);

    if (fseeko(c->to, sp_las_rest_moved(c, page->at), SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", c->path, strerror(errno));
    for (int64_t at = 0; at + ENTRY <= page->bytes; at += ENTRY) {
        SP_TRY(sp_scan_pread(c->scan, entry, ENTRY, page->at + at));
        SP_TRY(mend_entry(c, to, entry));
        SP_TRY(sp_las_put_bytes(c, entry, ENTRY));
    }
    return SP_OK;
}

/* Brings the index of a COPC file to the chunks of the copy. Its VLR is the first one.
 */
static sp_status mend_copc(sp_las_copy *c, const sp_laz_writer *laz)
{
    sp_las_record record = {0};

    SP_TRY(sp_las_rest_move(c, c->header->header_bytes + VLR_HEAD + AT_ROOT));
    for (;;) {
        SP_TRY(sp_las_next_record(c->scan, &record));
        if (record.is_end)
            return SP_OK;
        if (record.is_extended && record.head_at >= c->rest_at &&
            sp_las_is_record(&record, SP_LAS_COPC, COPC_PAGE))
            SP_TRY(mend_page(c, laz, &record));
    }
}

/* ---- the file ---- */

/* Sets counts and extent of a window in the head. */
static void count_window(sp_las_copy *c)
{
    enum {
        AT_COUNT_OLD = 107,
        AT_RETURNS_OLD = 111,
        AT_HIGH = 179,
        AT_COUNT_NEW = 247
    };
    const bool is_old = c->header->format < 6 && c->n_written <= UINT32_MAX;

    sp_put32(c->head + AT_COUNT_OLD, is_old ? (uint64_t)c->n_written : 0);
    for (int i = 0; i < 5; i++)
        sp_put32(c->head + AT_RETURNS_OLD + 4 * i,
                 is_old ? (uint64_t)c->by_return[i] : 0);
    for (int a = 0; a < 3; a++) {
        const int32_t end[2] = {c->high[a], c->low[a]};

        for (int k = 0; k < 2; k++) {
            volatile double scaled = end[k] * c->header->scale[a];
            const double x = scaled + c->header->offset[a];

            memcpy(c->head + AT_HIGH + 16 * a + 8 * k, &x, sizeof x);
        }
    }
    if (c->header->minor < 4 || c->header->header_bytes < 375)
        return;
    sp_put64(c->head + AT_COUNT_NEW, (uint64_t)c->n_written);
    for (int i = 0; i < 15; i++)
        sp_put64(c->head + AT_COUNT_NEW + 8 + 8 * i, (uint64_t)c->by_return[i]);
}

/* Writes what follows the points, and the head once more, since the offsets in it
 * follow from the length of the points. */
static sp_status las_write_rest(sp_las_copy *c, const sp_laz_writer *laz)
{
    SP_TRY(sp_las_rest_put(c));
    if (c->is_copc)
        SP_TRY(mend_copc(c, laz));
    if (c->labels->window)
        count_window(c);
    if (fseeko(c->to, 0, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", c->path, strerror(errno));
    return sp_las_put_bytes(c, c->head, c->head_bytes);
}

/* Writes the copy, or only a part of its points. */
static sp_status write_with(sp_las_copy *c, sp_laz_writer **laz)
{
    const bool is_part = c->part->n > 0 && !c->part->path;

    SP_TRY(make_head(c));
    if (!is_part)
        SP_TRY(sp_las_put_bytes(c, c->head, c->head_bytes));
    if (c->is_laz)
        SP_TRY(
            sp_laz_create(laz, c->path, c->to, &c->format, c->scan->options.n_threads));
    SP_TRY(sp_las_put_points(c, *laz));
    return is_part ? SP_OK : las_write_rest(c, *laz);
}

sp_status sp_las_write(sp_scan *scan, const sp_scan_labels *labels,
                       const sp_scan_part *part)
{
    /* The head of EPT's first node gets the counts of all. */
    static const double everywhere[] = {-INFINITY, -INFINITY, INFINITY, INFINITY};
    sp_scan_labels all = *labels;
    sp_las_copy c = {.scan = scan,
                     .path = part->name,
                     .to = part->to,
                     .labels = &all,
                     .is_laz = part->format == &sp_scan_laz,
                     .part = part};
    sp_laz_writer *laz = NULL;
    sp_status rc;

    assert(labels->get);
    if (scan->format == &sp_scan_ept && !labels->window)
        all.window = everywhere;
    if (!sp_las_is(scan))
        return SP_FAIL(SP_EDATA,
                       "%s: is %s; classes are written into copies of LAS and LAZ only",
                       scan->path, scan->title);
    if (labels->n != scan->n_points)
        return SP_FAIL(SP_EDATA, "%s: %" PRId64 " points, expected %" PRId64,
                       scan->path, scan->n_points, labels->n);
    c.header = &sp_las_of(scan)->header;
    rc = sp_las_extra_place(&c.extra, scan, &all);
    if (rc == SP_OK)
        rc = write_with(&c, &laz);
    sp_laz_abandon(laz);
    sp_las_extra_free(&c.extra);
    free(c.cut);
    free(c.head);
    return rc;
}
