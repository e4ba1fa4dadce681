/* bench_read [VOXELS [SAMPLES]]: reading samples against plain pread of the same bytes,
 * page cache warm, best of several passes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shard_fixture.h"
#include "sp_log.h"

enum { PASSES = 15 };

static int by_x(const void *a, const void *b)
{
    const int32_t *p = a, *q = b;

    for (int i = 0; i < 3; i++)
        if (p[i] != q[i])
            return p[i] < q[i] ? -1 : 1;
    return 0;
}

static sp_status write_file(const char *path, int64_t n, int samples, bool is_sorted)
{
    int64_t *voxels = calloc((size_t)samples + 1, sizeof *voxels);
    char *names[] = {"a", "b", "c", "d"};
    sp_shard_meta meta = {.voxel_size = 0.5,
                          .n_classes = 4,
                          .ignore_label = 255,
                          .n_features = 4,
                          .class_name = names,
                          .feature_name = names,
                          .has_labels = true};
    fixture f = {.n_samples = samples, .voxels = voxels, .n_features = 4};
    sp_shard_writer *writer;
    sp_sample s;

    for (int i = 0; i < samples; i++)
        voxels[i] = n;
    SP_TRY(sp_shard_create(&writer, path, &meta, samples, voxels, NULL));
    for (int i = 0; i < samples; i++) {
        fixture_sample(&f, i, &s);
        if (is_sorted)
            qsort(s.coords, (size_t)s.n, 3 * sizeof *s.coords, by_x);
        SP_TRY(sp_shard_write_sample(writer, i, &s, NULL, NULL));
        fixture_free(&s);
    }
    free(voxels);
    return sp_shard_close(writer, SP_OK);
}

static void take(int fd, const sp_extent *e, int64_t row, int64_t n, char *to)
{
    size_t bytes = (size_t)(n * e->cols * e->type_size);
    off_t at = e->at + row * e->cols * e->type_size;

    if (pread(fd, to, bytes, at) != (ssize_t)bytes)
        exit(1);
}

/* Seconds of one pass over all samples. */
static double pass_plain(const sp_dataset *set, int fd, char *to, int64_t n)
{
    const sp_shard *shard = set->shard;
    double start = sp_now_s();

    for (int64_t i = 0; i < set->n_samples; i++) {
        take(fd, &shard->coords, i * n, n, to);
        take(fd, &shard->features, i * n, n, to + 12 * n);
        take(fd, &shard->labels, i * n, n, to + 28 * n);
    }
    return sp_now_s() - start;
}

static sp_status pass_read(const sp_dataset *set, bool verify, sp_sample *s,
                           double *time)
{
    sp_sample_request all = {.verify = verify};
    double start = sp_now_s();

    for (int64_t i = 0; i < set->n_samples; i++)
        SP_TRY(sp_sample_read(set, i, &all, s));
    *time = sp_now_s() - start;
    return SP_OK;
}

static sp_status run(const char *path, int64_t n, int samples, bool is_sorted)
{
    double best[3] = {1e9, 1e9, 1e9}, time, bytes = 29.0 * (double)n * samples;
    char *room = malloc((size_t)n * 29);
    sp_sample s = {0};
    sp_dataset set;
    int fd;

    SP_TRY(write_file(path, n, samples, is_sorted));
    SP_TRY(fixture_open(&set, path));
    fd = open(path, O_RDONLY);
    for (int pass = 0; pass < PASSES; pass++) {
        time = pass_plain(&set, fd, room, n);
        best[0] = time < best[0] ? time : best[0];
        for (int verify = 0; verify < 2; verify++) {
            SP_TRY(pass_read(&set, verify, &s, &time));
            best[1 + verify] = time < best[1 + verify] ? time : best[1 + verify];
        }
    }
    printf("voxels=%lld samples=%d sorted=%d pread_GB_s=%.2f read_GB_s=%.2f ratio=%.2f "
           "verify_GB_s=%.2f verify_ratio=%.2f\n",
           (long long)n, samples, is_sorted, bytes / best[0] * 1e-9,
           bytes / best[1] * 1e-9, best[0] / best[1], bytes / best[2] * 1e-9,
           best[0] / best[2]);
    close(fd);
    free(room);
    sp_sample_destroy(&s);
    sp_dataset_close(&set);
    unlink(path);
    return SP_OK;
}

int main(int argc, char **argv)
{
    int64_t n = argc > 1 ? atoll(argv[1]) : 100000;
    int samples = argc > 2 ? atoi(argv[2]) : 20;

    sp_shard_probe_main(argc, argv);
    for (int is_sorted = 0; is_sorted < 2; is_sorted++)
        if (run("bench_read.h5", n, samples, is_sorted) != SP_OK) {
            sp_log_error(sp_error_last());
            return sp_error_last()->code;
        }
    return 0;
}
