#include "data/sp_color.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/sp_rng.h"
#include "base/sp_text.h"

enum { BATCH = 256 /* numbers that get random numbers at a time */ };

static bool color_is_on(const sp_config *config)
{
    return config->augment.color_contrast > 0 ||
           (config->augment.color_shift > 0 && config->augment.color_shift_p > 0) ||
           (config->augment.color_jitter > 0 && config->augment.color_jitter_p > 0) ||
           config->augment.color_drop > 0;
}

/* ---- columns ---- */

/* The usual names of colours, with or without "scalar_" or "diffuse_". Only the names
 * of one row count. */
static const char *const color_words[][3] = {{"red", "green", "blue"}, {"r", "g", "b"}};
enum { COLOR_ROWS = sizeof color_words / sizeof *color_words };

/* The name of a column's source. */
static const char *color_source(const sp_dataset *set, int column)
{
    const char *name = set->feature_name[column];
    const sp_recipe *r = set->recipe;
    const int i = r ? sp_text_find(r->n_columns, r->column, name) : -1;

    name = i >= 0 ? r->source[i] : name;
    if (strncasecmp(name, "scalar_", 7) == 0)
        name += 7;
    return strncasecmp(name, "diffuse_", 8) == 0 ? name + 8 : name;
}

static void color_add(sp_colors *colors, int i)
{
    if (colors->n < SP_MOST_COLORS)
        colors->column[colors->n++] = i;
}

static void color_find_usual(const sp_dataset *set, const int *columns, int n,
                             sp_colors *colors)
{
    for (int row = 0; row < COLOR_ROWS && colors->n == 0; row++)
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 3; k++)
                if (strcasecmp(color_source(set, columns[i]), color_words[row][k]) == 0)
                    color_add(colors, i);
}

static sp_status color_find_named(const sp_config *config, const sp_dataset *set,
                                  const int *columns, int n, sp_colors *colors)
{
    const sp_strings *wanted = &config->augment.color_columns;
    char names[300];

    if (wanted->n > SP_MOST_COLORS)
        return SP_FAIL(SP_EUSAGE, "%saugment.color_columns has %d columns, at most %d",
                       sp_config_where(config, "augment.color_columns"), wanted->n,
                       SP_MOST_COLORS);
    for (int k = 0; k < wanted->n; k++) {
        const int before = colors->n;

        for (int i = 0; i < n && colors->n == before; i++)
            if (strcmp(set->feature_name[columns[i]], wanted->at[k]) == 0)
                color_add(colors, i);
        if (colors->n > before)
            continue;
        sp_dataset_print_names(names, sizeof names, n, set->feature_name, columns);
        return SP_FAIL(SP_EUSAGE,
                       "%saugment.color_columns: \"%.80s\" is no column of %s that is "
                       "used, expected names of %s",
                       sp_config_where(config, "augment.color_columns"), wanted->at[k],
                       set->shard[0].path, names);
    }
    return SP_OK;
}

/* ---- the value of white ---- */

static sp_status color_find_white(const sp_config *config, const sp_dataset *set,
                                  const int *columns, sp_colors *colors)
{
    double most = 0;

    colors->white = config->augment.color_max;
    if (colors->white > 0)
        return SP_OK;
    if (!set->feature_mean)
        return SP_FAIL(SP_EUSAGE,
                       "%saugment.color_max = 0: %s has no feature_mean, from which "
                       "the scale of colours could be told: set it to the value of "
                       "full colour, such as 255 or 1",
                       sp_config_where(config, "augment.color_max"),
                       set->shard[0].path);
    for (int k = 0; k < colors->n; k++) {
        const double mean = set->feature_mean[columns[colors->column[k]]];

        most = mean > most ? mean : most;
    }
    colors->white = most <= 1 ? 1 : most <= 255 ? 255 : 65535;
    return SP_OK;
}

sp_status sp_colors_find(const sp_config *config, const sp_dataset *set,
                         const int *columns, int n, sp_colors *colors)
{
    char names[300];

    *colors = (sp_colors){.white = 1};
    if (!color_is_on(config))
        return SP_OK;
    if (config->augment.color_columns.n)
        SP_TRY(color_find_named(config, set, columns, n, colors));
    else
        color_find_usual(set, columns, n, colors);
    if (colors->n)
        return color_find_white(config, set, columns, colors);
    sp_dataset_print_names(names, sizeof names, n, set->feature_name, columns);
    return SP_FAIL(SP_EUSAGE,
                   "augment.color_* changes colours, but the columns in use, %s of %s, "
                   "have no red, green or blue: name them in augment.color_columns, or "
                   "leave these keys out",
                   names, set->shard[0].path);
}

/* ---- draws ---- */

/* The draws of a sample, each at a place of its own in the stream. */
typedef enum color_draw {
    CONTRAST_P,
    BLEND,
    SHIFT_P,
    JITTER_P,
    DROP_P,
    SHIFT, /* of each column */
    DRAWS = SHIFT + SP_MOST_COLORS
} color_draw;

sp_color sp_color_draw(const sp_config *config, uint64_t seed, uint64_t epoch,
                       int64_t sample)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_COLOR, epoch, (uint64_t)sample);
    const double blend = config->augment.color_blend,
                 shift = config->augment.color_shift;
    sp_color color = {.seed = seed, .epoch = epoch, .sample = (uint64_t)sample};
    double u[DRAWS];

    assert(sample >= 0);
    for (int i = 0; i < DRAWS; i++)
        u[i] = sp_rng_unit(&rng);
    if (u[CONTRAST_P] < config->augment.color_contrast)
        color.blend = blend > 0 ? blend : u[BLEND];
    color.is_shifted = shift > 0 && u[SHIFT_P] < config->augment.color_shift_p;
    for (int k = 0; k < SP_MOST_COLORS; k++)
        color.shift[k] = (float)(shift * (2 * u[SHIFT + k] - 1));
    if (u[JITTER_P] < config->augment.color_jitter_p)
        color.jitter = config->augment.color_jitter;
    color.is_dropped = u[DROP_P] < config->augment.color_drop;
    return color;
}

/* ---- changes ---- */

static float color_clip(double x, double white)
{
    return (float)(x < 0 ? 0 : x > white ? white : x);
}

static void color_stretch(double blend, double white, float *x, int64_t n, int c)
{
    float lo = x[0], hi = x[0];

    for (int64_t i = 1; i < n; i++) {
        lo = x[i * c] < lo ? x[i * c] : lo;
        hi = x[i * c] > hi ? x[i * c] : hi;
    }
    if (!(hi > lo))
        return;
    for (int64_t i = 0; i < n; i++)
        x[i * c] = (float)((1 - blend) * x[i * c] +
                           blend * white * ((double)x[i * c] - lo) / ((double)hi - lo));
}

static void color_jitter(const sp_color *color, const sp_colors *colors,
                         float *features, int64_t n, int c)
{
    const sp_rng rng =
        sp_rng_open(color->seed, SP_RNG_COLOR_NOISE, color->epoch, color->sample);
    const double width = color->jitter * colors->white;
    const int64_t all = n * colors->n;
    float noise[BATCH], *x;

    for (int64_t done = 0; done < all; done += BATCH) {
        const int64_t m = all - done < BATCH ? all - done : BATCH;

        sp_rng_normals(&rng, (uint64_t)done, m, noise);
        for (int64_t i = 0; i < m; i++) {
            x = features + (done + i) / colors->n * c +
                colors->column[(done + i) % colors->n];
            *x = color_clip(*x + width * noise[i], colors->white);
        }
    }
}

void sp_color_change(const sp_color *color, const sp_colors *colors, float *features,
                     int64_t n, int c)
{
    const double white = colors->white;

    if (n == 0)
        return;
    for (int k = 0; k < colors->n; k++) {
        float *x = features + colors->column[k];

        if (color->blend > 0)
            color_stretch(color->blend, white, x, n, c);
        for (int64_t i = 0; color->is_shifted && i < n; i++)
            x[i * c] = color_clip(x[i * c] + white * color->shift[k], white);
    }
    if (color->jitter > 0)
        color_jitter(color, colors, features, n, c);
    for (int k = 0; color->is_dropped && k < colors->n; k++)
        for (int64_t i = 0; i < n; i++)
            features[i * c + colors->column[k]] = 0;
}
