/* laz_copy IN OUT: copies LAS or LAZ, by the ending of OUT, as spvox apply does, with
 * the classes that the points have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/scan_files.h"
#include "base/sp_program.h"

static sp_status read_codes(sp_scan *scan, int32_t **code, int64_t *n)
{
    sp_scan_points p = {0};
    sp_status rc;

    do {
        rc = sp_scan_next(scan, SP_SCAN_BLOCK, &p);
        *code = realloc(*code, (size_t)(*n + p.n + 1) * sizeof **code);
        if (rc == SP_OK && *code)
            memcpy(*code + *n, p.label, (size_t)p.n * sizeof **code);
        *n += p.n;
    } while (rc == SP_OK && *code && p.n > 0);
    sp_scan_points_destroy(&p);
    return rc == SP_OK && !*code ? SP_FAIL(SP_EMEM, "no memory") : rc;
}

int main(int argc, char **argv)
{
    const sp_scan_options options = {.n_threads = 2};
    int32_t *code = NULL;
    sp_scan *scan = NULL;
    int64_t n = 0;
    sp_status rc;

    sp_program_begin("sptrain");
    if (argc != 3)
        return 2;
    rc = sp_scan_open(&scan, argv[1], &options);
    if (rc == SP_OK)
        rc = read_codes(scan, &code, &n);
    if (rc == SP_OK)
        rc = sp_scan_write(
            scan, argv[2],
            &(sp_scan_labels){.n = n, .get = scan_get_codes, .from = code});
    if (rc != SP_OK)
        fprintf(stderr, "%s\n", sp_error_last()->message);
    sp_scan_close(scan);
    free(code);
    return rc;
}
