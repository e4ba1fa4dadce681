#include "train/sp_members.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "checkpoint/sp_calibration.h"
#include "data/sp_recipe.h"
#include "train/sp_merging.h"

typedef struct sp_member {
    sp_infer infer;
    sp_single_batch *single;
    sp_dataset set; /* describes the samples to `single` */
    sp_shard source;
    int *class_of;  /* [n_classes] the first model's number of each class */
    int *column_of; /* [n_columns] the first model's number of each column */
    bool is_moved;  /* columns have another order */
} sp_member;

const char *sp_members_path(const sp_members *m, int k)
{
    assert(0 <= k && k < m->n);
    return m->member[k].infer.path;
}

/* ---- agreement with the first model ---- */

static sp_status members_refuse(const sp_members *m, const sp_infer *infer,
                                const char *what, int n_a, char *const *a, int n_b,
                                char *const *b)
{
    char mine[300], theirs[300];

    sp_dataset_print_names(mine, sizeof mine, n_a, a, NULL);
    sp_dataset_print_names(theirs, sizeof theirs, n_b, b, NULL);
    return SP_FAIL(SP_EUSAGE,
                   "%s has the %s %s, but %s has %s: models are averaged if they have "
                   "the same",
                   m->first->path, what, mine, infer->path, theirs);
}

/* Finds each name of `from` in `to`; both have the same names. */
static sp_status members_match(int n, char *const *from, char *const *to, int **place)
{
    SP_TRY(SP_NEW(place, n, "names"));
    for (int i = 0; i < n; i++)
        (*place)[i] = sp_text_find(n, to, from[i]);
    return SP_OK;
}

static sp_status members_match_classes(const sp_members *m, sp_member *k)
{
    sp_network *r = &k->infer.network;
    const sp_network *first = &m->first->network;
    const sp_normalization *norm = &r->norm;

    if (!norm->class_name)
        return SP_FAIL(SP_EUSAGE,
                       "%s does not name its classes, so it cannot be averaged with %s",
                       k->infer.path, m->first->path);
    if (sp_dataset_compare_names(norm->n_classes, norm->class_name, first->n_classes,
                                 first->class_name) == SP_OTHER_NAMES)
        return members_refuse(m, &k->infer, "classes", first->n_classes,
                              first->class_name, norm->n_classes, norm->class_name);
    r->n_classes = norm->n_classes;
    r->class_name = norm->class_name;
    return members_match(r->n_classes, r->class_name, first->class_name, &k->class_of);
}

static sp_status members_match_columns(const sp_members *m, sp_member *k,
                                       char *const *column)
{
    sp_network *r = &k->infer.network;
    const int n = m->first->network.n_columns;
    const sp_normalization *norm = &r->norm;

    if (!norm->name)
        return SP_FAIL(SP_EUSAGE,
                       "%s does not name its columns, so it cannot be averaged with %s",
                       k->infer.path, m->first->path);
    if (sp_dataset_compare_names(norm->n_columns, norm->name, n, column) ==
        SP_OTHER_NAMES)
        return members_refuse(m, &k->infer, "columns", n, column, norm->n_columns,
                              norm->name);
    SP_TRY(members_match(n, norm->name, column, &k->column_of));
    SP_TRY(SP_NEW(&r->columns, n, "columns"));
    r->n_columns = n;
    for (int i = 0; i < n; i++) {
        r->columns[i] = i;
        k->is_moved = k->is_moved || k->column_of[i] != i;
    }
    sp_network_find_vectors(r, norm->recipe, norm->name);
    return SP_OK;
}

static sp_status members_match_sizes(const sp_members *m, const sp_member *k)
{
    const sp_network *r = &k->infer.network, *first = &m->first->network;
    const double a = m->first->session.config->data.voxel_size;
    const double b = k->infer.session.config->data.voxel_size;
    char text[SP_RECIPE_DIFFERENCE];

    if (fabs(a - b) > 1e-6 * fabs(a))
        return SP_FAIL(SP_EUSAGE,
                       "%s has voxels of %g, but %s of %g: models are averaged if they "
                       "have the same",
                       m->first->path, a, k->infer.path, b);
    if (first->norm.recipe && r->norm.recipe &&
        fabs(first->norm.recipe->voxel_size - r->norm.recipe->voxel_size) >
            1e-6 * first->norm.recipe->voxel_size)
        return SP_FAIL(SP_EUSAGE,
                       "%s was trained on shards with voxels of %g, but %s of %g: "
                       "models are averaged if they have the same",
                       m->first->path, first->norm.recipe->voxel_size, k->infer.path,
                       r->norm.recipe->voxel_size);
    if (sp_recipe_compare(first->norm.recipe, r->norm.recipe, text) >=
        SP_RECIPE_OTHER_VALUES)
        return SP_FAIL(SP_EUSAGE,
                       "%s and %s were trained on other columns or units: %s",
                       m->first->path, k->infer.path, text);
    return SP_OK;
}

static sp_status members_match_all(const sp_members *m, sp_member *k,
                                   char *const *column)
{
    if (!k->infer.is_checkpoint)
        return SP_FAIL(SP_EUSAGE,
                       "%s holds only weights, so it cannot be averaged with %s",
                       k->infer.path, m->first->path);
    SP_TRY(members_match_classes(m, k));
    SP_TRY(members_match_sizes(m, k));
    return members_match_columns(m, k, column);
}

sp_status sp_members_open(sp_members *m, sp_infer *first, char *const *column, int n,
                          char *const *model)
{
    sp_comm *comm = first->session.comm;
    sp_status rc;

    assert(column && 0 <= n && n <= SP_MOST_MEMBERS);
    *m = (sp_members){.first = first};
    if (n == 0)
        return SP_OK;
    rc = SP_NEW(&m->member, n, "models");
    if (rc == SP_OK)
        rc = sp_arena_create(&m->scratch, 0, "members");
    SP_TRY(sp_comm_agree(comm, rc));
    for (int k = 0; k < n; k++) {
        m->n = k + 1;
        SP_TRY(sp_infer_open_beside(&m->member[k].infer, first, model[k]));
        SP_TRY(sp_comm_agree(comm, members_match_all(m, &m->member[k], column)));
    }
    return SP_OK;
}

/* ---- networks ---- */

static sp_status members_open_single(sp_member *k, const sp_infer *first,
                                     const sp_dataset *set, const sp_views *views)
{
    const sp_doubles *range =
        first->evaluator.is_predicting ? NULL : &first->session.config->eval.range;

    k->source = (sp_shard){.path = k->infer.path};
    k->set = (sp_dataset){.n_shards = 1,
                          .shard = &k->source,
                          .voxel_size = set->voxel_size,
                          .has_subvoxel = set->has_subvoxel};
    return sp_infer_open_single(&k->infer, &k->set, views, range, &k->single);
}

sp_status sp_members_open_nets(sp_members *m, const sp_dataset *set,
                               const sp_views *views)
{
    sp_network *first = &m->first->network;
    int64_t weights = first->weight_bytes;

    for (int k = 0; k < m->n; k++) {
        sp_network *r = &m->member[k].infer.network;

        r->beside_bytes = weights;
        SP_TRY(sp_infer_open_net_beside(&m->member[k].infer, m->first));
        weights = r->weight_bytes;
        SP_TRY(sp_comm_agree(m->first->session.comm,
                             members_open_single(&m->member[k], m->first, set, views)));
    }
    first->beside_bytes = weights - first->weight_bytes;
    return SP_OK;
}

void sp_members_close(sp_members *m)
{
    for (int k = 0; k < m->n; k++) {
        sp_single_batch_destroy(m->member[k].single);
        free(m->member[k].class_of);
        free(m->member[k].column_of);
        sp_infer_close_beside(&m->member[k].infer);
    }
    free(m->member);
    sp_arena_destroy(&m->scratch);
    *m = (sp_members){0};
}

/* ---- probabilities ---- */

sp_status sp_members_check_finite(const sp_graph *graph, sp_tensor logits,
                                  const char *what)
{
    for (int64_t i = 0; i < logits.n; i++)
        for (int c = 0; c < logits.c; c++)
            if (!isfinite(logits.data[i * logits.ld + c]))
                return SP_FAIL(SP_ENUMERIC,
                               "%s: the output of layer `%s` is not finite: the "
                               "weights, or the features of this sample, are at fault",
                               what, graph->node[graph->n_nodes - 1].name);
    return SP_OK;
}

/* The sample with the member's order of columns; its features are in the arena. */
static sp_status members_move_columns(sp_members *m, const sp_member *k,
                                      sp_sample *sample)
{
    const int c = k->infer.network.n_columns;
    const float *from = sample->features;
    float *to;

    if (!k->is_moved)
        return SP_OK;
    SP_TRY(SP_ALLOC(&m->scratch, (size_t)sample->n * (size_t)c, &to));
    for (int64_t i = 0; i < sample->n; i++)
        for (int j = 0; j < c; j++)
            to[i * c + j] = from[i * c + k->column_of[j]];
    sample->features = to;
    return SP_OK;
}

double sp_members_temperature(const sp_members *m)
{
    return m && m->n > 0
               ? sp_calibration_temperature(m->first->network.norm.calibration)
               : 1;
}

/* Adds the sums of one view to the caller's, class by class. */
static sp_status members_sum(sp_members *m, const sp_member *k, sp_tensor logits,
                             const int32_t *row_of, int64_t n, uint64_t *sum,
                             int stride)
{
    const int c = k->infer.network.n_classes;
    uint64_t *own;

    SP_TRY(SP_ALLOC(&m->scratch, (size_t)n * (size_t)c, &own));
    if (n > 0)
        memset(own, 0, (size_t)n * (size_t)c * sizeof *own);
    sp_merge_view(logits, sp_calibration_temperature(k->infer.network.norm.calibration),
                  row_of, n, own);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < c; j++)
            sum[i * stride + k->class_of[j]] += own[i * c + j];
    return SP_OK;
}

sp_status sp_members_add(sp_members *m, int k, const sp_sample *sample, int view,
                         const char *what, uint64_t *sum, int stride)
{
    sp_member *member = &m->member[k];
    sp_network *r = &member->infer.network;
    sp_backend *backend = r->net.backend;
    sp_sample moved = *sample;
    sp_tensor logits;
    sp_batch *batch;

    assert(member->single && stride >= r->n_classes);
    sp_arena_reset(&m->scratch);
    SP_TRY(members_move_columns(m, member, &moved));
    SP_TRY(sp_single_batch_fill(member->single, &moved, view));
    SP_TRY(sp_single_batch_use(member->single, &batch));
    SP_TRY(sp_net_forward(&r->net, batch, false, &logits));
    SP_TRY(backend->ops->wait(backend));
    SP_TRY(sp_merging_fetch(backend, &m->scratch, &logits));
    SP_TRY(sp_members_check_finite(&r->graph, logits, what));
    SP_TRY(members_sum(m, member, logits, batch->row_of, sample->n, sum, stride));
    return sp_single_batch_recycle(member->single);
}
