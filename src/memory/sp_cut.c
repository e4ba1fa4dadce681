#include "memory/sp_cut_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/sp_log.h"

enum { EVAL_PART = 8 };

int64_t sp_cut_memory_of(int64_t device_bytes)
{
    const int64_t mib = 1 << 20, gib = 1024 * mib, small = device_bytes / 8;
    int64_t reserved = device_bytes / 16;

    assert(device_bytes >= 0);
    if (reserved < gib)
        reserved = small < gib ? small : gib;
    return (device_bytes - reserved) / mib * mib;
}

/* ---- the need ---- */

static sp_status open_both(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                           sp_sampler *eval)
{
    SP_TRY(sp_budget_open(&cut->train, what, train, true));
    SP_TRY(sp_budget_open(&cut->eval, what, eval, false));
    if (cut->memory)
        SP_TRY(sp_foresee_fit(what, train, cut->memory));
    return sp_foresee_fixed(train ? &cut->train.foreseer : &cut->eval.foreseer,
                            &cut->fixed);
}

static int64_t rest_of(const sp_budget *b)
{
    return b->costliest[SP_BATCHES] + b->costliest[SP_SCRATCH];
}

int64_t sp_cut_need(const sp_cut *cut)
{
    return sp_cut_fixed(cut) +
           sp_most(cut->train.costliest[SP_ACTIVATIONS],
                   cut->eval.costliest[SP_ACTIVATIONS]) +
           rest_of(&cut->train) + rest_of(&cut->eval);
}

/* Finds the greatest need of both budgets, each multiplied by its excess, as the deck
 * cuts its steps. */
static void find_need(sp_cut *cut)
{
    sp_budget_find_costliest(&cut->train);
    sp_budget_find_costliest(&cut->eval);
}

/* ---- bounds ---- */

/* Finds the largest samples. On the host it fails if training's and evaluation's do not
 * fit into the memory together. */
static sp_status check_largest(sp_cut *cut)
{
    const int64_t room = cut->memory - sp_cut_fixed(cut);
    const sp_budget *b = &cut->train;
    int64_t worst[2] = {0, 0}, need[2];

    if (cut->train.sampler)
        sp_budget_find_largest(&cut->train, room, &worst[0]);
    if (cut->eval.sampler)
        sp_budget_find_largest(&cut->eval, room, &worst[1]);
    if (!sp_budget_is_host(b->sampler ? b : &cut->eval))
        return SP_OK;
    need[0] = cut->train.largest[0] + cut->train.largest[SP_REST];
    need[1] = cut->eval.largest[0] + cut->eval.largest[SP_REST];
    if (sp_most(cut->train.largest[0], cut->eval.largest[0]) +
            cut->train.largest[SP_REST] + cut->eval.largest[SP_REST] <=
        room)
        return SP_OK;
    if (need[1] > need[0])
        return sp_cut_refuse(&cut->eval, worst[1],
                             sp_cut_fixed(cut) + need[1] + cut->train.largest[SP_REST],
                             cut->memory);
    return sp_cut_refuse(&cut->train, worst[0],
                         sp_cut_fixed(cut) + need[0] + cut->eval.largest[SP_REST],
                         cut->memory);
}

static int64_t cut_between(int64_t x, int64_t least, int64_t most)
{
    return sp_most(sp_least(x, most), least);
}

/* Divides the room between activations and the rest in the ratio that the largest
 * sample has. Each part is at least any sample's need of it, and the worst step's need
 * if that step fits at all. */
static void cut_divide(sp_budget *b, int64_t activations, int64_t room)
{
    const int64_t act = sp_most(activations, b->largest[0]);
    int64_t part[SP_PARTS], least = act, most = room - b->largest[SP_REST];

    sp_budget_weigh(b, &b->like, part);
    if (b->costliest[0] + rest_of(b) <= room) {
        least = sp_most(least, b->costliest[0]);
        most = sp_least(most, room - rest_of(b));
    }
    b->room[0] = cut_between((int64_t)((double)room * ratio(part[0], sp_cut_sum(part))),
                             sp_most(sp_least(least, room - 1), 1), sp_most(most, 1));
    b->room[SP_REST] = sp_most(room - b->room[0], 1);
}

static void limit(sp_budget *b)
{
    const sp_bound bound = {b->room[0] + b->room[SP_REST], sp_budget_of_sample, b};
    int64_t bytes;

    if (!b->sampler || b->set->n_samples == 0)
        return;
    b->part = SP_PARTS;
    sp_sampler_limit(b->sampler, &bound);
    sp_sampler_costliest(b->sampler, &bytes, &b->n_micro);
}

static void make_rooms(sp_cut *cut)
{
    const int64_t room = sp_most(cut->memory - sp_cut_fixed(cut), 2);
    sp_budget *train = &cut->train, *eval = &cut->eval;
    int64_t for_eval = rest_of(eval);

    if (!train->sampler) {
        cut_divide(eval, 0, room);
    } else {
        if (for_eval > room / EVAL_PART)
            for_eval = sp_most(room / EVAL_PART, eval->largest[SP_REST]);
        if (sp_budget_is_host(train)) /* a device may still have room */
            for_eval =
                sp_least(for_eval, room - sp_most(train->largest[0], eval->largest[0]) -
                                       train->largest[SP_REST]);
        cut_divide(train, eval->largest[0], room - for_eval);
        eval->room[0] = train->room[0];
        eval->room[SP_REST] = sp_most(for_eval, 1);
    }
    limit(train);
    limit(eval);
}

/* ---- opening and closing ---- */

sp_status sp_cut_foresee(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                         sp_sampler *eval, sp_comm *comm)
{
    assert(train || eval);
    memset(cut, 0, sizeof *cut);
    SP_TRY(sp_comm_agree(comm, open_both(cut, what, train, eval)));
    SP_TRY(sp_budget_read(&cut->train, cut, comm, sp_budget_plan_largest));
    SP_TRY(sp_budget_read(&cut->train, cut, comm, sp_budget_compare_largest));
    SP_TRY(sp_budget_read(&cut->eval, cut, comm, sp_budget_plan_largest));
    cut->eval.excess = 1;
    SP_TRY(sp_budget_follow(&cut->train, comm));
    return sp_budget_follow(&cut->eval, comm);
}

sp_status sp_cut_open(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                      sp_sampler *eval, sp_comm *comm, int64_t memory)
{
    sp_foresight own = *what;

    assert(memory >= 0 && (train || eval));
    memset(cut, 0, sizeof *cut);
    cut->memory = memory;
    if (memory == 0)
        return SP_OK;
    if (what->config->train.deterministic == SP_DET_WORLD)
        own.n_local = 2; /* the same cuts on any number of ranks */
    SP_TRY(sp_comm_agree(comm, open_both(cut, &own, train, eval)));
    SP_TRY(sp_budget_read(&cut->train, cut, comm, sp_budget_plan_largest));
    SP_TRY(sp_budget_read(&cut->eval, cut, comm, sp_budget_plan_largest));
    find_need(cut); /* with excess still SP_CUT_GENEROUS */
    if (sp_cut_need(cut) <= memory) {
        cut->train.excess = cut->eval.excess = SP_CUT_MARGIN;
        find_need(cut);
        return SP_OK;
    }
    if (eval)
        sp_budget_set_slots(&cut->eval, SP_LOADER_SLOTS);
    SP_TRY(sp_budget_read(&cut->train, cut, comm, sp_budget_compare_some));
    SP_TRY(sp_budget_read(&cut->eval, cut, comm, sp_budget_compare_some));
    find_need(cut);
    SP_TRY(sp_comm_agree(comm, check_largest(cut)));
    make_rooms(cut);
    return SP_OK;
}

void sp_cut_close(sp_cut *cut)
{
    sp_budget_close(&cut->train);
    sp_budget_close(&cut->eval);
    memset(cut, 0, sizeof *cut);
}

/* ---- messages ---- */

static bool has_norm(const sp_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->node[i].op == SP_OP_BATCHNORM)
            return true;
    return false;
}

void sp_cut_print(const sp_cut *cut, int64_t device_bytes)
{
    const sp_budget *b = cut->train.sampler ? &cut->train : &cut->eval;
    char there[100];

    if (!cut->memory || !b->sampler)
        return;
    snprintf(there, sizeof there, "%.1f MiB", mib(cut->memory));
    if (device_bytes)
        snprintf(there, sizeof there, "%.1f of the %.1f MiB that a device has for it",
                 mib(cut->memory), mib(device_bytes));
    if (b->n_micro <= b->n_micro_asked) {
        sp_log_info("memory: a rank may use %s; the largest step needs about %.1f MiB",
                    there, mib(sp_cut_need(cut)));
        return;
    }
    sp_log_warn0("memory: a rank may use %s, and the largest step needs about %.1f "
                 "MiB: steps are cut into micro-batches, the largest into %d%s",
                 there, mib(sp_cut_need(cut)), b->n_micro,
                 b->foreseer.is_training && has_norm(b->foreseer.what.graph)
                     ? "; batch statistics are those of a micro-batch"
                     : "");
    if (sp_cut_fixed(cut) + b->largest[0] + b->largest[SP_REST] > cut->memory)
        sp_log_warn0(
            "memory: the largest sample needs about %.1f MiB by itself: such a sample "
            "runs alone, and the run ends if the device has no memory for it",
            mib(sp_cut_fixed(cut) + b->largest[0] + b->largest[SP_REST]));
}

sp_status sp_cut_explain(const sp_cut *cut, const sp_budget *b, const int64_t *sample,
                         int n)
{
    const char *said = sp_error_last()->message;
    int64_t need = sp_cut_fixed(cut), voxels = 0;
    const sp_shard *shard;

    assert(n >= 0 && (sample || n == 0));
    assert(sp_error_last()->code == SP_EMEM);
    if (!b->known || n == 0)
        return SP_EMEM; /* the message is unchanged */
    for (int i = 0; i < n; i++) {
        need += (int64_t)(b->excess * (double)sp_cut_sum(b->known[sample[i]]));
        voxels += sp_dataset_voxels(b->set, sample[i]);
    }
    if (n > 1)
        return SP_FAIL(
            SP_EMEM,
            "%d samples from %lld on (%lld voxels) need about %.1f MiB of %.1f MiB, "
            "but other programs have taken some: set run.memory_mb to less: %s",
            n, (long long)sample[0], (long long)voxels, mib(need), mib(cut->memory),
            said);
    shard = &b->set->shard[sp_dataset_shard_of(b->set, sample[0])];
    return SP_FAIL(SP_EMEM,
                   "sample %lld of %s (%lld voxels) needs about %.1f MiB by itself, "
                   "expected at most the %.1f MiB of a rank: %s",
                   (long long)(sample[0] - shard->first_sample), shard->path,
                   (long long)voxels, mib(need), mib(cut->memory), said);
}
