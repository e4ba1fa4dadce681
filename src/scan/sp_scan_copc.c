/* COPC: LAZ with an octree over its chunks (copc.io, version 1.0). Only the chunks
 * whose nodes meet a window of x and y are read.
 *
 *     VLR "copc" 1    centre and half the edge of the cube; place of the root page
 *     page            entries of 32 bytes: level, x, y, z (int32), byte of the chunk or
 *                     of another page (uint64), its bytes, its points (int32; -1: a
 *                     page)
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_las_copy.h"

enum {
    INFO_ID = 1,
    INFO_BYTES = 56, /* of the VLR's content that is read */
    ENTRY_BYTES = 32
};

typedef struct copc_page {
    int64_t at, bytes;
} copc_page;

/* The search for the chunks of a window. */
typedef struct copc_search {
    sp_scan *scan;
    const double *window; /* x0 y0 x1 y1 */
    sp_octree tree;
    bool *is_wanted; /* [chunks] */
    copc_page *page; /* [n_pages] to be read */
    int64_t n_pages;
    size_t room;       /* bytes of these */
    int64_t n_entries; /* read so far */
} copc_search;

bool sp_octree_meets(const sp_octree *tree, int level, const int32_t key[2],
                     const double window[4])
{
    for (int a = 0; a < 2; a++) {
        const double edge = ldexp(tree->edge[a], -level);
        const double low = tree->low[a] + key[a] * edge;

        if (!(low <= window[a + 2] && low + edge >= window[a]))
            return false;
    }
    return true;
}

sp_status sp_copc_find_chunk(const sp_scan *scan, int64_t at, int64_t n_points,
                             int64_t *chunk)
{
    int64_t low = 0, high;
    const sp_laz_place *place = sp_laz_chunks(sp_las_of(scan)->reader, &high);
    const bool has_chunks = high > 0;

    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        if (place[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    *chunk = low;
    return has_chunks && place[low].at == at && place[low].n == n_points
               ? SP_OK
               : SP_FAIL(SP_EDATA,
                         "%s: its COPC index has %" PRId64 " points at byte %" PRId64
                         ", where no LAZ chunk of that size begins",
                         scan->path, n_points, at);
}

static sp_status copc_add_page(copc_search *s, int64_t at, int64_t bytes)
{
    if (at < 0 || bytes <= 0 || bytes % ENTRY_BYTES != 0 ||
        at > s->scan->file_bytes - bytes)
        return SP_FAIL(SP_EDATA,
                       "%s: its COPC index has a page of %" PRId64
                       " bytes at byte %" PRId64
                       ", expected entries of %d bytes within the file",
                       s->scan->path, bytes, at, ENTRY_BYTES);
    s->n_entries += bytes / ENTRY_BYTES;
    if (s->n_entries > s->scan->file_bytes / ENTRY_BYTES)
        return SP_FAIL(SP_EDATA, "%s: pages of its COPC index lead to each other",
                       s->scan->path);
    if (!sp_list_reserve(&s->page, &s->room,
                         (size_t)(s->n_pages + 1) * sizeof *s->page))
        return SP_FAIL(SP_EMEM, "%s: no memory for its index", s->scan->path);
    s->page[s->n_pages++] = (copc_page){at, bytes};
    return SP_OK;
}

static sp_status copc_read_entry(copc_search *s, const unsigned char *entry)
{
    const int32_t level = (int32_t)sp_get32(entry), n = (int32_t)sp_get32(entry + 28);
    const int32_t key[2] = {(int32_t)sp_get32(entry + 4), (int32_t)sp_get32(entry + 8)};
    const int64_t at = (int64_t)sp_get64(entry + 16);
    int64_t chunk;

    if (level < 0 || level > SP_OCTREE_LEVELS)
        return SP_FAIL(SP_EDATA,
                       "%s: its COPC index has the level %d, expected 0 to %d",
                       s->scan->path, level, SP_OCTREE_LEVELS);
    if (n == 0 || !sp_octree_meets(&s->tree, level, key, s->window))
        return SP_OK;
    if (n == -1)
        return copc_add_page(s, at, (int32_t)sp_get32(entry + 24));
    SP_TRY(sp_copc_find_chunk(s->scan, at, n, &chunk));
    s->is_wanted[chunk] = true;
    return SP_OK;
}

static sp_status copc_read_page(copc_search *s)
{
    const copc_page page = s->page[--s->n_pages];
    SP_FREED unsigned char *bytes = NULL;

    SP_TRY(SP_NEW(&bytes, page.bytes, s->scan->path));
    SP_TRY(sp_scan_pread(s->scan, bytes, (size_t)page.bytes, page.at));
    for (int64_t at = 0; at < page.bytes; at += ENTRY_BYTES)
        SP_TRY(copc_read_entry(s, bytes + at));
    return SP_OK;
}

sp_status sp_copc_info(sp_scan *scan, sp_las_record *vlr, bool *is_copc)
{
    *vlr = (sp_las_record){0};
    SP_TRY(sp_las_next_vlr(scan, vlr));
    *is_copc = !vlr->is_end && sp_las_is_record(vlr, SP_LAS_COPC, INFO_ID) &&
               vlr->bytes >= INFO_BYTES;
    return SP_OK;
}

/* Begins with the root page; *is_copc is false if the scan has none. */
static sp_status copc_begin(copc_search *s, bool *is_copc)
{
    unsigned char info[INFO_BYTES];
    double centre[2], half;
    sp_las_record vlr;

    SP_TRY(sp_copc_info(s->scan, &vlr, is_copc));
    if (!*is_copc)
        return SP_OK;
    SP_TRY(sp_scan_pread(s->scan, info, sizeof info, vlr.at));
    memcpy(centre, info, sizeof centre);
    memcpy(&half, info + 24, sizeof half);
    if (!(isfinite(centre[0]) && isfinite(centre[1]) && isfinite(half) && half >= 0))
        return SP_FAIL(SP_EDATA, "%s: the cube of its COPC index is no cube",
                       s->scan->path);
    s->tree = (sp_octree){{centre[0] - half, centre[1] - half}, {2 * half, 2 * half}};
    return copc_add_page(s, (int64_t)sp_get64(info + 40), (int64_t)sp_get64(info + 48));
}

sp_status sp_copc_find(sp_scan *scan, const double window[4], bool **is_wanted)
{
    copc_search s = {.scan = scan, .window = window};
    SP_FREED bool *found = NULL;
    bool is_copc = false;
    int64_t n_chunks;
    sp_status rc;

    assert(window && is_wanted);
    *is_wanted = NULL;
    if (!sp_laz_chunks(sp_las_of(scan)->reader, &n_chunks))
        return SP_OK;
    SP_TRY(SP_NEW(&found, n_chunks, scan->path));
    s.is_wanted = found;
    rc = copc_begin(&s, &is_copc);
    while (rc == SP_OK && s.n_pages > 0)
        rc = copc_read_page(&s);
    free(s.page);
    if (rc == SP_OK && is_copc) {
        *is_wanted = found;
        found = NULL;
    }
    return rc;
}

sp_status sp_scan_keep_near(sp_scan *scan, const double window[4])
{
    SP_FREED bool *is_wanted = NULL;

    if (scan->format == &sp_scan_ept)
        sp_ept_keep(scan, window);
    if (scan->format != &sp_scan_laz)
        return SP_OK;
    SP_TRY(sp_copc_find(scan, window, &is_wanted));
    if (is_wanted)
        scan->n_points = sp_laz_keep(sp_las_of(scan)->reader, is_wanted);
    sp_las_of(scan)->is_kept = is_wanted;
    return SP_OK;
}

sp_status sp_scan_copy_chunks(sp_scan *scan, const char *path, bool is_copied)
{
    assert(path);
    if (scan->format != &sp_scan_laz || !sp_las_of(scan)->is_kept)
        return SP_OK;
    return sp_laz_copy(sp_las_of(scan)->reader, path, is_copied);
}
