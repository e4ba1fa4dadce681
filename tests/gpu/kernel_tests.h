/* The tests of the CUDA kernels share one program for each way to run kernels: on the
 * emulator (tests/gpu/kernels), with the race checker (kernels_race), from nvcc's PTX
 * (kernels_ptx) and on a device (gpu_tests). A test's file holds
 *
 *     KERNEL_TEST(test_cuda_name)
 *     {
 *         return cmocka_run_group_tests(tests, NULL, NULL);
 *     }
 *
 * in place of main. The program runs the test that its own file is named after, or the
 * one that its first argument names. */
#ifndef KERNEL_TESTS_H
#define KERNEL_TESTS_H

/* Claims of these files stand in a list of each KERNEL_TEST, since one program holds
 * several: a TEST, which all would share, does not compile here. */
#undef TEST
#undef TEST_WITH

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
