/* Takes the place of OpenMP's header in a build without it: a process has one
 * thread. */
#ifndef SP_NO_OPENMP_H
#define SP_NO_OPENMP_H

static inline int omp_get_thread_limit(void)
{
    return 1;
}

static inline void omp_set_dynamic(int is_dynamic)
{
    (void)is_dynamic;
}

static inline void omp_set_num_threads(int n)
{
    (void)n;
}

static inline int omp_get_max_threads(void)
{
    return 1;
}

static inline int omp_get_dynamic(void)
{
    return 0;
}

static inline int omp_get_max_active_levels(void)
{
    return 1;
}

static inline void omp_set_max_active_levels(int n)
{
    (void)n;
}

#endif
