/* The environment variables that make an OpenMP library choose cores itself.
 *
 * libgomp reads OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY in its constructor,
 * before main, and then binds the first thread to the first place, which is the same
 * core for all ranks of a node. From there on the process cannot see which cores its
 * launcher gave to it. So the programs remove these variables from the environment
 * before any library has started, and the ranks divide their cores as they do without
 * them (comm/sp_affinity.h).
 *
 *     .preinit_array: sp_openmp_hide --> constructors of libraries --> main:
 *                                                          sp_openmp_warn
 */
#ifndef SP_OPENMP_H
#define SP_OPENMP_H

/* Takes the variables out of envp, in place. Runs before the C library has started, so
 * it calls nothing. */
void sp_openmp_hide(int argc, char **argv, char **envp);
/* Warns on rank 0 of the variables that were taken out and asked for cores. Local; the
 * log is open. */
void sp_openmp_warn(void);

/* Stands once in the main file of a program: only a program's own object may have
 * functions that run before the constructors of its libraries. */
#ifdef __ELF__
#define SP_OPENMP_HIDE_AT_START                                                        \
    __attribute__((section(".preinit_array"), used)) static void (*const hide_openmp)( \
        int, char **, char **) = sp_openmp_hide
#else
#define SP_OPENMP_HIDE_AT_START extern int sp_openmp_needs_elf
#endif

#endif
