#include "data/sp_single_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/sp_list.h"
#include "data/sp_loader_slot.h"

struct sp_single_batch {
    sp_loader_options options;
    loader_filler filler;
    loader_slot slot;
    int64_t id;
};

static sp_status open_single(sp_single_batch *s)
{
    const sp_backend_ops *ops = s->options.backend->ops;

    SP_TRY(sp_voxel_factor(s->options.config, s->options.set, &s->filler.factor));
    SP_TRY(sp_arena_create(&s->filler.scratch, 0, "batch scratch"));
    SP_TRY(sp_arena_create(&s->slot.host, 0, "batch rows"));
    SP_TRY(ops->arena_create(&s->slot.device, 0, "batch"));
    return SP_NEW(&s->slot.sample, 1, "a sample");
}

sp_status sp_single_batch_create(sp_single_batch **single,
                                 const sp_loader_options *options)
{
    sp_single_batch *s;
    sp_status rc;

    SP_TRY(SP_NEW(single, 1, "a batch"));
    s = *single;
    s->options = *options;
    s->options.is_training = false;
    s->filler.options = &s->options;
    rc = open_single(s);
    if (rc != SP_OK) {
        sp_single_batch_destroy(s);
        *single = NULL;
    }
    return rc;
}

void sp_single_batch_destroy(sp_single_batch *s)
{
    if (!s)
        return;
    sp_loader_slot_destroy(&s->slot, s->options.backend);
    sp_arena_destroy(&s->filler.scratch);
    free(s);
}

sp_status sp_single_batch_fill(sp_single_batch *s, const sp_sample *sample, int view)
{
    loader_slot *slot = &s->slot;
    sp_status rc;

    assert(slot->state == SLOT_FREE);
    sp_arena_reset(&slot->host);
    sp_arena_reset(&slot->device);
    s->id = sample->id;
    slot->sample[0] = *sample;
    slot->sample_id = &s->id;
    slot->batch = (sp_batch){.view = view,
                             .n_micro = 1,
                             .step_samples = 1,
                             .n_samples = 1,
                             .n_reads = 1,
                             .sample_id = &s->id};
    slot->n_taken = slot->n_read = 1;
    slot->state = SLOT_READING;
    rc = sp_loader_slot_voxelize(&s->filler, slot);
    if (rc == SP_OK)
        rc = sp_loader_slot_plan(&s->filler, slot);
    slot->state = rc == SP_OK ? SLOT_READY : SLOT_FREE;
    return rc;
}

sp_status sp_single_batch_use(sp_single_batch *s, sp_batch **batch)
{
    sp_backend *be = s->options.backend;

    assert(s->slot.state == SLOT_READY);
    s->slot.state = SLOT_TAKEN;
    *batch = &s->slot.batch;
    return be->ops->arena_pass(be, &s->slot.device, SP_USE_BEGIN);
}

sp_status sp_single_batch_recycle(sp_single_batch *s)
{
    sp_backend *be = s->options.backend;

    assert(s->slot.state == SLOT_TAKEN);
    s->slot.state = SLOT_FREE;
    return be->ops->arena_pass(be, &s->slot.device, SP_USE_END);
}

/* Half of the room is for the plan, half for what planning needs meanwhile. */
static sp_status count_in(loader_filler *filler, loader_slot *slot, int64_t room)
{
    const sp_loader_options *o = filler->options;

    SP_TRY(sp_voxel_factor(o->config, o->set, &filler->factor));
    SP_TRY(sp_arena_create(&slot->device, (size_t)room / 2, "foreseen plan"));
    SP_TRY(
        sp_arena_create(&filler->scratch, (size_t)room / 2, "foreseen plan's scratch"));
    SP_TRY(sp_loader_slot_voxelize(filler, slot));
    return o->backend->ops->plan_build(o->backend, o->spec, filler->all.coords,
                                       filler->all.sample_row, 1, &slot->device,
                                       &slot->batch.plan);
}

sp_status sp_single_batch_count(const sp_loader_options *options, sp_sample stored[2],
                                sp_mix *mix, int64_t epoch, int64_t room,
                                sp_plan_counts *counts)
{
    const int n_reads = mix ? 2 : 1;
    int partner = 1;
    bool *is_pasted = NULL;
    loader_filler filler = {.options = options};
    loader_slot slot = {.state = SLOT_READING,
                        .batch = {.epoch = epoch, .n_samples = 1, .n_reads = n_reads},
                        .sample_id = &stored[0].id,
                        .mix = mix,
                        .partner = &partner,
                        .n_read = n_reads,
                        .sample = stored};
    sp_status rc =
        mix ? sp_mix_classes(options->config, options->set, &is_pasted) : SP_OK;

    assert(options->backend->ops->is_host && room >= 0);
    filler.is_pasted = is_pasted;
    if (rc == SP_OK)
        rc = count_in(&filler, &slot, room);
    *counts = sp_plan_count(&slot.batch.plan);
    sp_arena_destroy(&slot.device);
    sp_arena_destroy(&filler.scratch);
    free(is_pasted);
    return rc;
}
