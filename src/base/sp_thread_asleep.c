#include <limits.h>
#include <omp.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_machine.h"
#include "base/sp_thread.h"

void sp_thread_wait_asleep(char **argv)
{
    enum { MOST_CORES = 16 };
    uint64_t set[SP_CORE_WORDS];
    const int cores = sp_machine_cores(set);
    char own[PATH_MAX];

    if (sp_machine_has_valgrind())
        return; /* it would not look at the program that is executed */
    if (omp_get_thread_limit() < 2 || cores < 2 || cores > MOST_CORES ||
        getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
        getenv("KMP_BLOCKTIME") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
        return;
    /* executed by its name, which ps and pkill show */
    execv(sp_file_of_program(own), argv);
}
