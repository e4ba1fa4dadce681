#include "bench/bench.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "h5/sp_h5.h"

static sp_status read_sample(const bench_options *options, bench_voxels *v)
{
    char *name[] = {(char *)options->shard};
    const sp_strings pattern = {1, name};
    const sp_sample_request request = {.verify = true};
    SP_CLOSED_BY(sp_dataset_close) sp_dataset set = {0};
    SP_CLOSED_BY(sp_sample_destroy) sp_sample sample = {0};

    SP_TRY(sp_dataset_open(&set, &pattern, NULL));
    if (options->sample >= set.n_samples)
        return SP_FAIL(SP_EUSAGE, "--sample %lld: %s has %lld samples",
                       (long long)options->sample, options->shard,
                       (long long)set.n_samples);
    SP_TRY(sp_sample_read(&set, options->sample, &request, &sample));
    if (sample.n == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: sample %lld has no voxel, so there is nothing to time",
                       options->shard, (long long)options->sample);
    v->n = (int32_t)sample.n;
    v->coords = sample.coords;
    sample.coords = NULL;
    return SP_OK;
}

sp_status bench_voxels_make(const bench_options *options, int64_t n, bench_voxels *v)
{
    assert(n >= 0 && v);
    memset(v, 0, sizeof *v);
    if (options->shard) {
        SP_TRY(read_sample(options, v));
    } else {
        v->n = (int32_t)n;
        SP_TRY(SP_NEW(&v->coords, (size_t)n * 3, "voxels"));
        SP_TRY(bench_shape_make(options->shape, n, 0, v->coords));
    }
    v->sample_row[1] = v->n;
    return SP_OK;
}

void bench_voxels_free(bench_voxels *v)
{
    free(v->coords);
    memset(v, 0, sizeof *v);
}

/* ---- samples in files ---- */

enum { CLASSES = 20, COLUMNS = 4 }; /* as in a labelled scan */

/* Makes sample number `seed` of a shape: columns x, y, z and 1, labels by place. */
static sp_status make_sample(const char *shape, uint64_t seed, sp_sample *s)
{
    SP_TRY(bench_shape_make(shape, s->n, seed, s->coords));
    for (int64_t i = 0; i < s->n; i++) {
        const int32_t *at = s->coords + 3 * i;
        for (int j = 0; j < COLUMNS; j++)
            s->features[COLUMNS * i + j] = j < 3 ? (float)at[j] * 0.01f : 1;
        s->labels[i] = ((at[0] >> 4) + (at[1] >> 4) + (at[2] >> 3)) & 15;
    }
    return SP_OK;
}

static sp_status voxels_write_samples(const char *path, const char *shape,
                                      int n_samples, sp_sample *sample)
{
    char names[CLASSES][20], *classes[CLASSES], *columns[] = {"x", "y", "z", "one"};
    const sp_shard_meta meta = {.voxel_size = 0.05,
                                .n_classes = CLASSES,
                                .ignore_label = 255,
                                .n_features = COLUMNS,
                                .class_name = classes,
                                .feature_name = columns,
                                .has_labels = true};
    SP_FREED int64_t *voxels = NULL;
    sp_shard_writer *writer = NULL;
    sp_status rc = SP_OK;

    SP_TRY(SP_NEW(&voxels, n_samples, "the samples of a shard"));
    for (int i = 0; i < CLASSES; i++) {
        snprintf(names[i], sizeof names[i], "class%d", i);
        classes[i] = names[i];
    }
    for (int i = 0; i < n_samples; i++)
        voxels[i] = sample->n;
    SP_TRY(sp_shard_create(&writer, path, &meta, n_samples, voxels, NULL));
    for (int i = 0; rc == SP_OK && i < n_samples; i++) {
        rc = make_sample(shape, (uint64_t)i, sample);
        if (rc == SP_OK)
            rc = sp_shard_write_sample(writer, i, sample, NULL, NULL);
    }
    return sp_shard_close(writer, rc);
}

static sp_status voxels_write_shard(const char *path, const char *shape, int64_t n,
                                    int n_samples)
{
    SP_FREED int32_t *coords = NULL, *labels = NULL;
    SP_FREED float *features = NULL;

    SP_TRY(SP_NEW(&coords, 3 * n, "voxels"));
    SP_TRY(SP_NEW(&features, COLUMNS * n, "voxels"));
    SP_TRY(SP_NEW(&labels, n, "voxels"));
    return voxels_write_samples(
        path, shape, n_samples,
        &(sp_sample){.n = n, .coords = coords, .features = features, .labels = labels});
}

/* bench_shard_remove removes these: the temporary folder and the shard, under its name
 * and under the one that it has until it is complete. "": nothing to remove. */
static char folder_made[BENCH_PATH], shard_made[2][BENCH_PATH + 8];

void bench_shard_remove(void)
{
    unlink(shard_made[0]);
    unlink(shard_made[1]);
    rmdir(folder_made);
}

/* TERM and INT end spbench immediately, but a large temporary file must not remain. */
static void remove_and_end(int number)
{
    bench_shard_remove();
    signal(number, SIG_DFL);
    raise(number);
}

sp_status bench_shard_make(int64_t n, int n_samples, char *path)
{
    const char *set = getenv("TMPDIR"), *folder = set && *set ? set : "/tmp";

    assert(n >= 1 && n_samples >= 1 && path);
    errno = ENAMETOOLONG;
    if (snprintf(path, BENCH_PATH, "%s/spbench-XXXXXX", folder) >= BENCH_PATH - 16 ||
        !mkdtemp(path))
        return SP_FAIL(SP_EIO, "%s: cannot make a temporary folder: %s", folder,
                       strerror(errno));
    strcpy(folder_made, path);
    strcat(path, "/terrain.h5");
    snprintf(shard_made[0], sizeof shard_made[0], "%s", path);
    snprintf(shard_made[1], sizeof shard_made[1], "%s.part", path);
    signal(SIGTERM, remove_and_end);
    signal(SIGINT, remove_and_end);
    return voxels_write_shard(path, NULL, n, n_samples);
}

/* ---- spbench voxels ---- */

/* How a file of rows begins. */
#define RAW "sptrain-raw 1 "

/* Writes all rows of the set, one array after the other. */
static sp_status voxels_write_arrays(const sp_dataset *set, FILE *to)
{
    const sp_sample_request request = {.verify = true};
    sp_status rc = SP_OK;
    int64_t row = 0;

    fprintf(to, RAW "samples %lld voxels %lld features %d classes %d\n",
            (long long)set->n_samples, (long long)set->n_voxels, set->n_features,
            set->n_classes);
    for (int64_t i = 0; i <= set->n_samples; i++) {
        fwrite(&row, sizeof row, 1, to);
        row += i < set->n_samples ? sp_dataset_voxels(set, i) : 0;
    }
    for (int array = 0; array < 3; array++)
        for (int64_t i = 0; rc == SP_OK && i < set->n_samples; i++) {
            sp_sample s = {0};
            rc = sp_sample_read(set, i, &request, &s);
            const size_t n = rc == SP_OK ? (size_t)s.n : 0;
            if (array == 0)
                fwrite(s.coords, 3 * sizeof *s.coords, n, to);
            else if (array == 1)
                fwrite(s.features, (size_t)set->n_features * sizeof(float), n, to);
            else
                fwrite(s.labels, sizeof *s.labels, n, to);
            sp_sample_destroy(&s);
        }
    return rc;
}

static sp_status write_raw(const char *from, const char *path)
{
    char *name[] = {(char *)from};
    const sp_strings pattern = {1, name};
    SP_CLOSED_BY(sp_dataset_close) sp_dataset set = {0};
    FILE *to;
    sp_status rc;

    SP_TRY(sp_dataset_open(&set, &pattern, NULL));
    for (int i = 0; i < set.n_shards; i++)
        if (sp_file_is_same(path, set.shard[i].path))
            return SP_FAIL(SP_EUSAGE, "--out %s would replace the shard", path);
    to = fopen(path, "wb");
    if (!to)
        return SP_FAIL(SP_EIO, "%s: %s", path, strerror(errno));
    rc = voxels_write_arrays(&set, to);
    return sp_file_close(to) || rc != SP_OK
               ? rc
               : SP_FAIL(SP_EIO, "%s: cannot be written", path);
}

/* A file of the name is replaced if this command writes such files, and not if it is
 * somebody's scan or deck, by a slip. */
static sp_status voxels_check_out(const char *out)
{
    struct stat st;

    if (lstat(out, &st) != 0 || (S_ISREG(st.st_mode) && st.st_size == 0))
        return SP_OK;
    if (S_ISREG(st.st_mode) && (sp_file_begins(out, RAW, strlen(RAW)) ||
                                sp_file_begins(out, SP_H5_SIGNATURE, 8)))
        return SP_OK;
    return SP_FAIL(SP_EUSAGE, "spbench voxels: --out %s exists and is no shard", out);
}

sp_status bench_voxels_write(bench *b)
{
    const bench_options *o = b->options;

    if (!o->out)
        return SP_FAIL(SP_EUSAGE, "spbench voxels: --out FILE is missing");
    SP_TRY(voxels_check_out(o->out));
    if (o->shard)
        return write_raw(o->shard, o->out);
    return voxels_write_shard(o->out, o->shape, o->voxels.at[0], (int)o->samples);
}
