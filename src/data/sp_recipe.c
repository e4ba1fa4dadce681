/* Recipes in memory: copies, bytes, comparison. */
#include "data/sp_recipe.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_text.h"

bool sp_recipe_is_unit(const char *word)
{
    static char *const units[] = {"metre", "foot", "US survey foot", "degree"};

    assert(word);
    return sp_text_find(sizeof units / sizeof *units, units, word) >= 0;
}

void sp_recipe_destroy(sp_recipe *recipe)
{
    if (!recipe)
        return;
    sp_h5_list_free(recipe->column, recipe->n_columns);
    sp_h5_list_free(recipe->source, recipe->n_columns);
    sp_h5_list_free(recipe->format, recipe->n_formats);
    free(recipe->divisor);
    free(recipe->scan_columns);
    free(recipe->label_field);
    free(recipe->unit);
    free(recipe->z_unit);
    free(recipe->sweeps);
    free(recipe);
}

/* ---- bytes ---- */

void sp_recipe_serialize(sp_serial *serial, sp_recipe **recipe)
{
    sp_recipe *r;

    if (!sp_serial_struct(serial, (void **)recipe, sizeof *r))
        return;
    r = *recipe;
    sp_serial_bytes(serial, &r->voxel_size, sizeof r->voxel_size);
    sp_serial_bytes(serial, &r->block, sizeof r->block);
    sp_serial_bytes(serial, &r->overlap, sizeof r->overlap);
    sp_serial_bytes(serial, &r->alignment, sizeof r->alignment);
    sp_serial_bytes(serial, &r->height_percentile, sizeof r->height_percentile);
    sp_serial_bytes(serial, &r->n_columns, sizeof r->n_columns);
    sp_serial_texts(serial, &r->column, r->n_columns);
    sp_serial_texts(serial, &r->source, r->n_columns);
    sp_serial_array(serial, (void **)&r->divisor, r->n_columns, sizeof *r->divisor);
    sp_serial_text(serial, &r->scan_columns);
    sp_serial_text(serial, &r->label_field);
    sp_serial_bytes(serial, &r->n_formats, sizeof r->n_formats);
    sp_serial_texts(serial, &r->format, r->n_formats);
    sp_serial_text(serial, &r->unit);
    sp_serial_text(serial, &r->z_unit);
    sp_serial_text(serial, &r->sweeps);
}

sp_status sp_recipe_copy(const sp_recipe *from, sp_recipe **to)
{
    sp_recipe *source = (sp_recipe *)from; /* writing to bytes leaves it unchanged */
    sp_serial serial = {0};

    assert(to);
    *to = NULL;
    sp_recipe_serialize(&serial, &source);
    serial.is_reading = true;
    sp_recipe_serialize(&serial, to);
    free(serial.data);
    if (serial.rc == SP_OK)
        return SP_OK;
    sp_recipe_destroy(*to);
    *to = NULL;
    return serial.rc;
}

/* ---- comparing ---- */

static bool is_height(const sp_recipe *r, int column)
{
    return strcmp(r->source[column], SP_RECIPE_HEIGHT) == 0;
}

static bool is_other_column(const sp_recipe *a, int i, const sp_recipe *b, int j)
{
    return strcmp(a->source[i], b->source[j]) != 0 || a->divisor[i] != b->divisor[j] ||
           (is_height(a, i) && a->height_percentile != b->height_percentile);
}

static bool is_other_length(double a, double b)
{
    return fabs(a - b) > 1e-6 * fmax(fabs(a), fabs(b));
}

/* Two texts differ only if both exist. */
static bool is_other_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) != 0;
}

sp_recipe_match sp_recipe_compare(const sp_recipe *a, const sp_recipe *b,
                                  char text[SP_RECIPE_DIFFERENCE])
{
    enum { SIZE = SP_RECIPE_DIFFERENCE };

    assert(text);
    text[0] = '\0';
    if (!a || !b)
        return SP_RECIPE_SAME;
    if (is_other_text(a->unit, b->unit)) {
        snprintf(text, SIZE, "coordinates in %s, but in %s", a->unit, b->unit);
        return SP_RECIPE_OTHER_UNIT;
    }
    for (int i = 0; i < a->n_columns; i++) {
        const int j = sp_text_find(b->n_columns, b->column, a->column[i]);

        if (j < 0 || !is_other_column(a, i, b, j))
            continue;
        snprintf(text, SIZE, "column %.100s is %.100s/%g, but %.100s/%g", a->column[i],
                 a->source[i], a->divisor[i], b->source[j], b->divisor[j]);
        if (is_height(a, i) && a->height_percentile != b->height_percentile)
            snprintf(text, SIZE, "%.100s is above percentile %g of z, but %g",
                     a->column[i], a->height_percentile, b->height_percentile);
        return SP_RECIPE_OTHER_VALUES;
    }
    if (is_other_length(a->block, b->block) || is_other_length(a->overlap, b->overlap))
        snprintf(text, SIZE, "blocks of %g with a margin of %g, but of %g with %g",
                 a->block, a->overlap, b->block, b->overlap);
    else if (a->block > 0 && a->alignment != b->alignment)
        snprintf(text, SIZE,
                 "blocks that begin at multiples of %lld voxels, but of %lld (0: "
                 "anywhere)",
                 (long long)a->alignment, (long long)b->alignment);
    else if (is_other_text(a->scan_columns, b->scan_columns))
        snprintf(text, SIZE, "--columns %.200s, but %.200s", a->scan_columns,
                 b->scan_columns);
    else if (is_other_text(a->z_unit, b->z_unit))
        snprintf(text, SIZE, "--z-unit %.40s, but %.40s", a->z_unit, b->z_unit);
    else if (strcmp(a->sweeps ? a->sweeps : "1", b->sweeps ? b->sweeps : "1") != 0)
        snprintf(text, SIZE, "--sweeps %.20s, but %.20s", a->sweeps ? a->sweeps : "1",
                 b->sweeps ? b->sweeps : "1");
    return text[0] ? SP_RECIPE_OTHER_CUT : SP_RECIPE_SAME;
}

/* ---- merging ---- */

/* Copies a text that *a lacks. */
static sp_status merge_text(char **a, const char *b)
{
    if (*a || !b)
        return SP_OK;
    *a = strdup(b);
    return *a ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a recipe");
}

/* Adds a format in the order of names, unless it is there. */
static sp_status merge_format(sp_recipe *a, const char *name)
{
    char **list;
    int at = 0;

    while (at < a->n_formats && strcmp(a->format[at], name) < 0)
        at++;
    if (at < a->n_formats && strcmp(a->format[at], name) == 0)
        return SP_OK;
    if (!sp_list_resize(&a->format, ((size_t)a->n_formats + 1) * sizeof *list) ||
        !(name = strdup(name)))
        return SP_FAIL(SP_EMEM, "no memory for a recipe");
    list = a->format + at;
    memmove(list + 1, list, (size_t)(a->n_formats - at) * sizeof *list);
    *list = (char *)name;
    a->n_formats++;
    return SP_OK;
}

sp_status sp_recipe_merge(sp_recipe **a, const sp_recipe *b)
{
    assert(a);
    if (!b)
        return SP_OK;
    if (!*a)
        return sp_recipe_copy(b, a);
    for (int i = 0; i < b->n_formats; i++)
        SP_TRY(merge_format(*a, b->format[i]));
    SP_TRY(merge_text(&(*a)->scan_columns, b->scan_columns));
    SP_TRY(merge_text(&(*a)->label_field, b->label_field));
    SP_TRY(merge_text(&(*a)->unit, b->unit));
    SP_TRY(merge_text(&(*a)->z_unit, b->z_unit));
    return merge_text(&(*a)->sweeps, b->sweeps);
}
