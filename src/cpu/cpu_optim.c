/* Updates of the flat parameter vector: threads share its blocks. */
#include <assert.h>

#include "cpu/cpu_isa.h"

_Static_assert(SP_CPU_FLAT_BLOCK % SP_NO_DECAY_RUN == 0, "runs do not cross blocks");

typedef void rule_fn(const sp_optim_args *, int64_t, int64_t);

/* Updates elements at .. end - 1 by `rule`, and runs without weight decay by separate
 * calls. */
static void update_block(rule_fn *rule, const sp_optim_args *a, int64_t at, int64_t end)
{
    sp_optim_args without = *a;

    without.weight_decay = 0;
    while (at < end) {
        const bool has_no_decay = a->no_decay && a->no_decay[at / SP_NO_DECAY_RUN];
        int64_t next = a->no_decay ? at + SP_NO_DECAY_RUN : end;

        while (next < end && !a->no_decay[next / SP_NO_DECAY_RUN] == !has_no_decay)
            next += SP_NO_DECAY_RUN;
        next = sp_least(next, end);
        rule(has_no_decay ? &without : a, at, next);
        at = next;
    }
}

static sp_status cpu_optim_update(sp_backend *be, rule_fn *rule, const sp_optim_args *a)
{
    const int64_t size = SP_CPU_FLAT_BLOCK, n_blocks = sp_cpu_blocks(a->n, size);

    assert(sp_update_is_sound(a));
#pragma omp parallel for num_threads(sp_cpu_threads(be, a->n))
    for (int64_t i = 0; i < n_blocks; i++)
        update_block(rule, a, i * size, sp_least((i + 1) * size, a->n));
    for (int i = 0; i < a->packs.n; i++) {
        const sp_pack_args *pack = &a->packs.at[i];

        if (pack->w >= a->w && pack->w < a->w + a->n)
            SP_TRY(sp_cpu_conv_pack(be, pack, 1));
    }
    return SP_OK;
}

sp_status sp_cpu_sgd(sp_backend *be, const sp_optim_args *a)
{
    return cpu_optim_update(be, sp_cpu_isa_of(be)->sgd, a);
}

sp_status sp_cpu_adamw(sp_backend *be, const sp_optim_args *a)
{
    assert(a->m && a->v);
    return cpu_optim_update(be, sp_cpu_isa_of(be)->adamw, a);
}

sp_status sp_cpu_sum_squares(sp_backend *be, const float *g, int64_t n, double *sum)
{
    const sp_cpu_isa *isa = sp_cpu_isa_of(be);
    const int64_t size = SP_CPU_FLAT_BLOCK, n_blocks = sp_cpu_blocks(n, size);
    double *part;

    assert(n >= 0 && (g || n == 0) && sum);
    SP_TRY(sp_cpu_scratch(be, (size_t)n_blocks * sizeof *part, (void **)&part));
#pragma omp parallel for num_threads(sp_cpu_threads(be, n))
    for (int64_t i = 0; i < n_blocks; i++)
        part[i] = isa->sum_squares(g + i * size, sp_least(size, n - i * size));
    *sum = 0;
    for (int64_t i = 0; i < n_blocks; i++)
        *sum += part[i];
    return SP_OK;
}
