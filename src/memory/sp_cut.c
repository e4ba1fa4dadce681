#include "memory/sp_cut.h"

#include <stdio.h>
#include <string.h>

#include "base/sp_log.h"

enum { SET_ASIDE = 8 };

int64_t sp_cut_memory_of(int64_t device_bytes)
{
    const int64_t mib = 1 << 20, gib = 1024 * mib, small = device_bytes / 8;
    int64_t spared = device_bytes / 16;

    if (spared < gib)
        spared = small < gib ? small : gib;
    return (device_bytes - spared) / mib * mib;
}

/* *aside: bytes that evaluations get. */
static sp_status open_beside(sp_cut *cut, const sp_foresight *what, sp_sampler *eval,
                             sp_comm *comm, int64_t room, int64_t *aside, int *who)
{
    sp_budget *b = &cut->eval;
    const double share = 1.0 / (SET_ASIDE - 1);

    *aside = 0;
    if (!eval)
        return SP_OK;
    SP_TRY(sp_budget_open(b, what, eval, comm, false, share, room / SET_ASIDE, who));
    *aside = b->is_bound ? b->room : 2 * b->dearest_bytes;
    if (b->is_bound && b->largest_bytes > *aside)
        *aside = b->largest_bytes;
    return SP_OK;
}

sp_status sp_cut_open(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                      sp_sampler *eval, sp_comm *comm, int64_t memory, int *who)
{
    int64_t aside;

    memset(cut, 0, sizeof *cut);
    cut->memory = memory;
    if (memory == 0)
        return SP_OK;
    cut->base = sp_budget_fixed(what, train != NULL);
    if (!train)
        return sp_budget_open(&cut->eval, what, eval, comm, false, 1,
                              memory - cut->base, who);
    SP_TRY(open_beside(cut, what, eval, comm, memory - cut->base, &aside, who));
    cut->base += aside;
    return sp_budget_open(&cut->train, what, train, comm, true, 1, memory - cut->base,
                          who);
}

void sp_cut_close(sp_cut *cut)
{
    sp_budget_close(&cut->train);
    sp_budget_close(&cut->eval);
    memset(cut, 0, sizeof *cut);
}

/* ---- what the user hears ---- */

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

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

    if (!b->known)
        return;
    snprintf(there, sizeof there, "%.1f MiB", mib(cut->memory));
    if (device_bytes)
        snprintf(there, sizeof there, "%.1f of the %.1f MiB that a device has for it",
                 mib(cut->memory), mib(device_bytes));
    if (b->n_micro <= b->n_micro_asked) {
        sp_log_info("memory: a rank may use %s; the dearest step needs about %.1f",
                    there, mib(cut->base + b->dearest_bytes));
        return;
    }
    sp_log_warn0(
        "memory: a rank may use %s, the dearest step needs about %.1f: steps "
        "are cut into micro-batches, that one into %d%s",
        there, mib(cut->base + b->dearest_bytes), b->n_micro,
        has_norm(b->what.graph) ? "; batch statistics are those of a micro-batch" : "");
    if (b->largest_bytes > b->room)
        sp_log_warn0("memory: the largest sample needs about %.1f MiB by itself: what "
                     "is too large runs alone, as far as that goes",
                     mib(cut->base + b->largest_bytes));
}
