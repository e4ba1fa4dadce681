/* Fields that a copy of a LAS or LAZ file has beside those of the source: extra bytes
 * at the end of each record, and their descriptions in the VLR "LASF_Spec" 4.
 *
 *     record  | standard part | extra bytes of the source | new fields |
 *     VLR     | descriptions: 192 bytes each              | new ones   |
 *
 * A field that the source has already, of the same type, gets new values in its place,
 * so that a scan may be labelled again. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_number.h"
#include "scan/sp_scan_las.h"

enum {
    SPEC_EXTRA = 4, /* record ID */
    AT_N_VLRS = 100,
    AT_RECORD_BYTES = 105,
    AT_VLR_BYTES = 20,
    /* Places in a description. */
    AT_TYPE = 2,
    AT_OPTIONS = 3,
    AT_NAME = 4,
    AT_SCALE = 112,
    AT_HELP = 160,
    /* Types and options. */
    UNDOCUMENTED = 0,
    UINT8 = 1,
    FLOAT32 = 9,
    HAS_SCALE = 8,
    MOST_BYTES = 65535 /* of a record, and of the content of a VLR */
};

static int bytes_of(const sp_scan_added *added)
{
    return added->is_float ? 4 : 1;
}

static double scale_of(const sp_scan_added *added)
{
    return added->is_float || added->is_code ? 1 : 1.0 / UINT8_MAX;
}

/* Is the scan's field of this name one of the extra bytes, and of the same type? */
static sp_status check_field(const sp_scan *scan, const sp_scan_added *added, int i)
{
    const sp_scan_field *f = &scan->field[i];
    const char kind = added->is_float ? 'f' : 'u';

    if (f->at >= sp_las_bytes[sp_las_of(scan)->header.format] && f->kind == kind &&
        f->size == bytes_of(added) && f->scale == scale_of(added) && f->add == 0)
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s: has a field %s already, which is not %s", scan->path,
                   f->name,
                   added->is_code    ? "uint8"
                   : added->is_float ? "float32 from 0 to 1"
                                     : "uint8 from 0 to 1");
}

sp_status sp_las_check_added(const sp_scan *scan, int n, const sp_scan_added *added)
{
    sp_scan_labels labels = {.n_added = n, .added = added};
    sp_las_extra extra = {0};
    sp_status rc;

    assert(n >= 0 && (added || n == 0));
    if (scan->format != &sp_scan_las && scan->format != &sp_scan_laz)
        return SP_FAIL(SP_EDATA, "%s: is %s; LAS and LAZ are copies of such files",
                       scan->path, scan->title);
    rc = sp_las_extra_place(&extra, scan, &labels);
    sp_las_extra_free(&extra);
    return rc;
}

sp_status sp_las_extra_place(sp_las_extra *extra, const sp_scan *scan,
                             const sp_scan_labels *labels)
{
    assert(scan->record_bytes > 0 && labels->n_added >= 0);
    *extra = (sp_las_extra){.n = labels->n_added,
                            .added = labels->added,
                            .record_bytes = scan->record_bytes};
    extra->at = calloc((size_t)extra->n + 1, sizeof *extra->at);
    if (!extra->at)
        return SP_FAIL(SP_EMEM, "%s: no memory for its fields", scan->path);
    for (int k = 0; k < extra->n; k++) {
        int i = sp_scan_find(scan, extra->added[k].name);

        if (i >= 0) {
            SP_TRY(check_field(scan, &extra->added[k], i));
            extra->at[k] = scan->field[i].at;
            continue;
        }
        extra->at[k] = extra->record_bytes;
        extra->record_bytes += bytes_of(&extra->added[k]);
        extra->n_new++;
    }
    if (extra->record_bytes > MOST_BYTES)
        return SP_FAIL(SP_EDATA, "%s: no room in its records for %d more fields",
                       scan->path, extra->n_new);
    return SP_OK;
}

void sp_las_extra_free(sp_las_extra *extra)
{
    free(extra->at);
    *extra = (sp_las_extra){0};
}

/* ---- descriptions ---- */

/* One description stands for at most 255 bytes that nobody has described. */
static int n_undocumented(int bytes)
{
    return (bytes + UINT8_MAX - 1) / UINT8_MAX;
}

size_t sp_las_extra_room(const sp_las_extra *extra)
{
    size_t n = (size_t)(extra->n_new + n_undocumented(MOST_BYTES));

    return extra->n_new ? SP_LAS_VLR_HEAD + n * SP_LAS_EXTRA_BYTES : 0;
}

int sp_las_described(const unsigned char *d)
{
    static const int size[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    int t = d[AT_TYPE];

    if (t == UNDOCUMENTED)
        return d[AT_OPTIONS];
    return t > 30 ? 0 : size[(t - 1) % 10] * ((t - 1) / 10 + 1);
}

/* The VLRs of a head, as far as this file needs them. */
typedef struct vlrs {
    size_t end;      /* behind the last one */
    size_t extra_at; /* head of the last one with descriptions; 0: there is none */
    int bytes;       /* of extra bytes that are described */
} vlrs;

static vlrs walk(const sp_las_header *header, const unsigned char *head, size_t bytes)
{
    vlrs v = {.end = (size_t)header->header_bytes};
    uint32_t n = sp_get32(head + AT_N_VLRS);

    for (; n > 0 && v.end + SP_LAS_VLR_HEAD <= bytes; n--) {
        const unsigned char *vlr = head + v.end, *content = vlr + SP_LAS_VLR_HEAD;
        size_t length = (size_t)sp_get16(vlr + AT_VLR_BYTES);
        size_t room = bytes - v.end - SP_LAS_VLR_HEAD;

        length = length < room ? length : room;
        if (sp_get16(vlr + 18) == SPEC_EXTRA &&
            strncmp((const char *)vlr + 2, "LASF_Spec", 16) == 0) {
            v.extra_at = v.end;
            for (size_t k = 0; k + SP_LAS_EXTRA_BYTES <= length;
                 k += SP_LAS_EXTRA_BYTES)
                v.bytes += sp_las_described(content + k);
        }
        v.end += SP_LAS_VLR_HEAD + length;
    }
    return v;
}

static void describe(const sp_scan_added *added, unsigned char d[SP_LAS_EXTRA_BYTES])
{
    d[AT_TYPE] = added->is_float ? FLOAT32 : UINT8;
    memcpy(d + AT_NAME, added->name, strlen(added->name));
    memcpy(d + AT_HELP, added->help, strlen(added->help));
    if (added->is_float || added->is_code)
        return;
    d[AT_OPTIONS] = HAS_SCALE;
    sp_put_double(d + AT_SCALE, scale_of(added));
}

/* Writes the descriptions that the copy needs beside those of the source: of bytes that
 * nobody has described, so that the new ones are found behind them, and of new fields.
 */
static size_t describe_all(const sp_las_extra *extra, int undocumented,
                           int old_record_bytes, unsigned char *to)
{
    unsigned char *d = to;

    for (; undocumented > 0; undocumented -= d[AT_OPTIONS], d += SP_LAS_EXTRA_BYTES) {
        memset(d, 0, SP_LAS_EXTRA_BYTES);
        d[AT_OPTIONS] =
            (unsigned char)(undocumented < UINT8_MAX ? undocumented : UINT8_MAX);
    }
    for (int k = 0; k < extra->n; k++) {
        if (extra->at[k] < old_record_bytes)
            continue;
        memset(d, 0, SP_LAS_EXTRA_BYTES);
        describe(&extra->added[k], d);
        d += SP_LAS_EXTRA_BYTES;
    }
    return (size_t)(d - to);
}

/* Appends n bytes to the VLR at v->extra_at, or makes a new one of them behind the
 * others. */
static sp_status insert(const sp_scan *scan, const vlrs *v, const unsigned char *from,
                        size_t n, unsigned char *head, size_t *bytes)
{
    unsigned char *vlr = head + v->extra_at, *to = head + v->end;
    size_t length = v->extra_at ? (size_t)sp_get16(vlr + AT_VLR_BYTES) : 0;

    if (length + n > MOST_BYTES)
        return SP_FAIL(SP_EDATA, "%s: no room to describe more fields", scan->path);
    if (v->extra_at) {
        to = vlr + SP_LAS_VLR_HEAD + length;
        sp_put16(vlr + AT_VLR_BYTES, length + n);
        memmove(to + n, to, *bytes - (size_t)(to - head));
    } else {
        memmove(to + SP_LAS_VLR_HEAD + n, to, *bytes - v->end);
        memset(to, 0, SP_LAS_VLR_HEAD);
        memcpy(to + 2, "LASF_Spec", 9);
        sp_put16(to + 18, SPEC_EXTRA);
        sp_put16(to + AT_VLR_BYTES, n);
        memcpy(to + 22, "extra bytes", 11);
        to += SP_LAS_VLR_HEAD;
        sp_put32(head + AT_N_VLRS, sp_get32(head + AT_N_VLRS) + 1);
        *bytes += SP_LAS_VLR_HEAD;
    }
    memcpy(to, from, n);
    *bytes += n;
    return SP_OK;
}

sp_status sp_las_extra_describe(const sp_las_extra *extra, const sp_scan *scan,
                                unsigned char *head, size_t *bytes)
{
    const sp_las_header *header = &sp_las_of(scan)->header;
    int undocumented = header->record_bytes - sp_las_bytes[header->format];
    unsigned char *text;
    sp_status rc;
    vlrs v;

    assert(extra->at && head && bytes);
    if (extra->n_new == 0)
        return SP_OK;
    v = walk(header, head, *bytes);
    undocumented = undocumented > v.bytes ? undocumented - v.bytes : 0;
    text = malloc(sp_las_extra_room(extra));
    if (!text)
        return SP_FAIL(SP_EMEM, "%s: no memory for its header", scan->path);
    sp_put16(head + AT_RECORD_BYTES, (uint64_t)extra->record_bytes);
    rc = insert(scan, &v, text,
                describe_all(extra, undocumented, header->record_bytes, text), head,
                bytes);
    free(text);
    return rc;
}

void sp_las_extra_put(const sp_las_extra *extra, const float *value,
                      unsigned char *record)
{
    for (int k = 0; k < extra->n; k++) {
        uint32_t bits;

        memcpy(&bits, &value[k], sizeof bits);
        if (extra->added[k].is_float)
            sp_put32(record + extra->at[k], bits);
        else
            record[extra->at[k]] = (unsigned char)lrint(
                fmin(fmax((double)value[k] / scale_of(&extra->added[k]), 0), UINT8_MAX));
    }
}
