#include "api/sp_loops.h"

#include <omp.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

sp_loops sp_loops_begin(int threads)
{
    static _Atomic(pid_t) first; /* the process that began */
    const sp_loops caller = {omp_get_max_threads(), omp_get_dynamic(),
                             omp_get_max_active_levels()};
    pid_t none = 0;

    if (!atomic_compare_exchange_strong(&first, &none, getpid()) && none != getpid())
        omp_set_max_active_levels(0);
    if (threads > 0)
        omp_set_num_threads(threads);
    omp_set_dynamic(0); /* OMP_DYNAMIC would take some threads away */
    return caller;
}

void sp_loops_end(sp_loops caller)
{
    omp_set_num_threads(caller.threads);
    omp_set_dynamic(caller.dynamic);
    omp_set_max_active_levels(caller.levels);
}
