/* The tests of the CUDA kernels share one program for each way to run kernels: on the
 * emulator (tests/gpu/kernels), with the race checker (kernels_race), from nvcc's PTX
 * (kernels_ptx) and on a device (gpu_tests). A test's file holds
 *
 *     TEST(a_claim_that_holds) { ... }
 *
 *     KERNEL_TEST(test_cuda_name)
 *     {
 *         return cmocka_run_group_tests(own_tests, NULL, NULL);
 *     }
 *
 * the latter in place of main. The program runs the test that its own file is named
 * after, or the one that its first argument names. */
#ifndef KERNEL_TESTS_H
#define KERNEL_TESTS_H

#include <assert.h>

#include "fixtures/test.h"

/* The tests of this file in their order, for the body of its KERNEL_TEST: one program
 * holds several files, whose tests are not one list. */
static struct CMUnitTest own_tests[32] __attribute__((unused));
static int n_own_tests __attribute__((unused));

#undef TEST
#undef TEST_WITH
#define TEST(name)                                                                     \
    static void name(void **state);                                                    \
    __attribute__((constructor)) static void add_##name(void)                          \
    {                                                                                  \
        assert(n_own_tests < 32);                                                      \
        own_tests[n_own_tests++] = (struct CMUnitTest)cmocka_unit_test(name);          \
    }                                                                                  \
    static void name(void **state __attribute__((unused)))

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

#endif
