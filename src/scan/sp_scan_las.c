/* LAS 1.2 to 1.4, point data formats 0 to 10 (ASPRS, "LAS specification 1.4 - R15").
 * Fields have the specification's names in lower case; scan_angle is in degrees in
 * every format; extra bytes have the names of their descriptions. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_number.h"
#include "scan/sp_scan_las.h"

const int sp_las_bytes[SP_LAS_FORMATS] = {20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67};

/* The standard fields of a record. */
static const sp_scan_field old_fields[] = {
    {"intensity", 12, 'u', 2, .scale = 1},
    {"return_number", 14, 'u', 1, 0, 3, .scale = 1},
    {"number_of_returns", 14, 'u', 1, 3, 3, .scale = 1},
    {"scan_direction_flag", 14, 'u', 1, 6, 1, .scale = 1},
    {"edge_of_flight_line", 14, 'u', 1, 7, 1, .scale = 1},
    {"classification", 15, 'u', 1, 0, 5, .scale = 1},
    {"synthetic", 15, 'u', 1, 5, 1, .scale = 1},
    {"key_point", 15, 'u', 1, 6, 1, .scale = 1},
    {"withheld", 15, 'u', 1, 7, 1, .scale = 1},
    {"scan_angle", 16, 'i', 1, .scale = 1},
    {"scan_angle_rank", 16, 'i', 1, .scale = 1},
    {"user_data", 17, 'u', 1, .scale = 1},
    {"point_source_id", 18, 'u', 2, .scale = 1},
    {.at = 0}};

static const sp_scan_field new_fields[] = {
    {"intensity", 12, 'u', 2, .scale = 1},
    {"return_number", 14, 'u', 1, 0, 4, .scale = 1},
    {"number_of_returns", 14, 'u', 1, 4, 4, .scale = 1},
    {"synthetic", 15, 'u', 1, 0, 1, .scale = 1},
    {"key_point", 15, 'u', 1, 1, 1, .scale = 1},
    {"withheld", 15, 'u', 1, 2, 1, .scale = 1},
    {"overlap", 15, 'u', 1, 3, 1, .scale = 1},
    {"scanner_channel", 15, 'u', 1, 4, 2, .scale = 1},
    {"scan_direction_flag", 15, 'u', 1, 6, 1, .scale = 1},
    {"edge_of_flight_line", 15, 'u', 1, 7, 1, .scale = 1},
    {"classification", 16, 'u', 1, .scale = 1},
    {"user_data", 17, 'u', 1, .scale = 1},
    {"scan_angle", 18, 'i', 2, .scale = 0.006},
    {"point_source_id", 20, 'u', 2, .scale = 1},
    {"gps_time", 22, 'f', 8, .scale = 1},
    {.at = 0}};

/* Groups of fields whose place depends on the point data format. */
static const sp_scan_field time_field[] = {{"gps_time", 0, 'f', 8, .scale = 1},
                                           {.at = 0}};
static const sp_scan_field rgb_fields[] = {{"red", 0, 'u', 2, .scale = 1},
                                           {"green", 2, 'u', 2, .scale = 1},
                                           {"blue", 4, 'u', 2, .scale = 1},
                                           {.at = 0}};
static const sp_scan_field nir_field[] = {{"nir", 0, 'u', 2, .scale = 1}, {.at = 0}};
static const sp_scan_field wave_fields[] = {
    {"wavepacket_index", 0, 'u', 1, .scale = 1},
    {"wavepacket_offset", 1, 'u', 8, .scale = 1},
    {"wavepacket_size", 9, 'u', 4, .scale = 1},
    {"return_point_wave_location", 13, 'f', 4, .scale = 1},
    {"x_t", 17, 'f', 4, .scale = 1},
    {"y_t", 21, 'f', 4, .scale = 1},
    {"z_t", 25, 'f', 4, .scale = 1},
    {.at = 0}};
static const struct {
    const sp_scan_field *field;
    int at[SP_LAS_FORMATS]; /* by format; -1: the format lacks the group */
} groups[] = {{time_field, {-1, 20, -1, 20, 20, 20, -1, -1, -1, -1, -1}},
              {rgb_fields, {-1, -1, 20, 28, -1, 28, -1, 30, 30, -1, 30}},
              {nir_field, {-1, -1, -1, -1, -1, -1, -1, -1, 36, -1, 36}},
              {wave_fields, {-1, -1, -1, -1, 28, 34, -1, -1, -1, 30, 38}}};

static sp_status add_fields(sp_scan *scan, const sp_scan_field *from, int at)
{
    for (; at >= 0 && *from->name; from++) {
        sp_scan_field f = *from;

        f.at += at;
        SP_TRY(sp_scan_add(scan, f.name, f));
    }
    return SP_OK;
}

static sp_status name_fields(sp_scan *scan, const sp_las_header *h)
{
    static const char *const axis[] = {"x", "y", "z"};

    for (int a = 0; a < 3; a++)
        SP_TRY(sp_scan_add(scan, axis[a],
                           (sp_scan_field){.at = 4 * a,
                                           .kind = 'i',
                                           .size = 4,
                                           .scale = h->scale[a],
                                           .add = h->offset[a]}));
    SP_TRY(add_fields(scan, h->format < 6 ? old_fields : new_fields, 0));
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        SP_TRY(add_fields(scan, groups[i].field, groups[i].at[h->format]));
    return SP_OK;
}

/* Adds one description of extra bytes: 192 bytes, type at 2, options at 3, name at 4,
 * scale at 112, offset at 136. Types above 10 are deprecated arrays; their bytes, and
 * undocumented ones, are skipped without a name. */
static sp_status add_extra(sp_scan *scan, const unsigned char *d, int *at)
{
    const int t = d[2], bytes = sp_las_described(d);
    char name[33];

    if (t > 30)
        return SP_FAIL(SP_EDATA, "%s: extra bytes of type %d, expected 0 to 30",
                       scan->path, t);
    if (1 <= t && t <= 10 && *at + bytes <= scan->record_bytes) {
        snprintf(name, sizeof name, "%.32s", (const char *)d + 4);
        SP_TRY(sp_scan_add(
            scan, name,
            (sp_scan_field){.at = *at,
                            .kind = "uiuiuiuiff"[t - 1],
                            .size = bytes,
                            .scale = d[3] & 8 ? sp_get_double(d + 112) : 1,
                            .add = d[3] & 16 ? sp_get_double(d + 136) : 0}));
    }
    *at += bytes;
    return SP_OK;
}

sp_status sp_las_next_vlr(sp_scan *scan, sp_las_vlr *vlr)
{
    const sp_las_header *h = &sp_las_of(scan)->header;
    unsigned char head[54];
    int64_t at = vlr->number == 0 ? h->header_bytes : vlr->at + vlr->bytes;

    assert(vlr->number <= h->n_vlrs);
    vlr->is_end = vlr->number == h->n_vlrs;
    if (vlr->is_end)
        return SP_OK;
    if (at + 54 > h->data_at)
        return SP_FAIL(SP_EDATA,
                       "%s: %u variable length records, but number %u runs into the "
                       "points at byte %" PRId64,
                       scan->path, h->n_vlrs, vlr->number, h->data_at);
    SP_TRY(sp_scan_pread(scan, head, sizeof head, at));
    memcpy(vlr->user, head + 2, 16);
    vlr->id = sp_get16(head + 18);
    vlr->bytes = sp_get16(head + 20);
    vlr->head_at = at;
    vlr->at = at + 54;
    if (vlr->bytes > h->data_at - vlr->at)
        vlr->bytes = (int)(h->data_at - vlr->at);
    vlr->number++;
    return SP_OK;
}

/* Reads the variable length records that describe extra bytes. */
static sp_status read_extra(sp_scan *scan, const sp_las_header *h)
{
    int extra_at = sp_las_bytes[h->format];
    unsigned char d[192];
    sp_las_vlr vlr = {0};

    for (;;) {
        SP_TRY(sp_las_next_vlr(scan, &vlr));
        if (vlr.is_end)
            return SP_OK;
        if (vlr.id != 4 || strcmp(vlr.user, "LASF_Spec") != 0)
            continue;
        for (int k = 0; k + 192 <= vlr.bytes && extra_at < h->record_bytes; k += 192) {
            SP_TRY(sp_scan_pread(scan, d, sizeof d, vlr.at + k));
            SP_TRY(add_extra(scan, d, &extra_at));
        }
    }
}

static sp_status read_count(sp_scan *scan, const unsigned char *b, sp_las_header *h)
{
    uint32_t old = sp_get32(b + 107);
    uint64_t n = h->minor >= 4 ? sp_get64(b + 247) : old;

    if (n == 0)
        n = old;
    if (n > INT64_MAX || (old != 0 && old != n))
        return SP_FAIL(SP_EDATA,
                       "%s: header counts %u points in its old field and %" PRIu64
                       " in its new one",
                       scan->path, old, n);
    h->n_points = (int64_t)n;
    return SP_OK;
}

static sp_status read_header(sp_scan *scan, sp_las_header *h)
{
    unsigned char b[375] = {0};
    int minimum;

    SP_TRY(sp_scan_pread(scan, b, 227, 0));
    h->minor = b[25];
    if (b[24] != 1 || h->minor > 4)
        return SP_FAIL(SP_EDATA, "%s: LAS version %d.%d, expected 1.0 to 1.4",
                       scan->path, b[24], b[25]);
    minimum = h->minor < 3 ? 227 : h->minor == 3 ? 235 : 375;
    h->header_bytes = sp_get16(b + 94);
    if (h->header_bytes < minimum)
        return SP_FAIL(SP_EDATA, "%s: header of %d bytes, expected at least %d",
                       scan->path, h->header_bytes, minimum);
    SP_TRY(sp_scan_pread(scan, b, (size_t)minimum, 0));
    h->data_at = sp_get32(b + 96);
    h->n_vlrs = sp_get32(b + 100);
    h->format = b[104] & 0x3f; /* the two high bits mark LAZ */
    h->record_bytes = sp_get16(b + 105);
    for (int a = 0; a < 3; a++) {
        h->scale[a] = sp_get_double(b + 131 + 8 * a);
        h->offset[a] = sp_get_double(b + 155 + 8 * a);
        h->high[a] = sp_get_double(b + 179 + 16 * a);
        h->low[a] = sp_get_double(b + 187 + 16 * a);
    }
    if (h->format >= SP_LAS_FORMATS)
        return SP_FAIL(SP_EDATA, "%s: point data format %d, expected 0 to 10",
                       scan->path, h->format);
    if (h->record_bytes < sp_las_bytes[h->format] || h->data_at < h->header_bytes)
        return SP_FAIL(SP_EDATA,
                       "%s: records of %d bytes from byte %" PRId64
                       ", expected at least %d from byte %d",
                       scan->path, h->record_bytes, h->data_at, sp_las_bytes[h->format],
                       h->header_bytes);
    for (int a = 0; a < 3; a++)
        if (!isfinite(h->scale[a]) || h->scale[a] == 0 || !isfinite(h->offset[a]))
            return SP_FAIL(SP_EDATA,
                           "%s: %c has scale %g and offset %g, expected numbers and a "
                           "scale other than 0",
                           scan->path, "xyz"[a], h -> scale[a], h -> offset[a]);
    return read_count(scan, b, h);
}

static void take_extent(sp_scan *scan, const sp_las_header *h)
{
    scan->has_extent = true;
    for (int a = 0; a < 3; a++) {
        scan->low[a] = h->low[a];
        scan->high[a] = h->high[a];
        if (!isfinite(h->low[a]) || !isfinite(h->high[a]) || h->low[a] > h->high[a])
            scan->has_extent = false;
    }
}

sp_status sp_las_open(sp_scan *scan)
{
    sp_las_header *h = &sp_las_of(scan)->header;

    assert(scan->format && scan->fd >= 0);
    SP_TRY(read_header(scan, h));
    scan->data_at = h->data_at;
    scan->record_bytes = h->record_bytes;
    scan->n_points = h->n_points;
    snprintf(scan->title, sizeof scan->title, "%s 1.%d format %d", scan->format->name,
             h->minor, h->format);
    take_extent(scan, h);
    SP_TRY(name_fields(scan, h));
    SP_TRY(sp_las_find_unit(scan));
    return read_extra(scan, h);
}

static sp_status open_las(sp_scan *scan)
{
    SP_TRY(sp_las_open(scan));
    return sp_scan_check_size(scan, scan->n_points, scan->record_bytes, scan->data_at);
}

/* The two high bits of the point data format mark LAZ. */
static bool is_las(const unsigned char *head)
{
    return memcmp(head, "LASF", 4) == 0 && !(head[104] & 0xc0);
}

const sp_scan_format sp_scan_las = {
    .name = "LAS",
    .endings = ".las",
    .help = "LAS 1.0 to 1.4",
    .is_ours = is_las,
    .own_bytes = sizeof(sp_las),
    .open = open_las,
    .write = sp_las_write,
    .section = sp_las_section,
    .check_added = sp_las_check_added,
    .most_code = sp_las_most_code,
    .written = ".las",
    .written_help =
        "a copy of the LAS or LAZ scan with other classes; 0 where there is none"};
