/* The unit of a LAS scan's coordinates, from the record that describes their system:
 * well-known text (OGC 01-009 and 18-010), else GeoTIFF keys (OGC 19-008). A record
 * that cannot be understood leaves the unit unknown. */
#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sp_number.h"
#include "scan/sp_scan_las.h"

enum { GEO_KEYS = 34735, WELL_KNOWN_TEXT = 2112 };

static const char metre[] = "metre", foot[] = "foot", survey[] = "US survey foot",
                  degree[] = "degree";

/* ---- GeoTIFF keys ---- */

/* Reads entries of 8 bytes: key, place, count, value; place 0: the value is the
 * entry's. */
static const char *unit_of_keys(const unsigned char *d, int bytes)
{
    enum { MODEL_TYPE = 1024, LINEAR_UNITS = 3076, GEOGRAPHIC = 2 };
    int n = bytes >= 8 ? sp_get16(d + 6) : 0, model = 0, linear = 0;

    for (int i = 1; i <= n && 8 * i + 8 <= bytes; i++) {
        int key = sp_get16(d + 8 * i), value = sp_get16(d + 8 * i + 6);

        if (sp_get16(d + 8 * i + 2) != 0)
            continue;
        model = key == MODEL_TYPE ? value : model;
        linear = key == LINEAR_UNITS ? value : linear;
    }
    if (model == GEOGRAPHIC)
        return degree;
    return linear == 9001   ? metre
           : linear == 9002 ? foot
           : linear == 9003 ? survey
                            : NULL;
}

/* ---- well-known text ---- */

/* Returns the text behind "WORD[", searched from `begin` to the bracket that ends its
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

/* Reads the node of a unit: "metre",1,... */
static const char *unit_of_node(const char *node)
{
    const char *close = *node == '"' ? strchr(node + 1, '"') : NULL;
    double factor = close && close[1] == ',' ? strtod(close + 2, NULL) : 0;

    return fabs(factor - 1) < 1e-9               ? metre
           : fabs(factor - 0.3048) < 1e-9        ? foot
           : fabs(factor - 1200.0 / 3937) < 1e-9 ? survey
                                                 : NULL;
}

static const char *unit_of_text(const char *text)
{
    static const char *const projected[] = {"PROJCS", "PROJCRS", "PROJECTEDCRS", NULL};
    static const char *const geographic[] = {"GEOGCS", "GEOGCRS", "GEODCRS",
                                             "GEOGRAPHICCRS", NULL};
    static const char *const units[] = {"UNIT", "LENGTHUNIT", NULL};
    const char *system = find_any(text, projected, INT_MAX), *node;

    if (!system)
        return find_any(text, geographic, INT_MAX) ? degree : NULL;
    node = find_any(system, units, 0);
    if (!node && (node = find_node(system, "AXIS", 0)))
        node = find_any(node, units, 0); /* each axis may have a unit of its own */
    return node ? unit_of_node(node) : NULL;
}

/* ---- the scan ---- */

sp_status sp_las_find_unit(sp_scan *scan)
{
    const char *by_keys = NULL, *by_text = NULL;
    sp_las_vlr vlr = {0};

    assert(scan->fd >= 0);
    for (;;) {
        unsigned char *d;
        sp_status rc;

        SP_TRY(sp_las_next_vlr(scan, &vlr));
        if (vlr.is_end)
            break;
        if (strcmp(vlr.user, "LASF_Projection") != 0 || vlr.bytes <= 0 ||
            (vlr.id != GEO_KEYS && vlr.id != WELL_KNOWN_TEXT))
            continue;
        if (!(d = calloc(1, (size_t)vlr.bytes + 1)))
            return SP_FAIL(SP_EMEM, "%s: no memory for %d bytes", scan->path,
                           vlr.bytes);
        rc = sp_scan_pread(scan, d, (size_t)vlr.bytes, vlr.at);
        if (rc == SP_OK && vlr.id == GEO_KEYS)
            by_keys = unit_of_keys(d, vlr.bytes);
        else if (rc == SP_OK)
            by_text = unit_of_text((const char *)d);
        free(d);
        SP_TRY(rc);
    }
    scan->unit = by_text ? by_text : by_keys;
    return SP_OK;
}
