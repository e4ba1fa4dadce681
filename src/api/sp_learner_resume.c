/* A checkpoint and the training that continues from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/sp_learner.h"

int64_t sp_learner_groups(const sp_learner *l)
{
    return l->sampler.per == SP_PER_WORLD ? 0 : l->sampler.n_groups;
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

/* Writes what the network is made of, as a message names it. */
static const char *resume_print_net(const sp_config *config, char *text, size_t bytes)
{
    if (config->net.n_layers)
        snprintf(text, bytes, "net.layers (%d layers)", config->net.n_layers);
    else
        snprintf(text, bytes, "net.family = \"%s\"",
                 sp_family_word[config->net.family]);
    return text;
}

/* Of net.layers and net.family only one counts, so both decks must have the same one. */
static sp_status compare_nets(const sp_config *old, const sp_config *now,
                              const char *path)
{
    char a[64], b[64];

    if (!old->net.n_layers == !now->net.n_layers)
        return SP_OK;
    return SP_FAIL(SP_EUSAGE,
                   "%s: the checkpoint has %s, the deck %s; it must stay the same to "
                   "continue (run.resume = \"never\" begins anew)",
                   path, resume_print_net(old, a, sizeof a),
                   resume_print_net(now, b, sizeof b));
}

/* If the batch is given for each node or rank, the world's batch changes with their
 * number. Only the file has that number; a deck does not. */
static sp_status compare_groups(const sp_config *config, const sp_comm *comm,
                                const sp_checkpoint_state *state, const char *path)
{
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

sp_status sp_learner_check_continued(const sp_learner *l, const sp_comm *comm,
                                     const sp_checkpoint_state *state,
                                     const sp_normalization *norm, const char *path,
                                     sp_config *old)
{
    const sp_dataset *set = l->set;
    const char *const *key = sp_config_kept_by_resume;
    sp_status rc;

    if (!state->deck)
        return SP_FAIL(SP_EUSAGE, "%s holds weights only; use run.init_from for it",
                       path);
    SP_TRY(sp_network_match_columns(l->network, set, norm, path, SP_EUSAGE));
    if (sp_network_compare_classes(l->network, norm) != SP_EQUAL)
        return sp_network_refuse_classes(l->network, set, norm, path, SP_EUSAGE);
    if (state->data_hash != set->hash)
        return SP_FAIL(SP_EUSAGE,
                       "%s: data index: checkpoint %016llx, data.train %016llx: the "
                       "training set changed; run.init_from takes the weights over",
                       path, (unsigned long long)state->data_hash,
                       (unsigned long long)set->hash);
    SP_TRY(sp_checkpoint_check_place(path, state, set->n_samples));
    SP_TRY(sp_checkpoint_config(old, state, path));
    rc = compare_nets(old, l->config, path);
    for (; *key && rc == SP_OK; key++)
        if (!old->net.n_layers || strcmp(*key, "net.family") != 0)
            rc = compare_key(old, l->config, *key, path);
    return rc == SP_OK ? compare_groups(l->config, comm, state, path) : rc;
}
