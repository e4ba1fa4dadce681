#include "api/sp_loops.h"

#include <float.h>
#include <omp.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

static bool keeps_small_numbers(void)
{
    volatile float least = FLT_MIN;

    least /= 2;
    return least > 0;
}

/* OpenMP's threads have the rules of the thread that started them. */
static void loops_set_arithmetic(const fenv_t *rules, bool in_all_threads)
{
    fesetenv(rules);
    if (in_all_threads) {
#pragma omp parallel
        fesetenv(rules);
    }
}

sp_loops sp_loops_begin(int threads)
{
    static _Atomic(pid_t) first; /* the process that began */
    sp_loops caller = {.threads = omp_get_max_threads(),
                       .dynamic = omp_get_dynamic(),
                       .levels = omp_get_max_active_levels()};
    pid_t none = 0;

    caller.is_usual = fegetround() == FE_TONEAREST && keeps_small_numbers();
    fegetenv(&caller.arithmetic);
    if (!atomic_compare_exchange_strong(&first, &none, getpid()) && none != getpid())
        omp_set_max_active_levels(0);
    if (threads > 0)
        omp_set_num_threads(threads);
    omp_set_dynamic(0); /* OMP_DYNAMIC would take some threads away */
    loops_set_arithmetic(FE_DFL_ENV, !caller.is_usual);
    return caller;
}

void sp_loops_end(sp_loops caller)
{
    loops_set_arithmetic(&caller.arithmetic, !caller.is_usual);
    omp_set_num_threads(caller.threads);
    omp_set_dynamic(caller.dynamic);
    omp_set_max_active_levels(caller.levels);
}
