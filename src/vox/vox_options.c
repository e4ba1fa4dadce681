/* The command line of spvox convert and apply. */
#include "vox/vox_options.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "base/sp_signal.h"
#include "data/sp_recipe.h"

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

sp_status vox_read_map(void *to, const sp_option *option, const char *text)
{
    vox_map *map = (vox_map *)(void *)((char *)to + option->offset);
    const char *at = text;

    assert(to && text);
    if (map->n > 0)
        return SP_FAIL(SP_EUSAGE, "--map %s: given twice", text);
    for (;;) {
        SP_TRY(read_entry(map, text, &at));
        if (*at == '\0')
            return SP_OK;
        at++;
    }
}

sp_status vox_first_codes(const char *where, int n_classes, char *const *class_code,
                          int32_t *code)
{
    assert(where && code && n_classes >= 0 && (class_code || n_classes == 0));
    for (int c = 0; c < n_classes; c++) {
        char *end;
        long first = strtol(class_code[c], &end, 10);

        if (end == class_code[c] || (*end && *end != ':') || first < 0 ||
            first > VOX_MAX_CODE)
            return SP_FAIL(SP_EDATA,
                           "%s: class_codes: \"%.40s\" of class %d, expected codes "
                           "from 0 to %d divided by colons",
                           where, class_code[c], c, VOX_MAX_CODE);
        code[c] = (int32_t)first;
    }
    return SP_OK;
}

sp_status vox_codes_of_map(const vox_map *map, const char *where, int n_classes,
                           char *const *class_name, int32_t *code)
{
    assert(where && code && (class_name || n_classes <= map->n));
    for (int c = 0; c < n_classes; c++) {
        const int i = class_name ? sp_text_find(map->n, map->name, class_name[c]) : c;

        if (i < 0)
            return SP_FAIL(SP_EUSAGE,
                           "--map has no class \"%s\", but %s has; give the map that "
                           "made the shards",
                           class_name[c], where);
        code[c] = map->first_code[i];
    }
    return SP_OK;
}

/* ---- --features ---- */
vox_feature_kind vox_feature_kind_of(const char *name)
{
    return strcmp(name, SP_RECIPE_ONE) == 0      ? VOX_ONE
           : strcmp(name, SP_RECIPE_HEIGHT) == 0 ? VOX_HEIGHT
           : strcmp(name, SP_RECIPE_COUNT) == 0  ? VOX_COUNT
                                                 : VOX_ATTRIBUTE;
}

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
    f->kind = vox_feature_kind_of(f->name);
    if (slash) {
        snprintf(divisor, sizeof divisor, "%.*s", (int)(n - length - 1), slash + 1);
        SP_TRY(sp_option_real("--features: divisor", divisor, false, &f->divisor));
    }
    for (int i = 0; i < o->n_features; i++)
        if (strcmp(o->feature[i].name, f->name) == 0)
            return SP_FAIL(SP_EUSAGE, "--features: %s is named twice", f->name);
    o->n_features++;
    return SP_OK;
}

sp_status vox_read_features(void *to, const sp_option *option, const char *list)
{
    vox_options *o = (vox_options *)(void *)((char *)to + option->offset);

    assert(to && list);
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
sp_status vox_options_read(vox_options *o, int argc, char **argv, sp_names table)
{
    assert(o && argc >= 1 && argv);
    *o = (vox_options){.shards = 1,
                       .voxel_size = 0.5,
                       .alignment = SP_RECIPE_ALIGNMENT,
                       .input = argv + 1};
    memset(o->map.class_of, 0xff, sizeof o->map.class_of);
    return sp_options_read(o, table, "spvox", argc, argv, &o->n_inputs);
}

sp_status vox_options_check_inputs(const vox_options *o)
{
    int n_again, example[2];

    SP_TRY(sp_file_find_again(o->n_inputs, o->input, NULL, &n_again, example));
    if (n_again > 0)
        sp_log_warn0(
            "inputs that name a file which another one names, as %s and %s: %d of "
            "%d; its points count twice",
            o->input[example[0]], o->input[example[1]], n_again, o->n_inputs);
    return SP_OK;
}

sp_status vox_options_check_stop(const vox_options *o)
{
    if (!o->is_given_up)
        return sp_signal_check();
    return __atomic_load_n(o->is_given_up, __ATOMIC_RELAXED)
               ? SP_FAIL(SP_EIO, "the scan was given up")
               : SP_OK;
}

void vox_options_destroy(vox_options *o)
{
    for (int i = 0; i < o->map.n; i++)
        free(o->map.name[i]);
    o->map.n = 0;
}
