/* The units of a LAS scan's coordinates, from the records that describe their system:
 * well-known text (OGC 01-009 and 18-010), else GeoTIFF keys (OGC 19-008). A record
 * that cannot be understood leaves the units unknown. Of several records of a kind the
 * last one that names a unit counts; extended records come after the others. */
#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_las.h"

enum {
    GEO_KEYS = 34735,
    GEO_DOUBLES = 34736,
    WELL_KNOWN_TEXT = 2112,
    MOST_BYTES = 1 << 20 /* of a record that is read */
};

/* The two units: of x and y, as sp_scan_unit gives it, and of z. */
enum { PLANE, HEIGHT, N_UNITS };
typedef struct las_units {
    const char *name[N_UNITS]; /* NULL: not known */
    bool is_geocentric;
    int epsg;                  /* of the system of x and y; 0: not known */
    char (*rare)[SP_LAS_UNIT]; /* [N_UNITS] texts of names that are no constants */
} las_units;

/* Notes a unit of `factor` metres. The feet of the several surveys differ by less than
 * 1e-5 of their length, which is nothing to a voxel; the US survey foot has a word of
 * its own. A factor that is no number above 0 says nothing. */
static void unit_note(las_units *u, int which, double factor, const char *name, int n)
{
    const double foot = 0.3048, survey = 1200.0 / 3937, near = 2e-5;
    bool is_foot = fabs(factor / foot - 1) < near;

    if (!(factor > 0) || !isfinite(factor))
        return;
    if (fabs(factor - 1) < near) {
        u->name[which] = "metre";
    } else if (is_foot) {
        is_foot = fabs(factor - foot) < fabs(factor - survey);
        u->name[which] = is_foot ? "foot" : "US survey foot";
    } else {
        snprintf(u->rare[which], sizeof u->rare[which], "\"%.*s\" of %.9g m",
                 n < 16 ? n : 16, name, factor);
        for (char *c = u->rare[which]; *c; c++)
            *c = (char)(isprint((unsigned char)*c) ? *c : '?');
        u->name[which] = u->rare[which];
    }
}

/* ---- GeoTIFF keys ---- */

enum {
    MODEL_TYPE = 1024,
    GEODETIC_SYSTEM = 2048,
    GEODETIC_UNITS = 2052,
    GEODETIC_UNIT_SIZE = 2053,
    PROJECTED_SYSTEM = 3072,
    LINEAR_UNITS = 3076,
    LINEAR_UNIT_SIZE = 3077,
    VERTICAL_SYSTEM = 4096,
    VERTICAL_UNITS = 4099,
    /* Values. */
    GEOGRAPHIC = 2,
    GEOCENTRIC = 3,
    USER_DEFINED = 32767
};

/* The content of the two records; keys is NULL without such records. */
typedef struct geo_keys {
    unsigned char *keys, *doubles;
    int64_t key_bytes, double_bytes;
} geo_keys;

/* Finds the value of a key; 0 if it is not there. Entries have 8 bytes: key, place,
 * count, value. Place 0: the value is the entry's; GEO_DOUBLES: its number there. */
static double key_value(const geo_keys *g, int key)
{
    const int n = g->key_bytes >= 8 ? sp_get16(g->keys + 6) : 0;

    for (int i = 1; i <= n && 8 * i + 8 <= g->key_bytes; i++) {
        const unsigned char *entry = g->keys + 8 * i;
        const int place = sp_get16(entry + 2), value = sp_get16(entry + 6);

        if (sp_get16(entry) != key)
            continue;
        if (place == 0)
            return value;
        if (place == GEO_DOUBLES && 8 * value + 8 <= g->double_bytes)
            return sp_get_double(g->doubles + 8 * value);
    }
    return 0;
}

/* Notes a unit of the EPSG's number, or of a size in metre. */
static void unit_of_code(las_units *u, int which, int code, double size)
{
    static const struct {
        int code;
        double metres;
    } units[] = {
        {9001, 1},        {9002, 0.3048},   {9003, 1200.0 / 3937}, {9004, 0.3048},
        {9005, 0.3048},   {9006, 0.3048},   {9041, 0.3048},        {9051, 0.3048},
        {9061, 0.3048},   {9070, 0.3048},   {9080, 0.3048},        {9081, 0.3048},
        {9082, 0.3048},   {9083, 0.3048},   {9094, 0.3048},        {9095, 0.3048},
        {9300, 0.3048},   {9031, 1},        {1025, 0.001},         {1033, 0.01},
        {9014, 1.8288},   {9030, 1852},     {9036, 1000},          {9037, 0.9144},
        {9040, 0.9144},   {9084, 0.9144},   {9096, 0.9144},        {9039, 0.201166},
        {9098, 0.201168}, {9042, 20.11677}, {9062, 20.11678},      {9097, 20.1168},
        {9093, 1609.344}};
    char name[24];
    int n;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].code == code)
            size = units[i].metres;
    n = snprintf(name, sizeof name, "EPSG unit %d", code);
    unit_note(u, which, size, name, n);
}

/* The unit of heights of these vertical systems of the EPSG. All others that are in use
 * are in metre, or are not known here. */
static int unit_of_vertical(int system)
{
    static const short feet[] = {5614, 6130, 6131, 6132, 8050, 8051, 8228},
                       survey[] = {5702, 6358, 6359, 6360, 8052, 8053};

    for (size_t i = 0; i < sizeof feet / sizeof *feet; i++)
        if (feet[i] == system)
            return 9002;
    for (size_t i = 0; i < sizeof survey / sizeof *survey; i++)
        if (survey[i] == system)
            return 9003;
    return 0;
}

/* `is_on_globe`: the x and y of all points could be degrees. */
static void units_of_keys(las_units *u, const geo_keys *g, bool is_on_globe)
{
    const int model = (int)key_value(g, MODEL_TYPE);
    const int linear = (int)key_value(g, LINEAR_UNITS);
    const int geodetic = (int)key_value(g, GEODETIC_UNITS);
    int vertical = (int)key_value(g, VERTICAL_UNITS);

    if (vertical == 0)
        vertical = unit_of_vertical((int)key_value(g, VERTICAL_SYSTEM));
    u->epsg = (int)key_value(g, model == GEOGRAPHIC || model == GEOCENTRIC
                                    ? GEODETIC_SYSTEM
                                    : PROJECTED_SYSTEM);
    if (u->epsg >= USER_DEFINED - 1)
        u->epsg = 0;
    unit_of_code(u, HEIGHT, vertical, 0);
    if (model == GEOGRAPHIC ||
        (model == 0 && linear == 0 && key_value(g, GEODETIC_SYSTEM) > 0 &&
         key_value(g, PROJECTED_SYSTEM) == 0 && is_on_globe)) {
        u->name[PLANE] = "degree";
    } else if (model == GEOCENTRIC) {
        u->is_geocentric = true;
        u->name[HEIGHT] = NULL;
        unit_of_code(u, PLANE, geodetic > 0 ? geodetic : 9001,
                     geodetic == USER_DEFINED ? key_value(g, GEODETIC_UNIT_SIZE) : 0);
    } else {
        unit_of_code(u, PLANE, linear,
                     linear == USER_DEFINED ? key_value(g, LINEAR_UNIT_SIZE) : 0);
    }
}

/* ---- well-known text ---- */

/* Brings the text to one way of writing: no blanks but in quotes, square brackets. */
static void text_tidy(char *text)
{
    bool is_quoted = false;
    char *to = text;

    for (; *text; text++) {
        is_quoted ^= *text == '"';
        if (!is_quoted && isspace((unsigned char)*text))
            continue;
        *to++ = is_quoted ? *text : *text == '(' ? '[' : *text == ')' ? ']' : *text;
    }
    *to = '\0';
}

/* Returns the text after "WORD[", searched from `begin` to the bracket that ends its
 * node, at most `deepest` nodes below it; NULL: there is none. */
static const char *find_node(const char *begin, const char *word, int deepest)
{
    const size_t n = strlen(word);
    bool is_quoted = false;
    int depth = 0;

    for (const char *at = begin; *at; at++) {
        is_quoted ^= *at == '"';
        if (is_quoted)
            continue;
        if (depth <= deepest && strncasecmp(at, word, n) == 0 && at[n] == '[' &&
            (at == begin || !isalnum((unsigned char)at[-1])))
            return at + n + 1;
        depth += *at == '[';
        if (*at == ']' && depth-- == 0)
            return NULL;
    }
    return NULL;
}

static const char *find_any(const char *begin, const char *const *words, int deepest)
{
    for (; *words; words++) {
        const char *node = find_node(begin, *words, deepest);

        if (node)
            return node;
    }
    return NULL;
}

/* Returns the text after the bracket that ends the node. */
static const char *after_node(const char *node)
{
    bool is_quoted = false;
    int depth = 1;

    for (; *node && depth > 0; node++) {
        is_quoted ^= *node == '"';
        if (!is_quoted)
            depth += (*node == '[') - (*node == ']');
    }
    return node;
}

static const char *const unit_words[] = {"UNIT", "LENGTHUNIT", NULL};

/* Reads the node of a unit: "metre",1,... */
static void unit_of_node(las_units *u, int which, const char *node)
{
    const char *close = node && *node == '"' ? strchr(node + 1, '"') : NULL;

    if (close && close[1] == ',')
        unit_note(u, which, strtod(close + 2, NULL), node + 1, (int)(close - node - 1));
}

/* Finds the unit of axis k of a system: each may have a unit of its own. */
static const char *unit_of_axis(const char *system, int k)
{
    const char *axis = find_node(system, "AXIS", 0);

    for (; axis && k > 0; k--)
        axis = find_node(after_node(axis), "AXIS", 0);
    return axis ? find_any(axis, unit_words, 0) : NULL;
}

/* The units of a system of lengths. The third axis of a projected one is the height. */
static void units_of_lengths(las_units *u, const char *system)
{
    const char *node = find_any(system, unit_words, 0);

    unit_of_node(u, PLANE, node ? node : unit_of_axis(system, 0));
    if (!u->is_geocentric)
        unit_of_node(u, HEIGHT, unit_of_axis(system, 2));
}

/* A geodetic system of the second generation has lengths along Cartesian axes or angles
 * on an ellipsoid. */
static bool is_cartesian(const char *system)
{
    const char *axes = find_node(system, "CS", 0);

    return axes && strncasecmp(axes, "Cartesian", 9) == 0;
}

/* The code of a system: AUTHORITY["EPSG","2154"] or ID["EPSG",2154]. */
static int las_code_of(const char *system)
{
    static const char *const words[] = {"AUTHORITY", "ID", NULL};
    const char *node = system ? find_any(system, words, 0) : NULL;
    const char *code = node && strncasecmp(node, "\"EPSG\",", 7) == 0 ? node + 7 : "";
    const long x = strtol(code + (*code == '"'), NULL, 10);

    return x > 0 && x <= INT_MAX ? (int)x : 0;
}

static void units_of_text(las_units *u, const char *text)
{
    static const char *const vertical[] = {"VERTCRS", "VERTICALCRS", "VERT_CS",
                                           "VERTCS", NULL};
    static const char *const plane[] = {"PROJCS",         "PROJCRS",  "PROJECTEDCRS",
                                        "DERIVEDPROJCRS", "LOCAL_CS", "ENGCRS",
                                        "ENGINEERINGCRS", NULL};
    static const char *const geodetic[] = {"GEODCRS",       "GEODETICCRS", "GEOGCRS",
                                           "GEOGRAPHICCRS", "GEOGCS",      NULL};
    const char *system = find_any(text, plane, INT_MAX), *height;
    const char *centric = system ? NULL : find_node(text, "GEOCCS", INT_MAX);

    if (!system && !centric) {
        system = find_any(text, geodetic, INT_MAX);
        centric = system && is_cartesian(system) ? system : NULL;
        if (system && !centric)
            u->name[PLANE] = "degree";
        u->epsg = las_code_of(system);
        system = NULL;
    }
    u->is_geocentric = centric != NULL;
    if (system || (centric && u->epsg == 0))
        u->epsg = las_code_of(system ? system : centric);
    if (system || centric)
        units_of_lengths(u, system ? system : centric);
    height = find_any(text, vertical, INT_MAX);
    if (height) {
        const char *node = find_any(height, unit_words, 0);

        unit_of_node(u, HEIGHT, node ? node : unit_of_axis(height, 0));
    }
}

/* ---- the scan ---- */

/* Reads the content of a record with a zero after it; *content is malloc'd. */
static sp_status record_content(sp_scan *scan, const sp_las_record *record,
                                unsigned char **content)
{
    const size_t n = (size_t)(record->bytes < MOST_BYTES ? record->bytes : MOST_BYTES);

    free(*content);
    SP_TRY(SP_NEW(content, n, scan->path));
    return sp_scan_pread(scan, *content, n, record->at);
}

/* Takes what one record says. `u` has the units by text, `g` the keys. */
static sp_status unit_read_record(sp_scan *scan, const sp_las_record *record,
                                  las_units *u, geo_keys *g)
{
    const int64_t bytes = record->bytes < MOST_BYTES ? record->bytes : MOST_BYTES;
    SP_FREED unsigned char *text = NULL;

    if (record->bytes <= 0)
        return SP_OK;
    if (sp_las_is_record(record, "LASF_Projection", GEO_KEYS)) {
        g->key_bytes = bytes;
        return record_content(scan, record, &g->keys);
    }
    if (sp_las_is_record(record, "LASF_Projection", GEO_DOUBLES)) {
        g->double_bytes = bytes;
        return record_content(scan, record, &g->doubles);
    }
    if (!sp_las_is_record(record, "LASF_Projection", WELL_KNOWN_TEXT) &&
        !sp_las_is_record(record, "liblas", WELL_KNOWN_TEXT))
        return SP_OK;
    SP_TRY(record_content(scan, record, &text));
    text_tidy((char *)text);
    units_of_text(u, (char *)text);
    return SP_OK;
}

static bool is_on_globe(const sp_las_header *h)
{
    return h->low[0] >= -360 && h->high[0] <= 360 && h->low[1] >= -90 &&
           h->high[1] <= 90 && h->low[0] <= h->high[0] && h->low[1] <= h->high[1];
}

/* Text counts before keys. */
static void unit_set(sp_scan *scan, const las_units *text, const las_units *keys)
{
    scan->unit = text->name[PLANE] ? text->name[PLANE] : keys->name[PLANE];
    scan->z_unit = text->name[HEIGHT] ? text->name[HEIGHT] : keys->name[HEIGHT];
    scan->is_geocentric = text->name[PLANE] ? text->is_geocentric : keys->is_geocentric;
    scan->epsg = text->epsg ? text->epsg : keys->epsg;
    if (scan->is_geocentric)
        scan->z_unit = NULL; /* z is no height, and has the unit of x and y */
}

sp_status sp_las_find_unit(sp_scan *scan)
{
    sp_las *own = sp_las_of(scan);
    las_units by_text = {.rare = own->unit}, by_keys = {.rare = own->unit + N_UNITS};
    sp_las_record record = {0};
    geo_keys g = {0};
    sp_status rc;

    assert(scan->fd >= 0);
    do {
        rc = sp_las_next_record(scan, &record);
        if (rc == SP_OK && !record.is_end)
            rc = unit_read_record(scan, &record, &by_text, &g);
    } while (rc == SP_OK && !record.is_end);
    if (rc == SP_OK && g.keys)
        units_of_keys(&by_keys, &g, is_on_globe(&own->header));
    free(g.keys);
    free(g.doubles);
    unit_set(scan, &by_text, &by_keys);
    return rc;
}

sp_status sp_las_unit_of_text(sp_scan *scan, const char *text)
{
    las_units units = {.rare = sp_las_of(scan)->unit};
    SP_FREED char *copy = strdup(text);

    if (!copy)
        return SP_FAIL(SP_EMEM, "%s: no memory for a text", scan->path);
    text_tidy(copy);
    units_of_text(&units, copy);
    unit_set(scan, &units, &(las_units){0});
    return SP_OK;
}
