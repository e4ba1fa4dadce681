/* A copy of a LAS or LAZ file with other classes and added fields, as LAS or LAZ. All
 * other bytes are kept; what compression and added fields need comes or goes: the bit
 * in the point format, the length of records, VLRs, and the offsets of what stands
 * behind the points.
 *
 *     source  | header | VLRs | points              | EVLRs and whatever else |
 *     copy    | header | VLRs +- LAZ | points, other length | the same        |  */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_number.h"
#include "base/sp_pulse.h"
#include "scan/sp_scan_las_copy.h"

enum {
    COPY_BYTES = 1 << 20,
    COMPRESSED = 0x80,
    VLR_HEAD = SP_LAS_VLR_HEAD,
    /* Places in the header. */
    AT_VLR_BYTES = 20, /* in the head of a VLR */
    AT_POINTS = 96,
    AT_N_VLRS = 100,
    AT_FORMAT = 104,
    AT_WAVES = 227,
    AT_EVLRS = 235
};

/* ---- header and VLRs ---- */

/* Replaces `old` bytes at `at` of the head by the n bytes at `by`; there is room. */
static void splice(sp_las_copy *c, size_t at, size_t old, const unsigned char *by,
                   size_t n)
{
    memmove(c->head + at + n, c->head + at + old, c->head_bytes - at - old);
    memcpy(c->head + at, by, n);
    c->head_bytes += n - old;
}

/* Puts the LAZ VLR behind the others. */
static sp_status add_vlr(sp_las_copy *c)
{
    unsigned char b[VLR_HEAD + SP_LAZ_VLR_BYTES] = {0};
    sp_las_vlr vlr = {0};
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
    sp_put32(c->head + AT_N_VLRS, c->header->n_vlrs + 1);
    return SP_OK;
}

/* Makes the format that of the longer records, with chunks as they are. */
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
    const sp_las_vlr vlr = source->vlr;
    size_t old, n;

    c->format = source->format;
    if (!c->is_laz) {
        splice(c, (size_t)vlr.head_at, VLR_HEAD + (size_t)vlr.bytes, after, 0);
        sp_put32(c->head + AT_N_VLRS, c->header->n_vlrs - 1);
        return;
    }
    old = sp_laz_format_write(&c->format, before);
    sp_laz_format_current(&c->format);
    if (c->format.chunk_points == UINT32_MAX && !sp_laz_chunks(source->reader, NULL))
        c->format.chunk_points = SP_LAZ_CHUNK;
    if (c->extra.n_new > 0)
        lengthen(c);
    n = sp_laz_format_write(&c->format, after);
    if (n != old || memcmp(before, after, n) != 0)
        splice(c, (size_t)vlr.at, old, after, n);
    sp_put16(c->head + vlr.head_at + AT_VLR_BYTES, (uint64_t)vlr.bytes + n - old);
}

/* Makes the head of the copy, and finds its format and what is behind the points. */
static sp_status make_head(sp_las_copy *c)
{
    bool was_laz = c->scan->format == &sp_scan_laz;
    size_t n = (size_t)c->header->data_at;

    if (c->header->data_at > c->scan->file_bytes)
        return SP_FAIL(SP_EDATA, "%s: truncated: its points begin at byte %" PRId64,
                       c->scan->path, c->header->data_at);
    c->head = malloc(n + VLR_HEAD + SP_LAZ_VLR_BYTES + sp_las_extra_room(&c->extra));
    if (!c->head)
        return SP_FAIL(SP_EMEM, "%s: no memory for its header", c->scan->path);
    SP_TRY(sp_scan_pread(c->scan, c->head, n, 0));
    c->head_bytes = n;
    c->rest_at = c->header->data_at + c->scan->n_points * c->scan->record_bytes;
    c->rest_end = c->scan->file_bytes;
    if (was_laz) {
        sp_laz_rest(sp_las_of(c->scan)->reader, &c->rest_at, &c->rest_end);
        change_vlr(c);
    } else if (c->is_laz) {
        SP_TRY(add_vlr(c));
    }
    SP_TRY(sp_las_extra_describe(&c->extra, c->scan, c->head, &c->head_bytes));
    if (c->head_bytes > UINT32_MAX)
        return SP_FAIL(SP_EDATA, "%s: no room for one more record before its points",
                       c->scan->path);
    sp_put32(c->head + AT_POINTS, c->head_bytes);
    c->head[AT_FORMAT] =
        (unsigned char)(c->header->format | (c->is_laz ? COMPRESSED : 0));
    return SP_OK;
}

/* Moves an offset of the header that points behind the points. */
static sp_status move_offset(sp_las_copy *c, int at, int64_t by)
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
    sp_put64(c->head + at, x + (uint64_t)by);
    return SP_OK;
}

int32_t sp_las_most_code(const sp_scan *scan)
{
    if (scan->format != &sp_scan_las && scan->format != &sp_scan_laz)
        return 0;
    return scan->field[sp_scan_find(scan, "classification")].bits == 5 ? 31 : UINT8_MAX;
}

/* ---- COPC ---- */

/* COPC is LAZ with an index of its chunks: in the VLR "copc" 1 the place of the root,
 * in EVLRs "copc" 1000 entries of 32 bytes: key, offset u64, bytes i32, points i32; -1
 * points say that the offset is that of further entries. */
enum {
    EVLR_HEAD = 60,
    COPC_INFO = 1,
    COPC_PAGE = 1000,
    AT_ROOT = 40,
    ENTRY = 32,
    AT_OFFSET = 16,
    AT_BYTES = 24,
    AT_COUNT = 28
};

static sp_status mend_entry(const sp_las_copy *c, const sp_laz_place *to, int64_t n,
                            unsigned char *entry, int64_t by)
{
    int64_t n_from;
    const sp_laz_place *from = sp_laz_chunks(sp_las_of(c->scan)->reader, &n_from);
    uint64_t offset = sp_get64(entry + AT_OFFSET);
    uint32_t count = sp_get32(entry + AT_COUNT);
    int64_t low = 0, high = n < n_from ? n : n_from;

    if (count == 0)
        return SP_OK;
    if (count == UINT32_MAX) {
        sp_put64(entry + AT_OFFSET, offset + (uint64_t)by);
        return SP_OK;
    }
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;

        if ((uint64_t)from[middle].at <= offset)
            low = middle;
        else
            high = middle;
    }
    if (high == 0 || (uint64_t)from[low].at != offset || from[low].n != count)
        return SP_FAIL(SP_EDATA,
                       "%s: its COPC index has %u points at byte %" PRIu64
                       ", where no LAZ chunk of so many begins",
                       c->scan->path, count, offset);
    sp_put64(entry + AT_OFFSET, (uint64_t)to[low].at);
    sp_put32(entry + AT_BYTES, (uint64_t)to[low].bytes);
    return SP_OK;
}

/* Brings the entries of one page, n bytes of the source at `at`, to the chunks of the
 * copy. */
static sp_status mend_page(sp_las_copy *c, const sp_laz_writer *laz, int64_t at,
                           int64_t n, int64_t by)
{
    unsigned char entry[ENTRY];
    int64_t n_chunks;
    const sp_laz_place *to = sp_laz_written(laz, &n_chunks);

    if (fseeko(c->to, at + by, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", c->path, strerror(errno));
    for (; n >= ENTRY; at += ENTRY, n -= ENTRY) {
        SP_TRY(sp_scan_pread(c->scan, entry, ENTRY, at));
        SP_TRY(mend_entry(c, to, n_chunks, entry, by));
        SP_TRY(sp_las_put_bytes(c, entry, ENTRY));
    }
    return SP_OK;
}

/* Brings the index of a COPC file, if the source is one, to the chunks of the copy. */
static sp_status mend_copc(sp_las_copy *c, const sp_laz_writer *laz, int64_t by)
{
    unsigned char head[EVLR_HEAD];
    int64_t at = (int64_t)sp_get64(c->head + AT_EVLRS); /* of the source still */
    uint32_t n = sp_get32(c->head + AT_EVLRS + 8);
    sp_las_vlr vlr = {0};

    SP_TRY(sp_las_next_vlr(c->scan, &vlr));
    if (vlr.is_end || strcmp(vlr.user, "copc") != 0 || vlr.id != COPC_INFO ||
        vlr.bytes < AT_ROOT + 8 || c->format.chunk_points != UINT32_MAX)
        return SP_OK;
    SP_TRY(move_offset(c, (int)vlr.at + AT_ROOT, by));
    for (; n > 0; n--) {
        int64_t bytes;

        SP_TRY(sp_scan_pread(c->scan, head, sizeof head, at));
        bytes = (int64_t)sp_get64(head + 20);
        at += EVLR_HEAD;
        if (bytes < 0 || at < c->rest_at || bytes > c->rest_end - at)
            return SP_FAIL(SP_EDATA,
                           "%s: extended record of %" PRId64 " bytes at byte "
                           "%" PRId64 ", but the file ends at %" PRId64,
                           c->scan->path, bytes, at, c->rest_end);
        if (memcmp(head + 2, "copc", 5) == 0 && sp_get16(head + 18) == COPC_PAGE)
            SP_TRY(mend_page(c, laz, at, bytes, by));
        at += bytes;
    }
    return SP_OK;
}

/* ---- the file ---- */

static sp_status copy_bytes(sp_las_copy *c, unsigned char *b)
{
    for (int64_t at = c->rest_at; at < c->rest_end; at += COPY_BYTES) {
        int64_t n = sp_least(c->rest_end - at, COPY_BYTES);

        SP_TRY(sp_scan_pread(c->scan, b, (size_t)n, at));
        SP_TRY(sp_las_put_bytes(c, b, (size_t)n));
    }
    return SP_OK;
}

static sp_status copy_rest(sp_las_copy *c)
{
    unsigned char *b = malloc(COPY_BYTES);
    sp_status rc = b ? copy_bytes(c, b)
                     : SP_FAIL(SP_EMEM, "%s: no memory to copy it", c->scan->path);

    free(b);
    return rc;
}

/* Writes what stands behind the points, and the head once more, since the offsets in it
 * follow from the length of the points. */
static sp_status write_rest(sp_las_copy *c, const sp_laz_writer *laz)
{
    const int64_t by = ftello(c->to) - c->rest_at;

    SP_TRY(copy_rest(c));
    if (laz && c->header->minor >= 4 && c->scan->format == &sp_scan_laz)
        SP_TRY(mend_copc(c, laz, by));
    if (c->header->minor >= 3)
        SP_TRY(move_offset(c, AT_WAVES, by));
    if (c->header->minor >= 4)
        SP_TRY(move_offset(c, AT_EVLRS, by));
    if (fseeko(c->to, 0, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", c->path, strerror(errno));
    return sp_las_put_bytes(c, c->head, c->head_bytes);
}

/* Writes the copy, or a part of its points alone. */
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
    return is_part ? SP_OK : write_rest(c, *laz);
}

sp_status sp_las_write(sp_scan *scan, const sp_scan_labels *labels,
                       const sp_scan_part *part)
{
    sp_las_copy c = {.scan = scan,
                     .path = part->name,
                     .to = part->to,
                     .labels = labels,
                     .is_laz = part->format == &sp_scan_laz,
                     .part = part};
    sp_laz_writer *laz = NULL;
    sp_status rc;

    assert(labels->get);
    if (scan->format != &sp_scan_las && scan->format != &sp_scan_laz)
        return SP_FAIL(SP_EDATA,
                       "%s: is %s; classes are written into copies of LAS and LAZ only",
                       scan->path, scan->title);
    if (labels->n != scan->n_points)
        return SP_FAIL(SP_EDATA, "%s: %" PRId64 " points, expected %" PRId64,
                       scan->path, scan->n_points, labels->n);
    c.header = &sp_las_of(scan)->header;
    rc = sp_las_extra_place(&c.extra, scan, labels);
    if (rc == SP_OK)
        rc = write_with(&c, &laz);
    sp_laz_abandon(laz);
    sp_las_extra_free(&c.extra);
    free(c.head);
    return rc;
}
