/* Root attributes of a checkpoint: the state, and the names of its feature columns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/sp_checkpoint_internal.h"
#include "base/sp_crc.h"

#define FORMAT "sptrain-checkpoint"
#define NAMES  "feature_names"
enum { VERSION = 1 };

/* The numbers, in alphabetical order among them; texts stand between by name. */
typedef struct root_field {
    const char *name;
    sp_h5_type type;
    size_t offset;
} root_field;

#define FIELD(name, type, field)                                                       \
    {                                                                                  \
        name, type, offsetof(sp_checkpoint_state, field)                               \
    }
static const root_field fields[] = {
    FIELD("best_miou", SP_H5_F64, best),
    FIELD("data_hash", SP_H5_U64, data_hash),
    FIELD("epoch", SP_H5_I64, at.epoch),
    FIELD("metrics_bytes", SP_H5_I64, metrics_bytes),
    FIELD("position", SP_H5_I64, at.position),
    FIELD("samples_seen", SP_H5_I64, samples_seen),
    FIELD("seed", SP_H5_I64, seed),
    FIELD("skipped", SP_H5_I64, skipped),
    FIELD("step", SP_H5_I64, step),
    FIELD("updates", SP_H5_I64, updates),
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static uint32_t crc_item(uint32_t crc, const char *name, const void *data, size_t bytes)
{
    crc = sp_crc32c(crc, name, strlen(name));
    return sp_crc32c(crc, data, bytes);
}

/* Each name ends with its zero byte, so that ["ab"] is not ["a", "b"]. */
static uint32_t crc_names(uint32_t crc, const sp_normalization *norm)
{
    int i;

    if (norm->n_names > 0)
        crc = sp_crc32c(crc, NAMES, strlen(NAMES));
    for (i = 0; i < norm->n_names; i++)
        crc = sp_crc32c(crc, norm->name[i], strlen(norm->name[i]) + 1);
    return crc;
}

/* crc32c of the root: the texts find their places in the alphabet. */
static uint32_t root_crc(const sp_checkpoint_state *state, const sp_normalization *norm)
{
    const int64_t version = VERSION;
    uint32_t crc = 0;
    int i;

    for (i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].name, "epoch") == 0)
            crc = crc_item(crc, "deck", state->deck, strlen(state->deck));
        if (strcmp(fields[i].name, "metrics_bytes") == 0) {
            crc = crc_names(crc, norm);
            crc = crc_item(crc, "format", FORMAT, strlen(FORMAT));
        }
        crc = crc_item(crc, fields[i].name, (const char *)state + fields[i].offset, 8);
    }
    return crc_item(crc, "version", &version, sizeof version);
}

sp_status sp_checkpoint_write_root(sp_h5 *file, const sp_checkpoint_state *state,
                                   const sp_normalization *norm)
{
    const sp_normalization none = {0};
    const int64_t version = VERSION;
    const uint32_t crc = root_crc(state, norm ? norm : &none);
    char *const format[] = {FORMAT};
    char *const deck[] = {state->deck};
    int i;

    SP_TRY(sp_h5_attr_write_texts(file, "/", "format", -1, format));
    SP_TRY(sp_h5_attr_write(file, "/", "version", SP_H5_I64, -1, &version));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "deck", -1, deck));
    if (norm && norm->n_names > 0)
        SP_TRY(sp_h5_attr_write_texts(file, "/", NAMES, norm->n_names, norm->name));
    for (i = 0; i < N_FIELDS; i++)
        SP_TRY(sp_h5_attr_write(file, "/", fields[i].name, fields[i].type, -1,
                                (const char *)state + fields[i].offset));
    return sp_h5_attr_write(file, "/", "crc32c", SP_H5_U32, -1, &crc);
}

static sp_status read_text(sp_h5 *file, const char *name, char **text)
{
    char **texts;
    int n;

    *text = NULL;
    SP_TRY(sp_h5_attr_read_texts(file, "/", name, &texts, &n));
    if (n == 1)
        *text = strdup(texts[0]);
    sp_h5_list_free(texts, n);
    return *text ? SP_OK
                 : SP_FAIL(SP_EDATA, "%s: attribute %s: expected one text, found %d",
                           sp_h5_path(file), name, n);
}

sp_status sp_checkpoint_check_format(sp_h5 *file)
{
    int64_t version;
    char *format;
    sp_status rc = SP_OK;

    SP_TRY(read_text(file, "format", &format));
    if (strcmp(format, FORMAT) != 0)
        rc = SP_FAIL(SP_EDATA, "%s: format \"%s\", expected \"" FORMAT "\"",
                     sp_h5_path(file), format);
    free(format);
    SP_TRY(rc);
    SP_TRY(sp_h5_attr_read_int(file, "/", "version", &version));
    if (version != VERSION)
        return SP_FAIL(SP_EDATA, "%s: version %lld, expected %d", sp_h5_path(file),
                       (long long)version, VERSION);
    return SP_OK;
}

sp_status sp_checkpoint_read_root(sp_h5 *file, sp_checkpoint_state *state,
                                  sp_normalization *norm)
{
    uint32_t crc;
    int i;

    memset(state, 0, sizeof *state);
    memset(norm, 0, sizeof *norm);
    state->best = NAN;
    if (!sp_h5_attr_has(file, "/", "format"))
        return SP_OK;
    SP_TRY(sp_checkpoint_check_format(file));
    for (i = 0; i < N_FIELDS; i++)
        SP_TRY(sp_h5_attr_read(file, "/", fields[i].name, fields[i].type, 1,
                               (char *)state + fields[i].offset));
    SP_TRY(read_text(file, "deck", &state->deck));
    if (sp_h5_attr_has(file, "/", NAMES)) /* older files have none */
        SP_TRY(sp_h5_attr_read_texts(file, "/", NAMES, &norm->name, &norm->n_names));
    SP_TRY(sp_h5_attr_read(file, "/", "crc32c", SP_H5_U32, 1, &crc));
    if (crc != root_crc(state, norm))
        return SP_FAIL(SP_EDATA, "%s: attributes: crc32c %08x, expected %08x",
                       sp_h5_path(file), root_crc(state, norm), crc);
    return SP_OK;
}
