/* Linked with the program in place of its allocations (the linker's --wrap): own code
 * alone is counted, since libraries that are loaded, MPI's among them, keep theirs. At
 * the end of each optimizer step standard error says how many there were since the last
 * one: on the training thread, and on all threads. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "sp_bucket.h"

static _Thread_local long mine;
static atomic_long all;

/* NOLINTBEGIN: names given by the linker */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
int __real_posix_memalign(void **p, size_t alignment, size_t n);
sp_status __real_sp_bucket_wait(sp_buckets *buckets, double *exposed_s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
int __wrap_posix_memalign(void **p, size_t alignment, size_t n);
sp_status __wrap_sp_bucket_wait(sp_buckets *buckets, double *exposed_s);

static void count(void)
{
    mine++;
    all++;
}

void *__wrap_malloc(size_t n)
{
    count();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    count();
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    count();
    return __real_aligned_alloc(alignment, n);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t n)
{
    count();
    return __real_posix_memalign(p, alignment, n);
}

sp_status __wrap_sp_bucket_wait(sp_buckets *buckets, double *exposed_s)
{
    static long mine_before, all_before, step;
    long all_now = all;

    fprintf(stderr, "step %ld allocations %ld all threads %ld\n", ++step,
            mine - mine_before, all_now - all_before);
    mine_before = mine;
    all_before = all_now;
    return __real_sp_bucket_wait(buckets, exposed_s);
}
/* NOLINTEND */
