#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sp_rng.h"

/* ---- terrain: heights are smooth noise of several wavelengths ---- */

/* Uniform in [-1, 1] at a lattice point of an octave. */
static double lattice(int octave, int64_t x, int64_t y)
{
    uint64_t bits = sp_rng_mix((uint64_t)octave << 56 ^ (uint64_t)(x + 1) << 28 ^
                               (uint64_t)(y + 1));

    return (double)(sp_rng_mix(bits) >> 11) * 0x1p-52 - 1;
}

static double height(int64_t x, int64_t y)
{
    /* wavelength in voxels, amplitude: slopes of about one voxel a voxel */
    static const double octave[][2] = {{64, 14}, {16, 4.5}, {5, 1.4}};
    double z = 0;

    for (int o = 0; o < 3; o++) {
        const double u = (double)x / octave[o][0], v = (double)y / octave[o][0];
        const int64_t i = (int64_t)u, j = (int64_t)v;
        const double s = u - (double)i, t = v - (double)j;
        const double a = s * s * (3 - 2 * s), b = t * t * (3 - 2 * t);
        const double low = lattice(o, i, j) * (1 - a) + lattice(o, i + 1, j) * a;
        const double high =
            lattice(o, i, j + 1) * (1 - a) + lattice(o, i + 1, j + 1) * a;
        z += octave[o][1] * (low * (1 - b) + high * b);
    }
    return z;
}

/* Voxels of the column at (x, y): its height and down to above its lowest neighbour, so
 * that walls are closed. Written to at [most][3]; their number. */
static int64_t column(int64_t x, int64_t y, int32_t *at, int64_t most)
{
    const int32_t top = (int32_t)height(x, y);
    int32_t low = top;
    int64_t n = 0;

    for (int side = 0; side < 4; side++) {
        const int64_t dx = side < 2 ? 2 * side - 1 : 0,
                      dy = side < 2 ? 0 : 2 * side - 5;
        const int32_t z =
            x + dx < 0 || y + dy < 0 ? top : (int32_t)height(x + dx, y + dy);
        low = z + 1 < low ? z + 1 : low;
    }
    for (int32_t z = low; z <= top && n < most; z++, n++) {
        at[3 * n] = (int32_t)x;
        at[3 * n + 1] = (int32_t)y;
        at[3 * n + 2] = z;
    }
    return n;
}

static void make_terrain(int64_t n, int32_t *coords)
{
    int64_t edge = 1, done = 0;

    while (edge * edge < n)
        edge++;
    for (int64_t y = 0; done < n; y++)
        for (int64_t x = 0; x < edge && done < n; x++)
            done += column(x, y, coords + 3 * done, n - done);
}

static sp_status read_sample(const bench_options *options, bench_voxels *v)
{
    char *name[] = {(char *)options->shard};
    const sp_strings pattern = {1, name};
    const sp_sample_request request = {.verify = true};
    sp_dataset set = {0};
    sp_sample sample = {0};
    sp_status rc = sp_dataset_open(&set, &pattern, NULL);

    if (rc == SP_OK && options->sample >= set.n_samples)
        rc = SP_FAIL(SP_EUSAGE, "--sample %lld: %s has %lld samples",
                     (long long)options->sample, options->shard,
                     (long long)set.n_samples);
    if (rc == SP_OK)
        rc = sp_sample_read(&set, options->sample, &request, &sample);
    if (rc == SP_OK) {
        v->n = (int32_t)sample.n;
        v->coords = malloc(((size_t)v->n + 1) * 3 * sizeof *v->coords);
        if (v->coords)
            memcpy(v->coords, sample.coords, (size_t)v->n * 3 * sizeof *v->coords);
        else
            rc = SP_FAIL(SP_EMEM, "out of memory for %d voxels", v->n);
    }
    sp_sample_destroy(&sample);
    sp_dataset_close(&set);
    return rc;
}

sp_status bench_voxels_make(const bench_options *options, int64_t n, bench_voxels *v)
{
    memset(v, 0, sizeof *v);
    if (options->shard) {
        SP_TRY(read_sample(options, v));
    } else {
        v->n = (int32_t)n;
        v->coords = malloc((size_t)n * 3 * sizeof *v->coords);
        if (!v->coords)
            return SP_FAIL(SP_EMEM, "out of memory for %lld voxels", (long long)n);
        make_terrain(n, v->coords);
    }
    v->sample_row[1] = v->n;
    return SP_OK;
}

void bench_voxels_free(bench_voxels *v)
{
    free(v->coords);
    memset(v, 0, sizeof *v);
}

/* ---- a shard of it ---- */

static sp_status write_samples(const char *path, int64_t n, int n_samples,
                               const sp_sample *sample)
{
    char *classes[] = {"low", "high"}, *columns[] = {"height"};
    const sp_shard_meta meta = {.voxel_size = 0.5,
                                .n_classes = 2,
                                .ignore_label = 255,
                                .n_features = 1,
                                .class_name = classes,
                                .feature_name = columns,
                                .has_labels = true};
    int64_t *voxels = malloc((size_t)n_samples * sizeof *voxels);
    sp_shard_writer *writer = NULL;
    sp_status rc = voxels ? SP_OK : SP_FAIL(SP_EMEM, "out of memory");

    for (int i = 0; rc == SP_OK && i < n_samples; i++)
        voxels[i] = n;
    if (rc == SP_OK)
        rc = sp_shard_create(&writer, path, &meta, n_samples, voxels, NULL);
    for (int i = 0; rc == SP_OK && i < n_samples; i++)
        rc = sp_shard_write_sample(writer, i, sample, NULL, NULL);
    free(voxels);
    return sp_shard_close(writer, rc);
}

sp_status bench_shard_make(int64_t n, int n_samples, char *path)
{
    const char *folder = getenv("TMPDIR");
    const bench_options none = {0};
    bench_voxels v = {0};
    sp_sample sample = {.n = n};
    sp_status rc = SP_OK;

    if (snprintf(path, BENCH_PATH, "%s/spbench-XXXXXX", folder ? folder : "/tmp") >=
            BENCH_PATH - 16 ||
        !mkdtemp(path))
        return SP_FAIL(SP_EIO, "%s: cannot make a temporary folder", path);
    strcat(path, "/terrain.h5");
    rc = bench_voxels_make(&none, n, &v);
    sample.coords = v.coords;
    sample.features = malloc((size_t)n * sizeof(float));
    sample.labels = malloc((size_t)n * sizeof(int32_t));
    if (rc == SP_OK && (!sample.features || !sample.labels))
        rc = SP_FAIL(SP_EMEM, "out of memory for %lld voxels", (long long)n);
    for (int64_t i = 0; rc == SP_OK && i < n; i++) {
        sample.features[i] = (float)v.coords[3 * i + 2];
        sample.labels[i] = v.coords[3 * i + 2] > 0;
    }
    if (rc == SP_OK)
        rc = write_samples(path, n, n_samples, &sample);
    free(sample.features);
    free(sample.labels);
    bench_voxels_free(&v);
    return rc;
}

void bench_shard_remove(const char *path)
{
    char folder[BENCH_PATH];
    char *slash;

    snprintf(folder, sizeof folder, "%s", path);
    unlink(path);
    slash = strrchr(folder, '/');
    if (slash) {
        *slash = 0;
        rmdir(folder);
    }
}
