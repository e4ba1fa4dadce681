/* Data sets for the tests of whole programs, which thus need no Python.
 *
 *     make_shards uneven FILE             15 samples of unequal size with points,
 *                                         subvoxel and moments; one empty, one of a
 *                                         single voxel, one without any label
 *     make_shards unlabelled FILE         4 samples, all labels ignored
 *     make_shards plain FILE              6 samples without subvoxel and points
 *     make_shards classes FILE            like plain, with 5 classes instead of 4
 *     make_shards bad-label FILE SAMPLE   first label of a sample becomes 99
 *     make_shards bad-feature FILE SAMPLE first feature changes, its checksum stays
 *     make_shards sums CHECKPOINT         name and crc32c of params, buffers, optim
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_fixture.h"
#include "sp_h5.h"
#include "sp_log.h"

static const int64_t sizes[] = {900, 40,  0,   300, 1,  700, 120, 60,
                                500, 250, 333, 77,  18, 410, 190};
enum { N_SIZES = sizeof sizes / sizeof *sizes, NO_LABEL = 7 };

static sp_status make(const char *kind, const char *path)
{
    fixture f = {.n_samples = 6, .voxels = sizes + 9, .seed = 5, .has_moments = true};

    if (strcmp(kind, "uneven") == 0) {
        f.n_samples = N_SIZES;
        f.voxels = sizes;
        f.unlabelled = 1u << NO_LABEL;
        f.has_points = f.has_subvoxel = true;
    } else if (strcmp(kind, "unlabelled") == 0) {
        f.n_samples = 4;
        f.unlabelled = 15;
    } else if (strcmp(kind, "classes") == 0) {
        f.n_classes = 5;
    }
    return fixture_write(&f, path);
}

/* Overwrite the first row of a sample in one dataset. */
static sp_status damage(const char *path, int64_t sample, bool is_label)
{
    static const uint8_t bad[4] = {99, 99, 99, 62};
    sp_dataset set;
    const sp_extent *extent;
    FILE *file;

    SP_TRY(fixture_open(&set, path));
    extent = is_label ? &set.shard[0].labels : &set.shard[0].features;
    file = fopen(path, "r+b");
    if (!file)
        return SP_FAIL(SP_EIO, "%s: cannot open it", path);
    fseek(file,
          (long)(extent->at + set.offset[sample] * extent->cols * extent->type_size),
          SEEK_SET);
    fwrite(bad, 1, (size_t)extent->type_size, file);
    sp_dataset_close(&set);
    return fclose(file) == 0 ? SP_OK : SP_FAIL(SP_EIO, "%s: cannot write it", path);
}

static sp_status print_sums(const char *path)
{
    sp_h5 *file;
    char **names;
    int n;

    SP_TRY(sp_h5_open(&file, path));
    SP_TRY(sp_h5_list(file, "/", &names, &n));
    for (int i = 0; i < n; i++) {
        uint32_t crc;
        SP_TRY(sp_h5_attr_read(file, names[i], "crc32c", SP_H5_U32, 1, &crc));
        printf("%s %08x\n", names[i], crc);
    }
    sp_h5_list_free(names, n);
    return sp_h5_close(file);
}

static sp_status run(int argc, char **argv)
{
    const char *verb = argc > 2 ? argv[1] : "";

    if (argc == 3 && strcmp(verb, "sums") == 0)
        return print_sums(argv[2]);
    if (argc == 4 && strncmp(verb, "bad-", 4) == 0)
        return damage(argv[2], atoi(argv[3]), strcmp(verb, "bad-label") == 0);
    if (argc == 3)
        return make(verb, argv[2]);
    return SP_FAIL(SP_EUSAGE, "usage: make_shards KIND FILE [SAMPLE]");
}

int main(int argc, char **argv)
{
    sp_status rc;

    sp_shard_probe_main(argc, argv);
    rc = run(argc, argv);
    if (rc != SP_OK)
        sp_log_error(sp_error_last());
    return rc;
}
