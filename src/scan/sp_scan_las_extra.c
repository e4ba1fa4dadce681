/* Fields that a copy of a LAS or LAZ file has beside the source's: extra bytes at the
 * end of each record, and their descriptions in the VLR "LASF_Spec" 4.
 *
 *     record  | standard part | extra bytes of the source | new fields |
 *     VLR     | descriptions: 192 bytes each              | new ones   |
 *
 * A field that the source has already among its extra bytes gets new values in its
 * place, so that a scan may be labelled again. It keeps its type: of a float the values
 * are the numbers, of an integer their share of its largest number. A description that
 * says otherwise (of a field that another program made) is changed. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
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
    AT_NO_DATA = 40, /* and the places of least, most, scale and offset after it */
    AT_SCALE = 112,
    AT_HELP = 160,
    /* Types and options. */
    UNDOCUMENTED = 0,
    UINT8 = 1,
    FLOAT32 = 9,
    FLOAT64 = 10,
    HAS_SCALE = 8,
    MOST_BYTES = 65535 /* of a record, and of the content of a VLR */
};

static int las_bytes_of(const sp_scan_added *added)
{
    return added->is_float ? 4 : 1;
}

/* The largest integer that is stored, of 32 bits at most. */
static double largest(char kind, int bytes)
{
    return ldexp(1, (bytes > 4 ? 32 : 8 * bytes) - (kind == 'i')) - 1;
}

/* The number that means 1: the largest, of an integer that holds 0 to 1. */
static double one_of(const sp_scan_added *added, char kind, int bytes)
{
    return kind == 'f' || added->is_code ? 1 : largest(kind, bytes);
}

/* Places a value in the scan's field i, if that is one of its extra bytes. */
static sp_status place_again(const sp_scan *scan, int i, const sp_scan_added *added,
                             sp_las_place *place)
{
    const sp_scan_field *f = &scan->field[i];

    if (f->at < sp_las_bytes[sp_las_of(scan)->header.format])
        return SP_FAIL(SP_EDATA,
                       "%s: %s is a field of every such file; nothing else can be "
                       "written into it",
                       scan->path, f->name);
    if (added->is_code && f->kind != 'f' && largest(f->kind, f->size) < UINT8_MAX)
        return SP_FAIL(SP_EDATA,
                       "%s: has a field %s already, of int8, which does not hold the "
                       "codes 0 to 255",
                       scan->path, f->name);
    *place = (sp_las_place){.at = f->at, .kind = f->kind, .size = f->size};
    place->is_changed = f->scale != 1 / one_of(added, f->kind, f->size) ||
                        f->add != 0 || f->has_no_data;
    return SP_OK;
}

sp_status sp_las_check_added(const sp_scan *scan, int n, const sp_scan_added *added)
{
    sp_scan_labels labels = {.n_added = n, .added = added};
    SP_CLOSED_BY(sp_las_extra_free) sp_las_extra extra = {0};

    assert(n >= 0 && (added || n == 0));
    if (!sp_las_is(scan))
        return SP_FAIL(SP_EDATA, "%s: is %s; LAS and LAZ are copies of such files",
                       scan->path, scan->title);
    return sp_las_extra_place(&extra, scan, &labels);
}

sp_status sp_las_extra_place(sp_las_extra *extra, const sp_scan *scan,
                             const sp_scan_labels *labels)
{
    assert(scan->record_bytes > 0 && labels->n_added >= 0);
    *extra = (sp_las_extra){.n = labels->n_added,
                            .added = labels->added,
                            .record_bytes = scan->record_bytes};
    SP_TRY(SP_NEW(&extra->place, extra->n, scan->path));
    for (int k = 0; k < extra->n; k++) {
        const sp_scan_added *added = &extra->added[k];
        const int i = sp_scan_find(scan, added->name), bytes = las_bytes_of(added);

        if (i >= 0) {
            SP_TRY(place_again(scan, i, added, &extra->place[k]));
            extra->n_changed += extra->place[k].is_changed;
            continue;
        }
        extra->place[k] = (sp_las_place){.at = extra->record_bytes,
                                         .kind = added->is_float ? 'f' : 'u',
                                         .size = bytes,
                                         .is_new = true};
        extra->record_bytes += bytes;
        extra->n_new++;
    }
    if (extra->record_bytes > MOST_BYTES)
        return SP_FAIL(SP_EDATA, "%s: no room in its records for %d more fields",
                       scan->path, extra->n_new);
    return SP_OK;
}

void sp_las_extra_free(sp_las_extra *extra)
{
    free(extra->place);
    free(extra->moved);
    *extra = (sp_las_extra){0};
}

/* ---- descriptions ---- */

/* One description covers at most 255 bytes without a description. */
static int n_undocumented(int bytes)
{
    return (bytes + UINT8_MAX - 1) / UINT8_MAX;
}

size_t sp_las_extra_room(const sp_las_extra *extra)
{
    size_t n = (size_t)(extra->n_new + n_undocumented(MOST_BYTES));

    return SP_LAS_VLR_HEAD + n * SP_LAS_EXTRA_BYTES + extra->moved_bytes;
}

int sp_las_described(const unsigned char *d)
{
    static const int size[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    int t = d[AT_TYPE];

    if (t == UNDOCUMENTED)
        return d[AT_OPTIONS];
    return t > 30 ? 0 : size[(t - 1) % 10] * ((t - 1) / 10 + 1);
}

static bool is_extra(const unsigned char *vlr)
{
    char user[SP_LAS_USER];

    sp_las_user(vlr, user);
    return sp_get16(vlr + 18) == SPEC_EXTRA && strcmp(user, "LASF_Spec") == 0;
}

/* Describes the field anew, in steps of its share of 1. */
static void redescribe(const sp_scan_added *added, const sp_las_place *place,
                       unsigned char *d)
{
    memset(d + AT_NO_DATA, 0, AT_HELP - AT_NO_DATA);
    memset(d + AT_HELP, 0, SP_SCAN_ADDED_NAME);
    memcpy(d + AT_HELP, added->help, strlen(added->help));
    d[AT_OPTIONS] = place->kind == 'f' || added->is_code ? 0 : HAS_SCALE;
    if (d[AT_OPTIONS] == HAS_SCALE)
        sp_put_double(d + AT_SCALE, 1 / one_of(added, place->kind, place->size));
}

/* Updates the descriptions of the fields with values of a new meaning. *at is the place
 * in the record of the first one, and becomes that after the last one. */
static void change_descriptions(const sp_las_extra *extra, unsigned char *d, size_t n,
                                int *at)
{
    for (; n >= SP_LAS_EXTRA_BYTES; d += SP_LAS_EXTRA_BYTES, n -= SP_LAS_EXTRA_BYTES) {
        for (int k = 0; k < extra->n; k++)
            if (extra->place[k].is_changed && extra->place[k].at == *at &&
                d[AT_TYPE] >= UINT8 && d[AT_TYPE] <= FLOAT64)
                redescribe(&extra->added[k], &extra->place[k], d);
        *at += sp_las_described(d);
    }
}

/* The VLRs of a head, as far as this file needs them. */
typedef struct vlrs {
    size_t end;      /* after the last one */
    size_t extra_at; /* head of the last one with descriptions; 0: not found */
    int described;   /* the first byte of a record that they do not describe */
} vlrs;

/* Walks over the VLRs of a head, and changes descriptions there. */
static vlrs walk(const sp_las_extra *extra, const sp_las_header *header,
                 unsigned char *head, size_t bytes)
{
    vlrs v = {.end = (size_t)header->header_bytes,
              .described = sp_las_bytes[header->format]};
    uint32_t n = sp_get32(head + AT_N_VLRS);

    for (; n > 0 && v.end + SP_LAS_VLR_HEAD <= bytes; n--) {
        unsigned char *vlr = head + v.end;
        size_t length = (size_t)sp_get16(vlr + AT_VLR_BYTES);
        size_t room = bytes - v.end - SP_LAS_VLR_HEAD;

        length = length < room ? length : room;
        if (is_extra(vlr)) {
            v.extra_at = v.end;
            change_descriptions(extra, vlr + SP_LAS_VLR_HEAD, length, &v.described);
        }
        v.end += SP_LAS_VLR_HEAD + length;
    }
    return v;
}

static void las_describe(const sp_scan_added *added,
                         unsigned char d[SP_LAS_EXTRA_BYTES])
{
    d[AT_TYPE] = added->is_float ? FLOAT32 : UINT8;
    memcpy(d + AT_NAME, added->name, strlen(added->name));
    memcpy(d + AT_HELP, added->help, strlen(added->help));
    if (added->is_float || added->is_code)
        return;
    d[AT_OPTIONS] = HAS_SCALE;
    sp_put_double(d + AT_SCALE, 1.0 / UINT8_MAX);
}

/* Writes the descriptions that the copy needs beside the source's VLRs: of extended
 * records; of bytes without a description, so that the new fields are found after them;
 * and of new fields. */
static size_t describe_all(const sp_las_extra *extra, int described,
                           int old_record_bytes, unsigned char *to)
{
    unsigned char *d = to + extra->moved_bytes;
    int left;

    if (extra->moved_bytes > 0)
        memcpy(to, extra->moved, extra->moved_bytes);
    change_descriptions(extra, to, extra->moved_bytes, &described);
    left = extra->n_new > 0 ? old_record_bytes - described : 0;
    for (; left > 0; left -= d[AT_OPTIONS], d += SP_LAS_EXTRA_BYTES) {
        memset(d, 0, SP_LAS_EXTRA_BYTES);
        d[AT_OPTIONS] = (unsigned char)(left < UINT8_MAX ? left : UINT8_MAX);
    }
    for (int k = 0; k < extra->n; k++) {
        if (!extra->place[k].is_new)
            continue;
        memset(d, 0, SP_LAS_EXTRA_BYTES);
        las_describe(&extra->added[k], d);
        d += SP_LAS_EXTRA_BYTES;
    }
    return (size_t)(d - to);
}

/* Makes room for n bytes after the descriptions of the VLR at v->extra_at, in place of
 * a rest too short for one more; returns their place. */
static unsigned char *insert_there(const vlrs *v, size_t n, unsigned char *head,
                                   size_t *bytes)
{
    unsigned char *vlr = head + v->extra_at;
    const size_t length = (size_t)sp_get16(vlr + AT_VLR_BYTES);
    const size_t whole = length / SP_LAS_EXTRA_BYTES * SP_LAS_EXTRA_BYTES;
    unsigned char *from = vlr + SP_LAS_VLR_HEAD + length,
                  *to = vlr + SP_LAS_VLR_HEAD + whole;

    sp_put16(vlr + AT_VLR_BYTES, whole + n);
    memmove(to + n, from, *bytes - (size_t)(from - head));
    *bytes += n + whole - length;
    return to;
}

/* The same in a new VLR after the others. */
static unsigned char *insert_new(const vlrs *v, size_t n, unsigned char *head,
                                 size_t *bytes)
{
    unsigned char *to = head + v->end;

    memmove(to + SP_LAS_VLR_HEAD + n, to, *bytes - v->end);
    memset(to, 0, SP_LAS_VLR_HEAD);
    memcpy(to + 2, "LASF_Spec", 9);
    sp_put16(to + 18, SPEC_EXTRA);
    sp_put16(to + AT_VLR_BYTES, n);
    memcpy(to + 22, "extra bytes", 11);
    sp_put32(head + AT_N_VLRS, sp_get32(head + AT_N_VLRS) + 1);
    *bytes += SP_LAS_VLR_HEAD + n;
    return to + SP_LAS_VLR_HEAD;
}

/* Inserts descriptions of n bytes. */
static sp_status las_insert(const sp_scan *scan, const vlrs *v,
                            const unsigned char *from, size_t n, unsigned char *head,
                            size_t *bytes)
{
    size_t old = v->extra_at ? sp_get16(head + v->extra_at + AT_VLR_BYTES) : 0;

    if (old + n > MOST_BYTES)
        return SP_FAIL(SP_EDATA, "%s: no room to describe more fields", scan->path);
    memcpy(v->extra_at ? insert_there(v, n, head, bytes)
                       : insert_new(v, n, head, bytes),
           from, n);
    return SP_OK;
}

sp_status sp_las_extra_describe(const sp_las_extra *extra, const sp_scan *scan,
                                unsigned char *head, size_t *bytes)
{
    const sp_las_header *header = &sp_las_of(scan)->header;
    SP_FREED unsigned char *text = NULL;
    size_t n;
    vlrs v;

    assert(extra->place && head && bytes);
    if (extra->n_new == 0 && extra->n_changed == 0)
        return SP_OK;
    v = walk(extra, header, head, *bytes);
    SP_TRY(SP_NEW(&text, sp_las_extra_room(extra), scan->path));
    sp_put16(head + AT_RECORD_BYTES, (uint64_t)extra->record_bytes);
    n = describe_all(extra, v.described, header->record_bytes, text);
    return n > 0 ? las_insert(scan, &v, text, n, head, bytes) : SP_OK;
}

void sp_las_extra_put(const sp_las_extra *extra, const float *value,
                      unsigned char *record)
{
    for (int k = 0; k < extra->n; k++) {
        const sp_las_place *place = &extra->place[k];
        unsigned char *to = record + place->at;
        uint64_t whole;
        uint32_t bits;

        if (place->kind == 'f' && place->size == 8) {
            sp_put_double(to, (double)value[k]);
        } else if (place->kind == 'f') {
            memcpy(&bits, &value[k], sizeof bits);
            sp_put32(to, bits);
        } else {
            whole = (uint64_t)llrint(
                fmin(fmax((double)value[k], 0) *
                         one_of(&extra->added[k], place->kind, place->size),
                     largest(place->kind, place->size)));
            for (int i = 0; i < place->size; i++)
                to[i] = (unsigned char)(whole >> 8 * i);
        }
    }
}
