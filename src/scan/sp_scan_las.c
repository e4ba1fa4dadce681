/* LAS 1.0 to 1.5, point data formats 0 to 10 (ASPRS, "LAS specification 1.4 - R15").
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

/* Groups of fields; the point data format determines their places. */
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

static sp_status las_add_fields(sp_scan *scan, const sp_scan_field *from, int at)
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
    SP_TRY(las_add_fields(scan, h->format < 6 ? old_fields : new_fields, 0));
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        SP_TRY(las_add_fields(scan, groups[i].field, groups[i].at[h->format]));
    return SP_OK;
}

/* Sets the number that means "no value": 8 bytes, of the type of the field as it is
 * stored, which means before scale and offset. */
static void las_set_no_data(sp_scan_field *f, const unsigned char *at)
{
    const uint64_t bits = sp_get64(at);
    const int unused = 64 - 8 * f->size;

    if (f->kind == 'f') {
        f->has_no_data = true;
        f->no_data = sp_get_double(at);
        if (f->size == 4)
            f->no_data = (double)(float)f->no_data;
        return;
    }
    f->no_data_bits = bits << unused >> unused;
    f->has_no_data = f->kind == 'i'
                         ? (int64_t)(bits << unused) >> unused == (int64_t)bits
                         : f->no_data_bits == bits;
}

/* Adds one description of extra bytes: 192 bytes, type at 2, options at 3, name at 4,
 * no data at 40, scale at 112, offset at 136. Types above 10 are arrays of two or three
 * elements, which are deprecated but written: each element is a field of its own, with
 * the element's number at its name's end. Bytes of type 0 are skipped. */
static sp_status add_extra(sp_scan *scan, const unsigned char *d, int *at)
{
    const int t = d[2], bytes = sp_las_described(d);
    const int n = t == 0 ? 0 : (t - 1) / 10 + 1;
    char name[40];

    if (t > 30)
        return SP_FAIL(SP_EDATA, "%s: extra bytes of type %d, expected 0 to 30",
                       scan->path, t);
    for (int i = 0; i < n && *at + bytes <= scan->record_bytes; i++) {
        sp_scan_field f = {.at = *at + bytes / n * i,
                           .kind = "uiuiuiuiff"[(t - 1) % 10],
                           .size = bytes / n,
                           .scale = d[3] & 8 ? sp_get_double(d + 112 + 8 * i) : 1,
                           .add = d[3] & 16 ? sp_get_double(d + 136 + 8 * i) : 0};

        if (d[3] & 1)
            las_set_no_data(&f, d + 40 + 8 * i);
        snprintf(name, sizeof name, n > 1 ? "%.32s%d" : "%.32s", (const char *)d + 4,
                 i);
        SP_TRY(sp_scan_add(scan, name, f));
    }
    *at += bytes;
    return SP_OK;
}

void sp_las_user(const unsigned char *head, char user[SP_LAS_USER])
{
    memcpy(user, head + 2, SP_LAS_USER - 1);
    user[SP_LAS_USER - 1] = '\0';
    for (size_t n = strlen(user); n > 0 && user[n - 1] == ' ';)
        user[--n] = '\0';
}

/* Reads the head of the record at byte `at`, which ends before byte `end`. */
static sp_status record_read(sp_scan *scan, sp_las_record *record, int64_t at,
                             int64_t end)
{
    const int head_bytes = record->is_extended ? SP_LAS_EVLR_HEAD : SP_LAS_VLR_HEAD;
    unsigned char head[SP_LAS_EVLR_HEAD];
    uint64_t bytes;

    record->is_end = at > end - head_bytes;
    if (record->is_end)
        return SP_OK;
    SP_TRY(sp_scan_pread(scan, head, (size_t)head_bytes, at));
    sp_las_user(head, record->user);
    record->id = sp_get16(head + 18);
    record->head_at = at;
    record->at = at + head_bytes;
    bytes = record->is_extended ? sp_get64(head + 20) : (uint64_t)sp_get16(head + 20);
    record->bytes =
        bytes < (uint64_t)(end - record->at) ? (int64_t)bytes : end - record->at;
    record->number++;
    return SP_OK;
}

sp_status sp_las_next_vlr(sp_scan *scan, sp_las_record *vlr)
{
    const sp_las_header *h = &sp_las_of(scan)->header;
    int64_t at = vlr->number == 0 ? h->header_bytes : vlr->at + vlr->bytes;

    assert(!vlr->is_extended && vlr->number <= h->n_vlrs);
    vlr->is_end = vlr->number == h->n_vlrs;
    return vlr->is_end ? SP_OK : record_read(scan, vlr, at, h->data_at);
}

sp_status sp_las_next_record(sp_scan *scan, sp_las_record *record)
{
    const sp_las_header *h = &sp_las_of(scan)->header;
    int64_t at = record->at + record->bytes;

    if (!record->is_extended) {
        SP_TRY(sp_las_next_vlr(scan, record));
        if (!record->is_end)
            return SP_OK;
        *record = (sp_las_record){.is_extended = true};
        at = h->evlrs_at;
    }
    record->is_end = record->number == h->n_evlrs;
    return record->is_end ? SP_OK : record_read(scan, record, at, scan->file_bytes);
}

bool sp_las_is_record(const sp_las_record *record, const char *user, int id)
{
    return record->id == id && strcmp(record->user, user) == 0;
}

/* Counts the variable length records that are there, because writers exist that claim
 * more. */
static sp_status scan_las_count_vlrs(sp_scan *scan, sp_las_header *h)
{
    sp_las_record vlr = {0};

    do
        SP_TRY(sp_las_next_vlr(scan, &vlr));
    while (!vlr.is_end);
    h->n_vlrs = vlr.number;
    return SP_OK;
}

/* Reads the records that describe extra bytes. */
static sp_status read_extra(sp_scan *scan, const sp_las_header *h)
{
    int extra_at = sp_las_bytes[h->format];
    unsigned char d[192];
    sp_las_record record = {0};

    for (;;) {
        SP_TRY(sp_las_next_record(scan, &record));
        if (record.is_end)
            return SP_OK;
        if (!sp_las_is_record(&record, "LASF_Spec", 4))
            continue;
        for (int64_t k = 0; k + 192 <= record.bytes && extra_at < h->record_bytes;
             k += 192) {
            SP_TRY(sp_scan_pread(scan, d, sizeof d, record.at + k));
            SP_TRY(add_extra(scan, d, &extra_at));
        }
    }
}

/* LASzip writes points of LAS 1.4 in a compatibility mode, as formats 1, 3, 4 and 5 of
 * older versions: what these have no room for is in extra bytes. Classes above 31 are
 * there, and the class of the record itself is then 0. */
static sp_status find_wide_class(sp_scan *scan)
{
    sp_las *own = sp_las_of(scan);
    sp_las_record record = {0};
    const int i = sp_scan_find(scan, "LAS 1.4 classification");

    if (own->header.format >= 6 || i < 0 || scan->field[i].size != 1)
        return SP_OK;
    do {
        SP_TRY(sp_las_next_record(scan, &record));
        if (record.is_end)
            return SP_OK;
    } while (!sp_las_is_record(&record, "lascompatible", 22204));
    own->wide_class_at = scan->field[i].at;
    scan->field[sp_scan_find(scan, "classification")].wide_at = own->wide_class_at;
    return SP_OK;
}

static sp_status las_read_count(sp_scan *scan, const unsigned char *b, sp_las_header *h)
{
    uint32_t old = sp_get32(b + 107);
    uint64_t n = h->minor >= 4 ? sp_get64(b + 247) : old;

    if (h->minor >= 5) /* the old field is reserved */
        old = 0;
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

/* Extended records that are not within the file are not there. */
static void read_evlrs(const sp_scan *scan, const unsigned char *b, sp_las_header *h)
{
    const uint64_t at = h->minor >= 4 ? sp_get64(b + 235) : 0;

    if (at < (uint64_t)h->header_bytes || at >= (uint64_t)scan->file_bytes)
        return;
    h->evlrs_at = (int64_t)at;
    h->n_evlrs = sp_get32(b + 243);
}

static sp_status las_read_header(sp_scan *scan, sp_las_header *h)
{
    unsigned char b[375] = {0};
    int minimum;

    SP_TRY(sp_scan_pread(scan, b, 227, 0));
    h->minor = b[25];
    if (b[24] != 1 || h->minor > 5)
        return SP_FAIL(SP_EDATA, "%s: LAS version %d.%d, expected 1.0 to 1.5",
                       scan->path, b[24], b[25]);
    /* Writers of 1.3 exist that leave out the place of the wave packets. */
    minimum = h->minor < 4 ? 227 : 375;
    h->header_bytes = sp_get16(b + 94);
    if (h->header_bytes < minimum)
        return SP_FAIL(SP_EDATA, "%s: header of %d bytes, expected at least %d",
                       scan->path, h->header_bytes, minimum);
    SP_TRY(sp_scan_pread(scan, b, (size_t)minimum, 0));
    h->data_at = sp_get32(b + 96);
    h->n_vlrs = sp_get32(b + 100);
    read_evlrs(scan, b, h);
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
    return las_read_count(scan, b, h);
}

static void las_set_extent(sp_scan *scan, const sp_las_header *h)
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
    SP_TRY(las_read_header(scan, h));
    scan->data_at = h->data_at;
    scan->record_bytes = h->record_bytes;
    scan->n_points = h->n_points;
    snprintf(scan->title, sizeof scan->title, "%s 1.%d format %d", scan->format->name,
             h->minor, h->format);
    las_set_extent(scan, h);
    SP_TRY(name_fields(scan, h));
    SP_TRY(scan_las_count_vlrs(scan, h));
    SP_TRY(sp_las_find_unit(scan));
    SP_TRY(read_extra(scan, h));
    return find_wide_class(scan);
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
    .help = "LAS 1.0 to 1.5",
    .is_ours = is_las,
    .own_bytes = sizeof(sp_las),
    .open = open_las,
    .write = sp_las_write,
    .section = sp_las_section,
    .check_added = sp_las_check_added,
    .most_code = sp_las_most_code,
    .written = ".las",
    .written_help = "a copy of the LAS or LAZ scan with other classes; 0: no class"};
