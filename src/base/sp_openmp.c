#include "base/sp_openmp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/sp_log.h"

/* The variables of libgomp, of LLVM's and Intel's library, and of NVIDIA's compilers.
 * The last one chooses no cores, but its 0 would leave one thread to every loop. Limits
 * on the number of threads are kept. */
static const char *const names[] = {
    "OMP_PROC_BIND", "OMP_PLACES",    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",  "KMP_HW_SUBSET", "KMP_PLACE_THREADS",
    "MP_BIND",       "MP_BLIST",      "OMP_MAX_ACTIVE_LEVELS"};
enum { N_NAMES = sizeof names / sizeof *names, N_OF_CORES = N_NAMES - 1 };

/* The texts NAME=VALUE that were taken out; NULL if the variable was not set. */
static char *hidden[N_NAMES];

/* Sanitizers count on a runtime that has not started yet. */
#define BEFORE_ALL __attribute__((no_sanitize("address", "thread", "undefined")))

/* Returns the index of the variable that the text NAME=VALUE sets; N_NAMES: another. */
BEFORE_ALL static int openmp_find_name(const char *text)
{
    for (int i = 0; i < N_NAMES; i++) {
        size_t n = 0;

        while (names[i][n] && names[i][n] == text[n])
            n++;
        if (!names[i][n] && text[n] == '=')
            return i;
    }
    return N_NAMES;
}

BEFORE_ALL void sp_openmp_hide(int argc, char **argv, char **envp)
{
    char **to = envp;

    (void)argc;
    (void)argv;
    for (char **from = envp; *from; from++) {
        const int i = openmp_find_name(*from);

        if (i < N_NAMES)
            hidden[i] = *from;
        else
            *to++ = *from;
    }
    *to = NULL;
}

void sp_openmp_warn(void)
{
    char text[256] = "";

    for (int i = 0; i < N_OF_CORES; i++) {
        const char *value = hidden[i] ? strchr(hidden[i], '=') + 1 : "";
        const size_t n = strlen(text);

        if (*value && strcasecmp(value, "false") != 0)
            snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", names[i]);
    }
    if (*text)
        sp_log_warn0("%s in the environment: no effect on sptrain's programs, whose "
                     "ranks divide the cores of their node; taskset or the binding of "
                     "the launcher chooses cores",
                     text);
}
