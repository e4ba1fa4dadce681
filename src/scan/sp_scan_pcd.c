/* PCD 0.5 to 0.7: ascii, binary, and binary_compressed, which is LZF over all fields
 * one after the other, so that the whole file is decompressed at once. A field of no
 * value (COUNT 0) is left out, and one of several values is named NAME_0, NAME_1, ...;
 * packed colours (rgb, rgba) are also available as red, green, blue. A record of ascii
 * has a double or an integer of eight bytes for each number of a line, then a double
 * for each colour of a float. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

enum { MAX_FIELDS = 256, LZF_EXPANSION = 88 /* the most of LZF: 264 bytes from 3 */ };
#define BLANKS " \t\r"
typedef enum pcd_data { PCD_NONE, PCD_ASCII, PCD_BINARY, PCD_COMPRESSED } pcd_data;

/* The header, and for binary_compressed the whole decompressed file. */
typedef struct pcd {
    int n; /* number of fields in the file */
    bool has_sizes, has_types, has_width;
    char name[MAX_FIELDS][SP_SCAN_NAME];
    int size[MAX_FIELDS], count[MAX_FIELDS];
    char type[MAX_FIELDS];
    int numbers;                         /* of a point */
    int n_packed, packed_at[MAX_FIELDS]; /* ascii: bytes of colours that are floats */
    int64_t width, height, points;
    pcd_data data;
    unsigned char *plain; /* the decompressed points, field after field */
} pcd;

/* Expands LZF (M. Lehmann). A control byte below 32 starts a run of that many + 1 plain
 * bytes. Otherwise its high 3 bits are the length - 2 of a copy (7: a byte is added),
 * and its low 5 bits with the next byte are the distance - 1. Returns whether exactly
 * n_out bytes came out. */
static bool lzf_expand(const unsigned char *in, size_t n_in, unsigned char *out,
                       size_t n_out)
{
    size_t i = 0, o = 0;

    while (i < n_in) {
        unsigned control = in[i++];
        size_t length, distance;

        if (control < 32) {
            length = control + 1;
            if (length > n_in - i || length > n_out - o)
                return false;
            memcpy(out + o, in + i, length);
            i += length;
            o += length;
            continue;
        }
        length = control >> 5;
        if (length == 7) {
            if (i == n_in)
                return false;
            length += in[i++];
        }
        if (i == n_in)
            return false;
        distance = ((size_t)(control & 31) << 8 | in[i++]) + 1;
        length += 2;
        if (distance > o || length > n_out - o)
            return false;
        for (; length > 0; length--, o++) /* source and target may overlap */
            out[o] = out[o - distance];
    }
    return o == n_out;
}

/* ---- header ---- */
static sp_status bad_line(const sp_scan *scan, const char *line)
{
    return SP_FAIL(SP_EDATA, "%s: PCD header line \"%.80s\" does not fit", scan->path,
                   line);
}

/* Stores one word of a header line: a name, a type, a size or a count. */
static bool pcd_set_word(pcd *p, int i, const char *word, char key)
{
    char *end;
    long n;

    if (key == 'F') {
        snprintf(p->name[i], SP_SCAN_NAME, "%s", word);
        return true;
    }
    if (key == 'T') {
        p->type[i] = (char)(*word == 'F' ? 'f' : *word == 'U' ? 'u' : 'i');
        return strlen(word) == 1 && strchr("FUI", *word);
    }
    n = strtol(word, &end, 10);
    *(key == 'S' ? &p->size[i] : &p->count[i]) = (int)n;
    return *end == '\0' && n >= 0 && n <= SP_SCAN_FIELDS;
}

/* Stores the words after the keyword, one per field. */
static sp_status pcd_parse_words(sp_scan *scan, pcd *p, const char *line, char key)
{
    int i = 0;
    SP_FREED char *copy = strdup(line);
    char *rest = NULL, *word;
    bool fits = true;

    if (!copy)
        return SP_FAIL(SP_EMEM, "%s: no memory for a line", scan->path);
    strtok_r(copy, BLANKS, &rest);
    for (; fits && (word = strtok_r(NULL, BLANKS, &rest)); i++)
        fits = i < (p->n ? p->n : MAX_FIELDS) && pcd_set_word(p, i, word, key);
    if (!fits || (p->n != 0 && i != p->n))
        return bad_line(scan, line);
    p->n = i;
    return SP_OK;
}

static bool is_keyword(const char *line, const char *word)
{
    const size_t n = strlen(word);

    return strncmp(line, word, n) == 0 && (line[n] == '\0' || strchr(BLANKS, line[n]));
}

/* Parses a header line, from its first word on. Lines with other words than PCD's are
 * passed over, as PCL does. */
static sp_status pcd_parse_line(sp_scan *scan, pcd *p, const char *line)
{
    static const struct {
        const char *word;
        char key;
    } lists[] = {{"FIELDS", 'F'},
                 {"COLUMNS", 'F'},
                 {"SIZE", 'S'},
                 {"TYPE", 'T'},
                 {"COUNT", 'C'}};
    const struct {
        const char *word;
        int64_t *to;
    } numbers[] = {
        {"WIDTH", &p->width}, {"HEIGHT", &p->height}, {"POINTS", &p->points}};
    char data[32];

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (is_keyword(line, lists[i].word)) {
            p->has_sizes = p->has_sizes || lists[i].key == 'S';
            p->has_types = p->has_types || lists[i].key == 'T';
            return pcd_parse_words(scan, p, line, lists[i].key);
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (is_keyword(line, numbers[i].word)) {
            p->has_width = p->has_width || i == 0;
            return sscanf(line, "%*s %" SCNd64, numbers[i].to) == 1
                       ? SP_OK
                       : bad_line(scan, line);
        }
    if (sscanf(line, "DATA %31s", data) == 1) {
        p->data = strcmp(data, "ascii") == 0               ? PCD_ASCII
                  : strcmp(data, "binary") == 0            ? PCD_BINARY
                  : strcmp(data, "binary_compressed") == 0 ? PCD_COMPRESSED
                                                           : PCD_NONE;
        snprintf(scan->title, sizeof scan->title, "PCD %s", data);
        return p->data ? SP_OK : bad_line(scan, line);
    }
    return *line == '#' || *line == '\0' || isalpha((unsigned char)*line)
               ? SP_OK
               : bad_line(scan, line);
}

static sp_status check_fields(const sp_scan *scan, const pcd *p)
{
    int64_t numbers = 0;

    for (int i = 0; i < p->n; i++) {
        int size = p->size[i];

        if ((size != 1 && size != 2 && size != 4 && size != 8) || p->count[i] < 0 ||
            !p->type[i] || (p->type[i] == 'f' && size < 4))
            return SP_FAIL(SP_EDATA,
                           "%s: field %s: TYPE %c SIZE %d COUNT %d is no number",
                           scan->path, p->name[i], p->type[i] ? p->type[i] : '?', size,
                           p->count[i]);
        numbers += p->count[i];
    }
    if (numbers > SP_SCAN_FIELDS)
        return SP_FAIL(SP_EDATA, "%s: %" PRId64 " numbers a point, expected at most %d",
                       scan->path, numbers, SP_SCAN_FIELDS);
    return SP_OK;
}

/* Fills in what headers of PCD 0.5 and 0.6 leave out: all points are one row, and
 * numbers are float32. */
static void complete_header(pcd *p)
{
    if (!p->has_width && p->points >= 0) {
        p->width = p->points;
        p->height = 1;
    }
    for (int i = 0; i < p->n; i++) {
        p->size[i] = p->has_sizes ? p->size[i] : 4;
        p->type[i] = p->has_types ? p->type[i] : 'f';
    }
}

static sp_status check_header(sp_scan *scan, pcd *p)
{
    const int64_t most = UINT32_MAX;
    bool fits;

    complete_header(p);
    fits = p->width >= 0 && p->width <= most && p->height >= 0 &&
           (p->width == 0 || p->height <= most / p->width);

    if (!fits || (p->points >= 0 && p->points != p->width * p->height))
        return SP_FAIL(SP_EDATA,
                       "%s: POINTS %" PRId64 ", expected WIDTH * HEIGHT = %" PRId64
                       " * %" PRId64 " and less than 2^32",
                       scan->path, p->points, p->width, p->height);
    scan->n_points = p->width * p->height;
    return check_fields(scan, p);
}

static sp_status pcd_read_header(sp_scan *scan, pcd *p)
{
    p->points = -1;
    p->height = 1;
    for (int i = 0; i < MAX_FIELDS; i++)
        p->count[i] = 1;
    while (p->data == PCD_NONE) {
        bool got;

        SP_TRY(sp_scan_lines_next(scan, &got));
        if (!got || ftello(scan->lines.stream) > 1 << 20)
            return SP_FAIL(SP_EDATA, "%s: PCD header without DATA", scan->path);
        SP_TRY(pcd_parse_line(scan, p,
                              scan->lines.line + strspn(scan->lines.line, BLANKS)));
    }
    scan->data_at = ftello(scan->lines.stream);
    sp_scan_lines_begin(scan);
    return check_header(scan, p);
}

static const char *const colour[] = {"blue", "green", "red"};

/* Adds the colours that an integer, or any number of four bytes in a binary file, packs
 * as 0xAARRGGBB. */
static sp_status add_colours(sp_scan *scan, int at)
{
    for (int i = 0; i < 3; i++)
        SP_TRY(sp_scan_add(scan, colour[i],
                           (sp_scan_field){.at = at,
                                           .kind = 'u',
                                           .size = 4,
                                           .shift = 8 * i,
                                           .bits = 8,
                                           .scale = 1}));
    return SP_OK;
}

/* The same for floats of ascii, which fill_ascii unpacks. Copies of a scan keep colours
 * that a float has only as NaN, so they are floats there. */
static sp_status add_float_colours(sp_scan *scan, const pcd *p)
{
    for (int k = 0; k < 3 * p->n_packed; k++, scan->record_bytes += 8)
        SP_TRY(sp_scan_add(scan, colour[k % 3],
                           (sp_scan_field){.at = scan->record_bytes,
                                           .kind = 'f',
                                           .size = 8,
                                           .scale = 1,
                                           .copy_kind = 'f',
                                           .copy_size = 4}));
    return SP_OK;
}

static sp_status pcd_add_fields(sp_scan *scan, pcd *p)
{
    const bool is_ascii = p->data == PCD_ASCII;
    int at = 0;

    for (int i = 0; i < p->n; i++) {
        sp_scan_field f = {.kind = p->type[i],
                           .size = is_ascii ? 8 : p->size[i],
                           .scale = 1,
                           .copy_kind = p->type[i],
                           .copy_size = p->size[i]};
        char name[SP_SCAN_NAME + 16];

        if (strncmp(p->name[i], "rgb", 3) == 0 && p->size[i] == 4 && p->count[i] > 0) {
            if (is_ascii && p->type[i] == 'f')
                p->packed_at[p->n_packed++] = at;
            else
                SP_TRY(add_colours(scan, at));
        }
        for (int k = 0; k < p->count[i]; k++, at += f.size) {
            snprintf(name, sizeof name, p->count[i] > 1 ? "%s_%d" : "%s", p->name[i],
                     k);
            f.at = at;
            SP_TRY(sp_scan_add(scan, strcmp(p->name[i], "_") == 0 ? "" : name, f));
        }
    }
    scan->record_bytes = at;
    p->numbers = at / 8;
    return add_float_colours(scan, p);
}

/* ---- data ---- */
static sp_status expand(sp_scan *scan, pcd *p)
{
    SP_FREED unsigned char *packed = NULL;
    unsigned char head[8];
    size_t n_in, n_out;

    SP_TRY(sp_scan_pread(scan, head, sizeof head, scan->data_at));
    n_in = sp_get32(head);
    n_out = sp_get32(head + 4);
    if ((int64_t)n_in > scan->file_bytes - scan->data_at - 8 ||
        n_out / LZF_EXPANSION > n_in ||
        (int64_t)n_out != scan->n_points * scan->record_bytes)
        return SP_FAIL(SP_EDATA,
                       "%s: %zu bytes that become %zu; the file has %" PRId64
                       " bytes, the points take %" PRId64,
                       scan->path, n_in, n_out, scan->file_bytes,
                       scan->n_points * scan->record_bytes);
    SP_TRY(SP_NEW(&packed, n_in, scan->path));
    SP_TRY(SP_NEW(&p->plain, n_out, scan->path));
    SP_TRY(sp_scan_pread(scan, packed, n_in, scan->data_at + 8));
    return lzf_expand(packed, n_in, p->plain, n_out)
               ? SP_OK
               : SP_FAIL(SP_EDATA, "%s: damaged: does not decompress to %zu bytes",
                         scan->path, n_out);
}

/* Transposes n points from field after field to point after point. */
static void pcd_gather(const sp_scan *scan, const pcd *p, int64_t n, unsigned char *to)
{
    const unsigned char *from = p->plain;
    int at = 0;

    for (int i = 0; i < p->n; i++) {
        int bytes = p->size[i] * p->count[i];

        for (int64_t k = 0; k < n; k++)
            memcpy(to + k * scan->record_bytes + at, from + (scan->row + k) * bytes,
                   (size_t)bytes);
        from += scan->n_points * bytes;
        at += bytes;
    }
}

/* Unpacks the colours of the float that has their bits: so PCL wrote them before they
 * were integers. A NaN, as an opaque colour gives, has lost them: NaN. */
static void unpack(const unsigned char *number, unsigned char *to)
{
    const double x = sp_get_double(number);
    uint32_t bits;

    memcpy(&bits, &(float){(float)x}, sizeof bits);
    for (int i = 0; i < 3; i++)
        sp_put_double(to + 8 * i, isnan(x) ? (double)NAN : bits >> 8 * i & 255);
}

/* Refuses the text `at`, which is not the number `found` of its line, of field i. */
static sp_status bad_number(const sp_scan *scan, const pcd *p, int i, const char *at,
                            int found)
{
    const int n = (int)strcspn(at, BLANKS);
    unsigned char unused[8];

    if (sp_scan_number(at, 'f', 8, unused) == at + n)
        return SP_FAIL(
            SP_EDATA, "%s: line %" PRId64 ": %s %.*s, expected an integer of %d byte%s",
            scan->path, scan->lines.number, p->name[i], n, at, p->size[i],
            sp_plural(p->size[i]));
    return SP_FAIL(SP_EDATA, "%s: line %" PRId64 ": %d numbers, expected %d",
                   scan->path, scan->lines.number, found, p->numbers);
}

static sp_status pcd_read_numbers(const sp_scan *scan, const pcd *p, unsigned char *to)
{
    const char *at = scan->lines.line + strspn(scan->lines.line, BLANKS);
    int found = 0;

    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->count[i]; k++, found++, to += 8) {
            const char *end = sp_scan_number(at, p->type[i], p->size[i], to);

            if (end != at + strcspn(at, BLANKS))
                return bad_number(scan, p, i, at, found);
            at = end + strspn(end, BLANKS);
        }
    return *at == '\0' ? SP_OK
                       : SP_FAIL(SP_EDATA, "%s: line %" PRId64 ": more than %d numbers",
                                 scan->path, scan->lines.number, p->numbers);
}

static sp_status fill_ascii(sp_scan *scan, pcd *p, int64_t n, unsigned char *to)
{
    for (int64_t i = 0; i < n; i++, to += scan->record_bytes) {
        bool got;

        do {
            SP_TRY(sp_scan_lines_next(scan, &got));
            if (!got)
                return SP_FAIL(SP_EDATA,
                               "%s: truncated: ends in point %" PRId64 " of %" PRId64,
                               scan->path, scan->row + i, scan->n_points);
        } while (scan->lines.line[strspn(scan->lines.line, BLANKS)] == '\0');
        SP_TRY(pcd_read_numbers(scan, p, to));
        for (int k = 0; k < p->n_packed; k++)
            unpack(to + p->packed_at[k], to + 8 * (p->numbers + 3 * k));
    }
    return SP_OK;
}

static sp_status fill_pcd(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    pcd *p = scan->own;

    (void)n;
    if (p->data == PCD_BINARY)
        return sp_scan_pread(scan, to, (size_t)(max * scan->record_bytes),
                             scan->data_at + scan->row * scan->record_bytes);
    if (p->data == PCD_ASCII)
        return fill_ascii(scan, p, max, to);
    pcd_gather(scan, p, max, to);
    return SP_OK;
}

static sp_status open_pcd(sp_scan *scan)
{
    pcd *p = scan->own;

    SP_TRY(sp_scan_lines_open(scan));
    SP_TRY(pcd_read_header(scan, p));
    SP_TRY(pcd_add_fields(scan, p));
    if (p->data == PCD_COMPRESSED)
        return expand(scan, p);
    /* An ascii number needs at least a digit and a blank; the last one needs no blank.
     */
    return p->data == PCD_BINARY
               ? sp_scan_check_size(scan, scan->n_points, scan->record_bytes,
                                    scan->data_at)
               : sp_scan_check_size(scan, scan->n_points, 2 * p->numbers,
                                    scan->data_at - 1);
}

static sp_status limit_pcd(sp_scan *scan, int64_t *first, int64_t *end, bool *is_able)
{
    const pcd *p = scan->own;

    (void)first;
    (void)end;
    *is_able = p->data != PCD_ASCII;
    return SP_OK;
}

static void close_pcd(sp_scan *scan)
{
    pcd *p = scan->own;

    free(p->plain);
}

const sp_scan_format sp_scan_pcd = {.name = "PCD",
                                    .endings = ".pcd",
                                    .help = "PCD 0.5 to 0.7",
                                    .own_bytes = sizeof(pcd),
                                    .open = open_pcd,
                                    .fill = fill_pcd,
                                    .rewind = sp_scan_lines_rewind,
                                    .limit = limit_pcd,
                                    .close = close_pcd};
