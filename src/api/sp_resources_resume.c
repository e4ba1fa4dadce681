/* A checkpoint and the training that continues from it. */
#include <stdlib.h>
#include <string.h>

#include "api/sp_resources.h"

int64_t sp_resources_groups(const sp_resources *r)
{
    return r->sampler.per == SP_PER_WORLD ? 0 : r->sampler.n_groups;
}

static sp_status compare_key(const sp_config *old, const sp_config *now,
                             const char *key, const char *path)
{
    char *a = sp_config_value(old, key), *b = sp_config_value(now, key);
    sp_status rc = SP_OK;

    if (a && b && strcmp(a, b) != 0)
        rc =
            SP_FAIL(SP_EUSAGE,
                    "%s: %s: checkpoint %s, deck %s; it must stay the same to continue "
                    "(run.resume = \"never\" begins anew)",
                    path, key, a, b);
    free(a);
    free(b);
    return rc;
}

/* If the batch is given for each node or rank, the world's batch changes with their
 * number. Only the file has that number; a deck does not. */
static sp_status compare_groups(const sp_resources *r, const sp_checkpoint_state *state,
                                const char *path)
{
    const sp_config *config = r->config;
    const sp_comm *comm = r->comm;
    const char *word = config->batch.per == SP_PER_RANK ? "rank" : "node";
    const long long size = config->batch.size, then = state->groups;
    const int now = config->batch.per == SP_PER_RANK ? comm->size : comm->n_nodes;

    if (config->batch.per == SP_PER_WORLD || then == 0 || then == now)
        return SP_OK;
    return SP_FAIL(
        SP_EUSAGE,
        "%s: batch.per = \"%s\": the run has %lld %s%s, %lld samples a step, "
        "this start has %d %s%s, %lld samples; start it with as many %ss, "
        "or begin anew (run.resume = \"never\", or run.init_from for its "
        "weights)",
        path, word, then, word, sp_plural(then), then * size, now, word, sp_plural(now),
        now * size, word);
}

sp_status sp_resources_check_continued(const sp_resources *r,
                                       const sp_checkpoint_state *state,
                                       const sp_normalization *norm, const char *path,
                                       sp_config *old)
{
    const sp_dataset *set = &r->train;
    const char *const *key = sp_config_kept_by_resume;
    sp_status rc;

    if (!state->deck)
        return SP_FAIL(SP_EUSAGE, "%s holds weights only; use run.init_from for it",
                       path);
    SP_TRY(sp_resources_match_columns(r, set, norm, path, SP_EUSAGE));
    if (sp_resources_compare_classes(r, norm) != SP_EQUAL)
        return sp_resources_refuse_classes(r, norm, path, SP_EUSAGE);
    if (state->data_hash != set->hash)
        return SP_FAIL(SP_EUSAGE,
                       "%s: data index: checkpoint %016llx, data.train %016llx: the "
                       "training set changed; run.init_from takes the weights over",
                       path, (unsigned long long)state->data_hash,
                       (unsigned long long)set->hash);
    SP_TRY(sp_checkpoint_check_place(path, state, set->n_samples));
    SP_TRY(sp_checkpoint_config(old, state, path));
    for (rc = SP_OK; *key && rc == SP_OK; key++)
        rc = compare_key(old, r->config, *key, path);
    return rc == SP_OK ? compare_groups(r, state, path) : rc;
}
