#include "bench/bench_roofline_cases.h"

#include <math.h>
#include <string.h>

#include "cuda/conv/cuda_count.h"

/* Rates of a case. */
typedef struct case_rates {
    double sm;         /* times the counted time of the SMs */
    double l2, memory; /* bytes a second */
    double launch_s, small_s;
    double second;  /* part of the second-largest resource that does not overlap */
    double norm_s;  /* the sums in the kernel ahead of a pass of a batch norm */
    double plan_s;  /* of the step that the next plan's kernels take from it */
    double event_s; /* by which a launch after an event is later */
    double tensors; /* bytes of a tensor that a pass still finds in the L2, 0 if none */
    /* The most bytes of them in a second. */
    double found;
} case_rates;

/* MODEL: resources overlap perfectly, and what is beside the layers costs nothing.
 * HONEST: a tenth of the second-largest resource is added, the coefficients of norms
 * take 0.8 us and their launch, launches 1.7 us, and 1 us more after an event, and the
 * plan's 80 operations 0.12 ms.
 * MILD: everything somewhat worse. In the passes of norms themselves, as they once were,
 * coefficients were counted as 2 and 3 us: five accesses to the L2, one behind another,
 * beside the sums. */
#define MODEL(l2, memory)                                                              \
    {                                                                                  \
        1, l2, memory, BENCH_LAUNCH_S, BENCH_SMALL_S, 0, 0, 0, 0, 0, 0                 \
    }
#define HONEST(l2, memory)                                                             \
    {                                                                                  \
        1.03, l2, memory, 1.7e-6, 3e-6, 0.1, 8e-7, 1.2e-4, 1e-6, 0, 0                  \
    }
#define MILD(l2, memory)                                                               \
    {                                                                                  \
        1.1, l2, memory, 2e-6, 4e-6, 0.15, 1.2e-6, 2e-4, 2e-6, 0, 0                    \
    }
#define L2   BENCH_L2
#define H100 BENCH_MEMORY
#define H200 4.0e12

/* A change of the kernels: what it takes away from a call, or adds. */
typedef void case_change(bench_work_of_call *call);

static bool is_op(const bench_work_of_call *call, const char *op)
{
    return strcmp(call->op, op) == 0;
}

static void gather_less(bench_work_of_call *call, double part)
{
    call->l2_bytes -= part * call->gathered;
    call->gathered *= 1 - part;
}

/* Weight gradients in tiles of 256 x 256 channels, each of two blocks that exchange half
 * of what one side gathers. */
static void change_wgrad_256x256(bench_work_of_call *call)
{
    const cuda_wgrad_tile is =
        cuda_wgrad_choose(call->is_wgmma, call->c_in, call->c_out);
    const cuda_wgrad_tile pair = {256, 256, true};
    const double now = cuda_wgrad_gathers(call->c_in, call->c_out, is);
    const double then = cuda_wgrad_gathers(call->c_in, call->c_out, pair);

    if (is_op(call, "conv_grad_weight") && then < now)
        gather_less(call, 1 - then / now);
}

static const struct {
    const char *name;
    case_rates rates;
    case_change *change; /* NULL if the kernels are as they are */
} all_cases[] = {
    {"H100, resources overlap perfectly", MODEL(L2, H100), NULL},
    {"H100, honest", HONEST(L2, H100), NULL},
    {"H100, everything somewhat worse", MILD(5e12, 2.7e12), NULL},
    {"H200, resources overlap perfectly", MODEL(L2, H200), NULL},
    {"H200, honest", HONEST(L2, H200), NULL},
    {"H200, everything somewhat worse", MILD(5e12, 3.8e12), NULL},
    {"L2 6.5 TB/s, launches 1.2 us",
     {1, 6.5e12, H100, 1.2e-6, 3e-6, 0, 0, 0, 0, 0, 0},
     NULL},
    {"L2 4.5 TB/s", MODEL(4.5e12, H100), NULL},
    {"L2 4.0 TB/s", MODEL(4.0e12, H100), NULL},
    {"SMs 20 % slower", {1.2, L2, H100, 1.5e-6, 3e-6, 0, 0, 0, 0, 0, 0}, NULL},
    {"launches 2.5 us", {1, L2, H100, 2.5e-6, 3e-6, 0, 0, 0, 0, 0, 0}, NULL},
    {"norms' coefficients 2 us",
     {1, L2, H100, 1.5e-6, 3e-6, 0, 2e-6, 0, 0, 0, 0},
     NULL},
    {"honest, norms find 16 MB in the L2",
     {1.03, L2, H100, 1.7e-6, 3e-6, 0.1, 8e-7, 1.2e-4, 1e-6, 16e6, 5e12},
     NULL},
    {"15 % of the second resource",
     {1, L2, H100, 1.5e-6, 3e-6, 0.15, 0, 0, 0, 0, 0},
     NULL},
    {"weight gradients 256 x 256", HONEST(L2, H100), change_wgrad_256x256},
};

enum {
    HONEST_CASE = 1,
    FIRST_CHANGE = 14,
    CASES = sizeof all_cases / sizeof *all_cases
};
_Static_assert((int)CASES <= (int)BENCH_MOST_CASES, "room for every case");

static bool is_norm(const bench_work_of_call *call)
{
    return is_op(call, "norm_apply") || is_op(call, "norm_grad_apply");
}

/* A pass over a tensor that is still in the L2 is bound by that. */
static double memory_s(const bench_work_of_call *call, const case_rates *r)
{
    const bool is_found = is_norm(call) && call->memory_bytes < 3 * r->tensors;

    return call->memory_bytes / (is_found ? r->found : r->memory);
}

/* A weight gradient's own launch passes beside the input gradient. Two launches follow
 * the events that fork and join its stream, and do not begin early. */
static double launches_s(const bench_work_of_call *call, const case_rates *r)
{
    if (is_op(call, "conv_grad_weight") && r->event_s > 0)
        return r->launch_s * call->more_kernels + 2 * r->event_s;
    return r->launch_s * (1 + call->more_kernels);
}

static double time_of(const bench_work_of_call *call, const case_rates *r)
{
    const double part[] = {call->sm_s * r->sm, call->l2_bytes / r->l2,
                           memory_s(call, r)};
    double most = 0, second = 0;

    if (call->is_small)
        return r->small_s;
    for (int i = 0; i < 3; i++) {
        second = fmax(second, fmin(part[i], most));
        most = fmax(most, part[i]);
    }
    return most + r->second * second + launches_s(call, r) +
           (is_norm(call) ? r->norm_s * call->more_kernels : 0);
}

double bench_cases_add(bench_cases *cases, const bench_work_of_call *call)
{
    for (int i = 0; i < CASES; i++) {
        bench_work_of_call changed = *call;

        if (all_cases[i].change)
            all_cases[i].change(&changed);
        cases->s[i] += time_of(&changed, &all_cases[i].rates);
        cases->l2_bytes[i] += changed.l2_bytes;
    }
    return time_of(call, &all_cases[0].rates);
}

static double step_s(const bench_cases *cases, int i)
{
    return cases->s[i] + all_cases[i].rates.plan_s;
}

static sp_status print_case_json(bench *b, const bench_cases *cases, int i)
{
    sp_json json = {0};

    sp_json_begin(&json);
    sp_json_text(&json, "name", "case");
    sp_json_text(&json, "case", all_cases[i].name);
    sp_json_double(&json, "l2_bytes", cases->l2_bytes[i]);
    sp_json_double(&json, "predicted_ms", step_s(cases, i) * 1e3);
    return bench_json_end(b, &json);
}

sp_status bench_cases_print(bench *b, const bench_cases *cases)
{
    const double honest = step_s(cases, HONEST_CASE);

    for (int i = 0; i < CASES && b->options->is_json; i++)
        SP_TRY(print_case_json(b, cases, i));
    if (b->options->is_json)
        return SP_OK;
    fprintf(
        b->out,
        "\nstep, predicted, no device: %.1f to %.1f ms on an H100, %.1f to %.1f on an "
        "H200\n%-36s %8s %10s\n",
        honest * 1e3, step_s(cases, HONEST_CASE + 1) * 1e3,
        step_s(cases, HONEST_CASE + 3) * 1e3, step_s(cases, HONEST_CASE + 4) * 1e3,
        "by other assumptions", "ms", "GB of L2");
    for (int i = 0; i < CASES; i++) {
        if (i == FIRST_CHANGE)
            fprintf(b->out, "%-36s %8s %10s %8s\n", "expected of changes, H100, honest",
                    "ms", "GB of L2", "less");
        fprintf(b->out, "%-36s %8.2f %10.1f", all_cases[i].name, step_s(cases, i) * 1e3,
                cases->l2_bytes[i] * 1e-9);
        if (i >= FIRST_CHANGE)
            fprintf(b->out, " %8.2f", (honest - step_s(cases, i)) * 1e3);
        fprintf(b->out, "\n");
    }
    return SP_OK;
}
