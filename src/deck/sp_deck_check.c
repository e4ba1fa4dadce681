/* Checks of keys that depend on each other: values that exclude each other, and values
 * that nothing uses. */
#include "deck/sp_deck_keys.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "base/sp_text.h"

/* True for a list of two numbers, the second not below the first. */
static bool is_interval(const sp_doubles *d)
{
    return d->n == 2 && d->at[0] <= d->at[1];
}

static bool deck_is_rising(const sp_doubles *d)
{
    for (int i = 1; i < d->n; i++)
        if (d->at[i - 1] >= d->at[i])
            return false;
    return true;
}

static sp_status check_lists(const sp_config *config)
{
    if (config->augment.scale.n != 0 && !is_interval(&config->augment.scale))
        return SP_FAIL(SP_EUSAGE, "%saugment.scale takes [low, high] or []",
                       sp_config_where(config, "augment.scale"));
    if (config->train.cycle_momentum.n != 0 &&
        !is_interval(&config->train.cycle_momentum))
        return SP_FAIL(SP_EUSAGE, "%strain.cycle_momentum takes [low, high] or []",
                       sp_config_where(config, "train.cycle_momentum"));
    if (!deck_is_rising(&config->train.milestones))
        return SP_FAIL(SP_EUSAGE, "%strain.milestones takes numbers that rise",
                       sp_config_where(config, "train.milestones"));
    if (config->net.grid.n != 0 && config->net.grid.n != 3)
        return SP_FAIL(SP_EUSAGE, "%snet.grid takes three numbers or [], found %d",
                       sp_config_where(config, "net.grid"), config->net.grid.n);
    if (config->train.betas.n != 2)
        return SP_FAIL(SP_EUSAGE, "%strain.betas takes two numbers, found %d",
                       sp_config_where(config, "train.betas"), config->train.betas.n);
    return SP_OK;
}

/* The characters of a name, which becomes a part of tags, keys and lines. */
static bool deck_is_name(const char *text, size_t n)
{
    enum { LONGEST = 40 };
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789_-.";

    return 0 < n && n <= LONGEST && strspn(text, allowed) == n;
}

static sp_status deck_check_val_sets(const sp_config *config)
{
    const char *where = sp_config_where(config, "data.val_sets");
    const sp_strings *sets = &config->data.val_sets;

    for (int i = 0; i < sets->n; i++) {
        const char *text = sets->at[i];
        const size_t n = strcspn(text, "=");

        if (!deck_is_name(text, n) || text[n] != '=' || !text[n + 1])
            return SP_FAIL(SP_EUSAGE,
                           "%sdata.val_sets: \"%s\", expected \"NAME=FILES\" with a "
                           "name of up to 40 letters, digits, _ - and .",
                           where, text);
        for (int j = 0; j < i; j++)
            if (strncmp(sets->at[j], text, n + 1) == 0)
                return SP_FAIL(SP_EUSAGE,
                               "%sdata.val_sets has the name %.*s twice, in \"%s\" and "
                               "in \"%s\": give each set a name of its own",
                               where, (int)n, text, sets->at[j], text);
    }
    return SP_OK;
}

static sp_status check_elastic(const sp_config *config)
{
    const sp_doubles *elastic = &config->augment.elastic;

    if (elastic->n % 2 || elastic->n > 2 * SP_MAX_ELASTIC)
        return SP_FAIL(SP_EUSAGE,
                       "%saugment.elastic takes [] or up to %d pairs [granularity, "
                       "magnitude, ...]",
                       sp_config_where(config, "augment.elastic"), SP_MAX_ELASTIC);
    return SP_OK;
}

static sp_status deck_check_mix(const sp_config *config)
{
    const sp_doubles *bands = &config->augment.mix_bands;

    for (int i = 0; i < bands->n; i++)
        if (bands->at[i] != floor(bands->at[i]))
            return SP_FAIL(SP_EUSAGE, "%saugment.mix_bands: %g, expected whole numbers",
                           sp_config_where(config, "augment.mix_bands"), bands->at[i]);
    if (bands->n == 0)
        return SP_FAIL(SP_EUSAGE, "%saugment.mix_bands is empty, such as [3, 4, 5, 6]",
                       sp_config_where(config, "augment.mix_bands"));
    if (!is_interval(&config->augment.mix_inclination) ||
        config->augment.mix_inclination.at[0] == config->augment.mix_inclination.at[1])
        return SP_FAIL(SP_EUSAGE,
                       "%saugment.mix_inclination takes [low, high] in degrees",
                       sp_config_where(config, "augment.mix_inclination"));
    if (config->augment.mix_sensor.n != 3)
        return SP_FAIL(SP_EUSAGE, "%saugment.mix_sensor takes [x, y, z]",
                       sp_config_where(config, "augment.mix_sensor"));
    return SP_OK;
}

static sp_status deck_check_range(const sp_config *config, const sp_doubles *range,
                                  const char *key)
{
    bool is_box = range->n == 6;

    for (int a = 0; is_box && a < 3; a++)
        is_box = range->at[a] < range->at[a + 3];
    if (range->n != 0 && !is_box)
        return SP_FAIL(SP_EUSAGE,
                       "%s%s takes [] or [x0, y0, z0, x1, y1, z1] with x0 < x1, "
                       "y0 < y1 and z0 < z1",
                       sp_config_where(config, key), key);
    return SP_OK;
}

static sp_status deck_check_crop(const sp_config *config)
{
    const sp_doubles *size = &config->augment.crop_size;
    const bool is_sphere = config->augment.crop == SP_CROP_SPHERE;
    double most = 0;

    if (config->augment.crop == SP_CROP_NONE)
        return SP_OK;
    for (int i = 0; i < size->n; i++)
        most = size->at[i] > most ? size->at[i] : most;
    if (size->n != 0 && (size->n != (is_sphere ? 1 : 3) || !(most > 0)))
        return SP_FAIL(SP_EUSAGE, "%saugment.crop_size: a %s takes [] or %s, above 0",
                       sp_config_where(config, "augment.crop_size"),
                       sp_crop_shape_word[config->augment.crop],
                       is_sphere ? "[radius]" : "edges [x, y, z]");
    if (size->n == 0 && config->augment.crop_voxels == 0)
        return SP_FAIL(SP_EUSAGE,
                       "%saugment.crop = \"%s\" needs augment.crop_size or "
                       "augment.crop_voxels",
                       sp_config_where(config, "augment.crop"),
                       sp_crop_shape_word[config->augment.crop]);
    return SP_OK;
}

sp_status sp_deck_check_together(const sp_config *config)
{
    assert(config);
    SP_TRY(check_lists(config));
    SP_TRY(deck_check_val_sets(config));
    SP_TRY(deck_check_mix(config));
    SP_TRY(deck_check_range(config, &config->augment.range, "augment.range"));
    SP_TRY(deck_check_range(config, &config->eval.range, "eval.range"));
    SP_TRY(deck_check_crop(config));
    SP_TRY(check_elastic(config));
    if (config->train.optimizer == SP_SGD && config->train.dampening > 0 &&
        config->train.nesterov)
        return SP_FAIL(SP_EUSAGE,
                       "%strain.dampening = %.15g needs train.nesterov = false: "
                       "Nesterov's form of momentum has no dampening",
                       sp_config_where(config, "train.dampening"),
                       config->train.dampening);
    if (config->data.fold > 0 && config->data.fold >= config->data.folds)
        return SP_FAIL(
            SP_EUSAGE,
            "%sdata.fold = %d is not a fold of data.folds = %d, expected 0 to %d",
            sp_config_where(config, "data.fold"), config->data.fold, config->data.folds,
            config->data.folds > 1 ? config->data.folds - 1 : 0);
    if (config->train.deterministic == SP_DET_WORLD &&
        (config->batch.per != SP_PER_WORLD || config->train.bn_scope != SP_SCOPE_WORLD))
        return SP_FAIL(SP_EUSAGE,
                       "%strain.deterministic = \"world\" needs batch.per = \"world\" "
                       "and train.bn_scope = \"world\"",
                       sp_config_where(config, "train.deterministic"));
    return SP_OK;
}

/* ---- keys that nothing uses ---- */

enum { UNUSED = 256 };

/* True if a key was set for this run. A deck that states every key was written by
 * sp_config_to_text: there only keys of the command line were. */
static bool is_meant(const sp_config *config, const char *key)
{
    bool is_resolved = true;

    for (int i = 0; i < sp_deck_n_keys; i++)
        is_resolved = is_resolved && (sp_deck_key[i].type == SP_KEY_LAYERS ||
                                      config->origin[i] != SP_FROM_DEFAULT);
    return is_resolved ? sp_config_is_overridden(config, key)
                       : sp_config_is_set(config, key);
}

static void deck_add(char unused[UNUSED], const char *key)
{
    const size_t used = strlen(unused);

    snprintf(unused + used, UNUSED - used, "%s%s", used ? ", " : "", key);
}

static void warn_of_net(const sp_config *config)
{
    static const char *const key[] = {"net.stem_kernel", "net.kernel_down", "net.width",
                                      "net.family"};
    const bool has_layers = config->net.n_layers > 0;
    const sp_family family = config->net.family;
    const bool has_own_stem = family == SP_DUMMY || family >= SP_MINKUNET18W32;
    const int n = has_layers ? 4 : has_own_stem;
    char unused[UNUSED] = "";

    for (int i = 0; i < n; i++)
        if (is_meant(config, key[i]))
            deck_add(unused, key[i]);
    if ((has_layers || family != SP_MINKUNET34V2W32) &&
        config->net.upsample != SP_UPSAMPLE_TRILINEAR &&
        is_meant(config, "net.upsample"))
        deck_add(unused, "net.upsample");
    if (!has_layers && config->net.grid.n && is_meant(config, "net.grid"))
        deck_add(unused, "net.grid");
    if (*unused)
        sp_log_warn0("ignored, not used by %s: %s",
                     has_layers ? "net.layers" : sp_family_word[config->net.family],
                     unused);
}

/* True if a number or a list of numbers has the value of its default. */
static bool is_standard(const sp_config *config, const sp_key *key)
{
    const void *field = sp_key_field(config, key);
    const bool is_list = key->type == SP_KEY_REALS;
    const int n = is_list ? ((const sp_doubles *)field)->n : 1;
    const double *value = is_list ? ((const sp_doubles *)field)->at : field;
    const char *at = key->standard + is_list;

    assert(is_list || key->type == SP_KEY_REAL);
    for (int i = 0; i < n; i++) {
        char *end;
        const double standard = sp_text_to_number(at, &end);

        if (end == at || standard != value[i])
            return false;
        at = end + strspn(end, ", ");
    }
    return *at == (is_list ? ']' : '\0');
}

/* Adds a key that is not used and was set to more than its default, which a deck may
 * state for completeness. */
static void add_unless(bool is_used, const sp_config *config, const char *key,
                       char unused[UNUSED])
{
    if (!is_used && is_meant(config, key) && !is_standard(config, sp_deck_find(key)))
        deck_add(unused, key);
}

static void warn_of_data(const sp_config *config)
{
    if (config->data.folds > 1 && is_meant(config, "data.val"))
        sp_log_warn0("ignored, not used by data.folds: data.val");
    if (config->data.val_sets.n == 0)
        return;
    if (config->data.val.n == 0 && config->data.folds < 2)
        sp_log_warn0("ignored, not used without data.val: data.val_sets");
    else if (config->run.eval_every == 0)
        sp_log_warn0("ignored, not used by a training with run.eval_every = 0: "
                     "data.val_sets");
}

static void deck_warn_of_augment(const sp_config *config)
{
    const sp_mixing mix = config->augment.mix;
    const bool is_polar = mix == SP_MIX_POLAR || mix == SP_MIX_LASERPOLAR;
    const bool is_laser = mix == SP_MIX_LASER || mix == SP_MIX_LASERPOLAR;
    char unused[UNUSED] = "";

    add_unless(is_laser, config, "augment.mix_bands", unused);
    add_unless(is_laser, config, "augment.mix_inclination", unused);
    add_unless(is_laser || is_polar, config, "augment.mix_sensor", unused);
    if (*unused)
        sp_log_warn0("ignored, not used by this augment.mix: %s", unused);
    *unused = '\0';
    if (config->augment.crop == SP_CROP_NONE && config->augment.crop_voxels > 0 &&
        is_meant(config, "augment.crop_voxels"))
        deck_add(unused, "augment.crop_voxels");
    add_unless(config->augment.crop != SP_CROP_NONE, config, "augment.crop_size",
               unused);
    if (*unused)
        sp_log_warn0("ignored, not used by augment.crop = \"none\": %s", unused);
}

static void warn_of_train(const sp_config *config)
{
    const sp_schedule schedule = config->train.schedule;
    const sp_optimizer optimizer = config->train.optimizer;
    const struct {
        const char *key;
        bool is_used;
    } of_schedule[] = {{"train.warmup_factor", schedule != SP_ONECYCLE},
                       {"train.milestones", schedule == SP_STEP},
                       {"train.gamma", schedule == SP_STEP},
                       {"train.poly_power", schedule == SP_POLY},
                       {"train.cosine_floor", schedule == SP_COSINE},
                       {"train.pct_start", schedule == SP_ONECYCLE},
                       {"train.div_factor", schedule == SP_ONECYCLE},
                       {"train.final_div_factor", schedule == SP_ONECYCLE},
                       {"train.cycle_momentum", schedule == SP_ONECYCLE}},
      of_optimizer[] = {{"train.dampening", optimizer == SP_SGD},
                        {"train.betas", optimizer == SP_ADAMW},
                        {"train.adamw_eps", optimizer == SP_ADAMW}};
    char unused[UNUSED] = "";

    for (size_t i = 0; i < sizeof of_schedule / sizeof *of_schedule; i++)
        add_unless(of_schedule[i].is_used, config, of_schedule[i].key, unused);
    if (*unused)
        sp_log_warn0("ignored, not used by train.schedule = \"%s\": %s",
                     sp_schedule_word[schedule], unused);
    *unused = '\0';
    for (size_t i = 0; i < sizeof of_optimizer / sizeof *of_optimizer; i++)
        add_unless(of_optimizer[i].is_used, config, of_optimizer[i].key, unused);
    if (*unused)
        sp_log_warn0("ignored, not used by train.optimizer = \"%s\": %s",
                     sp_optimizer_word[optimizer], unused);
}

void sp_deck_warn_unused(const sp_config *config)
{
    assert(config);
    warn_of_data(config);
    warn_of_net(config);
    deck_warn_of_augment(config);
    warn_of_train(config);
}
