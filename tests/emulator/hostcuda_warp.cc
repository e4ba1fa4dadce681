/* Warp operations. Lanes leave operation, mask and operand; the last of the mask to
 * arrive computes for all. */
#include "emulator/hostcuda_internal.h"

static const char *const op_name[] = {
    "__syncwarp",         "shuffle",         "ballot",         "any",   "mma of bf16",
    "mma of tf32",        "ldmatrix",        "ldmatrix.trans", "wgmma", "wgmma.fence",
    "wgmma.commit_group", "wgmma.wait_group"};

static void check_match(const hc_fiber *a, const hc_fiber *b)
{
    if (a->op != b->op || a->mask != b->mask)
        hc_fail("lanes disagree: %s, %s mask %08x, and %s, %s mask %08x", hc_where(a),
                op_name[a->op], a->mask, hc_where(b), op_name[b->op], b->mask);
    /* Those of the tensor cores are ".aligned": all lanes execute one instruction. */
    if (a->op >= HC_MMA_BF16 &&
        (a->line != b->line || (a->file != b->file && strcmp(a->file, b->file))))
        hc_fail("%s by lanes at two places: %s and %s", op_name[a->op], hc_where(a),
                hc_where(b));
}

static uint64_t lane_result(const hc_warp *w, const hc_fiber *f, uint32_t group,
                            uint32_t ballot)
{
    switch (f->op) {
    case HC_SHUFFLE:
        if (!(group >> f->from & 1))
            hc_fail("shuffle from lane %d, which is not there: %s", f->from,
                    hc_where(f));
        return w->lane[f->from]->value;
    case HC_BALLOT:
        return ballot;
    case HC_ANY:
        return ballot != 0;
    default:
        return 0;
    }
}

static void complete(hc_warp *w, const hc_fiber *f)
{
    const uint32_t group = f->mask & w->live;
    uint32_t ballot = 0;

    for (int i = 0; i < 32; i++)
        if (group >> i & 1) {
            check_match(f, w->lane[i]);
            ballot |= (uint32_t)(w->lane[i]->value & 1) << i;
        }
    for (int i = 0; i < 32; i++)
        if (group >> i & 1)
            w->lane[i]->result = lane_result(w, w->lane[i], group, ballot);
    if (f->op >= HC_MMA_BF16) {
        if (group != ~0u)
            hc_fail("%s needs all lanes, here are %08x: %s", op_name[f->op], group,
                    hc_where(f));
        hc_tensor_complete(w, f);
    }
    w->waiting &= ~group;
    for (int i = 0; i < 32; i++)
        if (group >> i & 1)
            hc_make_ready(w->lane[i]);
}

static bool is_complete(const hc_warp *w, const hc_fiber *f)
{
    return !(f->mask & w->live & ~w->waiting);
}

void hc_warp_left(hc_warp *w)
{
    for (int i = 0; i < 32; i++)
        if (w->waiting >> i & 1 && is_complete(w, w->lane[i]))
            complete(w, w->lane[i]);
}

uint64_t hc_collective(hc_op op, uint32_t mask, uint64_t value, int from,
                       const char *file, int line)
{
    hc_fiber *f = hc_current_at(file, line);
    hc_warp *w = f->warp;

    f->op = op;
    f->mask = mask;
    f->value = value;
    f->from = from;
    if (!(mask >> f->view.lane & 1))
        hc_fail("%s with mask %08x by a lane outside of it: %s", op_name[op], mask,
                hc_where(f));
    w->waiting |= 1u << f->view.lane;
    if (is_complete(w, f))
        complete(w, f);
    hc_switch_away();
    f->view.warp_syncs += op == HC_SYNC;
    return f->result;
}
