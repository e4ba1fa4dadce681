/* The threads and the ring of the loader.
 *
 *     seq        0     1     2     3     4     the slot of a micro-batch: seq % n_slots
 *              next  plan claim  read  deal    the first not yet handed out, planned,
 *                                              claimed, read, dealt
 *
 * A planner deals micro-batches to free slots in the sampler's order. Readers read the
 * samples of the slots in this order. A planner claims a slot to fill it once all its
 * samples are read and the backend's memory for it is free, or sp_loader_next does if the
 * options say so; whoever has claimed one voxelizes at any time and plans in its turn.
 * The lock guards all of these numbers; the state of a slot defines its owner
 * (sp_loader_slot.h). */
#include "data/sp_loader.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_fault.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_thread.h"
#include "data/sp_loader_slot.h"
#include "data/sp_voxel.h"

struct sp_loader {
    sp_loader_options options;
    sp_sample_request request;
    /* [n_samples] With data.on_error = "skip": a warning has named the sample, which is
     * one for all epochs. Else NULL. */
    bool *is_named;

    pthread_mutex_t lock;
    pthread_cond_t for_readers, for_planner, for_turn, for_caller;
    int n_threads; /* threads that were started: the planners, then the readers */
    pthread_t *thread;
    bool is_stopping, is_paused;
    int n_reading; /* readers that read a sample now */
    bool is_dealing;
    int n_planning; /* slots that are being dealt or filled */

    int n_slots, n_memories;
    loader_slot *slot;
    /* [n_memories] the backend's memory of a batch; zeroed while a slot has it. */
    sp_arena memory[SP_LOADER_MOST_SLOTS];
    int64_t next, plan, claim, read, assigned; /* sequence numbers, drawn above */
    bool has_ended; /* nothing more is dealt until the next seek */
    double plan_s, read_s;

    /* The next five belong to the planner that deals, and to sp_loader_seek while
     * planners are paused. */
    sp_position at;
    int view, micro, n_micro, step_samples;
    int n_planners, n_begun; /* threads that took a filler */
    /* [n_planners], one of each planner. The caller, if it fills slots, has the first. */
    loader_filler filler[SP_LOADER_MOST_PLANNERS];
    bool has_warned, *is_pasted; /* the fillers' */
};

static loader_slot *slot_of(sp_loader *l, int64_t seq)
{
    return &l->slot[seq % l->n_slots];
}

/* The number of a memory for batch seq; -1: a slot has each. They are used in turn, since a
 * device may still read the last batch. */
static int find_memory(const sp_loader *l, int64_t seq)
{
    for (int i = 0; i < l->n_memories; i++) {
        const int memory = (int)((seq + i) % l->n_memories);

        if (l->memory[memory].name)
            return memory;
    }
    return -1;
}

static void slot_set_memory(sp_loader *l, loader_slot *slot, int64_t seq)
{
    assert(slot->memory < 0);
    slot->memory = find_memory(l, seq);
    slot->device = l->memory[slot->memory];
    l->memory[slot->memory] = (sp_arena){0};
    sp_arena_reset(&slot->device);
}

/* Makes a slot free, with or without a batch. */
static void slot_empty(sp_loader *l, loader_slot *slot)
{
    if (slot->memory >= 0)
        l->memory[slot->memory] = slot->device;
    slot->device = (sp_arena){0};
    slot->memory = -1;
    slot->state = SLOT_FREE;
}

/* ---- readers ---- */

/* Returns the slot of the next sample to read, and its number *i, or NULL without one.
 * The caller holds the lock. */
static loader_slot *next_sample(sp_loader *l, int *i)
{
    if (l->is_paused)
        return NULL;
    for (; l->read < l->assigned; l->read++) {
        loader_slot *slot = slot_of(l, l->read);
        if (slot->n_taken < slot->batch.n_reads) {
            *i = slot->n_taken++;
            return slot;
        }
    }
    return NULL;
}

/* Reads sample i of the slot with this reader's buffers. The caller holds the lock,
 * which is released meanwhile. */
static void read_one(sp_loader *l, loader_slot *slot, int i, sp_sample *reading)
{
    const sp_dataset *set = l->options.set;
    const int64_t id = slot->sample_id[i];
    sp_sample_request request = l->request;
    sp_status rc;

    request.reading = reading;
    l->n_reading++;
    pthread_mutex_unlock(&l->lock);
    sp_fault_at_last_step("pread");
    rc = sp_sample_read(set, id, &request, &slot->sample[i]);
    if (rc != SP_OK && rc != SP_EMEM && l->is_named) {
        if (!__atomic_exchange_n(&l->is_named[id], true, __ATOMIC_RELAXED))
            sp_log_warn(
                "sample %lld left out: %s",
                (long long)(id - set->shard[sp_dataset_shard_of(set, id)].first_sample),
                sp_error_last()->message);
        slot->sample[i].id = id;
        slot->sample[i].n = slot->sample[i].n_points = 0;
        slot->sample[i].n_context = 0;
        rc = SP_OK;
    }
    pthread_mutex_lock(&l->lock);
    if (rc != SP_OK && (slot->failed < 0 || i < slot->failed)) {
        /* The first in the order of the batch, not in time, so that the message does
         * not depend on which reader was faster. */
        slot->failed = i;
        sp_error_save(&slot->error);
        slot->rc = rc;
    }
    slot->n_read++;
    l->n_reading--;
    if (slot->n_read == slot->batch.n_reads || l->is_paused) {
        pthread_cond_broadcast(&l->for_planner);
        pthread_cond_broadcast(&l->for_caller);
    }
}

static void *reader_main(void *arg)
{
    sp_loader *l = arg;
    sp_sample reading = {0};

    pthread_mutex_lock(&l->lock);
    while (!l->is_stopping) {
        int i;
        loader_slot *slot = next_sample(l, &i);
        if (slot)
            read_one(l, slot, i, &reading);
        else
            pthread_cond_wait(&l->for_readers, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    sp_sample_destroy(&reading);
    return NULL;
}

/* ---- planner ---- */

/* Begins the next step; *is_end is true after the last step of an evaluation. */
static sp_status begin_step(sp_loader *l, bool *is_end)
{
    const sp_loader_options *o = &l->options;

    *is_end = false;
    l->step_samples = sp_sampler_step(o->sampler, l->at, &l->n_micro);
    if (l->step_samples == 0 && o->is_training) {
        l->at = (sp_position){.epoch = l->at.epoch + 1, .position = 0};
        l->step_samples = sp_sampler_step(o->sampler, l->at, &l->n_micro);
        if (l->step_samples == 0)
            return SP_FAIL(SP_EDATA, "the training data has no sample");
    }
    *is_end = l->step_samples == 0;
    return SP_OK;
}

static sp_status deal_next(sp_loader *l, loader_slot *slot, bool *is_end)
{
    sp_assignment assigned;

    *is_end = false;
    if (l->micro == 0 && l->view == 0)
        SP_TRY(begin_step(l, is_end));
    if (*is_end)
        return SP_OK;
    sp_sampler_assign(l->options.sampler, l->at, l->micro, &assigned);
    SP_TRY(sp_loader_slot_assign(slot, &l->options, &l->request, &assigned, l->at));
    slot->batch.micro = l->micro;
    slot->batch.n_micro = l->n_micro;
    slot->batch.step_samples = l->step_samples;
    slot->batch.view = l->view;
    if (++l->view < l->options.n_views)
        return SP_OK;
    l->view = 0;
    if (++l->micro == l->n_micro) {
        l->micro = 0;
        l->at.position += l->step_samples;
    }
    return SP_OK;
}

/* Deals a micro-batch to the next slot. A failure becomes a slot without samples to
 * read; its batch names the samples if memory ran out for them. The caller holds the
 * lock, which is released meanwhile. */
static void deal_slot(sp_loader *l)
{
    loader_slot *slot = slot_of(l, l->assigned);
    bool is_end;
    sp_status rc;

    l->is_dealing = true;
    l->n_planning++;
    pthread_mutex_unlock(&l->lock);
    sp_arena_reset(&slot->host);
    rc = deal_next(l, slot, &is_end);
    pthread_mutex_lock(&l->lock);
    l->n_planning--;
    l->is_dealing = false;
    l->has_ended = l->has_ended || is_end || rc != SP_OK;
    if (is_end)
        return;
    if (rc != SP_OK) {
        if (rc != SP_EMEM || !slot->batch.sample_id)
            slot->batch.n_samples = slot->batch.n_reads = 0;
        slot->n_taken = slot->n_read = slot->batch.n_reads;
        sp_error_save(&slot->error);
        slot->rc = rc;
    }
    slot->state = SLOT_READING;
    l->assigned++;
    pthread_cond_broadcast(&l->for_readers);
}

/* Voxelizes, waits for its turn, plans: the slots become ready in their order. The
 * caller holds the lock, which is released meanwhile. */
static void fill_slot(sp_loader *l, loader_filler *filler, int64_t seq)
{
    loader_slot *slot = slot_of(l, seq);
    sp_status rc = slot->rc;

    l->n_planning++;
    pthread_mutex_unlock(&l->lock);
    sp_fault_at_last_step("plan");
    if (rc == SP_OK)
        rc = sp_loader_slot_voxelize(filler, slot);
    pthread_mutex_lock(&l->lock);
    while (l->plan != seq)
        pthread_cond_wait(&l->for_turn, &l->lock);
    pthread_mutex_unlock(&l->lock);
    if (rc == SP_OK)
        rc = sp_loader_slot_plan(filler, slot);
    if (rc != slot->rc)
        sp_error_save(&slot->error);
    pthread_mutex_lock(&l->lock);
    l->n_planning--;
    slot->rc = rc;
    if (rc != SP_OK)
        l->has_ended = true;
    slot->state = SLOT_READY;
    l->plan++;
    pthread_cond_broadcast(&l->for_turn);
}

/* Fills the next slot; false: it is not read yet, or waits for memory. The caller holds
 * the lock. */
static bool fill_next(sp_loader *l, loader_filler *filler)
{
    const int64_t seq = l->claim;
    const double begun = sp_now_s();
    loader_slot *slot = slot_of(l, seq);

    if (seq == l->assigned || slot->state != SLOT_READING ||
        slot->n_read < slot->batch.n_reads || find_memory(l, seq) < 0)
        return false;
    l->claim++;
    slot_set_memory(l, slot, seq);
    filler->plan_s = 0;
    fill_slot(l, filler, seq);
    l->plan_s += filler->plan_s;
    l->read_s += sp_now_s() - begun - filler->plan_s;
    return true;
}

/* Does one piece of work; false: nothing to do now. The caller holds the lock. */
static bool plan_some(sp_loader *l, loader_filler *filler)
{
    if (l->is_paused)
        return false;
    if (!l->has_ended && !l->is_dealing && slot_of(l, l->assigned)->state == SLOT_FREE)
        deal_slot(l); /* dealing comes first, so that readers have work meanwhile */
    else if (l->options.is_filled_by_caller || !fill_next(l, filler))
        return false;
    pthread_cond_broadcast(&l->for_planner);
    pthread_cond_broadcast(&l->for_caller);
    return true;
}

static void *planner_main(void *arg)
{
    sp_loader *l = arg;
    loader_filler *filler;

    pthread_mutex_lock(&l->lock);
    filler = &l->filler[l->n_begun++];
    while (!l->is_stopping)
        if (!plan_some(l, filler)) {
            double begun = sp_now_s();
            bool is_reading = l->claim < l->assigned && find_memory(l, l->claim) >= 0 &&
                              !l->options.is_filled_by_caller;
            pthread_cond_wait(&l->for_planner, &l->lock);
            if (is_reading)
                l->read_s += sp_now_s() - begun;
        }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- start and end ---- */

static sp_status open_arenas(sp_loader *l)
{
    const sp_backend_ops *ops = l->options.backend->ops;

    for (int i = 0; i < l->n_planners; i++)
        SP_TRY(sp_arena_create(&l->filler[i].scratch, 0, "loader scratch"));
    for (int i = 0; i < l->n_slots; i++)
        SP_TRY(sp_arena_create(&l->slot[i].host, 0, "batch rows"));
    for (int i = 0; i < l->n_memories; i++)
        SP_TRY(ops->arena_create(&l->memory[i], 0, "batch"));
    return SP_OK;
}

static sp_status start_threads(sp_loader *l, int n)
{
    int failed = 0;

    while (l->n_threads < n && !failed) {
        failed = sp_thread_start(
            &l->thread[l->n_threads],
            l->n_threads < l->n_planners ? planner_main : reader_main, l);
        l->n_threads += !failed;
    }
    if (failed)
        return SP_FAIL(SP_EMEM, "cannot start thread %d of %d of the loader: %s",
                       l->n_threads + 1, n, strerror(failed));
    return SP_OK;
}

static sp_status open_fillers(sp_loader *l)
{
    const sp_loader_options *o = &l->options;
    loader_filler filler = {.options = o, .has_warned = &l->has_warned};

    SP_TRY(sp_voxel_factor(o->config, o->set, &filler.factor));
    if (o->is_training) {
        SP_TRY(sp_mix_classes(o->config, o->set, &l->is_pasted));
        filler.is_pasted = l->is_pasted;
        filler.bank = o->bank;
        l->request.room = o->bank ? sp_paste_most(o->config) : 0;
        SP_TRY(sp_colors_find(o->config, o->set, o->columns, o->n_columns,
                              &filler.colors));
    }
    for (int i = 0; i < l->n_planners; i++)
        l->filler[i] = filler;
    return SP_OK;
}

static sp_status open_loader(sp_loader *l)
{
    const bool is_skipping = l->options.config->data.on_error == SP_ON_ERROR_SKIP;
    int n_readers = l->options.config->data.readers;

    n_readers = n_readers > 0 ? n_readers : 1;
    SP_TRY(SP_NEW(&l->slot, l->n_slots, "the loader"));
    for (int i = 0; i < l->n_slots; i++)
        l->slot[i].memory = -1;
    SP_TRY(SP_NEW(&l->thread, n_readers + l->n_planners, "the loader"));
    if (is_skipping)
        SP_TRY(SP_NEW(&l->is_named, l->options.set->n_samples, "the loader"));
    SP_TRY(open_fillers(l));
    SP_TRY(open_arenas(l));
    return start_threads(l, l->n_planners + n_readers);
}

sp_status sp_loader_create(sp_loader **loader, const sp_loader_options *options)
{
    sp_loader *l;
    sp_status rc;

    assert(options->set && options->config);
    *loader = NULL;
    assert(options->n_slots >= 2);
    assert(options->n_views == 0 || (options->view && !options->is_training));
    assert(options->set->has_blocks || !options->with_context);
    SP_TRY(SP_NEW(&l, 1, "a loader"));
    l->options = *options;
    l->n_slots = options->n_slots;
    l->n_planners = options->is_filled_by_caller ? 1 : options->config->data.planners;
    l->n_memories = sp_loader_memories(options->config, options->backend->ops->is_host,
                                       options->n_slots);
    l->is_paused = true; /* sp_loader_seek sets the threads to work */
    l->request = (sp_sample_request){.columns = options->columns,
                                     .n_columns = options->n_columns,
                                     .verify = options->config->data.verify,
                                     .with_points = options->with_points,
                                     .with_context = options->with_context};
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->for_readers, NULL);
    pthread_cond_init(&l->for_planner, NULL);
    pthread_cond_init(&l->for_turn, NULL);
    pthread_cond_init(&l->for_caller, NULL);
    rc = open_loader(l);
    if (rc != SP_OK)
        sp_loader_destroy(l);
    else
        *loader = l;
    return rc;
}

void sp_loader_destroy(sp_loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->is_stopping = true;
    pthread_cond_broadcast(&l->for_readers);
    pthread_cond_broadcast(&l->for_planner);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++)
        pthread_join(l->thread[i], NULL);
    for (int i = 0; l->slot && i < l->n_slots; i++)
        sp_loader_slot_destroy(&l->slot[i], l->options.backend);
    for (int i = 0; i < l->n_memories; i++)
        l->options.backend->ops->arena_destroy(&l->memory[i]);
    for (int i = 0; i < l->n_planners; i++)
        sp_arena_destroy(&l->filler[i].scratch);
    pthread_cond_destroy(&l->for_readers);
    pthread_cond_destroy(&l->for_planner);
    pthread_cond_destroy(&l->for_turn);
    pthread_cond_destroy(&l->for_caller);
    pthread_mutex_destroy(&l->lock);
    free(l->slot);
    free(l->thread);
    free(l->is_named);
    free(l->is_pasted);
    free(l);
}

/* ---- the caller's side ---- */

/* Fills the next slot, or waits for a change of it. Returns the seconds that it waited.
 * The caller holds the lock. */
static double fill_or_wait(sp_loader *l)
{
    const bool is_filling = l->options.is_filled_by_caller;
    const double begun = sp_now_s();
    double waited;

    if (is_filling && fill_next(l, &l->filler[0]))
        return 0;
    pthread_cond_wait(&l->for_caller, &l->lock);
    waited = sp_now_s() - begun;
    if (is_filling)
        l->read_s += waited;
    return waited;
}

static sp_status pass(const sp_loader *l, loader_slot *slot, sp_pass pass)
{
    sp_backend *be = l->options.backend;

    return be->ops->arena_pass(be, &slot->device, pass);
}

sp_status sp_loader_seek(sp_loader *l, sp_position at)
{
    sp_status rc = SP_OK;

    assert(at.epoch >= 0 && at.position >= 0);
    pthread_mutex_lock(&l->lock);
    l->is_paused = true;
    while (l->n_reading || l->n_planning)
        pthread_cond_wait(&l->for_caller, &l->lock);
    for (int i = 0; i < l->n_slots; i++) {
        if (l->slot[i].state == SLOT_TAKEN && rc == SP_OK)
            rc = pass(l, &l->slot[i], SP_USE_END);
        slot_empty(l, &l->slot[i]);
    }
    l->next = l->plan = l->claim = l->read = l->assigned = 0;
    l->has_ended = false;
    l->at = at;
    l->micro = l->view = 0;
    l->is_paused = false;
    pthread_cond_broadcast(&l->for_planner);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

sp_status sp_loader_next(sp_loader *l, sp_batch **batch, double *waited_s)
{
    double waited = 0;
    sp_status rc = SP_OK;
    loader_slot *slot;

    assert(batch);
    *batch = NULL;
    pthread_mutex_lock(&l->lock);
    assert(!l->is_paused); /* sp_loader_seek must come first */
    slot = slot_of(l, l->next);
    while (l->next == l->plan && !(l->has_ended && l->plan == l->assigned))
        waited += fill_or_wait(l);
    if (l->next < l->plan)
        rc = slot->rc;
    if (l->next < l->plan && rc == SP_OK) {
        slot->state = SLOT_TAKEN;
        l->next++;
        *batch = &slot->batch;
    }
    pthread_mutex_unlock(&l->lock);
    if (waited_s)
        *waited_s = waited;
    if (rc == SP_EMEM)
        *batch = &slot->batch;
    if (rc != SP_OK)
        return sp_error_raise(&slot->error);
    return *batch ? pass(l, slot, SP_USE_BEGIN) : SP_OK;
}

sp_status sp_loader_recycle(sp_loader *l, sp_batch *batch)
{
    sp_status rc = SP_OK;

    assert(batch);
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_slots; i++)
        if (batch == &l->slot[i].batch && l->slot[i].state == SLOT_TAKEN) {
            rc = pass(l, &l->slot[i], SP_USE_END);
            slot_empty(l, &l->slot[i]);
        }
    pthread_cond_broadcast(&l->for_planner);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void sp_loader_times(sp_loader *l, double *plan_s, double *read_s)
{
    assert(plan_s && read_s);
    pthread_mutex_lock(&l->lock);
    *plan_s = l->plan_s / l->n_planners;
    *read_s = l->read_s / l->n_planners;
    l->plan_s = l->read_s = 0;
    pthread_mutex_unlock(&l->lock);
}
