/* Scans: opening, names of fields, limits. */
#include "scan/sp_scan.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

/* Usual names of the label, in the order they are tried. */
static const char *const label_names[] = {
    "label",    "classification", "class",    "labels",
    "semantic", "sem_class",      "category", "code"};

/* ---- bytes ---- */
void sp_scan_put(FILE *to, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(bits >> 8 * i & 255), to);
}

sp_status sp_scan_pread(sp_scan *scan, void *to, size_t bytes, int64_t at)
{
    assert(scan->fd >= 0);
    if (bytes > 0 && at > scan->file_bytes - (int64_t)bytes)
        return SP_FAIL(SP_EDATA,
                       "%s: file ends at byte %" PRId64
                       ", expected %zu bytes at %" PRId64,
                       scan->path, sp_most(scan->file_bytes, at), bytes, at);
    return sp_file_read_at(scan->fd, scan->path, to, bytes, at);
}

sp_status sp_scan_check_size(const sp_scan *scan, int64_t count, int64_t least,
                             int64_t at)
{
    int64_t room = scan->file_bytes - at;

    assert(at >= 0 && least >= 0);
    if (room < 0 || count < 0 || (least > 0 && count > room / least))
        return SP_FAIL(SP_EDATA,
                       "%s: truncated: %" PRId64 " points of %" PRId64
                       " bytes or more from byte %" PRId64 ", but the file has %" PRId64
                       " bytes",
                       scan->path, count, least, at, scan->file_bytes);
    return SP_OK;
}

/* ---- fields ---- */
static const char *scan_plain(const char *name)
{
    return strncasecmp(name, "scalar_", 7) == 0 ? name + 7 : name;
}

int sp_scan_find(const sp_scan *scan, const char *name)
{
    assert(scan && name);
    for (int i = 0; i < scan->n_fields; i++)
        if (strcasecmp(scan_plain(scan->field[i].name), scan_plain(name)) == 0)
            return i;
    return -1;
}

void sp_scan_keep_note(sp_scan *scan, sp_scan_note_kind kind, const char *format, ...)
{
    char text[2 * PATH_MAX];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    free(scan->note[kind]);
    scan->note[kind] = strdup(text);
}

const char *sp_scan_note(const sp_scan *scan, sp_scan_note_kind kind)
{
    return scan->note[kind];
}

sp_status sp_scan_add(sp_scan *scan, const char *name, sp_scan_field field)
{
    assert(name && field.at >= 0 && field.size >= 1 && field.size <= 8);
    assert(strchr("iuf", field.kind));
    if (!sp_list_grow(&scan->field, scan->n_fields, sizeof field))
        return SP_FAIL(SP_EMEM, "%s: no memory for %d fields", scan->path,
                       scan->n_fields + 1);
    scan->field[scan->n_fields] = field;
    snprintf(scan->field[scan->n_fields++].name, SP_SCAN_NAME, "%s", name);
    return SP_OK;
}

/* The first field of the same name as field i, or i. */
static int scan_first_of_name(const sp_scan *scan, int i)
{
    const int first =
        scan->field[i].name[0] ? sp_scan_find(scan, scan->field[i].name) : i;

    return first < 0 ? i : first;
}

/* Refuses a name that --columns gives to two columns. */
static sp_status scan_expect_distinct(const sp_scan *scan)
{
    for (int i = 0; scan->options.columns && i < scan->n_fields; i++)
        if (scan_first_of_name(scan, i) != i)
            return SP_FAIL(SP_EUSAGE,
                           "%s: --columns %s: two columns are named %s (- for one to "
                           "pass over)",
                           scan->path, scan->options.columns, scan->field[i].name);
    return SP_OK;
}

sp_status sp_scan_name_columns(sp_scan *scan)
{
    const char *columns = scan->options.columns, *at = columns ? columns : "x,y,z";
    int i = 0;

    if (!columns && scan->n_fields != 3)
        return SP_FAIL(SP_EUSAGE,
                       "%s: %d columns; say what they are: --columns x,y,z,... (- for "
                       "one to pass over)",
                       scan->path, scan->n_fields);
    for (;; i++) {
        const char *end = at + strcspn(at, ",");
        size_t n;

        at += strspn(at, " ");
        for (n = (size_t)(end - at); n > 0 && at[n - 1] == ' ';)
            n--;
        if (i >= scan->n_fields)
            return SP_FAIL(SP_EUSAGE,
                           "%s: has %d columns, --columns %s names more; say what "
                           "this file's are: --columns x,y,z,... (- for one to leave "
                           "out)",
                           scan->path, scan->n_fields, columns);
        snprintf(scan->field[i].name, SP_SCAN_NAME, "%.*s",
                 (int)(n == 1 && (*at == '-' || *at == '_') ? 0 : n), at);
        if (*end == '\0')
            break;
        at = end + 1;
    }
    while (++i < scan->n_fields)
        scan->field[i].name[0] = '\0';
    return SP_OK;
}

/* Lists the names of all fields, for messages. */
static const char *list_fields(const sp_scan *scan, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < scan->n_fields && used < bytes; i++)
        if (scan->field[i].name[0])
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " " : "",
                                     scan->field[i].name);
    return text;
}

/* Refuses coordinates that a file has under one name twice. */
static sp_status scan_expect_one_axis(const sp_scan *scan, int a)
{
    const char *name = scan->field[scan->axis[a]].name;

    for (int i = 0; i < scan->n_fields; i++)
        if (i != scan->axis[a] && strcmp(scan->field[i].name, name) == 0)
            return SP_FAIL(SP_EUSAGE,
                           "%s: has two columns %s; of text, --columns x,y,z,... says "
                           "what each is (- for one to pass over)",
                           scan->path, name);
    return SP_OK;
}

/* Finds x, y and z. A missing one is an error of --columns if that is given, else of
 * the file. */
static sp_status find_axes(sp_scan *scan)
{
    SP_FREED const char **names = NULL;
    char text[512];

    SP_TRY(SP_NEW(&names, scan->n_fields, scan->path));
    for (int i = 0; i < scan->n_fields; i++)
        names[i] = scan->field[i].name;
    for (int a = 0; a < 3; a++) {
        scan->axis[a] = sp_scan_find_axis(a, scan->n_fields, names);
        if (scan->axis[a] < 0)
            return SP_FAIL(scan->options.columns ? SP_EUSAGE : SP_EDATA,
                           "%s: no coordinate %c; there are: %s", scan->path, 'x' + a,
                           list_fields(scan, text, sizeof text));
    }
    SP_TRY(scan_expect_distinct(scan));
    for (int a = 0; a < 3; a++)
        SP_TRY(scan_expect_one_axis(scan, a));
    return sp_scan_find_unit(scan);
}

/* Remarks that another attribute than the one that is taken may be the label. */
static void note_label(sp_scan *scan, const char *taken, const char *other)
{
    sp_scan_keep_note(scan, SP_SCAN_NOTE_LABEL,
                      "%s has %s and %s: %s is taken as the label, because it comes "
                      "first among label, classification, class, labels, semantic, "
                      "sem_class, category and code; --label-field %s takes the other",
                      scan->path, taken, other, taken, other);
}

static sp_status find_label(sp_scan *scan)
{
    const char *wanted = scan->options.label_field;
    char text[512];

    scan->label = -1;
    if (wanted) {
        scan->label = sp_scan_find(scan, wanted);
        if (scan->label < 0)
            return SP_FAIL(SP_EUSAGE,
                           "%s: no attribute %s for the label; there are: %s",
                           scan->path, wanted, list_fields(scan, text, sizeof text));
        return SP_OK;
    }
    for (size_t i = 0; i < sizeof label_names / sizeof *label_names; i++) {
        const int found = sp_scan_find(scan, label_names[i]);

        if (scan->label >= 0 && found >= 0 && !scan->note[SP_SCAN_NOTE_LABEL])
            note_label(scan, scan->field[scan->label].name, scan->field[found].name);
        scan->label = scan->label < 0 ? found : scan->label;
    }
    return SP_OK;
}

/* ---- units ---- */

static const char *const unit_name[] = {"metre", "foot", "US survey foot"};
static const double unit_metres[] = {1, 0.3048, 1200.0 / 3937};
static const char *const z_word[] = {"records", "same", "metre", "foot", "us-foot"};
enum {
    N_UNITS = sizeof unit_name / sizeof *unit_name,
    N_WORDS = sizeof z_word / sizeof *z_word
};

const char *sp_scan_z_word(sp_scan_z_unit unit)
{
    assert((int)unit < N_WORDS);
    return z_word[unit];
}

int sp_scan_find_z_word(const char *word)
{
    for (int i = 0; i < N_WORDS; i++)
        if (strcmp(z_word[i], word) == 0)
            return i;
    return -1;
}

/* The number of a unit of length; -1 if it is not one of those above. */
static int find_unit(const char *name)
{
    for (int i = 0; i < N_UNITS; i++)
        if (strcmp(unit_name[i], name) == 0)
            return i;
    return -1;
}

const char *sp_scan_unit(const sp_scan *scan)
{
    return scan->unit;
}

bool sp_scan_is_geocentric(const sp_scan *scan)
{
    return scan->is_geocentric;
}

/* Brings z to the unit of x and y, as the options say. */
static sp_status convert_z(sp_scan *scan)
{
    const int from = (int)scan->options.z_unit - (int)SP_SCAN_Z_METRE;
    const int to = find_unit(scan->unit ? scan->unit : "metre");
    sp_scan_field *z = &scan->field[scan->axis[2]];
    double factor;

    if (from < 0 || from == to)
        return SP_OK;
    if (to < 0)
        return SP_FAIL(SP_EUSAGE,
                       "%s: x and y are in %s, and no height is converted to it; leave "
                       "--z-unit out",
                       scan->path, scan->unit);
    factor = unit_metres[from] / unit_metres[to];
    z->scale *= factor;
    z->add *= factor;
    scan->low[2] *= factor;
    scan->high[2] *= factor;
    return SP_OK;
}

sp_status sp_scan_check_units(const sp_scan *scan, bool with_degrees)
{
    const char *unit = scan->unit, *z = scan->z_unit;
    const bool is_degree = unit && strcmp(unit, "degree") == 0;
    const int number = z ? find_unit(z) : -1;

    if (is_degree && !with_degrees)
        return SP_FAIL(SP_EDATA,
                       "%s: its records say that x and y are in degree, expected a "
                       "length, as voxels have: project the scan first, "
                       "or take it as it is by --degrees",
                       scan->path);
    if (unit && !is_degree && find_unit(unit) < 0)
        return SP_FAIL(SP_EDATA,
                       "%s: its records say that x and y are in units %s, expected "
                       "metre, foot or US survey foot: convert the scan to metres "
                       "first",
                       scan->path, unit);
    if (!unit || !z || is_degree || strcmp(unit, z) == 0 ||
        scan->options.z_unit != SP_SCAN_Z_OF_RECORDS)
        return SP_OK;
    if (number < 0)
        return SP_FAIL(SP_EDATA,
                       "%s: its records say that z is in units %s, but x and y in %s: "
                       "convert the scan first, or take z as it is by --z-unit same",
                       scan->path, z, unit);
    return SP_FAIL(
        SP_EDATA,
        "%s: its records say that z is in %s, but x and y in %s: --z-unit %s "
        "converts z, --z-unit same takes it as it is",
        scan->path, z, unit, z_word[(int)SP_SCAN_Z_METRE + number]);
}

/* ---- open and close ---- */
sp_status sp_scan_open_regular(sp_scan *scan)
{
    const int fd = open(scan->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st = {0};

    scan->fd = -1;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return SP_OK;
    if (fd < 0 && errno != ENXIO) /* ENXIO: a socket */
        return SP_FAIL(SP_EIO, "%s: cannot open: %s", scan->path, strerror(errno));
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        scan->fd = fd;
        scan->file_bytes = st.st_size;
        return SP_OK;
    }
    if (fd >= 0)
        close(fd);
    return SP_FAIL(SP_EDATA, "%s: expected a scan, found %s", scan->path,
                   S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
}

static sp_status scan_open_file(sp_scan *scan)
{
    unsigned char head[SP_SCAN_HEAD] = {0};
    sp_status rc;

    SP_TRY(sp_scan_open_regular(scan));
    if (scan->fd < 0)
        return SP_FAIL(SP_EDATA, "%s: cannot open: no such file", scan->path);
    if (pread(scan->fd, head, sizeof head, 0) < 0)
        return SP_FAIL(SP_EIO, "%s: cannot read: %s", scan->path, strerror(errno));
    rc = sp_scan_recognize(scan->path, head, &scan->format);
    if (rc == SP_EDATA && scan->file_bytes == 0)
        return SP_FAIL(SP_EDATA, "%s: the file is empty", scan->path);
    SP_TRY(rc);
    snprintf(scan->title, sizeof scan->title, "%s", scan->format->name);
    if (scan->format->own_bytes > 0 &&
        !(scan->own = calloc(1, scan->format->own_bytes)))
        return SP_FAIL(SP_EMEM, "%s: no memory", scan->path);
    return scan->format->open(scan);
}

static sp_status open_with(sp_scan *s, const char *path, const sp_scan_options *options)
{
    s->fd = -1;
    s->end_row = -1;
    if (options)
        s->options = *options;
    s->path = strdup(path);
    if (!s->path)
        return SP_FAIL(SP_EMEM, "no memory");
    SP_TRY(scan_open_file(s));
    SP_TRY(find_axes(s));
    SP_TRY(convert_z(s));
    SP_TRY(find_label(s));
    return s->label < 0 && !s->options.label_field ? sp_scan_beside_open(s) : SP_OK;
}

sp_status sp_scan_open(sp_scan **scan, const char *path, const sp_scan_options *options)
{
    sp_status rc;

    assert(path);
    SP_TRY(SP_NEW(scan, 1, path));
    rc = open_with(*scan, path, options);
    if (rc != SP_OK) {
        sp_scan_close(*scan);
        *scan = NULL;
    }
    return rc;
}

void sp_scan_close(sp_scan *scan)
{
    if (!scan)
        return;
    if (scan->own && scan->format->close)
        scan->format->close(scan);
    sp_scan_beside_close(scan);
    if (scan->fd >= 0)
        close(scan->fd);
    sp_scan_lines_close(&scan->lines);
    for (int i = 0; i < SP_SCAN_NOTES; i++)
        free(scan->note[i]);
    free(scan->own);
    free(scan->record);
    free(scan->selected);
    free(scan->field);
    free(scan->path);
    free(scan);
}

const char *sp_scan_path(const sp_scan *scan)
{
    return scan->path;
}
int64_t sp_scan_count(const sp_scan *scan)
{
    bool is_doubtful = scan->n_points > scan->file_bytes;

    assert(scan->format);
    return scan->format->is_count_claimed && is_doubtful ? -1 : scan->n_points;
}
const char *sp_scan_format_name(const sp_scan *scan)
{
    return scan->format->name;
}

bool sp_scan_extent(const sp_scan *scan, double low[3], double high[3])
{
    memcpy(low, scan->low, sizeof scan->low);
    memcpy(high, scan->high, sizeof scan->high);
    return scan->has_extent;
}

int sp_scan_epsg(const sp_scan *scan)
{
    return scan->epsg;
}

void sp_scan_resolution(const sp_scan *scan, double step[3], bool is_float[3])
{
    for (int a = 0; a < 3; a++) {
        const sp_scan_field *f = &scan->field[scan->axis[a]];

        is_float[a] = f->kind == 'f';
        step[a] = f->kind != 'f' ? fabs(f->scale)
                  : f->size == 2 ? 0x1p-11
                  : f->size == 4 ? 0x1p-24
                                 : 0;
    }
}

bool sp_scan_is_labelled(const sp_scan *scan)
{
    return scan->label >= 0 || scan->beside;
}

bool sp_scan_has(const sp_scan *scan, const char *name)
{
    return sp_scan_find(scan, name) >= 0;
}

int sp_scan_axis_of(const sp_scan *scan, const char *name)
{
    const int field = sp_scan_find(scan, name);

    for (int a = 0; a < 3; a++)
        if (field >= 0 && field == scan->axis[a])
            return a;
    return -1;
}

const char *sp_scan_attribute(const sp_scan *scan, int i, char *kind, int *size)
{
    const sp_scan_field *f = &scan->field[i];
    bool is_real;

    assert(i >= 0 && kind && size);
    if (i < 0 || i >= scan->n_fields)
        return NULL;
    if (f->copy_size) {
        *kind = f->copy_kind;
        *size = f->copy_size;
        return f->name;
    }
    is_real = f->scale != 1 || f->add != 0 || (f->kind == 'f' && f->size == 2);
    *kind = is_real ? 'f' : f->kind;
    *size = is_real         ? 8
            : f->bits == 0  ? f->size
            : f->bits <= 8  ? 1
            : f->bits <= 16 ? 2
                            : f->size;
    return f->name;
}

sp_status sp_scan_select(sp_scan *scan, int n, const char *const *names)
{
    char text[512];

    assert(n >= 0 && (names || n == 0));
    free(scan->selected);
    scan->n_selected = 0;
    scan->is_copied = false;
    SP_TRY(SP_NEW(&scan->selected, n, scan->path));
    for (int i = 0; i < n; i++) {
        scan->selected[i] = sp_scan_find(scan, names[i]);
        if (scan->selected[i] < 0)
            return SP_FAIL(SP_EUSAGE, "%s: no attribute %s; there are: %s", scan->path,
                           names[i], list_fields(scan, text, sizeof text));
    }
    scan->n_selected = n;
    return SP_OK;
}

sp_status sp_scan_rewind(sp_scan *scan)
{
    assert(scan->format);
    scan->row = scan->first_row;
    if (scan->beside)
        SP_TRY(sp_scan_rewind(scan->beside));
    return scan->format->rewind ? scan->format->rewind(scan) : SP_OK;
}

sp_status sp_scan_limit(sp_scan *scan, int part, int n_parts)
{
    const int64_t n = scan->n_points > 0 ? scan->n_points : 0;
    int64_t first = n / n_parts * part + (part < n % n_parts ? part : n % n_parts);
    int64_t end = first + n / n_parts + (part < n % n_parts);
    bool is_able = scan->n_points >= 0 && !scan->format->rewind;

    assert(0 <= part && part < n_parts && scan->format);
    if (scan->format->limit)
        SP_TRY(scan->format->limit(scan, &first, &end, &is_able));
    if (is_able) {
        scan->first_row = first;
        scan->end_row = end;
    } else { /* part 0 has all rows, also uncounted ones */
        scan->first_row = 0;
        scan->end_row = part == 0 ? -1 : 0;
    }
    SP_TRY(sp_scan_beside_limit(scan, part, n_parts));
    return sp_scan_rewind(scan);
}
