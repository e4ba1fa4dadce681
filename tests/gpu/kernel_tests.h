/* The tests of the CUDA kernels share one program for each way to run kernels: on the
 * emulator (tests/gpu/kernels), with the race checker (kernels_race), from nvcc's PTX
 * (kernels_ptx) and on a device (gpu_tests). A test's file holds
 *
 *     TEST(a_claim_that_holds) { ... }
 *
 *     KERNEL_TESTS(test_cuda_name)
 *
 * the latter in place of main; KERNEL_TEST { ... } is one that does more. The program
 * runs the test that its own file is named after, or the one that its first argument
 * names. */
#ifndef KERNEL_TESTS_H
#define KERNEL_TESTS_H

#include <assert.h>

#include "fixtures/test.h"

/* The tests of this file in their order: one program holds several files, whose tests
 * are not one list. */
static const test_case *own_tests[32] __attribute__((unused));
static int n_own_tests __attribute__((unused));

#define add_test add_own_test
static inline void add_own_test(const test_case *test)
{
    assert(n_own_tests < 32);
    own_tests[n_own_tests++] = test;
}

/* The emulator (hostcuda.h) or gpu_device.c defines these. */
void hc_set_order(uint64_t seed, bool is_lazy);
bool hc_is_checked(void);
unsigned hc_waits(void);
unsigned hc_operations(void);
unsigned hc_launches(void) __attribute__((weak)); /* NULL on a real device */
unsigned long hc_wgmma_count(void) __attribute__((weak));
unsigned long hc_copied_bytes(void) __attribute__((weak));

typedef int kernel_test(int argc, char **argv);

/* Called before main, at most 32 times. `name` is kept, not copied. */
void kernel_test_register(const char *name, kernel_test *run);

#define KERNEL_TEST(name)                                                              \
    static kernel_test name;                                                           \
    __attribute__((constructor)) static void register_##name(void)                     \
    {                                                                                  \
        kernel_test_register(#name, name);                                             \
    }                                                                                  \
    static int name(int argc __attribute__((unused)),                                  \
                    char **argv __attribute__((unused)))

struct sp_comm;
/* Opens comm on ranks that find the double of NCCL, runs the tests and closes it. */
int kernel_rank_tests(struct sp_comm *comm, int argc, char **argv,
                      const test_case *const *tests, int n);

#define KERNEL_TESTS(name)                                                             \
    KERNEL_TEST(name)                                                                  \
    {                                                                                  \
        return run_group(own_tests, n_own_tests, NULL);                                \
    }

#endif
