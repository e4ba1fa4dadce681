/* Which columns are x, y and z, by their names. The letters x, y and z come first, then
 * the words of surveyors and of other programs, with or without a unit: "Easting",
 * "POINT_X", "Y (m)", "elevation_ft". The order of the columns does not matter. */
#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "scan/sp_scan_format.h"

/* How well a name fits an axis: the letter, a word, a letter that may mean more. */
enum { EXACT, BY_WORD, BY_LETTER, UNFIT };

/* What a name says. */
typedef struct axis_name {
    int axis, fit;
    bool has_unit;
    const char *unit; /* a word of sp_scan_unit; NULL: one that scans do not have */
} axis_name;

static const struct {
    const char *word;
    int axis;
    bool is_degree;
} words[] = {{"x", 0, false},
             {"easting", 0, false},
             {"eastings", 0, false},
             {"east", 0, false},
             {"e", 0, false},
             {"rechtswert", 0, false},
             {"y", 1, false},
             {"northing", 1, false},
             {"northings", 1, false},
             {"north", 1, false},
             {"n", 1, false},
             {"hochwert", 1, false},
             {"z", 2, false},
             {"elevation", 2, false},
             {"elev", 2, false},
             {"height", 2, false},
             {"altitude", 2, false},
             {"alt", 2, false},
             {"h", 2, false},
             {"hoehe", 2, false},
             {"orthometricheight", 2, false},
             {"ellipsoidalheight", 2, false},
             {"longitude", 0, true},
             {"long", 0, true},
             {"lon", 0, true},
             {"lng", 0, true},
             {"latitude", 1, true},
             {"lat", 1, true}};
enum { N_WORDS = sizeof words / sizeof *words };

static const struct {
    const char *word, *unit;
} units[] = {{"m", "metre"},     {"metre", "metre"},         {"metres", "metre"},
             {"meter", "metre"}, {"meters", "metre"},        {"ft", "foot"},
             {"foot", "foot"},   {"feet", "foot"},           {"usft", "US survey foot"},
             {"deg", "degree"},  {"ftus", "US survey foot"}, {"degree", "degree"},
             {"mm", NULL},       {"degrees", "degree"},      {"cm", NULL},
             {"km", NULL}};
enum { N_UNITS = sizeof units / sizeof *units };

/* Words before or after the axis that say nothing more. */
static const char *const fillers[] = {"coordinates", "coordinate", "coords", "coord",
                                      "point",       "position",   "pos",    "utm",
                                      "scalar",      "world"};
enum { N_FILLERS = sizeof fillers / sizeof *fillers };

/* Removes a filler at either end of a word, which may become empty. */
static void axis_strip(char *word)
{
    for (int i = 0; i < N_FILLERS; i++) {
        const size_t n = strlen(word), m = strlen(fillers[i]);

        if (n >= m && strcmp(word + n - m, fillers[i]) == 0)
            word[n - m] = '\0';
        else if (n > m && strncmp(word, fillers[i], m) == 0)
            memmove(word, word + m, n - m + 1);
    }
}

/* Appends the next word of a name, in small letters, to `to`, which has room for the
 * name, and returns the text after it. */
static const char *axis_read_word(const char *at, char *to)
{
    size_t n = strlen(to);

    for (; *at && !isalnum((unsigned char)*at); at++)
        ;
    for (; isalnum((unsigned char)*at); at++)
        to[n++] = (char)tolower((unsigned char)*at);
    to[n] = '\0';
    return at;
}

/* Removes a unit from the end of the words so far, if the name's last word is one. */
static void axis_remove_unit(char *joined, const char *last, axis_name *to)
{
    for (int i = 0; i < N_UNITS; i++)
        if (joined[0] && strcmp(last, units[i].word) == 0) {
            to->has_unit = true;
            to->unit = units[i].unit;
            return;
        }
    strcat(joined, last);
}

static axis_name axis_read(const char *name)
{
    char joined[SP_SCAN_NAME] = "", last[SP_SCAN_NAME] = "";
    axis_name to = {.fit = UNFIT};

    for (const char *at = axis_read_word(name, last); *last;
         at = axis_read_word(at, last)) {
        axis_strip(last);
        axis_remove_unit(joined, last, &to);
        *last = '\0';
    }
    for (int i = 0; i < N_WORDS; i++)
        if (strcmp(joined, words[i].word) == 0) {
            const bool is_letter = strlen(joined) == 1;

            to.axis = words[i].axis;
            to.fit = strlen(name) == 1 && strchr("xyz", *joined) ? EXACT
                     : is_letter && !strchr("xyz", *joined)      ? BY_LETTER
                                                                 : BY_WORD;
            if (words[i].is_degree) {
                to.has_unit = true;
                to.unit = "degree";
            }
        }
    return to;
}

bool sp_scan_is_axis(const char *name)
{
    assert(name);
    return strlen(name) < SP_SCAN_NAME && axis_read(name).fit != UNFIT;
}

int sp_scan_find_axis(int axis, int n, const char *const *names)
{
    int best = UNFIT, found = -1;

    assert(axis >= 0 && axis < 3 && n >= 0);
    for (int i = 0; i < n; i++) {
        const axis_name at = axis_read(names[i]);

        if (at.fit == UNFIT || at.axis != axis || at.fit > best)
            continue;
        /* The first of several x is taken, but elevation and height may differ. */
        found = at.fit < best ? i : at.fit == EXACT ? found : -1;
        best = at.fit;
    }
    return found;
}

sp_status sp_scan_find_unit(sp_scan *scan)
{
    axis_name axis[3];

    for (int a = 0; a < 3; a++)
        axis[a] = axis_read(scan->field[scan->axis[a]].name);
    for (int a = 0; a < 3; a++)
        if (axis[a].has_unit && !axis[a].unit)
            return SP_FAIL(SP_EUSAGE,
                           "%s: column %s: its unit is neither metre nor foot; scale "
                           "the scan to metres, or take it as it is by --columns "
                           "x,y,z,...",
                           scan->path, scan->field[scan->axis[a]].name);
    for (int a = 1; a < 3; a++)
        if (axis[0].has_unit && axis[a].has_unit && axis[0].unit != axis[a].unit &&
            (a == 1 || strcmp(axis[0].unit, "degree") != 0) &&
            strcmp(axis[0].unit, axis[a].unit) != 0)
            return SP_FAIL(SP_EDATA, "%s: columns %s and %s are in different units",
                           scan->path, scan->field[scan->axis[0]].name,
                           scan->field[scan->axis[a]].name);
    for (int a = 0; a < 3; a++) {
        if (!scan->unit && axis[a].has_unit)
            scan->unit = axis[a].unit;
        snprintf(scan->field[scan->axis[a]].name, SP_SCAN_NAME, "%c", 'x' + a);
    }
    return SP_OK;
}
