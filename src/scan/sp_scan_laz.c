/* LAZ: header and fields as in LAS, records by the room laz. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scan/laz/sp_laz.h"
#include "scan/sp_scan_las.h"

/* Finds the record that says how the points are compressed, and reads it. */
static sp_status find_format(sp_scan *scan, sp_las *own)
{
    sp_las_record *vlr = &own->vlr;
    unsigned char b[SP_LAZ_VLR_BYTES];
    size_t bytes;

    do {
        SP_TRY(sp_las_next_vlr(scan, vlr));
        if (vlr->is_end)
            return SP_FAIL(SP_EDATA,
                           "%s: its points are compressed, but it has no LAZ record "
                           "(\"%s\", %d) that says how",
                           scan->path, SP_LAZ_USER_ID, SP_LAZ_RECORD_ID);
    } while (!sp_las_is_record(vlr, SP_LAZ_USER_ID, SP_LAZ_RECORD_ID));
    bytes = (size_t)vlr->bytes < sizeof b ? (size_t)vlr->bytes : sizeof b;
    SP_TRY(sp_scan_pread(scan, b, bytes, vlr->at));
    return sp_laz_format_read(&own->format, scan->path, b, bytes, own->header.format,
                              own->header.record_bytes);
}

static sp_status open_laz(sp_scan *scan)
{
    sp_laz_file file = {
        .path = scan->path, .fd = scan->fd, .file_bytes = scan->file_bytes};
    sp_las *own = sp_las_of(scan);

    SP_TRY(sp_las_open(scan));
    SP_TRY(find_format(scan, own));
    file.at = scan->data_at;
    file.n_points = scan->n_points;
    return sp_laz_open(&own->reader, &file, &own->format, scan->options.n_threads);
}

static sp_status fill_laz(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    return sp_laz_next(sp_las_of(scan)->reader, max, to, n);
}

static sp_status rewind_laz(sp_scan *scan)
{
    return sp_laz_rewind(sp_las_of(scan)->reader);
}

/* The number of the first chunk that begins at this row or after it. */
static int64_t chunk_behind(const sp_laz_place *chunk, int64_t n, int64_t row)
{
    int64_t low = 0, high = n;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (chunk[middle].first < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static sp_status limit_laz(sp_scan *scan, int64_t *first, int64_t *end, bool *is_able)
{
    int64_t n, from, to;
    const sp_laz_place *chunk = sp_laz_chunks(sp_las_of(scan)->reader, &n);

    *is_able = chunk != NULL;
    if (!chunk)
        return SP_OK;
    from = chunk_behind(chunk, n, *first);
    to = chunk_behind(chunk, n, *end);
    *first = from < n ? chunk[from].first : scan->n_points;
    *end = to < n ? chunk[to].first : scan->n_points;
    return sp_laz_select(sp_las_of(scan)->reader, from, to, 1);
}

static void close_laz(sp_scan *scan)
{
    sp_laz_close(sp_las_of(scan)->reader);
}

static bool is_laz(const unsigned char *head)
{
    return memcmp(head, "LASF", 4) == 0 && (head[104] & 0xc0);
}

const sp_scan_format sp_scan_laz = {.name = "LAZ",
                                    .endings = ".laz",
                                    .help = "LAZ",
                                    .is_ours = is_laz,
                                    .own_bytes = sizeof(sp_las),
                                    .open = open_laz,
                                    .fill = fill_laz,
                                    .rewind = rewind_laz,
                                    .limit = limit_laz,
                                    .close = close_laz,
                                    .write = sp_las_write,
                                    .section = sp_las_section,
                                    .check_added = sp_las_check_added,
                                    .most_code = sp_las_most_code,
                                    .written = ".laz",
                                    .written_help = "the same, compressed",
                                    .is_count_claimed = true};
