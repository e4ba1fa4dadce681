/* bench_read [VOXELS [SAMPLES]] compares reading samples with plain pread of the same
 * bytes in the same pieces into an array as large, with the page cache warm, by the
 * best of several passes. The first verified pass looks for duplicates, later ones know
 * the checksum. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "fixtures/shard_fixture.h"

enum { PASSES = 25, PIECE = 256 * 1024 };
enum order { AS_DRAWN, BY_X, BY_MORTON, N_ORDERS };
enum way { PLAIN, READ, FIRST, VERIFY, N_WAYS };

static int by_x(const void *a, const void *b)
{
    const int32_t *p = a, *q = b;

    for (int i = 0; i < 3; i++)
        if (p[i] != q[i])
            return p[i] < q[i] ? -1 : 1;
    return 0;
}

static uint64_t spread(int32_t c)
{
    uint64_t key = 0;

    for (int i = 0; i < 20; i++)
        key |= (uint64_t)((uint32_t)(c + (1 << 19)) >> i & 1) << 3 * i;
    return key;
}

static uint64_t morton(const int32_t *c)
{
    return spread(c[0]) | spread(c[1]) << 1 | spread(c[2]) << 2;
}

static int by_morton(const void *a, const void *b)
{
    uint64_t p = morton(a), q = morton(b);

    return (p > q) - (p < q);
}

static sp_status write_file(const char *path, int64_t n, int samples, enum order by)
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
        if (by != AS_DRAWN)
            qsort(s.coords, (size_t)s.n, 3 * sizeof *s.coords,
                  by == BY_X ? by_x : by_morton);
        SP_TRY(sp_shard_write_sample(writer, i, &s, NULL, NULL));
        fixture_free(&s);
    }
    free(voxels);
    return sp_shard_close(writer, SP_OK);
}

static void take(int fd, const sp_extent *e, int64_t row, int64_t n, char *to)
{
    int64_t row_bytes = (int64_t)e->cols * e->type_size, step = PIECE / row_bytes;

    for (int64_t done = 0, m; done < n; done += m, to += m * row_bytes) {
        off_t at = e->at + (row + done) * row_bytes;

        m = n - done < step ? n - done : step;
        if (pread(fd, to, (size_t)(m * row_bytes), at) != m * row_bytes)
            exit(1);
    }
}

/* Returns the seconds of one pass over all samples. */
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

static sp_status pass_all(const char *path, int fd, char *room, int64_t n, sp_sample *s,
                          double best[N_WAYS])
{
    double time[N_WAYS] = {0};
    sp_dataset set;

    SP_TRY(fixture_open(&set, path));
    time[PLAIN] = pass_plain(&set, fd, room, n);
    SP_TRY(pass_read(&set, false, s, &time[READ]));
    SP_TRY(pass_read(&set, true, s, &time[FIRST]));
    SP_TRY(pass_read(&set, true, s, &time[VERIFY]));
    for (int way = 0; way < N_WAYS; way++)
        best[way] = time[way] < best[way] ? time[way] : best[way];
    sp_dataset_close(&set);
    return SP_OK;
}

static sp_status run(const char *path, int64_t n, int samples, enum order by)
{
    static const char *const order_name[] = {"drawn", "x", "morton"};
    static const char *const name[] = {"pread", "read", "verify_first", "verify"};
    double best[N_WAYS] = {1e9, 1e9, 1e9, 1e9}, bytes = 29.0 * (double)n * samples;
    char *room = malloc((size_t)n * 29);
    sp_sample s = {0};
    int fd;

    SP_TRY(write_file(path, n, samples, by));
    fd = open(path, O_RDONLY);
    for (int pass = 0; pass < PASSES; pass++)
        SP_TRY(pass_all(path, fd, room, n, &s, best));
    printf("voxels=%lld samples=%d order=%s", (long long)n, samples, order_name[by]);
    for (int way = 0; way < N_WAYS; way++)
        printf(" %s_GB_s=%.2f", name[way], bytes / best[way] * 1e-9);
    for (int way = READ; way < N_WAYS; way++)
        printf(" %s_ratio=%.2f", name[way], best[PLAIN] / best[way]);
    putchar('\n');
    close(fd);
    free(room);
    sp_sample_destroy(&s);
    unlink(path);
    return SP_OK;
}

int main(int argc, char **argv)
{
    int64_t n = argc > 1 ? atoll(argv[1]) : 100000;
    int samples = argc > 2 ? atoi(argv[2]) : 20;

    sp_h5_child_main(argc, argv);
    for (int by = 0; by < N_ORDERS; by++)
        if (run("bench_read.h5", n, samples, (enum order)by) != SP_OK) {
            sp_log_error(sp_error_last());
            return sp_error_last()->code;
        }
    return 0;
}
