/* Root attributes of a checkpoint: the state, and the texts about its data. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "checkpoint/sp_checkpoint_internal.h"

#define FORMAT  "sptrain-checkpoint"
#define NAMES   "feature_names"
#define CLASSES "class_names"
#define CODES   "class_codes"
enum { VERSION = 1 };

/* The numeric attributes, in alphabetical order. The texts, which are handled by name,
 * come between them in that order. */
typedef struct root_field {
    const char *name;
    sp_h5_type type;
    size_t offset;
    bool is_optional; /* 0 if it is absent, as in files of older versions */
} root_field;

#define AT(field) offsetof(sp_checkpoint_state, field)
static const root_field fields[] = {
    {"best_miou", SP_H5_F64, AT(best), false},
    {"data_hash", SP_H5_U64, AT(data_hash), false},
    {"epoch", SP_H5_I64, AT(at.epoch), false},
    {"eval_due", SP_H5_I64, AT(eval_due), true},
    {"groups", SP_H5_I64, AT(groups), true},
    {"metrics_bytes", SP_H5_I64, AT(metrics_bytes), false},
    {"position", SP_H5_I64, AT(at.position), false},
    {"samples_seen", SP_H5_I64, AT(samples_seen), false},
    {"seed", SP_H5_I64, AT(seed), false},
    {"skipped", SP_H5_I64, AT(skipped), false},
    {"step", SP_H5_I64, AT(step), false},
    {"updates", SP_H5_I64, AT(updates), false},
    {"val_hash", SP_H5_U64, AT(val_hash), true},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const void *checkpoint_value_of(const root_field *field,
                                       const sp_checkpoint_state *state)
{
    return (const char *)state + field->offset;
}

static bool checkpoint_root_is_absent(const root_field *field,
                                      const sp_checkpoint_state *state)
{
    return field->is_optional &&
           *(const int64_t *)checkpoint_value_of(field, state) == 0;
}

static uint32_t crc_item(uint32_t crc, const char *name, const void *data, size_t bytes)
{
    crc = sp_crc32c(crc, name, strlen(name));
    return sp_crc32c(crc, data, bytes);
}

/* crc32c over all root attributes in alphabetical order, the texts at their places. */
static uint32_t root_crc(const sp_checkpoint_state *state, const sp_normalization *norm)
{
    const int64_t version = VERSION;
    uint32_t crc = 0;

    for (int i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].name, "data_hash") == 0) {
            crc = sp_crc32c_texts(crc, CODES, norm->n_classes, norm->class_code);
            crc = sp_crc32c_texts(crc, CLASSES, norm->n_classes, norm->class_name);
        }
        if (strcmp(fields[i].name, "epoch") == 0)
            crc = crc_item(crc, "deck", state->deck, strlen(state->deck));
        if (strcmp(fields[i].name, "groups") == 0) {
            crc = sp_crc32c_texts(crc, NAMES, norm->n_columns, norm->name);
            crc = crc_item(crc, "format", FORMAT, strlen(FORMAT));
        }
        if (!checkpoint_root_is_absent(fields + i, state))
            crc = crc_item(crc, fields[i].name, checkpoint_value_of(fields + i, state),
                           8);
    }
    return crc_item(crc, "version", &version, sizeof version);
}

static sp_status write_texts(sp_h5 *file, const char *name, int n, char *const *text)
{
    return text ? sp_h5_attr_write_texts(file, "/", name, n, text) : SP_OK;
}

sp_status sp_checkpoint_write_root(sp_h5 *file, const sp_checkpoint_state *state,
                                   const sp_normalization *norm)
{
    const int64_t version = VERSION;
    const uint32_t crc = root_crc(state, norm);
    char *const format[] = {FORMAT};
    char *const deck[] = {state->deck};

    assert(state->deck);
    SP_TRY(sp_h5_attr_write_texts(file, "/", "format", -1, format));
    SP_TRY(sp_h5_attr_write(file, "/", "version", SP_H5_I64, -1, &version));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "deck", -1, deck));
    SP_TRY(write_texts(file, CODES, norm->n_classes, norm->class_code));
    SP_TRY(write_texts(file, CLASSES, norm->n_classes, norm->class_name));
    SP_TRY(write_texts(file, NAMES, norm->n_columns, norm->name));
    for (int i = 0; i < N_FIELDS; i++)
        if (!checkpoint_root_is_absent(fields + i, state))
            SP_TRY(sp_h5_attr_write(file, "/", fields[i].name, fields[i].type, -1,
                                    checkpoint_value_of(fields + i, state)));
    return sp_h5_attr_write(file, "/", "crc32c", SP_H5_U32, -1, &crc);
}

sp_status sp_checkpoint_check_format(sp_h5 *file)
{
    SP_FREED char *format = NULL;
    int64_t version;

    SP_TRY(sp_h5_attr_read_text(file, "/", "format", &format));
    if (strcmp(format, FORMAT) != 0)
        return SP_FAIL(SP_EDATA, "%s: format \"%s\", expected \"" FORMAT "\"",
                       sp_h5_path(file), format);
    SP_TRY(sp_h5_attr_read_int(file, "/", "version", &version));
    if (version != VERSION)
        return SP_FAIL(SP_EDATA, "%s: version %lld, expected %d", sp_h5_path(file),
                       (long long)version, VERSION);
    return SP_OK;
}

/* Greatest plausible number of steps, samples or bytes: a double represents it exactly,
 * and its products with small factors do not overflow. */
#define MOST ((int64_t)1 << 53)

static sp_status check_count(sp_h5 *file, const char *name, int64_t value, int64_t most,
                             const char *meaning)
{
    if (value >= 0 && value <= most)
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s: attribute %s is %lld, expected 0 to %lld%s",
                   sp_h5_path(file), name, (long long)value, (long long)most, meaning);
}

/* Checks the plausibility of the numbers before the program computes with them, since a
 * checksum proves that bytes are unchanged and not that they are sensible. Every epoch
 * has a step and every step a sample, and a step either updates the weights, or is
 * skipped, or has no labelled voxel. */
static sp_status check_state(sp_h5 *file, const sp_checkpoint_state *s)
{
    SP_TRY(check_count(file, "samples_seen", s->samples_seen, MOST, ""));
    SP_TRY(check_count(file, "step", s->step, s->samples_seen, " (samples_seen)"));
    SP_TRY(check_count(file, "epoch", s->at.epoch, s->step, " (step)"));
    SP_TRY(check_count(file, "position", s->at.position, s->samples_seen,
                       " (samples_seen)"));
    SP_TRY(check_count(file, "updates", s->updates, s->step, " (step)"));
    SP_TRY(check_count(file, "skipped", s->skipped, s->step - s->updates,
                       " (step less updates)"));
    SP_TRY(check_count(file, "metrics_bytes", s->metrics_bytes, MOST, ""));
    SP_TRY(check_count(file, "eval_due", s->eval_due, 1, ""));
    SP_TRY(check_count(file, "groups", s->groups, INT32_MAX, ""));
    if (!isnan(s->best) && !(s->best >= 0 && s->best <= 1))
        return SP_FAIL(SP_EDATA,
                       "%s: attribute best_miou is %g, expected 0 to 1 or no number",
                       sp_h5_path(file), s->best);
    return SP_OK;
}

sp_status sp_checkpoint_check_deck(const char *path, const sp_checkpoint_state *state)
{
    SP_CLOSED_BY(sp_config_destroy) sp_config config = {0};
    const sp_status rc = sp_config_parse(&config, state->deck, path, 0, NULL);

    assert(state->deck);
    if (rc == SP_EUSAGE)
        return SP_OK;
    SP_TRY(rc);
    if (state->seed != config.train.seed)
        return SP_FAIL(SP_EDATA,
                       "%s: attribute seed is %lld, expected %lld (train.seed of the "
                       "deck in it)",
                       path, (long long)state->seed, (long long)config.train.seed);
    return SP_OK;
}

sp_status sp_checkpoint_check_place(const char *path, const sp_checkpoint_state *state,
                                    int64_t n_samples)
{
    const int64_t position = state->at.position;
    int64_t seen;

    assert(n_samples >= 0);
    if (position >= n_samples)
        return SP_FAIL(SP_EDATA,
                       "%s: attribute position is %lld, expected less than the %lld "
                       "samples of an epoch",
                       path, (long long)position, (long long)n_samples);
    if (__builtin_mul_overflow(state->at.epoch, n_samples, &seen) ||
        __builtin_add_overflow(seen, position, &seen) || state->samples_seen != seen)
        return SP_FAIL(SP_EDATA,
                       "%s: attribute samples_seen is %lld, expected epoch %lld times "
                       "%lld samples and position %lld",
                       path, (long long)state->samples_seen, (long long)state->at.epoch,
                       (long long)n_samples, (long long)position);
    return SP_OK;
}

static sp_status check_number(sp_h5 *file, const char *name, int n)
{
    if (n >= 1 && n <= SP_CHECKPOINT_COLUMNS)
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s: attribute %s has %d names, expected 1 to %d",
                   sp_h5_path(file), name, n, SP_CHECKPOINT_COLUMNS);
}

/* Reads the texts that are there; files of older versions lack some. */
static sp_status checkpoint_read_texts(sp_h5 *file, sp_normalization *norm)
{
    int64_t n_codes = 0;

    if (sp_h5_attr_has(file, "/", NAMES))
        SP_TRY(sp_h5_attr_read_texts(file, "/", NAMES, &norm->name, &norm->n_columns));
    if (norm->name)
        SP_TRY(check_number(file, NAMES, norm->n_columns));
    if (!sp_h5_attr_has(file, "/", CLASSES))
        return SP_OK;
    SP_TRY(
        sp_h5_attr_read_texts(file, "/", CLASSES, &norm->class_name, &norm->n_classes));
    SP_TRY(check_number(file, CLASSES, norm->n_classes));
    if (!sp_h5_attr_has(file, "/", CODES))
        return SP_OK;
    SP_TRY(sp_h5_attr_count(file, "/", CODES, &n_codes));
    if (n_codes != norm->n_classes)
        return SP_FAIL(SP_EDATA, "%s: %lld " CODES ", expected %d", sp_h5_path(file),
                       (long long)n_codes, norm->n_classes);
    return sp_h5_attr_read_texts(file, "/", CODES, &norm->class_code, &norm->n_classes);
}

sp_status sp_checkpoint_read_root(sp_h5 *file, sp_checkpoint_state *state,
                                  sp_normalization *norm)
{
    uint32_t crc;

    memset(state, 0, sizeof *state);
    memset(norm, 0, sizeof *norm);
    state->best = NAN;
    if (!sp_h5_attr_has(file, "/", "format"))
        return SP_OK;
    SP_TRY(sp_checkpoint_check_format(file));
    for (int i = 0; i < N_FIELDS; i++)
        if (!fields[i].is_optional || sp_h5_attr_has(file, "/", fields[i].name))
            SP_TRY(sp_h5_attr_read(file, "/", fields[i].name, fields[i].type, 1,
                                   (char *)state + fields[i].offset));
    SP_TRY(sp_h5_attr_read_text(file, "/", "deck", &state->deck));
    SP_TRY(checkpoint_read_texts(file, norm));
    SP_TRY(sp_h5_attr_read(file, "/", "crc32c", SP_H5_U32, 1, &crc));
    if (crc != root_crc(state, norm))
        return SP_FAIL(
            SP_EDATA, "%s: attributes: crc32c %08x, expected %08x: the file is damaged",
            sp_h5_path(file), root_crc(state, norm), crc);
    return check_state(file, state);
}
