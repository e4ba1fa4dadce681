#include "bench/bench_roofline_code.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Reads a row: words up to the first that follows the form ("whole", "any"), then
 * numbers: loop, mma, sync, ahead, clocks, outside, bytes, regs, shared, threads,
 * blocks. */
static bool roofline_read_row(char *line, bench_code_kernel *k)
{
    static const char *const forms[] = {" whole ", " any "};
    double skipped;
    int unused;

    for (int i = 0; i < 2; i++) {
        char *form = strstr(line, forms[i]);
        size_t n;

        if (!form)
            continue;
        n = (size_t)(form - line) + strlen(forms[i]) - 1;
        if (n >= sizeof k->name)
            return false;
        memcpy(k->name, line, n);
        k->name[n] = 0;
        return sscanf(line + n, "%lf %d %d %d %lf %lf %d %d %d %d %d", &k->loop,
                      &unused, &unused, &unused, &skipped, &k->outside, &unused,
                      &unused, &unused, &k->threads, &k->blocks) == 11 &&
               k->threads > 0 && k->blocks > 0;
    }
    return false;
}

static sp_status roofline_read_rows(FILE *from, const char *path, bench_code *code)
{
    char line[256];

    for (int number = 1; fgets(line, sizeof line, from); number++) {
        if (number == 1 && strncmp(line, "kernel", 6) == 0)
            continue;
        if (code->n == BENCH_CODE_KERNELS)
            return SP_FAIL(SP_EDATA, "%s: more than %d kernels", path,
                           BENCH_CODE_KERNELS);
        if (!roofline_read_row(line, &code->kernel[code->n++]))
            return SP_FAIL(SP_EDATA,
                           "%s: line %d is no row of a table of make check-code", path,
                           number);
    }
    if (ferror(from))
        return SP_FAIL(SP_EIO, "%s: %s", path, strerror(errno));
    return code->n > 0 ? SP_OK : SP_FAIL(SP_EDATA, "%s: no kernels", path);
}

sp_status bench_code_read(const char *path, bench_code *code)
{
    FILE *from = fopen(path, "r");
    sp_status rc;

    code->n = 0;
    if (!from)
        return SP_FAIL(SP_EIO, "--code %s: %s", path, strerror(errno));
    rc = roofline_read_rows(from, path, code);
    fclose(from);
    return rc;
}

sp_status bench_code_find(const bench_code *code, const char *name,
                          const bench_code_kernel **found)
{
    for (int i = 0; i < code->n; i++)
        if (strcmp(code->kernel[i].name, name) == 0) {
            *found = &code->kernel[i];
            return SP_OK;
        }
    return SP_FAIL(SP_EDATA,
                   "--code: the table has no kernel \"%s\"; make check-code "
                   "makes a new one",
                   name);
}
