/* The command line of spvox convert and apply. */
#include "vox/vox_options.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */
static sp_status read_at_least_0(const char *option, const char *text, double *to)
{
    char *end;
    double x = strtod(text, &end);

    if (end == text || *end || !isfinite(x) || x < 0)
        return SP_FAIL(SP_EUSAGE, "%s %s: expected a length in metre, 0 or more",
                       option, text);
    *to = x;
    return SP_OK;
}

/* Reads a number above 0; `what` names it in the message. */
static sp_status read_above_0(const char *option, const char *text, const char *what,
                              double *to)
{
    char *end;
    double x = strtod(text, &end);

    if (end == text || *end || !isfinite(x) || x <= 0)
        return SP_FAIL(SP_EUSAGE, "%s %s: expected a %s above 0", option, text, what);
    *to = x;
    return SP_OK;
}

static sp_status read_count(const char *option, const char *text, int *to)
{
    char *end;
    long x = strtol(text, &end, 10);

    if (end == text || *end || x < 1 || x > 99999)
        return SP_FAIL(SP_EUSAGE, "%s %s: expected 1 to 99999", option, text);
    *to = (int)x;
    return SP_OK;
}

static sp_status read_bounds(vox_options *o, const char *text)
{
    int used = 0;

    if (sscanf(text, "%lf,%lf,%lf,%lf%n", o->bounds, o->bounds + 1, o->bounds + 2,
               o->bounds + 3, &used) != 4 ||
        text[used] || !(o->bounds[0] < o->bounds[2] && o->bounds[1] < o->bounds[3]))
        return SP_FAIL(SP_EUSAGE,
                       "--bounds %s: expected x0,y0,x1,y1 with x0 < x1, y0 < y1", text);
    o->has_bounds = true;
    return SP_OK;
}

/* ---- --map ---- */
static sp_status bad_map(const char *text, const char *at, const char *what)
{
    return SP_FAIL(SP_EUSAGE, "--map %s: at \"%.40s\": %s", text, at, what);
}

static sp_status find_class(vox_map *map, const char *text, const char *name, size_t n,
                            int *found)
{
    for (*found = 0; *found < map->n; ++*found)
        if (strlen(map->name[*found]) == n && memcmp(map->name[*found], name, n) == 0)
            return SP_OK;
    if (map->n == VOX_MAX_CLASSES)
        return bad_map(text, name, "more than 255 classes");
    map->name[map->n] = strndup(name, n);
    if (!map->name[map->n])
        return SP_FAIL(SP_EMEM, "no memory for a class name");
    map->first_code[map->n++] = -1;
    return SP_OK;
}

static sp_status read_entry(vox_map *map, const char *text, const char **at)
{
    const char *codes = *at, *equals = codes + strcspn(codes, "=,"), *name = equals + 1;
    size_t n;
    int class;

    if (*equals != '=' || (n = strcspn(name, ",")) == 0)
        return bad_map(text, codes, "expected CODE[:CODE...]=NAME");
    SP_TRY(find_class(map, text, name, n, &class));
    do {
        char *end;
        long code = strtol(codes, &end, 10);

        if (end == codes || (*end != ':' && end != equals) || code < 0 ||
            code > VOX_MAX_CODE)
            return bad_map(text, codes, "expected a code from 0 to 65535");
        if (map->class_of[code] >= 0)
            return bad_map(text, codes, "this code has a class already");
        map->class_of[code] = (int16_t) class;
        if (map->first_code[class] < 0)
            map->first_code[class] = (int)code;
        codes = end + 1;
    } while (codes <= equals);
    *at = name + n;
    return SP_OK;
}

static sp_status read_map(vox_map *map, const char *text)
{
    const char *at = text;

    if (map->n > 0)
        return SP_FAIL(SP_EUSAGE, "--map %s: given twice", text);
    for (;;) {
        SP_TRY(read_entry(map, text, &at));
        if (*at == '\0')
            return SP_OK;
        at++;
    }
}

/* ---- --features ---- */
static sp_status read_feature(vox_options *o, const char *at, size_t n)
{
    vox_feature *f = &o->feature[o->n_features];
    const char *slash = memchr(at, '/', n);
    size_t length = slash ? (size_t)(slash - at) : n;
    char divisor[64];

    *f = (vox_feature){.divisor = 1};
    if (length == 0 || length >= sizeof f->name || n - length >= sizeof divisor)
        return SP_FAIL(SP_EUSAGE, "--features: \"%.*s\", expected NAME or NAME/DIVISOR",
                       (int)n, at);
    snprintf(f->name, sizeof f->name, "%.*s", (int)length, at);
    f->kind = strcmp(f->name, "one") == 0      ? VOX_ONE
              : strcmp(f->name, "height") == 0 ? VOX_HEIGHT
              : strcmp(f->name, "count") == 0  ? VOX_COUNT
                                               : VOX_ATTRIBUTE;
    if (slash) {
        snprintf(divisor, sizeof divisor, "%.*s", (int)(n - length - 1), slash + 1);
        SP_TRY(read_above_0("--features: divisor", divisor, "number", &f->divisor));
    }
    for (int i = 0; i < o->n_features; i++)
        if (strcmp(o->feature[i].name, f->name) == 0)
            return SP_FAIL(SP_EUSAGE, "--features: %s is named twice", f->name);
    o->n_features++;
    return SP_OK;
}

sp_status vox_features_read(vox_options *o, const char *list)
{
    o->n_features = 0;
    for (const char *at = list;; at++) {
        size_t n = strcspn(at, ",");

        if (o->n_features == VOX_MAX_FEATURES)
            return SP_FAIL(SP_EUSAGE, "--features: more than %d", VOX_MAX_FEATURES);
        SP_TRY(read_feature(o, at, n));
        at += n;
        if (*at == '\0')
            return SP_OK;
    }
}

/* ---- the command line ---- */
static sp_status read_conflict(vox_options *o, const char *text)
{
    o->ignore_conflicts = strcmp(text, "ignore") == 0;
    if (!o->ignore_conflicts && strcmp(text, "majority") != 0)
        return SP_FAIL(SP_EUSAGE, "--conflict %s: expected majority or ignore", text);
    return SP_OK;
}

static sp_status take_value(vox_options *o, const char *option, const char *text)
{
    if (strcmp(option, "--shards") == 0)
        return read_count(option, text, &o->shards);
    if (strcmp(option, "--voxel-size") == 0)
        return read_above_0(option, text, "length in metre", &o->voxel_size);
    if (strcmp(option, "--block") == 0)
        return read_above_0(option, text, "length in metre", &o->block);
    if (strcmp(option, "--overlap") == 0)
        return read_at_least_0(option, text, &o->overlap);
    if (strcmp(option, "--bounds") == 0)
        return read_bounds(o, text);
    if (strcmp(option, "--conflict") == 0)
        return read_conflict(o, text);
    if (strcmp(option, "--map") == 0)
        return read_map(&o->map, text);
    if (strcmp(option, "--features") == 0)
        return vox_features_read(o, text);
    if (strcmp(option, "--columns") == 0)
        o->columns = text;
    else if (strcmp(option, "--label-field") == 0)
        o->label_field = text;
    else /* --out */
        o->out = text;
    return SP_OK;
}

static sp_status take_option(vox_options *o, int argc, char **argv, int *i,
                             sp_names table)
{
    const char *given = argv[*i], *equals = strchr(given, '='), *text;
    char name[32];
    const sp_named *option;

    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - given) : INT_MAX,
             given);
    option = sp_names_find(table, name);
    if (!option)
        return SP_FAIL(SP_EUSAGE, "spvox %s: unknown option %s; nearest: %s", argv[0],
                       given, sp_names_nearest(table, name)->name);
    if (!option->takes) { /* --points */
        o->with_points = true;
        return equals ? SP_FAIL(SP_EUSAGE, "%s takes no value", name) : SP_OK;
    }
    text = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!text || !*text)
        return SP_FAIL(SP_EUSAGE, "spvox %s: %s needs a value", argv[0], name);
    return take_value(o, option->name, text);
}

sp_status vox_options_read(vox_options *o, int argc, char **argv, sp_names table)
{
    bool is_over = false; /* behind "--" every argument is an input */

    *o = (vox_options){.shards = 1, .voxel_size = 0.5};
    memset(o->map.class_of, 0xff, sizeof o->map.class_of);
    o->input = calloc((size_t)argc + 1, sizeof *o->input);
    if (!o->input)
        return SP_FAIL(SP_EMEM, "no memory for %d arguments", argc);
    for (int i = 1; i < argc; i++) {
        if (is_over || argv[i][0] != '-' || argv[i][1] == '\0')
            o->input[o->n_inputs++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            is_over = true;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            o->is_help = true;
        else
            SP_TRY(take_option(o, argc, argv, &i, table));
    }
    return SP_OK;
}

void vox_options_destroy(vox_options *o)
{
    for (int i = 0; i < o->map.n; i++)
        free(o->map.name[i]);
    free(o->input);
    o->input = NULL;
    o->map.n = 0;
}
