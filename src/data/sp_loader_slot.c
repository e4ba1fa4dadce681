#include "data/sp_loader_slot.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "data/sp_crop.h"

/* ---- deal ---- */

/* Lists the samples to read: the batch's own, then their partners. */
static sp_status list_reads(loader_slot *slot, const sp_loader_options *o,
                            const sp_assignment *assigned, sp_position at)
{
    const bool is_mixing = o->is_training && o->sampler->mixing;
    const int n = assigned->n_samples, most = is_mixing ? 2 * n : n;

    slot->batch.n_reads = n;
    SP_TRY(SP_ALLOC(&slot->host, most, &slot->sample_id));
    if (n)
        memcpy(slot->sample_id, assigned->sample, (size_t)n * sizeof *slot->sample_id);
    slot->mix = NULL;
    slot->partner = NULL;
    if (!is_mixing)
        return SP_OK;
    SP_TRY(SP_ALLOC(&slot->host, n, &slot->mix));
    SP_TRY(SP_ALLOC(&slot->host, n, &slot->partner));
    for (int i = 0; i < n; i++) {
        slot->mix[i] = sp_mix_draw(o->config, o->set->has_subvoxel, o->set->n_samples,
                                   (uint64_t)at.epoch, assigned->sample[i]);
        slot->partner[i] = slot->mix[i].partner < 0 ? -1 : slot->batch.n_reads++;
        if (slot->partner[i] >= 0)
            slot->sample_id[slot->partner[i]] = slot->mix[i].partner;
    }
    return SP_OK;
}

sp_status sp_loader_slot_assign(loader_slot *slot, const sp_loader_options *o,
                                const sp_sample_request *request,
                                const sp_assignment *assigned, sp_position at)
{
    assert(slot->state == SLOT_FREE);
    assert(assigned->n_samples >= 0);
    slot->n_taken = slot->n_read = 0;
    slot->failed = -1;
    slot->rc = SP_OK;
    slot->batch = (sp_batch){.epoch = at.epoch,
                             .position = at.position,
                             .n_samples = assigned->n_samples,
                             .cost_max = assigned->cost_max,
                             .cost_sum = assigned->cost_sum};
    /* Room for a partner of each, so that the list does not grow with chance. */
    if (!sp_list_reserve(&slot->sample, &slot->room,
                         (size_t)assigned->n_samples * 2 * sizeof *slot->sample))
        return SP_FAIL(SP_EMEM, "no memory for %d samples of a batch",
                       assigned->n_samples);
    SP_TRY(list_reads(slot, o, assigned, at));
    slot->batch.sample_id = slot->sample_id;
    for (int i = 0; i < slot->batch.n_reads; i++)
        SP_TRY(sp_sample_allot(o->set, slot->sample_id[i], request, &slot->host,
                               &slot->sample[i]));
    return SP_OK;
}

void sp_loader_slot_destroy(loader_slot *slot, const sp_backend *backend)
{
    free(slot->sample);
    sp_arena_destroy(&slot->host);
    backend->ops->arena_destroy(&slot->device);
    memset(slot, 0, sizeof *slot);
}

/* ---- fill ---- */

/* Reports once that a sample has no voxel within the range that `key` gives. */
static void slot_warn_of_empty(const loader_filler *f, int64_t id, const char *key,
                               const char *what_follows)
{
    const sp_dataset *set = f->options->set;
    const sp_shard *shard = &set->shard[sp_dataset_shard_of(set, id)];

    if (f->has_warned && !__atomic_exchange_n(f->has_warned, true, __ATOMIC_RELAXED))
        sp_log_warn("sample %lld of %s has no voxel within %s: %s (reported once)",
                    (long long)(id - shard->first_sample), shard->path, key,
                    what_follows);
}

/* Crops the sample that was read as number `read`; its crop is drawn as sample `of`'s,
 * with this seed. A sample that augment.range empties is reported once. */
static sp_status slot_crop_one(loader_filler *f, loader_slot *slot, int read,
                               int64_t of, uint64_t seed)
{
    const sp_loader_options *o = f->options;
    const sp_crop crop = sp_crop_draw(o->config, seed, (uint64_t)slot->batch.epoch, of);
    sp_sample *s = &slot->sample[read];
    const int64_t before = s->n;

    SP_TRY(sp_crop_apply(o->config, &crop, o->set->voxel_size, o->n_columns,
                         &f->scratch, s));
    if (before > 0 && s->n == 0)
        slot_warn_of_empty(f, s->id, "augment.range", "it trains nothing");
    return SP_OK;
}

/* Crops all samples that were read. A partner's draws have another seed, as in
 * data/sp_mix.c. */
static sp_status slot_crop_all(loader_filler *f, loader_slot *slot)
{
    const sp_loader_options *o = f->options;
    const uint64_t seed = (uint64_t)o->config->train.seed;

    if (!o->is_training || !sp_crop_is_on(o->config))
        return SP_OK;
    for (int b = 0; b < slot->batch.n_samples; b++) {
        const int64_t id = slot->sample_id[b];

        SP_TRY(slot_crop_one(f, slot, b, id, seed));
        if (slot->mix && slot->partner[b] >= 0)
            SP_TRY(slot_crop_one(f, slot, slot->partner[b], id,
                                 sp_mix_partner_seed(seed)));
    }
    return SP_OK;
}

/* Pastes objects into the batch's own samples. */
static void slot_paste(const loader_filler *f, loader_slot *slot)
{
    const sp_loader_options *o = f->options;

    for (int b = 0; f->bank && b < slot->batch.n_samples; b++)
        sp_paste_apply(o->config, f->bank, &o->vectors, (uint64_t)slot->batch.epoch,
                       &slot->sample[b]);
}

/* Voxelizes sample b mixed with its partner; *is_mixed is false if it has no partner,
 * or one without voxels, perhaps because it could not be read. */
static sp_status mix_sample(loader_filler *f, const loader_slot *slot, int b,
                            sp_voxels *out, bool *is_mixed)
{
    const sp_loader_options *o = f->options;
    const int partner = slot->mix ? slot->partner[b] : -1;
    const sp_mixer mixer = {.config = o->config,
                            .set = o->set,
                            .is_pasted = f->is_pasted,
                            .vectors = &o->vectors,
                            .colors = &f->colors,
                            .factor = f->factor,
                            .n_columns = o->n_columns,
                            .mean = o->mean,
                            .std = o->std};

    *is_mixed = partner >= 0 && slot->sample[partner].n > 0;
    if (!*is_mixed)
        return SP_OK;
    return sp_mix_voxelize(&mixer, &slot->mix[b], &slot->sample[b],
                           &slot->sample[partner], &f->scratch, out);
}

/* The voxels outside of eval.range and their points are not evaluated. */
static void slot_ignore_outside(const loader_filler *f, sp_sample *s,
                                const sp_voxels *voxels)
{
    for (int64_t i = 0; i < s->n; i++)
        if (voxels->row_of[i] < 0)
            s->labels[i] = SP_IGNORE;
    for (int64_t i = 0; i < s->n_points; i++)
        if (voxels->row_of[s->point_voxel[i]] < 0)
            s->point_labels[i] = SP_IGNORE;
    if (voxels->n == 0)
        slot_warn_of_empty(f, s->id, "eval.range", "nothing of it is evaluated");
}

/* Voxelizes sample b. A sample without voxels is left out: it may be one that could not
 * be read and has no arrays. */
static sp_status voxelize_sample(loader_filler *f, const loader_slot *slot, int b,
                                 sp_voxels *out)
{
    const sp_loader_options *o = f->options;
    const bool has_range = !o->is_training && o->range && o->range->n;
    sp_augment aug = sp_augment_none();
    bool is_mixed;

    *out = (sp_voxels){0};
    if (slot->sample[b].n == 0)
        return SP_OK;
    SP_TRY(mix_sample(f, slot, b, out, &is_mixed));
    if (is_mixed)
        return SP_OK;
    if (o->is_training)
        aug = sp_augment_draw(o->config, o->set->has_subvoxel,
                              (uint64_t)o->config->train.seed,
                              (uint64_t)slot->batch.epoch, slot->sample_id[b]);
    else if (o->n_views > 0)
        aug = o->view[slot->batch.view];
    aug.vectors = &o->vectors;
    aug.colors = o->is_training ? &f->colors : NULL;
    aug.is_mixed = f->bank != NULL;
    aug.range = has_range ? o->range : NULL;
    aug.stored_edge = o->set->voxel_size;
    SP_TRY(sp_voxelize(&slot->sample[b], &aug, f->factor, o->n_columns, o->mean, o->std,
                       &f->scratch, out));
    if (has_range)
        slot_ignore_outside(f, &slot->sample[b], out);
    return SP_OK;
}

static sp_status voxelize_samples(loader_filler *f, const loader_slot *slot)
{
    loader_collation *all = &f->all;
    int n = slot->batch.n_samples;

    SP_TRY(SP_ALLOC(&f->scratch, n, &all->voxels));
    SP_TRY(SP_ALLOC(&f->scratch, n + 1, &all->sample_row));
    all->sample_row[0] = 0;
    for (int b = 0; b < n; b++) {
        SP_TRY(voxelize_sample(f, slot, b, &all->voxels[b]));
        if (all->voxels[b].n > INT32_MAX - all->sample_row[b])
            return SP_FAIL(SP_EDATA,
                           "more than 2^31 voxels in one micro-batch of a rank: set "
                           "batch.voxel_budget or use more ranks");
        all->sample_row[b + 1] = all->sample_row[b] + all->voxels[b].n;
    }
    all->n = all->sample_row[n];
    return SP_OK;
}

static sp_status collate(loader_filler *f, const loader_slot *slot)
{
    const loader_collation *all = &f->all;

    SP_TRY(voxelize_samples(f, slot));
    SP_TRY(SP_ALLOC(&f->scratch, (size_t)all->n * 3, &f->all.coords));
    for (int b = 0; b < slot->batch.n_samples; b++)
        if (all->voxels[b].n)
            memcpy(all->coords + 3 * (size_t)all->sample_row[b], all->voxels[b].coords,
                   (size_t)all->voxels[b].n * 3 * sizeof *all->coords);
    return SP_OK;
}

/* Puts features and labels into the plan's row order and copies them to the device. */
static sp_status order_rows(loader_filler *f, loader_slot *slot)
{
    const loader_collation *all = &f->all;
    sp_backend *be = f->options->backend;
    size_t c = (size_t)f->options->n_columns, n = (size_t)all->n;
    float *features, *to_features;
    int32_t *labels, *to_labels;

    SP_TRY(SP_ALLOC(&f->scratch, n * c, &features));
    SP_TRY(SP_ALLOC(&f->scratch, n, &labels));
    for (int b = 0; b < slot->batch.n_samples; b++) {
        const sp_voxels *v = &all->voxels[b];
        for (int32_t i = all->sample_row[b]; i < all->sample_row[b + 1]; i++) {
            size_t from = (size_t)(slot->batch.plan.order[i] - all->sample_row[b]);
            memcpy(features + c * (size_t)i, v->features + c * from, c * sizeof(float));
            labels[i] = v->labels[from];
        }
    }
    SP_TRY(SP_ALLOC(&slot->device, n * c, &to_features));
    SP_TRY(SP_ALLOC(&slot->device, n, &to_labels));
    SP_TRY(be->ops->upload(be, to_features, features, n * c * sizeof *features));
    SP_TRY(be->ops->upload(be, to_labels, labels, n * sizeof *labels));
    slot->batch.n = all->n;
    slot->batch.features = to_features;
    slot->batch.labels = to_labels;
    return SP_OK;
}

/* Notes for evaluation which row of the batch each stored voxel became. */
static sp_status map_stored(loader_filler *f, loader_slot *slot)
{
    const loader_collation *all = &f->all;
    int32_t *row_in_plan, *row_of;
    int64_t *at;
    int n = slot->batch.n_samples;

    SP_TRY(SP_ALLOC(&f->scratch, all->n, &row_in_plan));
    for (int32_t i = 0; i < all->n; i++)
        row_in_plan[slot->batch.plan.order[i]] = i;
    SP_TRY(SP_ALLOC(&slot->host, n + 1, &at));
    at[0] = 0;
    for (int b = 0; b < n; b++)
        at[b + 1] = at[b] + slot->sample[b].n;
    SP_TRY(SP_ALLOC(&slot->host, at[n], &row_of));
    for (int b = 0; b < n; b++)
        for (int64_t r = 0; r < slot->sample[b].n; r++) {
            int32_t to = all->voxels[b].row_of[r];
            row_of[at[b] + r] = to < 0 ? -1 : row_in_plan[all->sample_row[b] + to];
        }
    slot->batch.sample = slot->sample;
    slot->batch.row_of = row_of;
    slot->batch.row_of_at = at;
    return SP_OK;
}

static sp_status build_plan(loader_filler *f, loader_slot *slot)
{
    const sp_loader_options *o = f->options;
    const loader_collation *all = &f->all;
    double begun = sp_now_s();
    sp_status rc;

    sp_range_begin(o->backend, "plan");
    rc = o->backend->ops->plan_build(o->backend, o->spec, all->coords, all->sample_row,
                                     slot->batch.n_samples, &slot->device,
                                     &slot->batch.plan);
    sp_range_end(o->backend);
    f->plan_s = sp_now_s() - begun;
    return rc;
}

sp_status sp_loader_slot_voxelize(loader_filler *f, loader_slot *slot)
{
    const double begun = sp_now_s();

    assert(slot->state == SLOT_READING);
    assert(slot->n_read == slot->batch.n_reads);
    f->all = (loader_collation){0};
    sp_arena_reset(&f->scratch);
    slot->device.scratch = &f->scratch;
    SP_TRY(slot_crop_all(f, slot));
    slot_paste(f, slot);
    SP_TRY(collate(f, slot));
    f->other_s = sp_now_s() - begun;
    return SP_OK;
}

sp_status sp_loader_slot_plan(loader_filler *f, loader_slot *slot)
{
    sp_backend *be = f->options->backend;
    const double begun = sp_now_s();

    assert(slot->device.scratch == &f->scratch);
    SP_TRY(be->ops->arena_pass(be, &slot->device, SP_FILL_BEGIN));
    SP_TRY(build_plan(f, slot));
    SP_TRY(order_rows(f, slot));
    SP_TRY(be->ops->arena_pass(be, &slot->device, SP_FILL_END));
    if (!f->options->is_training)
        SP_TRY(map_stored(f, slot));
    f->other_s += sp_now_s() - begun - f->plan_s;
    return SP_OK;
}

/* ---- memory ---- */

/* The bytes that sp_voxelize needs beyond its result (sp_crop_apply needs less than
 * this result): to move rows, and if rows are
 * merged a table that is at most half full, counts, starts and a list of rows. Mixing
 * has the rows of both samples beside them, with subvoxel positions, and allocates its
 * voxels before that. */
static int64_t voxelize_bytes(const sp_loader_shape *shape, int64_t stored)
{
    const int64_t mixed = 2 * (12 + 4 * (int64_t)shape->n_columns + 4) + 3;
    int64_t slots = 16;

    while (slots < 2 * stored)
        slots *= 2;
    return sp_augment_bytes(stored, shape->is_displacing) +
           (shape->is_merging ? 4 * slots + 3 * 4 * stored : 0) +
           (shape->is_mixing ? mixed * stored : 0);
}

sp_loader_bytes sp_loader_size(const sp_loader_shape *shape, int n_samples,
                               int64_t stored, int64_t points, int64_t voxels,
                               int64_t plan_scratch)
{
    assert(n_samples >= 0 && stored >= 0 && points >= 0);
    assert(voxels >= 0 && plan_scratch >= 0);
    /* The features and the label of a row. */
    const int64_t row = 4 * (int64_t)shape->n_columns + 4;
    const int64_t ordering = voxels * (row + (shape->is_training ? 0 : 4));
    sp_loader_bytes b;

    b.slot = 8 * (int64_t)n_samples + 16 * points +
             (shape->is_mixing ? (int64_t)sizeof(sp_mix) * n_samples : 0) +
             stored * (12 + row + (shape->has_subvoxel ? 3 : 0));
    if (!shape->is_training)
        b.slot += 8 * ((int64_t)n_samples + 1) + 4 * stored;
    b.device = voxels * row;
    b.scratch = stored * (12 + row + 4) + voxels * 12 +
                sp_most(voxelize_bytes(shape, stored), sp_most(plan_scratch, ordering));
    b.scratch *= shape->n_planners;
    /* One reader is counted with the tables for the largest sample, the others without.
     */
    b.scratch += shape->n_readers * sp_sample_reading_bytes(0);
    if (shape->verify)
        b.scratch += sp_sample_reading_bytes(stored) - sp_sample_reading_bytes(0);
    return b;
}
