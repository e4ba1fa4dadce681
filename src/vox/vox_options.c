/* The command line of spvox convert and apply. */
#include "vox/vox_options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "base/sp_text.h"
#include "data/sp_recipe.h"
#include "vox/vox_sweeps.h"

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

static sp_status options_read_entry(vox_map *map, const char *text, const char **at)
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

static sp_status read_map_list(vox_map *map, const char *text)
{
    const char *at = text;

    for (;;) {
        SP_TRY(options_read_entry(map, text, &at));
        if (*at == '\0')
            return SP_OK;
        at++;
    }
}

/* Makes an entry of the list of a line, in its place: without the comment, a comma at
 * the end, and blanks, which are a colon between two codes. */
static const char *trim_map_line(char *line)
{
    char *to = line, *equals;
    const char *name;

    line[strcspn(line, "#\r\n")] = '\0';
    for (size_t n = strlen(line); n > 0 && strchr(" \t,", line[n - 1]);)
        line[--n] = '\0';
    equals = strchr(line, '=');
    if (!equals)
        return line + strspn(line, " \t");
    name = equals + 1 + strspn(equals + 1, " \t");
    for (const char *at = line; at <= equals; at++) {
        const bool is_blank = *at == ' ' || *at == '\t';

        if (!is_blank)
            *to++ = *at;
        else if (to > line && isdigit((unsigned char)to[-1]) &&
                 isdigit((unsigned char)at[1]))
            *to++ = ':';
    }
    memmove(to, name, strlen(name) + 1);
    return line;
}

/* Reads a file of class maps: an entry of the list a line. */
static sp_status read_map_file(vox_map *map, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[4096];
    int number = 0;
    sp_status rc = SP_OK;

    if (!file)
        return SP_FAIL(SP_EUSAGE, "--map @%s: cannot open: %s", path, strerror(errno));
    while (rc == SP_OK && fgets(line, sizeof line, file)) {
        char *text = line;
        const char *entry;

        if (++number == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0)
            text += 3;
        if (!strchr(text, '\n') && !feof(file))
            rc = SP_FAIL(SP_EUSAGE, "line longer than %zu bytes", sizeof line - 2);
        else if (*(entry = trim_map_line(text)))
            rc = read_map_list(map, entry);
    }
    if (rc == SP_OK && ferror(file))
        rc = SP_FAIL(SP_EUSAGE, "cannot read: %s", strerror(errno));
    else if (rc == SP_OK && map->n == 0)
        rc = SP_FAIL(SP_EUSAGE, "has no line CODE[:CODE...]=NAME");
    fclose(file);
    return rc == SP_EUSAGE ? SP_FAIL(rc, "--map @%s: line %d: %s", path, number,
                                     sp_error_last()->message)
                           : rc;
}

sp_status vox_read_map(void *to, const sp_option *option, const char *text)
{
    vox_map *map = (vox_map *)(void *)((char *)to + option->offset);

    assert(to && text);
    if (map->n > 0)
        return SP_FAIL(SP_EUSAGE, "--map %s: given twice", text);
    return *text == '@' ? read_map_file(map, text + 1) : read_map_list(map, text);
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

/* The slash before the divisor of the feature `at` of n bytes, or NULL. It is the last
 * one, if a number follows: the name itself may have slashes. */
static const char *find_divisor(const char *at, size_t n)
{
    const char *slash = NULL;
    char *end;

    for (size_t i = 0; i < n; i++)
        slash = at[i] == '/' ? at + i : slash;
    if (!slash)
        return NULL;
    strtod(slash + 1, &end);
    return end > slash + 1 && end == at + n ? slash : NULL;
}

/* Bytes of the feature at `at`: to the next comma that is not within quotes. */
static size_t feature_bytes(const char *at)
{
    size_t n = 0;

    if (*at == '"') {
        n = 1 + strcspn(at + 1, "\"");
        n += at[n] == '"';
    }
    return n + strcspn(at + n, ",");
}

static sp_status read_feature(vox_options *o, const char *at, size_t n)
{
    vox_feature *f = &o->feature[o->n_features];
    const char *quote = *at == '"' ? memchr(at + 1, '"', n - 1) : NULL;
    const char *slash =
        quote ? (quote[1] == '/' ? quote + 1 : NULL) : find_divisor(at, n);
    const char *name = quote ? at + 1 : at;
    size_t length = quote ? (size_t)(quote - name) : slash ? (size_t)(slash - at) : n;
    char divisor[64];

    *f = (vox_feature){.divisor = 1};
    if (length == 0 || length >= sizeof f->name || n - length >= sizeof divisor ||
        (quote && !slash && quote + 1 != at + n))
        return SP_FAIL(SP_EUSAGE,
                       "--features: \"%.*s\", expected NAME or NAME/DIVISOR; a name "
                       "with commas in double quotes",
                       (int)n, at);
    snprintf(f->name, sizeof f->name, "%.*s", (int)length, name);
    f->kind = vox_feature_kind_of(f->name);
    if (slash) {
        snprintf(divisor, sizeof divisor, "%.*s", (int)(at + n - slash - 1), slash + 1);
        SP_TRY(sp_option_real(&(sp_option){.word.name = "--features: divisor"}, divisor,
                              &f->divisor));
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
        size_t n = feature_bytes(at);

        if (o->n_features == VOX_MAX_FEATURES)
            return SP_FAIL(SP_EUSAGE, "--features: more than %d", VOX_MAX_FEATURES);
        SP_TRY(read_feature(o, at, n));
        at += n;
        if (*at == '\0')
            return SP_OK;
    }
}

/* ---- the command line ---- */
sp_status vox_read_missing(void *to, const sp_option *option, const char *text)
{
    vox_options *o = (vox_options *)(void *)((char *)to + option->offset);
    char *end;

    o->missing = strtod(text, &end);
    o->has_missing = true;
    if (end == text || *end || !isfinite(o->missing))
        return SP_FAIL(SP_EUSAGE, "--missing %s: expected a number", text);
    return SP_OK;
}

sp_status vox_read_bounds(void *to, const sp_option *option, const char *text)
{
    vox_options *o = (vox_options *)(void *)((char *)to + option->offset);
    double *b = o->bounds;
    int used = 0;
    bool is_valid =
        sscanf(text, "%lf,%lf,%lf,%lf%n", b, b + 1, b + 2, b + 3, &used) == 4 &&
        !text[used];

    for (int k = 0; k < 4; k++)
        is_valid = is_valid && isfinite(b[k]);
    if (!is_valid || !(b[0] < b[2] && b[1] < b[3]))
        return SP_FAIL(SP_EUSAGE,
                       "%s %s: expected finite x0,y0,x1,y1 with x0 < x1, y0 < y1",
                       option->word.name, text);
    o->has_bounds = true;
    return SP_OK;
}

sp_scan_options vox_scan_options(const vox_options *o)
{
    return (sp_scan_options){.columns = o->columns,
                             .label_field = o->label_field,
                             .n_threads = o->threads,
                             .z_unit = (sp_scan_z_unit)o->z_unit,
                             .missing = o->has_missing ? &o->missing : NULL};
}

sp_status vox_options_read(vox_options *o, int argc, char **argv, sp_word_table table)
{
    assert(o && argc >= 1 && argv);
    *o = (vox_options){.shards = 1,
                       .voxel_size = 0.5,
                       .alignment = SP_RECIPE_ALIGNMENT,
                       .input = argv + 1};
    memset(o->map.class_of, 0xff, sizeof o->map.class_of);
    return sp_options_read(o, table, "spvox", argc, argv, &o->n_inputs);
}

/* Normals would have to turn with the poses of their scans. */
static sp_status options_check_vectors(const vox_options *o)
{
    char *name[VOX_MAX_FEATURES];
    sp_vectors found;

    for (int f = 0; f < o->n_features; f++)
        name[f] = (char *)o->feature[f].name;
    found = sp_recipe_vectors(NULL, o->n_features, name);
    for (int i = 0; i < found.n; i++)
        if (!found.at[i].is_position)
            return SP_FAIL(SP_EUSAGE,
                           "--features %s: vectors of earlier scans are not turned by "
                           "--poses; leave this column out",
                           name[found.at[i].x]);
    return SP_OK;
}

sp_status vox_options_check_sweeps(vox_options *o)
{
    assert(o);
    if (!o->poses && (o->n_sweeps > 0 || o->with_sweep_labels))
        return SP_FAIL(SP_EUSAGE,
                       "--sweep%s: --poses is missing, which joins the scans",
                       o->n_sweeps > 0 ? "s" : "-labels");
    if (!o->poses)
        return SP_OK;
    if (o->n_sweeps == 0)
        return SP_FAIL(SP_EUSAGE,
                       "--poses %s: --sweeps N is missing, the number of scans "
                       "that a sample joins",
                       o->poses);
    if (o->block > 0)
        return SP_FAIL(SP_EUSAGE,
                       "--poses %s: samples are whole scans, without --block",
                       o->poses);
    o->sweeps->poses = o->poses;
    for (int f = 0; f < o->n_features; f++)
        if (strcmp(o->feature[f].name, SP_RECIPE_AGE) == 0)
            o->feature[f].kind = VOX_AGE;
    return options_check_vectors(o);
}

sp_status vox_options_read_list(vox_options *o)
{
    int n = 0;
    char *at;

    assert(o);
    if (!o->list)
        return SP_OK;
    if (sp_file_read(o->list, &o->list_text, NULL) != SP_OK)
        return SP_FAIL(SP_EUSAGE, "--list: %s", sp_error_last()->message);
    for (at = o->list_text; *at; at++)
        n += *at == '\n';
    SP_TRY(SP_NEW(&o->list_input, o->n_inputs + n, o->list));
    memcpy(o->list_input, o->input, (size_t)o->n_inputs * sizeof *o->input);
    for (char *line = strtok_r(o->list_text, "\r\n", &at); line;
         line = strtok_r(NULL, "\r\n", &at))
        o->list_input[o->n_inputs++] = line;
    o->input = o->list_input;
    return SP_OK;
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
    free(o->list_text);
    free(o->list_input);
    o->list_text = NULL;
    o->list_input = NULL;
}

void vox_options_free(vox_options **o)
{
    if (*o)
        vox_options_destroy(*o);
    free(*o);
}
