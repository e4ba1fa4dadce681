#include "label/label_model.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "checkpoint/sp_calibration.h"
#include "data/sp_recipe.h"

enum { LIST = 300 };

/* ---- how scans become samples ---- */

/* Adds column i of the recipe to the features. */
static sp_status model_add_column(const label_model *m, const sp_recipe *recipe, int i)
{
    vox_feature *f = &m->vox->feature[m->vox->n_features];

    if (m->vox->n_features == VOX_MAX_FEATURES ||
        strlen(recipe->source[i]) >= sizeof f->name)
        return SP_FAIL(SP_EDATA,
                       "%s: column %s: more than %d columns, or a name of "
                       "more than %zu bytes",
                       m->infer.path, recipe->column[i], VOX_MAX_FEATURES,
                       sizeof f->name - 1);
    *f = (vox_feature){.kind = vox_feature_kind_of(recipe->source[i]),
                       .divisor = recipe->divisor[i]};
    memcpy(f->name, recipe->source[i], strlen(recipe->source[i]));
    if (f->kind == VOX_HEIGHT && recipe->height_percentile != SP_RECIPE_PERCENTILE)
        return SP_FAIL(SP_EDATA, "%s: height is above percentile %g of z, expected %g",
                       m->infer.path, recipe->height_percentile,
                       (double)SP_RECIPE_PERCENTILE);
    m->vox->n_features++;
    return SP_OK;
}

/* The model's columns are its shards' columns that data.features chose, in its order.
 */
static sp_status model_add_columns(label_model *m, const sp_recipe *recipe)
{
    const sp_normalization *norm = &m->infer.network.norm;
    const int n = norm->name ? norm->n_columns : recipe->n_columns;

    m->vox->n_features = 0;
    for (int k = 0; k < n; k++) {
        int i = norm->name
                    ? sp_text_find(recipe->n_columns, recipe->column, norm->name[k])
                    : k;

        if (i < 0)
            return SP_FAIL(SP_EDATA,
                           "%s: its recipe does not tell how column %s is made",
                           m->infer.path, norm->name[k]);
        SP_TRY(model_add_column(m, recipe, i));
    }
    return SP_OK;
}

static double given_or(double given, double other)
{
    return given >= 0 ? given : other;
}

static sp_status model_apply_recipe(label_model *m, const sp_recipe *recipe,
                                    bool has_keep)
{
    vox_options *v = m->vox;

    if (v->voxel_size > 0 || v->n_features > 0)
        return SP_FAIL(
            SP_EUSAGE,
            "%s gives voxel size and columns; leave out --voxel-size and --features",
            m->infer.path);
    if (recipe->sweeps)
        return SP_FAIL(
            SP_EDATA,
            "%s was trained on samples of %.20s scans joined by their poses, "
            "which label does not join: spvox convert --poses makes such "
            "samples, sptrain predict and spvox apply label them",
            m->infer.path, recipe->sweeps);
    v->voxel_size = recipe->voxel_size;
    v->block = given_or(v->block, recipe->block);
    v->overlap = given_or(v->overlap, v->block > 0 ? recipe->overlap : 0);
    if (!v->columns)
        v->columns = recipe->scan_columns;
    if (!v->label_field && has_keep) /* scans to be labelled may lack it */
        v->label_field = recipe->label_field;
    return model_add_columns(m, recipe);
}

/* Chooses the unit of z: as given, else as in the training, else as the scans say; with
 * --any-format in the unit of x and y in any case. */
static sp_status choose_z_unit(label_model *m, const sp_recipe *recipe,
                               bool is_any_format)
{
    vox_options *v = m->vox;

    if (v->z_unit >= 0)
        return SP_OK;
    v->z_unit = is_any_format ? SP_SCAN_Z_SAME : SP_SCAN_Z_OF_RECORDS;
    if (!recipe || !recipe->z_unit)
        return SP_OK;
    v->z_unit = sp_scan_find_z_word(recipe->z_unit);
    return v->z_unit >= 0
               ? SP_OK
               : SP_FAIL(SP_EDATA,
                         "%s: its recipe has z_unit \"%.40s\", expected one of %s",
                         m->infer.path, recipe->z_unit, SP_SCAN_Z_WORDS);
}

static const vox_feature *find_feature(const vox_options *v, const char *name)
{
    for (int i = 0; i < v->n_features; i++)
        if (strcmp(v->feature[i].name, name) == 0)
            return &v->feature[i];
    return NULL;
}

/* Takes the model's columns, by name, from the command line's. A model of an older
 * version has no names and uses these. */
static sp_status pick_features(label_model *m)
{
    const sp_normalization *norm = &m->infer.network.norm;
    const vox_options given = *m->vox;
    char want[LIST];

    if (!norm->name)
        return SP_OK;
    m->vox->n_features = 0;
    for (int k = 0; k < norm->n_columns && k < VOX_MAX_FEATURES; k++) {
        const vox_feature *f = find_feature(&given, norm->name[k]);

        if (f)
            m->vox->feature[m->vox->n_features++] = *f;
    }
    if (m->vox->n_features == norm->n_columns)
        return SP_OK;
    sp_dataset_print_names(want, sizeof want, norm->n_columns, norm->name, NULL);
    return SP_FAIL(SP_EUSAGE,
                   "--features: the columns of %s are %s, expected all of them",
                   m->infer.path, want);
}

static sp_status model_apply_options(label_model *m)
{
    vox_options *v = m->vox;

    if (v->voxel_size <= 0 || v->n_features == 0)
        return SP_FAIL(SP_EUSAGE,
                       "%s does not tell how scans became its samples: give "
                       "--voxel-size and --features (and --block and --overlap) as "
                       "they were given to spvox convert",
                       m->infer.path);
    v->block = given_or(v->block, 0);
    v->overlap = given_or(v->overlap, 0);
    return pick_features(m);
}

static sp_status choose_samples(label_model *m, const label_options *options)
{
    const sp_recipe *recipe = m->infer.network.norm.recipe;
    const vox_options *v = m->vox;

    SP_TRY(recipe ? model_apply_recipe(m, recipe, options->keep != NULL)
                  : model_apply_options(m));
    SP_TRY(choose_z_unit(m, recipe, options->any_format));
    if (options->buffer > 0 && v->block <= 0)
        return SP_FAIL(SP_EUSAGE,
                       "--buffer %g: whole scans have no neighbours; give "
                       "--block",
                       options->buffer);
    m->vox->is_window = v->has_bounds;
    m->vox->buffer = options->buffer;
    if (v->is_window && v->block <= 0)
        return SP_FAIL(SP_EUSAGE, "--window: a whole scan is one sample; give --block");
    if (v->overlap > v->block)
        return SP_FAIL(SP_EUSAGE, "--overlap %g: expected at most --block, which is %g",
                       v->overlap, v->block);
    return SP_OK;
}

/* Gives the network's part its columns: the samples' columns, unchanged. */
static sp_status choose_columns(label_model *m)
{
    sp_network *r = &m->infer.network;
    const int n = m->vox->n_features;

    if (r->norm.mean && r->norm.n_columns != n)
        return SP_FAIL(SP_EDATA, "%s: statistics of %d columns, expected %d",
                       m->infer.path, r->norm.n_columns, n);
    if (!m->infer.is_checkpoint)
        sp_log_warn0("%s holds only weights: columns are not normalized",
                     m->infer.path);
    SP_TRY(SP_NEW(&r->columns, n, "columns"));
    SP_TRY(SP_NEW(&m->column, n, "columns"));
    r->n_columns = n;
    for (int i = 0; i < n; i++) {
        r->columns[i] = i;
        m->column[i] = r->norm.name ? r->norm.name[i] : m->vox->feature[i].name;
    }
    sp_network_find_vectors(r, r->norm.recipe, m->column);
    return SP_OK;
}

/* ---- classes ---- */

static sp_status choose_classes(label_model *m)
{
    sp_network *r = &m->infer.network;
    const sp_normalization *norm = &r->norm;
    const vox_map *map = &m->vox->map;

    if (!norm->class_name && map->n == 0)
        return SP_FAIL(SP_EUSAGE,
                       "%s does not name its classes: give --map as it was given to "
                       "spvox convert",
                       m->infer.path);
    r->class_name = norm->class_name ? norm->class_name : (char **)map->name;
    r->n_classes = m->n_classes = norm->class_name ? norm->n_classes : map->n;
    SP_TRY(SP_NEW(&m->code, m->n_classes, "classes"));
    if (map->n > 0)
        return vox_codes_of_map(map, m->infer.path, m->n_classes, r->class_name,
                                m->code);
    if (norm->class_code)
        return vox_first_codes(m->infer.path, m->n_classes, norm->class_code, m->code);
    sp_log_warn0("%s has no codes of its classes: they are written as 0, 1, 2, ...; "
                 "--map gives them",
                 m->infer.path);
    for (int c = 0; c < m->n_classes; c++)
        m->code[c] = c;
    return SP_OK;
}

/* ---- added fields ---- */

static sp_status add_field(label_model *m, const label_options *o,
                           label_field_kind kind, const char *name, const char *help)
{
    sp_scan_added *a = &m->added[m->n_added];

    if (m->n_added == LABEL_ADDED)
        return SP_FAIL(SP_EUSAGE, "--probabilities: more than %d fields", LABEL_ADDED);
    *a = (sp_scan_added){.is_float = kind != LABEL_CLASS && o->is_float != 0,
                         .is_code = kind == LABEL_CLASS};
    /* Readers refuse a LAS file if a name ends within a character. */
    sp_text_printable(a->name, sizeof a->name, name, false);
    snprintf(a->help, sizeof a->help, "%s", help);
    for (int i = 0; i < m->n_added; i++)
        if (strcasecmp(m->added[i].name, a->name) == 0)
            return SP_FAIL(SP_EUSAGE, "two added fields would be named %s", a->name);
    m->kind[m->n_added++] = kind;
    return SP_OK;
}

static sp_status add_probability(label_model *m, const label_options *o, int class)
{
    const char *class_name = m->infer.network.class_name[class];
    char name[LIST];

    snprintf(name, sizeof name, "p_%s", class_name);
    m->class_of_field[m->n_added < LABEL_ADDED ? m->n_added : 0] = class;
    return add_field(m, o, LABEL_PROBABILITY, name, "probability of the class");
}

static sp_status add_probabilities(label_model *m, const label_options *o)
{
    char *const *name = m->infer.network.class_name;
    const bool is_all = strcmp(o->probabilities, "all") == 0;
    char known[LIST];

    for (int c = 0; is_all && c < m->n_classes; c++)
        SP_TRY(add_probability(m, o, c));
    for (const char *at = is_all ? "" : o->probabilities; *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        int c = 0;

        while (c < m->n_classes &&
               (strlen(name[c]) != n || strncmp(name[c], at, n) != 0))
            c++;
        if (c == m->n_classes) {
            sp_dataset_print_names(known, sizeof known, m->n_classes, name, NULL);
            return SP_FAIL(SP_EUSAGE, "--probabilities: no class \"%.*s\" among %s",
                           (int)n, at, known);
        }
        SP_TRY(add_probability(m, o, c));
        at += n;
    }
    return SP_OK;
}

static sp_status add_class_field(label_model *m, const label_options *o)
{
    for (int c = 0; c < m->n_classes; c++)
        if (m->code[c] > UINT8_MAX)
            return SP_FAIL(SP_EUSAGE,
                           "--class-field %s: class %s has the code %d, expected at "
                           "most %d",
                           o->class_field, m->infer.network.class_name[c], m->code[c],
                           UINT8_MAX);
    if (o->doubtful > UINT8_MAX)
        return SP_FAIL(SP_EUSAGE,
                       "--doubtful %d with --class-field: expected at most "
                       "%d",
                       (int)o->doubtful, UINT8_MAX);
    m->has_class_field = true;
    return add_field(m, o, LABEL_CLASS, o->class_field, "class of sptrain label");
}

static sp_status choose_fields(label_model *m, const label_options *o)
{
    if (o->class_field)
        SP_TRY(add_class_field(m, o));
    if (o->confidence)
        SP_TRY(add_field(m, o, LABEL_CONFIDENCE, "confidence",
                         "probability of the class"));
    if (o->entropy)
        SP_TRY(add_field(m, o, LABEL_ENTROPY, "entropy",
                         "0 certain, 1 all classes alike"));
    if (o->margin)
        SP_TRY(add_field(m, o, LABEL_MARGIN, "margin", "less the second class"));
    if (m->members.n > 0 && !o->no_agreement)
        SP_TRY(add_field(m, o, LABEL_AGREEMENT, "agreement",
                         "share of models of this class"));
    return o->probabilities ? add_probabilities(m, o) : SP_OK;
}

/* ---- calibration ---- */

static sp_status choose_calibration(label_model *m, const label_options *o)
{
    const sp_calibration *c = m->infer.network.norm.calibration;

    m->temperature = m->members.n == 0 ? sp_calibration_temperature(c) : 1;
    if (o->doubtful_features <= 0)
        return SP_OK;
    if (m->members.n > 0)
        return SP_FAIL(SP_EUSAGE, "--doubtful-features: several models have no common "
                                  "features; name one model");
    if (!c || c->n_features == 0)
        return SP_FAIL(SP_EUSAGE,
                       "--doubtful-features: %s does not have its classes' features: "
                       "`sptrain calibrate` finds them",
                       m->infer.path);
    m->most_distance = sp_calibration_threshold(c, o->doubtful_features);
    return m->most_distance > 0
               ? SP_OK
               : SP_FAIL(SP_EDATA, "%s: its calibration has no distances above 0",
                         m->infer.path);
}

/* ---- open and close ---- */

/* Rank 0: adds a model's file to the checksum that outputs record. */
static sp_status sum_file(const char *path, uint32_t *crc)
{
    enum { PIECE = 1 << 20 };
    unsigned char *piece = malloc(PIECE);
    FILE *file = fopen(path, "rb");
    sp_status rc = SP_OK;
    size_t n;

    if (!piece || !file)
        rc = SP_FAIL(piece ? SP_EIO : SP_EMEM, "%s: cannot read: %s", path,
                     strerror(errno));
    while (rc == SP_OK && (n = fread(piece, 1, PIECE, file)) > 0)
        *crc = sp_crc32c(*crc, piece, n);
    if (rc == SP_OK && ferror(file))
        rc = SP_FAIL(SP_EIO, "%s: cannot read: %s", path, strerror(errno));
    if (file)
        fclose(file);
    free(piece);
    return rc;
}

/* Cuts A+B+C apart: model [*n], which the caller frees; the paths are m->words. A file
 * or folder of the whole name is one model. */
static sp_status model_split(label_model *m, const char *models, char ***model, int *n)
{
    const bool is_one = access(models, F_OK) == 0;
    char *at;

    *n = 1;
    for (const char *c = models; !is_one && *c; c++)
        *n += *c == '+';
    m->words = strdup(models);
    *model = calloc((size_t)*n, sizeof **model);
    if (!m->words || !*model)
        return SP_FAIL(SP_EMEM, "no memory for %d models", *n);
    at = m->words;
    for (int k = 0; k < *n; k++) {
        (*model)[k] = at;
        at = k + 1 < *n ? strchr(at, '+') : NULL;
        if (at)
            *at++ = '\0';
    }
    return *n - 1 <= SP_MOST_MEMBERS
               ? SP_OK
               : SP_FAIL(SP_EUSAGE, "%d models, expected at most %d", *n,
                         SP_MOST_MEMBERS + 1);
}

static sp_status model_sum_files(label_model *m)
{
    sp_status rc = sum_file(m->infer.path, &m->crc);

    for (int k = 0; rc == SP_OK && k < m->members.n; k++)
        rc = sum_file(sp_members_path(&m->members, k), &m->crc);
    return rc;
}

/* Opens the model and what it says; `model` [n] are the paths. */
static sp_status model_open_all(label_model *m, const sp_command *command,
                                label_options *options, char *const *model, int n)
{
    SP_TRY(sp_infer_open_model(&m->infer, command, model[0]));
    SP_TRY(choose_samples(m, options));
    SP_TRY(choose_columns(m));
    SP_TRY(choose_classes(m));
    SP_TRY(sp_members_open(&m->members, &m->infer, m->column, n - 1, model + 1));
    SP_TRY(choose_calibration(m, options));
    return choose_fields(m, options);
}

sp_status label_model_open(label_model *m, const sp_command *command,
                           label_options *options)
{
    sp_comm *comm = command->comm;
    char **model = NULL;
    int n = 0;
    sp_status rc;

    assert(comm && options->model);
    memset(m, 0, sizeof *m);
    m->vox = &options->vox;
    rc = sp_comm_agree(comm, model_split(m, options->model, &model, &n));
    if (rc == SP_OK)
        rc = model_open_all(m, command, options, model, n);
    free(model);
    SP_TRY(rc);
    if (comm->rank == 0)
        rc = model_sum_files(m);
    SP_TRY(sp_comm_agree(comm, rc));
    return sp_comm_bcast(comm, &m->crc, sizeof m->crc, 0);
}

sp_status label_model_close(label_model *m, sp_status rc)
{
    free(m->code);
    free(m->column);
    m->code = NULL;
    m->column = NULL;
    free(m->words);
    m->words = NULL;
    sp_members_close(&m->members);
    return sp_infer_close(&m->infer, rc);
}

/* ---- scans ---- */

/* A LAZ file has the points of a LAS file. */
static bool is_same_format(const char *a, const char *b)
{
    bool is_las = strcmp(a, "LAS") == 0 || strcmp(a, "LAZ") == 0;

    return strcmp(a, b) == 0 ||
           (is_las && (strcmp(b, "LAS") == 0 || strcmp(b, "LAZ") == 0));
}

/* Warns once of feet, or other lengths, that a model may not have seen. */
static void warn_of_unit(const sp_scan *scan, const char *unit)
{
    static bool is_told;

    if (is_told || strcmp(unit, "metre") == 0)
        return;
    is_told = true;
    sp_log_warn("%s: its coordinates are in %s, but the model does not state the unit "
                "of its samples",
                sp_scan_path(scan), unit);
}

static sp_status check_kind(const label_model *m, const sp_scan *scan)
{
    const sp_recipe *recipe = m->infer.network.norm.recipe;
    const char *format = sp_scan_format_name(scan), *unit = sp_scan_unit(scan);
    char known[LIST];
    bool is_known = !recipe || recipe->n_formats == 0;

    for (int i = 0; recipe && i < recipe->n_formats; i++)
        is_known = is_known || is_same_format(format, recipe->format[i]);
    if (!is_known) {
        sp_dataset_print_names(known, sizeof known, recipe->n_formats, recipe->format,
                               NULL);
        return SP_FAIL(SP_EDATA,
                       "%s: is %s, but the model has seen %s; --any-format takes it",
                       sp_scan_path(scan), format, known);
    }
    if (recipe && recipe->unit && unit && strcmp(unit, recipe->unit) != 0)
        return SP_FAIL(SP_EDATA,
                       "%s: its coordinates are in %s, but the model's are in %s; "
                       "--any-format takes it",
                       sp_scan_path(scan), unit, recipe->unit);
    if (unit && strcmp(unit, "degree") == 0 && !(recipe && recipe->unit))
        return SP_FAIL(SP_EDATA,
                       "%s: its records say that x and y are in degree, but the model "
                       "has not seen degrees: project the scan first, or take it as it "
                       "is by --any-format",
                       sp_scan_path(scan));
    if (unit && !(recipe && recipe->unit))
        warn_of_unit(scan, unit);
    return sp_scan_check_units(scan, true);
}

static sp_status check_attributes(const label_model *m, sp_scan *scan)
{
    for (int i = 0; i < m->vox->n_features; i++) {
        const char *name = m->vox->feature[i].name;

        if (m->vox->feature[i].kind == VOX_ATTRIBUTE &&
            sp_scan_select(scan, 1, &name) != SP_OK)
            return SP_FAIL(SP_EDATA, "%s (column %s of the model is made of it)",
                           sp_error_last()->message, m->column[i]);
    }
    return sp_scan_select(scan, 0, NULL);
}

/* Files without a point count in the header are read up to the first point. */
static sp_status check_points(sp_scan *scan)
{
    sp_scan_points points = {0};
    int64_t n = sp_scan_count(scan);
    sp_status rc = SP_OK;

    if (n < 0)
        rc = sp_scan_next(scan, 1, &points);
    if (n < 0)
        n = points.n;
    sp_scan_points_destroy(&points);
    SP_TRY(rc);
    return n > 0 ? SP_OK
                 : SP_FAIL(SP_EDATA, "%s: has no points, expected one at least",
                           sp_scan_path(scan));
}

sp_status label_model_check(const label_model *m, const label_options *o, sp_scan *scan,
                            const char *path)
{
    const int32_t doubtful = (int32_t)o->doubtful;

    assert(m->code && scan && path);
    if (!o->any_format)
        SP_TRY(check_kind(m, scan));
    SP_TRY(check_attributes(m, scan));
    SP_TRY(check_points(scan));
    if (m->vox->is_window && !is_same_format(sp_scan_format_name(scan), "LAS"))
        return SP_FAIL(SP_EDATA, "%s: is %s, but --window writes LAS and LAZ only",
                       sp_scan_path(scan), sp_scan_format_name(scan));
    if (o->keep && !sp_scan_is_labelled(scan))
        return SP_FAIL(SP_EDATA, "%s: its points have no codes to --keep",
                       sp_scan_path(scan));
    SP_TRY(
        sp_scan_check_labels(scan, path, m->code, m->n_classes, m->n_added, m->added));
    return sp_scan_check_labels(scan, path, &doubtful, 1, 0, NULL);
}
