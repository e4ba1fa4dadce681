/* Random damage to the headers of a shard is an error or harmless, never the end of the
 * program: the child that reads headers dies instead, and does so in time. */
#include "test.h"

#include <unistd.h>

#include "shard_fixture.h"

enum { FILES = 200, MOST = 1 << 20 };

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t load(const char *path, unsigned char *data)
{
    FILE *f = fopen(path, "rb");
    size_t n = fread(data, 1, MOST, f);

    fclose(f);
    return n;
}

static void store(const char *path, const unsigned char *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* True if all went well, false for SP_EDATA. */
static bool use(const char *path)
{
    sp_sample_request all = {.verify = true, .with_points = true};
    sp_sample got = {0};
    sp_dataset set;
    sp_status rc = fixture_open(&set, path);

    for (int64_t i = 0; rc == SP_OK && i < set.n_samples; i++)
        rc = sp_sample_read(&set, i, &all, &got);
    if (rc != SP_OK && rc != SP_EDATA && rc != SP_EMEM)
        fail_msg("%s: %s", sp_status_name(rc), sp_error_last()->message);
    if (rc != SP_OK && !strstr(sp_error_last()->message, path))
        fail_msg("does not name the file: %s", sp_error_last()->message);
    sp_sample_destroy(&got);
    sp_dataset_close(&set);
    return rc == SP_OK;
}

static void damaged_headers(void **state)
{
    static const int64_t sizes[] = {30, 0, 20};
    fixture f = {.n_samples = 3,
                 .voxels = sizes,
                 .has_subvoxel = true,
                 .has_points = true,
                 .has_cost = true,
                 .has_moments = true,
                 .seed = 3};
    unsigned char *good = malloc(MOST), *bad = malloc(MOST);
    uint64_t seed = 11;
    int n_good = 0;
    size_t n;

    (void)state;
    OK(fixture_write(&f, "noise.h5"));
    n = load("noise.h5", good);
    for (int i = 0; i < FILES; i++) {
        memcpy(bad, good, n);
        for (uint64_t k = 1 + next(&seed) % 8; k > 0; k--)
            bad[next(&seed) % n] = (unsigned char)next(&seed);
        store("noise.h5", bad, n);
        n_good += use("noise.h5");
    }
    assert_true(n_good < FILES / 2);
    unlink("noise.h5");
    free(good);
    free(bad);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_headers),
    };

    sp_shard_probe_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
