/* The main program of the CUDA kernels' tests (kernel_tests.h). Without the name of a
 * test it prints the names of all; where a real device is needed and absent it ends
 * with 77. */
#include "gpu/kernel_tests.h"
#include "base/sp_program.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "comm/sp_comm.h"
#include "cuda/device/cuda_ops.h"
#include "h5/sp_h5.h"

static struct {
    const char *name;
    kernel_test *run;
} tests[32];
static size_t n_tests;

void kernel_test_register(const char *name, kernel_test *run)
{
    assert(n_tests < sizeof tests / sizeof *tests);
    tests[n_tests].name = name;
    tests[n_tests++].run = run;
}

/* The test that this name is or begins with, as test_x_race and test_x_np2_nvcc.ptx
 * begin with test_x; the longest where several fit, NULL where none does. */
static kernel_test *find(const char *name)
{
    kernel_test *found = NULL;
    size_t longest = 0;

    for (size_t i = 0; i < n_tests; i++) {
        const size_t n = strlen(tests[i].name);
        if (n > longest && strncmp(name, tests[i].name, n) == 0 &&
            strchr("_.", name[n])) {
            found = tests[i].run;
            longest = n;
        }
    }
    return found;
}

/* test_x_a100 and test_x_h100 are test_x with the tensor cores of these devices. */
static void choose_arithmetic(const char *name)
{
    const size_t n = strlen(name);

    if (n > 5 &&
        (strcmp(name + n - 5, "_a100") == 0 || strcmp(name + n - 5, "_h100") == 0))
        setenv("HC_TENSOR", name + n - 4, 1);
}

int kernel_rank_tests(sp_comm *comm, int argc, char **argv,
                      const test_case *const *list, int n)
{
    char path[500];
    int n_failed;

    snprintf(path, sizeof path, "%s/tests/emulator/nccl_double", getenv("SP_BUILDDIR"));
    setenv("SP_NCCL_LIB", path, 0);
    OK(sp_comm_open(comm, &argc, &argv));
    n_failed = run_group(list, n, NULL);
    sp_comm_close(comm);
    return n_failed;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];
    kernel_test *test = find(name);

    choose_arithmetic(name);
    sp_program_begin("sptrain");
    sp_h5_child_main(argc, argv);
    if (sp_backend_visible_devices() == 0) {
        char why[256];

        sp_backend_why_none(why, sizeof why);
        fprintf(stderr, "SKIPPED: no usable CUDA device: %s\n", why);
        return 77;
    }
    if (test)
        return test(argc, argv);
    if (strncmp(name, "test_", 5) == 0) {
        fprintf(stderr, "no test %s: its file is not linked, or registers no test\n",
                name);
        return 2;
    }
    for (size_t i = 0; argc < 2 && i < n_tests; i++)
        puts(tests[i].name);
    if (argc < 2)
        return 0;
    test = find(argv[1]);
    if (test)
        return test(argc - 1, argv + 1);
    fprintf(stderr, "no test %s\n", argv[1]);
    return 2;
}
