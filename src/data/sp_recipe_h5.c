/* The recipe in a file: attributes of the group /recipe (input/SCHEMA). */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "base/sp_list.h"
#include "base/sp_text.h"
#include "data/sp_recipe.h"

#define GROUP "/recipe"
enum {
    VERSION = 1,
    ALIGNED = 2, /* the version with an alignment, which older programs do not know */
    MOST_ALIGNMENT = 1 << 18,
    MOST_COLUMNS = 65536,
    MOST_FORMATS = 64
};

/* One number of the recipe, with its bounds and their wording for messages. */
typedef struct recipe_number {
    const char *name;
    size_t offset;
    double least, most;
    const char *expected;
} recipe_number;

/* Each kind of attributes by rising name. */
static const recipe_number numbers[] = {
    {"block", offsetof(sp_recipe, block), 0, DBL_MAX, "0 or a length"},
    {"height_percentile", offsetof(sp_recipe, height_percentile), 0, 100, "0 to 100"},
    {"overlap", offsetof(sp_recipe, overlap), 0, DBL_MAX, "0 or a length"},
    {"voxel_size", offsetof(sp_recipe, voxel_size), DBL_MIN, DBL_MAX,
     "a length above 0"},
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

typedef struct recipe_text {
    const char *name;
    size_t offset;
} recipe_text;

/* Texts that may be absent. The order of the checksum is this one, so new ones go last. */
static const recipe_text texts[] = {
    {"label_field", offsetof(sp_recipe, label_field)},
    {"scan_columns", offsetof(sp_recipe, scan_columns)},
    {"unit", offsetof(sp_recipe, unit)},
    {"z_unit", offsetof(sp_recipe, z_unit)},
    {"sweeps", offsetof(sp_recipe, sweeps)},
};
enum {
    N_TEXTS = sizeof texts / sizeof *texts,
    OLD_TEXTS = 3 /* the first ones are in the checksum also if they are absent */
};

static double *number_of(const sp_recipe *r, int i)
{
    return (double *)(void *)((char *)r + numbers[i].offset);
}

static char **text_of(const sp_recipe *r, int i)
{
    return (char **)(void *)((char *)r + texts[i].offset);
}

/* ---- checksum ---- */

static int64_t version_of(const sp_recipe *r)
{
    return r->alignment > 0 ? ALIGNED : VERSION;
}

/* The checksum of all other attributes, in the order of this function: name, then
 * value as it is written, texts with their zero byte. */
static uint32_t crc_of(const sp_recipe *r)
{
    const int64_t version = version_of(r);
    uint32_t crc = sp_crc32c(0, "version", strlen("version"));

    crc = sp_crc32c(crc, &version, sizeof version);
    for (int i = 0; i < N_NUMBERS; i++) {
        crc = sp_crc32c(crc, numbers[i].name, strlen(numbers[i].name));
        crc = sp_crc32c(crc, number_of(r, i), sizeof(double));
    }
    for (int i = 0; i < N_TEXTS; i++)
        if (i < OLD_TEXTS || *text_of(r, i))
            crc = sp_crc32c_texts(crc, texts[i].name, *text_of(r, i) ? 1 : 0,
                                  text_of(r, i));
    crc = sp_crc32c_texts(crc, "column_names", r->n_columns, r->column);
    crc = sp_crc32c_texts(crc, "column_sources", r->n_columns, r->source);
    crc = sp_crc32c(crc, "column_divisors", strlen("column_divisors"));
    crc = sp_crc32c(crc, r->divisor, (size_t)r->n_columns * sizeof *r->divisor);
    crc = sp_crc32c_texts(crc, "formats", r->n_formats, r->format);
    if (r->alignment == 0)
        return crc;
    crc = sp_crc32c(crc, "alignment", strlen("alignment"));
    return sp_crc32c(crc, &r->alignment, sizeof r->alignment);
}

/* ---- writing ---- */

sp_status sp_recipe_write(sp_h5 *file, const sp_recipe *r)
{
    int64_t version;
    uint32_t crc;

    assert(file);
    if (!r)
        return SP_OK;
    assert(r->n_columns > 0 && r->column && r->source && r->divisor);
    assert(r->alignment >= 0 && r->alignment <= MOST_ALIGNMENT);
    version = version_of(r);
    crc = crc_of(r);
    SP_TRY(sp_h5_write_group(file, GROUP));
    SP_TRY(sp_h5_attr_write(file, GROUP, "version", SP_H5_I64, -1, &version));
    for (int i = 0; i < N_NUMBERS; i++)
        SP_TRY(sp_h5_attr_write(file, GROUP, numbers[i].name, SP_H5_F64, -1,
                                number_of(r, i)));
    for (int i = 0; i < N_TEXTS; i++)
        if (*text_of(r, i))
            SP_TRY(
                sp_h5_attr_write_texts(file, GROUP, texts[i].name, -1, text_of(r, i)));
    SP_TRY(
        sp_h5_attr_write_texts(file, GROUP, "column_names", r->n_columns, r->column));
    SP_TRY(
        sp_h5_attr_write_texts(file, GROUP, "column_sources", r->n_columns, r->source));
    SP_TRY(sp_h5_attr_write(file, GROUP, "column_divisors", SP_H5_F64, r->n_columns,
                            r->divisor));
    if (r->n_formats > 0)
        SP_TRY(sp_h5_attr_write_texts(file, GROUP, "formats", r->n_formats, r->format));
    if (r->alignment > 0)
        SP_TRY(
            sp_h5_attr_write(file, GROUP, "alignment", SP_H5_I64, -1, &r->alignment));
    return sp_h5_attr_write(file, GROUP, "crc32c", SP_H5_U32, -1, &crc);
}

/* ---- reading ---- */

#define BAD(file, format, ...)                                                         \
    SP_FAIL(SP_EDATA, "%s:" GROUP ": attribute " format, sp_h5_path(file), __VA_ARGS__)

static sp_status read_alignment(sp_h5 *file, sp_recipe *r)
{
    int64_t version;

    SP_TRY(sp_h5_attr_read_int(file, GROUP, "version", &version));
    if (version != VERSION && version != ALIGNED)
        return SP_FAIL(SP_EDATA, "%s:" GROUP ": version is %lld, expected %d or %d",
                       sp_h5_path(file), (long long)version, VERSION, ALIGNED);
    if (version == VERSION)
        return SP_OK;
    SP_TRY(sp_h5_attr_read_int(file, GROUP, "alignment", &r->alignment));
    if (r->alignment < 1 || r->alignment > MOST_ALIGNMENT)
        return BAD(file, "alignment is %lld, expected 1 to %d", (long long)r->alignment,
                   MOST_ALIGNMENT);
    return SP_OK;
}

static sp_status read_numbers(sp_h5 *file, sp_recipe *r)
{
    for (int i = 0; i < N_NUMBERS; i++) {
        const recipe_number *number = &numbers[i];
        double *value = number_of(r, i);

        SP_TRY(sp_h5_attr_read(file, GROUP, number->name, SP_H5_F64, 1, value));
        if (!(*value >= number->least && *value <= number->most))
            return BAD(file, "%s is %g, expected %s", number->name, *value,
                       number->expected);
    }
    if (r->overlap > r->block)
        return BAD(file,
                   "overlap is %g, expected at most block, "
                   "which is %g",
                   r->overlap, r->block);
    return SP_OK;
}

static sp_status read_texts(sp_h5 *file, sp_recipe *r)
{
    for (int i = 0; i < N_TEXTS; i++)
        if (sp_h5_attr_has(file, GROUP, texts[i].name))
            SP_TRY(sp_h5_attr_read_text(file, GROUP, texts[i].name, text_of(r, i)));
    if (r->unit && !sp_recipe_is_unit(r->unit))
        return BAD(file,
                   "unit is \"%.40s\", expected metre, "
                   "foot, US survey foot or degree",
                   r->unit);
    return SP_OK;
}

/* Reads a list of 1 to `most` names; with *n > 0 it must have *n. */
static sp_status read_list(sp_h5 *file, const char *name, int most, int *n,
                           char ***list)
{
    const int expected = *n;
    int found;

    SP_TRY(sp_h5_attr_read_texts(file, GROUP, name, list, &found));
    *n = found;
    if (expected > 0 ? found == expected : found >= 1 && found <= most)
        return SP_OK;
    sp_h5_list_free(*list, found);
    *list = NULL;
    *n = expected;
    if (expected > 0)
        return BAD(file, "%s has %d name%s, expected %d", name, found, sp_plural(found),
                   expected);
    return BAD(file, "%s has %d name%s, expected 1 to %d", name, found,
               sp_plural(found), most);
}

static sp_status read_columns(sp_h5 *file, sp_recipe *r)
{
    SP_TRY(read_list(file, "column_names", MOST_COLUMNS, &r->n_columns, &r->column));
    SP_TRY(read_list(file, "column_sources", MOST_COLUMNS, &r->n_columns, &r->source));
    SP_TRY(SP_NEW(&r->divisor, r->n_columns, sp_h5_path(file)));
    SP_TRY(sp_h5_attr_read(file, GROUP, "column_divisors", SP_H5_F64, r->n_columns,
                           r->divisor));
    for (int i = 0; i < r->n_columns; i++)
        if (!isfinite(r->divisor[i]) || r->divisor[i] == 0)
            return BAD(file,
                       "column_divisors: column %.100s has %g, expected a finite "
                       "number, not 0",
                       r->column[i], r->divisor[i]);
    return SP_OK;
}

static sp_status check_crc(sp_h5 *file, const sp_recipe *r)
{
    uint32_t crc, found = crc_of(r);

    if (!sp_h5_attr_has(file, GROUP, "crc32c"))
        return SP_OK; /* written by another program */
    SP_TRY(sp_h5_attr_read(file, GROUP, "crc32c", SP_H5_U32, 1, &crc));
    if (crc != found)
        return SP_FAIL(SP_EDATA,
                       "%s:" GROUP ": attributes: crc32c %08x, expected %08x: the file "
                       "is damaged",
                       sp_h5_path(file), found, crc);
    return SP_OK;
}

static sp_status read_all(sp_h5 *file, sp_recipe *r)
{
    SP_TRY(read_alignment(file, r));
    SP_TRY(read_numbers(file, r));
    SP_TRY(read_texts(file, r));
    SP_TRY(read_columns(file, r));
    if (sp_h5_attr_has(file, GROUP, "formats"))
        SP_TRY(read_list(file, "formats", MOST_FORMATS, &r->n_formats, &r->format));
    return check_crc(file, r);
}

sp_status sp_recipe_read(sp_h5 *file, sp_recipe **recipe)
{
    sp_status rc;

    assert(file && recipe);
    *recipe = NULL;
    if (!sp_h5_has(file, GROUP))
        return SP_OK;
    SP_TRY(SP_NEW(recipe, 1, sp_h5_path(file)));
    rc = read_all(file, *recipe);
    if (rc == SP_OK)
        return SP_OK;
    sp_recipe_destroy(*recipe);
    *recipe = NULL;
    return rc;
}

sp_status sp_recipe_check_columns(const sp_recipe *r, const char *path, int n,
                                  char *const *name, bool is_subset)
{
    assert(path && n >= 0);
    if (!r || !name)
        return SP_OK;
    if (!is_subset && r->n_columns != n)
        return SP_FAIL(
            SP_EDATA,
            "%s:" GROUP
            ": attribute column_names has %d name%s, expected %d, as feature_names has",
            path, r->n_columns, sp_plural(r->n_columns), n);
    for (int i = 0; i < n; i++) {
        if (is_subset ? sp_text_find(r->n_columns, r->column, name[i]) >= 0
                      : strcmp(r->column[i], name[i]) == 0)
            continue;
        if (is_subset)
            return SP_FAIL(SP_EDATA,
                           "%s:" GROUP ": attribute column_names lacks %.100s, which "
                           "is in feature_names",
                           path, name[i]);
        return SP_FAIL(SP_EDATA,
                       "%s:" GROUP ": name %d of attribute column_names is %.100s, "
                       "expected %.100s as in feature_names",
                       path, i, r->column[i], name[i]);
    }
    return SP_OK;
}
