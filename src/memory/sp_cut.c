#include "memory/sp_cut.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "process/sp_pulse.h"

enum { SET_ASIDE = 8 };
enum { REST = SP_BATCHES }; /* of room and largest */
/* Samples whose plans are compared with what the index foresees: the largest, in some
 * epochs, and others evenly over the set. */
enum { N_EPOCHS = 4, N_OTHERS = 8 };

#define MARGIN   1.0625 /* over the worst of them */
#define GENEROUS 2.0    /* taken instead where even that fits: no plan is compared */

int64_t sp_cut_memory_of(int64_t device_bytes)
{
    const int64_t mib = 1 << 20, gib = 1024 * mib, small = device_bytes / 8;
    int64_t spared = device_bytes / 16;

    if (spared < gib)
        spared = small < gib ? small : gib;
    return (device_bytes - spared) / mib * mib;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool is_host(const sp_budget *b)
{
    return b->foreseer.what.backend->ops->is_host;
}

static int64_t sum_of(const int64_t part[SP_PARTS])
{
    return part[SP_ACTIVATIONS] + part[SP_BATCHES] + part[SP_SCRATCH];
}

static int64_t fixed_bytes(const sp_cut *cut)
{
    return cut->fixed.program + cut->fixed.weights + sum_of(cut->train.empty) +
           sum_of(cut->eval.empty);
}

/* ---- one sample ---- */

static void weigh(sp_budget *b, const sp_load *load, int64_t part[SP_PARTS])
{
    const sp_foreseen bytes = sp_foresee_step(&b->foreseer, load);

    part[SP_ACTIVATIONS] = bytes.activations;
    part[SP_BATCHES] = bytes.batches;
    part[SP_SCRATCH] = bytes.scratch;
    for (int i = 0; i < SP_PARTS; i++)
        part[i] -= b->empty[i];
}

/* From now on weigh tells what samples add. */
static void weigh_nothing(sp_budget *b)
{
    const sp_load none = {0};
    int64_t part[SP_PARTS];

    memset(b->empty, 0, sizeof b->empty);
    weigh(b, &none, part);
    memcpy(b->empty, part, sizeof part);
}

/* Slots that batches stand in: of an evaluation of few steps not all, unless they are
 * cut. */
static void set_slots(sp_budget *b, int64_t n_steps)
{
    b->foreseer.n_slots = (int)smaller(SP_LOADER_SLOTS, larger(n_steps, 1));
    memset(b->known, 0, (size_t)b->set->n_samples * sizeof *b->known);
    weigh_nothing(b);
}

static double ratio(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : 1;
}

/* The column of /cost that has the network's finest level; -1: none has. */
static int first_column(const sp_budget *b)
{
    for (int i = 0; b->set->cost && i < SP_COST_COLUMNS - 1; i++)
        if (b->foreseer.what.factor == (double)(1 << i))
            return i;
    return -1;
}

/* Voxels and pairs by the index. Levels that /cost lacks thin out as in the plan that
 * is known. */
static void foresee(const sp_budget *b, int64_t sample, sp_load *load)
{
    const sp_plan_spec *spec = &b->foreseer.what.graph->spec;
    const int column = first_column(b), coarsest = spec->n_levels - 1;
    const int64_t stored = sp_dataset_voxels(b->set, sample);
    double voxels = (double)stored * ratio(b->like.voxels[0], b->like.stored);

    *load = (sp_load){.n_samples = 1, .stored = stored};
    load->points = sp_dataset_points(b->set, sample);
    for (int l = 0; l < spec->n_levels; l++) {
        if (l)
            voxels *= ratio(b->like.voxels[l], b->like.voxels[l - 1]);
        if (column >= 0 && column + l < SP_COST_COLUMNS - 1)
            voxels = (double)b->set->cost[sample * SP_COST_COLUMNS + column + l];
        load->voxels[l] = (int64_t)ceil(voxels);
    }
    load->above = (int64_t)ceil((double)load->voxels[coarsest] *
                                ratio(b->like.above, b->like.voxels[coarsest]));
    for (int m = 0; m < spec->n_maps; m++) {
        const int out = spec->map[m].level_out;

        load->pairs[m] = (int64_t)ceil((double)load->voxels[out] *
                                       ratio(b->like.pairs[m], b->like.voxels[out]));
    }
}

static const int64_t *know(sp_budget *b, int64_t sample)
{
    sp_load load;

    if (!b->known[sample][SP_ACTIVATIONS]) {
        foresee(b, sample, &load);
        weigh(b, &load, b->known[sample]);
        b->known[sample][SP_ACTIVATIONS]++;
    }
    return b->known[sample];
}

/* For the sampler: a part, or how much of both rooms together the sample fills where it
 * fills the fuller one. */
static int64_t of_sample(void *budget, int64_t sample)
{
    sp_budget *b = budget;
    const int64_t *part = know(b, sample);
    double act = b->excess * (double)part[SP_ACTIVATIONS], rest;

    if (b->part < SP_PARTS)
        return 1 + (int64_t)(b->excess * (double)part[b->part]);
    rest = b->excess * (double)(part[SP_BATCHES] + part[SP_SCRATCH]);
    return 1 + (int64_t)((double)(b->room[0] + b->room[REST]) *
                         fmax(act / (double)b->room[0], rest / (double)b->room[REST]));
}

/* ---- of a data set ---- */

static int64_t largest_sample(const sp_dataset *set)
{
    int64_t at = 0;

    for (int64_t i = 1; i < set->n_samples; i++)
        if (sp_dataset_voxels(set, i) > sp_dataset_voxels(set, at))
            at = i;
    return at;
}

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* need 0: more than could be planned. */
static sp_status refuse(const sp_budget *b, int64_t sample, int64_t need,
                        int64_t memory)
{
    const sp_shard *shard = &b->set->shard[sp_dataset_shard_of(b->set, sample)];
    char text[48] = "";

    if (need)
        snprintf(text, sizeof text, "about %.1f MiB by itself, ", mib(need));
    return SP_FAIL(
        SP_EMEM,
        "sample %lld of %s (%lld voxels) needs %smore than the %.1f MiB that "
        "run.memory_mb gives a rank: give it more, or cut the scans into "
        "smaller blocks (spvox convert --block)",
        (long long)(sample - shard->first_sample), shard->path,
        (long long)sp_dataset_voxels(b->set, sample), text, mib(memory));
}

/* At least so much the sample takes, whatever its plan is like: its arrays, and where
 * nothing merges its voxels the activations of the finest level. */
static int64_t least_of(sp_budget *b, int64_t sample)
{
    const int column = first_column(b);
    sp_load load = {.n_samples = 1, .stored = sp_dataset_voxels(b->set, sample)};
    int64_t part[SP_PARTS];
    double kept = 1;

    if (b->foreseer.is_training)
        kept = 0.5 * (1 - b->foreseer.what.config->augment.drop);
    if (column < 0 && b->foreseer.what.factor == 1)
        load.voxels[0] = (int64_t)(kept * (double)load.stored);
    for (int l = 0; column >= 0 && l < b->foreseer.what.graph->spec.n_levels &&
                    column + l < SP_COST_COLUMNS - 1;
         l++)
        load.voxels[l] =
            (int64_t)(kept *
                      (double)b->set->cost[sample * SP_COST_COLUMNS + column + l]);
    weigh(b, &load, part);
    return part[SP_ACTIVATIONS] + part[SP_BATCHES] / b->foreseer.n_slots +
           part[SP_SCRATCH];
}

/* What data.on_error = "skip" leaves out takes nothing. */
static sp_status load_of(sp_budget *b, const sp_cut *cut, int64_t sample, int64_t epoch,
                         sp_load *load)
{
    const char *on_error = b->foreseer.what.config->data.on_error;
    const int64_t room = is_host(b) && cut->memory ? cut->memory - fixed_bytes(cut) : 0;
    sp_status rc;

    sp_pulse_beat();
    if (room && least_of(b, sample) > room)
        return refuse(b, sample, fixed_bytes(cut) + least_of(b, sample), cut->memory);
    rc = sp_foresee_load(&b->foreseer.what, b->set, sample, epoch, room, load);
    if (rc == SP_EMEM && room)
        return refuse(b, sample, 0, cut->memory);
    return strcmp(on_error, "skip") == 0 && rc != SP_EMEM ? SP_OK : rc;
}

static int64_t other_sample(const sp_budget *b, int64_t i)
{
    return b->set->n_samples <= N_OTHERS ? i : i * b->set->n_samples / N_OTHERS;
}

/* The largest; another one, where that was left out. */
static sp_status plan_largest(sp_budget *b, const sp_cut *cut)
{
    const int64_t n = b->set->n_samples;

    SP_TRY(load_of(b, cut, largest_sample(b->set), -1, &b->like));
    for (int64_t i = 0; i < N_OTHERS && i < n && b->like.voxels[0] == 0; i++)
        SP_TRY(load_of(b, cut, other_sample(b, i), -1, &b->like));
    return SP_OK;
}

static sp_status compare(sp_budget *b, const sp_cut *cut, int64_t sample, int64_t epoch)
{
    int64_t is[SP_PARTS], was[SP_PARTS];
    sp_load load, foreseen;
    double excess;

    SP_TRY(load_of(b, cut, sample, b->foreseer.is_training ? epoch : -1, &load));
    foresee(b, sample, &foreseen);
    if (load.voxels[0] == 0 || foreseen.voxels[0] == 0)
        return SP_OK;
    weigh(b, &load, is);
    weigh(b, &foreseen, was);
    excess = (double)sum_of(is) / (double)sum_of(was);
    b->excess = excess > b->excess ? excess : b->excess;
    return SP_OK;
}

/* The largest sample alone, as augmentation leaves it. */
static sp_status compare_largest(sp_budget *b, const sp_cut *cut)
{
    b->excess = 0;
    for (int64_t e = 0; e < (b->foreseer.is_training ? N_EPOCHS : 1); e++)
        SP_TRY(compare(b, cut, largest_sample(b->set), e));
    b->excess = b->excess > 0 ? b->excess : 1;
    return SP_OK;
}

static sp_status compare_some(sp_budget *b, const sp_cut *cut)
{
    SP_TRY(compare_largest(b, cut));
    for (int64_t i = 0; i < N_OTHERS && i < b->set->n_samples; i++)
        SP_TRY(compare(b, cut, other_sample(b, i), 0));
    b->excess *= MARGIN;
    return SP_OK;
}

/* Rank 0 reads for all. */
static sp_status read_for_all(sp_budget *b, const sp_cut *cut, sp_comm *comm,
                              sp_status (*what_of)(sp_budget *b, const sp_cut *cut),
                              int *who)
{
    if (!b->sampler || b->set->n_samples == 0)
        return SP_OK;
    SP_TRY(sp_comm_agree(comm, comm->rank == 0 ? what_of(b, cut) : SP_OK, who));
    SP_TRY(sp_comm_bcast(comm, &b->like, sizeof b->like, 0));
    return sp_comm_bcast(comm, &b->excess, sizeof b->excess, 0);
}

static void find_dearest(sp_budget *b)
{
    const sp_bound unbound = {0, of_sample, b}, none = {0};

    if (!b->sampler || b->set->n_samples == 0)
        return;
    sp_sampler_limit(b->sampler, &unbound);
    for (b->part = 0; b->part < SP_PARTS; b->part++)
        sp_sampler_dearest(b->sampler, &b->dearest[b->part], &b->n_micro_asked);
    b->n_micro = b->n_micro_asked;
    sp_sampler_limit(b->sampler, &none);
}

/* ---- opening ---- */

static sp_status open_budget(sp_budget *b, const sp_foresight *what,
                             sp_sampler *sampler, bool is_training)
{
    sp_foresight own = *what;

    if (!sampler)
        return SP_OK;
    b->sampler = sampler;
    b->set = sampler->set;
    b->excess = GENEROUS;
    own.has_subvoxel = b->set->has_subvoxel;
    own.factor = rint(what->config->data.voxel_size / b->set->voxel_size);
    b->known = calloc((size_t)b->set->n_samples + 1, sizeof *b->known);
    if (!b->known)
        return SP_FAIL(SP_EMEM, "memory of %lld samples: out of memory",
                       (long long)b->set->n_samples);
    SP_TRY(sp_foresee_open(&b->foreseer, &own, is_training));
    set_slots(b, is_training ? SP_LOADER_SLOTS : sp_sampler_steps_per_epoch(sampler));
    return SP_OK;
}

static sp_status open_both(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                           sp_sampler *eval)
{
    SP_TRY(open_budget(&cut->train, what, train, true));
    SP_TRY(open_budget(&cut->eval, what, eval, false));
    return sp_foresee_fixed(train ? &cut->train.foreseer : &cut->eval.foreseer,
                            &cut->fixed);
}

static int64_t rest_of(const sp_budget *b)
{
    return b->dearest[SP_BATCHES] + b->dearest[SP_SCRATCH];
}

int64_t sp_cut_need(const sp_cut *cut)
{
    return fixed_bytes(cut) +
           larger(cut->train.dearest[SP_ACTIVATIONS],
                  cut->eval.dearest[SP_ACTIVATIONS]) +
           rest_of(&cut->train) + rest_of(&cut->eval);
}

/* Both at their excess: what the dearest steps there can be take as the deck cuts them. */
static void find_need(sp_cut *cut)
{
    find_dearest(&cut->train);
    find_dearest(&cut->eval);
}

/* ---- rooms ---- */

/* The sample that takes most, of *worst, and the most that any takes of each part. An
 * envelope of all of them does where that fits: a look at each costs 0.1 ms. */
static void find_largest(sp_budget *b, int64_t room, int64_t *worst)
{
    const int64_t n = b->sampler ? b->set->n_samples : 0;
    sp_load all = {.n_samples = 1}, one;
    int64_t part[SP_PARTS], most = 0;

    for (int64_t i = 0; i < n; i++) {
        foresee(b, i, &one);
        all.stored = larger(all.stored, one.stored);
        all.points = larger(all.points, one.points);
        all.above = larger(all.above, one.above);
        for (int l = 0; l < SP_MAX_LEVELS; l++)
            all.voxels[l] = larger(all.voxels[l], one.voxels[l]);
        for (int m = 0; m < SP_MAX_MAPS; m++)
            all.pairs[m] = larger(all.pairs[m], one.pairs[m]);
    }
    *worst = 0;
    weigh(b, &all, part);
    b->largest[0] = (int64_t)(b->excess * (double)part[SP_ACTIVATIONS]);
    b->largest[REST] = (int64_t)(b->excess * (double)(sum_of(part) - part[0]));
    if (n == 0 || b->largest[0] + b->largest[REST] <= room / 2)
        return;
    b->largest[0] = b->largest[REST] = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t *own = know(b, i), sum = sum_of(own);

        b->largest[0] = larger(b->largest[0], (int64_t)(b->excess * (double)own[0]));
        b->largest[REST] =
            larger(b->largest[REST], (int64_t)(b->excess * (double)(sum - own[0])));
        *worst = sum > most ? i : *worst;
        most = larger(most, sum);
    }
}

/* Memory that the largest samples need beside each other; on the host they are refused
 * where it is not there. */
static sp_status check_largest(sp_cut *cut)
{
    const int64_t room = cut->memory - fixed_bytes(cut);
    const sp_budget *b = &cut->train;
    int64_t worst[2] = {0, 0}, need[2];

    if (cut->train.sampler)
        find_largest(&cut->train, room, &worst[0]);
    if (cut->eval.sampler)
        find_largest(&cut->eval, room, &worst[1]);
    if (!is_host(b->sampler ? b : &cut->eval))
        return SP_OK;
    need[0] = cut->train.largest[0] + cut->train.largest[REST];
    need[1] = cut->eval.largest[0] + cut->eval.largest[REST];
    if (larger(cut->train.largest[0], cut->eval.largest[0]) + cut->train.largest[REST] +
            cut->eval.largest[REST] <=
        room)
        return SP_OK;
    if (need[1] > need[0])
        return refuse(&cut->eval, worst[1],
                      fixed_bytes(cut) + need[1] + cut->train.largest[REST],
                      cut->memory);
    return refuse(&cut->train, worst[0],
                  fixed_bytes(cut) + need[0] + cut->eval.largest[REST], cut->memory);
}

static int64_t between(int64_t x, int64_t least, int64_t most)
{
    return larger(smaller(x, most), least);
}

/* As the largest sample's parts are to each other, but both parts of every sample, and
 * of the dearest step if that fits at all, have room. */
static void divide(sp_budget *b, int64_t activations, int64_t room)
{
    const int64_t act = larger(activations, b->largest[0]);
    int64_t part[SP_PARTS], least = act, most = room - b->largest[REST];

    weigh(b, &b->like, part);
    if (b->dearest[0] + rest_of(b) <= room) {
        least = larger(least, b->dearest[0]);
        most = smaller(most, room - rest_of(b));
    }
    b->room[0] = between((int64_t)((double)room * ratio(part[0], sum_of(part))),
                         larger(smaller(least, room - 1), 1), larger(most, 1));
    b->room[REST] = larger(room - b->room[0], 1);
}

static void limit(sp_budget *b)
{
    const sp_bound bound = {b->room[0] + b->room[REST], of_sample, b};
    int64_t bytes;

    if (!b->sampler || b->set->n_samples == 0)
        return;
    b->part = SP_PARTS;
    sp_sampler_limit(b->sampler, &bound);
    sp_sampler_dearest(b->sampler, &bytes, &b->n_micro);
}

static void make_rooms(sp_cut *cut)
{
    const int64_t room = larger(cut->memory - fixed_bytes(cut), 2);
    sp_budget *train = &cut->train, *eval = &cut->eval;
    int64_t aside = rest_of(eval);

    if (!train->sampler) {
        divide(eval, 0, room);
    } else {
        if (aside > room / SET_ASIDE)
            aside = larger(room / SET_ASIDE, eval->largest[REST]);
        if (is_host(train)) /* else the largest sample runs as far as that goes */
            aside = smaller(aside, room - larger(train->largest[0], eval->largest[0]) -
                                       train->largest[REST]);
        divide(train, eval->largest[0], room - aside);
        eval->room[0] = train->room[0];
        eval->room[REST] = larger(aside, 1);
    }
    limit(train);
    limit(eval);
}

/* ---- the run's own steps ---- */

/* Adds a micro-batch of this rank. *slot: the most that it has held. */
static void hold_deal(sp_budget *b, const sp_deal *deal, int64_t *slot)
{
    int64_t sum[SP_PARTS] = {0};

    for (int i = 0; i < deal->n_samples; i++)
        for (int p = 0; p < SP_PARTS; p++)
            sum[p] += (int64_t)(b->excess * (double)know(b, deal->sample[i])[p]);
    *slot = larger(*slot, sum[SP_BATCHES] / b->foreseer.n_slots);
    b->dearest[0] = larger(b->dearest[0], sum[0]);
    b->dearest[SP_SCRATCH] = larger(b->dearest[SP_SCRATCH], sum[SP_SCRATCH]);
}

/* The dearest that this rank is dealt in so many steps, instead of the dearest there
 * can be; each slot of the loader keeps its own largest batch. */
static sp_status follow(sp_budget *b, int64_t n_steps)
{
    enum { MOST_SAMPLES = 1 << 20 }; /* a second */
    int64_t slot[SP_LOADER_SLOTS] = {0}, n_deals = 0, n_done = 0;
    sp_position at = {0, 0};

    memset(b->dearest, 0, sizeof b->dearest);
    for (int64_t step = 0; step < n_steps && n_done < MOST_SAMPLES; step++) {
        int n_micro, n = sp_sampler_step(b->sampler, at, &n_micro);
        sp_deal deal;

        if (n == 0) {
            at = (sp_position){at.epoch + 1, 0};
            n = sp_sampler_step(b->sampler, at, &n_micro);
        }
        for (int micro = 0; micro < n_micro; micro++, n_deals++) {
            SP_TRY(sp_sampler_deal(b->sampler, at, micro, &deal));
            hold_deal(b, &deal, &slot[n_deals % SP_LOADER_SLOTS]);
        }
        at.position += n;
        n_done += n;
    }
    for (int i = 0; i < SP_LOADER_SLOTS; i++)
        b->dearest[SP_BATCHES] += slot[i];
    return SP_OK;
}

/* Of training as many steps as the deck asks for, and what its loader has ahead. */
static sp_status follow_run(sp_budget *b, sp_comm *comm)
{
    const sp_config *config = b->foreseer.what.config;
    int64_t n;

    if (!b->sampler || b->set->n_samples == 0)
        return SP_OK;
    n = sp_sampler_steps_per_epoch(b->sampler);
    if (b->foreseer.is_training)
        n = (config->train.steps > 0 ? config->train.steps : config->train.epochs * n) +
            SP_LOADER_SLOTS - 1;
    SP_TRY(follow(b, n));
    return sp_comm_allreduce(comm, SP_SCOPE_WORLD, b->dearest, SP_PARTS, SP_I64,
                             SP_MAX);
}

/* ---- all of it ---- */

sp_status sp_cut_foresee(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                         sp_sampler *eval, sp_comm *comm, int *who)
{
    memset(cut, 0, sizeof *cut);
    SP_TRY(sp_comm_agree(comm, open_both(cut, what, train, eval), who));
    SP_TRY(read_for_all(&cut->train, cut, comm, plan_largest, who));
    SP_TRY(read_for_all(&cut->train, cut, comm, compare_largest, who));
    SP_TRY(read_for_all(&cut->eval, cut, comm, plan_largest, who));
    cut->eval.excess = 1;
    SP_TRY(follow_run(&cut->train, comm));
    return follow_run(&cut->eval, comm);
}

sp_status sp_cut_open(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                      sp_sampler *eval, sp_comm *comm, int64_t memory, int *who)
{
    sp_foresight own = *what;

    memset(cut, 0, sizeof *cut);
    cut->memory = memory;
    if (memory == 0)
        return SP_OK;
    if (what->config->train.deterministic == SP_DET_WORLD)
        own.n_local = 2; /* any number of ranks cuts alike */
    SP_TRY(sp_comm_agree(comm, open_both(cut, &own, train, eval), who));
    SP_TRY(read_for_all(&cut->train, cut, comm, plan_largest, who));
    SP_TRY(read_for_all(&cut->eval, cut, comm, plan_largest, who));
    find_need(cut); /* twice what the index foresees */
    if (sp_cut_need(cut) <= memory) {
        cut->train.excess = cut->eval.excess = MARGIN;
        find_need(cut);
        return SP_OK;
    }
    if (eval)
        set_slots(&cut->eval, SP_LOADER_SLOTS);
    SP_TRY(read_for_all(&cut->train, cut, comm, compare_some, who));
    SP_TRY(read_for_all(&cut->eval, cut, comm, compare_some, who));
    find_need(cut);
    SP_TRY(sp_comm_agree(comm, check_largest(cut), who));
    make_rooms(cut);
    return SP_OK;
}

static void close_budget(sp_budget *b)
{
    free(b->known);
    sp_foresee_close(&b->foreseer);
}

void sp_cut_close(sp_cut *cut)
{
    close_budget(&cut->train);
    close_budget(&cut->eval);
    memset(cut, 0, sizeof *cut);
}

/* ---- what the user hears ---- */

static bool has_norm(const sp_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->node[i].op == SP_OP_BATCHNORM)
            return true;
    return false;
}

void sp_cut_print(const sp_cut *cut, int64_t device_bytes)
{
    const sp_budget *b = &cut->train;
    char there[100];

    if (!cut->memory || !b->sampler)
        return;
    snprintf(there, sizeof there, "%.1f MiB", mib(cut->memory));
    if (device_bytes)
        snprintf(there, sizeof there, "%.1f of the %.1f MiB that a device has for it",
                 mib(cut->memory), mib(device_bytes));
    if (b->n_micro <= b->n_micro_asked) {
        sp_log_info("memory: a rank may use %s; the dearest step needs about %.1f",
                    there, mib(sp_cut_need(cut)));
        return;
    }
    sp_log_warn0("memory: a rank may use %s, the dearest step needs about %.1f: steps "
                 "are cut into micro-batches, that one into %d%s",
                 there, mib(sp_cut_need(cut)), b->n_micro,
                 has_norm(b->foreseer.what.graph)
                     ? "; batch statistics are those of a micro-batch"
                     : "");
    if (fixed_bytes(cut) + b->largest[0] + b->largest[REST] > cut->memory)
        sp_log_warn0("memory: the largest sample needs about %.1f MiB by itself: what "
                     "is too large runs alone, as far as that goes",
                     mib(fixed_bytes(cut) + b->largest[0] + b->largest[REST]));
}

sp_status sp_cut_explain(const sp_cut *cut, const sp_budget *b, const int64_t *sample,
                         int n)
{
    const char *said = sp_error_last()->message;
    int64_t need = fixed_bytes(cut), voxels = 0;
    const sp_shard *shard;

    if (!b->known || n == 0)
        return SP_EMEM; /* as it was said */
    for (int i = 0; i < n; i++) {
        need += (int64_t)(b->excess * (double)sum_of(b->known[sample[i]]));
        voxels += sp_dataset_voxels(b->set, sample[i]);
    }
    if (n > 1)
        return SP_FAIL(SP_EMEM,
                       "%d samples from %lld on (%lld voxels) need about %.1f MiB, of "
                       "%.1f there: less than foreseen remains; set run.memory_mb: %s",
                       n, (long long)sample[0], (long long)voxels, mib(need),
                       mib(cut->memory), said);
    shard = &b->set->shard[sp_dataset_shard_of(b->set, sample[0])];
    return SP_FAIL(SP_EMEM,
                   "sample %lld of %s (%lld voxels) needs about %.1f MiB by itself, of "
                   "%.1f there: %s",
                   (long long)(sample[0] - shard->first_sample), shard->path,
                   (long long)voxels, mib(need), mib(cut->memory), said);
}
