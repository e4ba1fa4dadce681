/* spbench io: reading samples as training does, compared with pread of the
 * same bytes. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "bench/bench.h"

typedef struct io_case {
    const bench_options *options;
    sp_dataset set;
    sp_sample_request request;
    sp_sample sample;
    char *buffer;
    double bytes;   /* in all samples, unpacked */
    bool is_packed; /* an array is stored in chunks, which pread does not unpack */
} io_case;

/* Bytes of one row of coordinates, features or labels; 0 if the array is absent. */
static size_t io_row_bytes(const sp_extent *e)
{
    return (size_t)e->cols * (size_t)e->type_size;
}

static void extents_of(const sp_shard *shard, const sp_extent *extent[3])
{
    extent[0] = &shard->coords;
    extent[1] = &shard->features;
    extent[2] = &shard->labels;
}

/* Asks the system to drop its cached pages of the files, so that the next read comes
 * from the device. */
static void io_forget(const io_case *c)
{
    for (int i = 0; c->options->is_cold && i < c->set.n_shards; i++) {
        const int fd = open(c->set.shard[i].path, O_RDONLY);
        if (fd < 0)
            continue;
        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

/* Adds the seconds of reading to *s; training keeps its files open, so opening does not
 * count. */
static sp_status read_plainly(const io_case *c, int shard, double *s_read)
{
    const sp_shard *s = &c->set.shard[shard];
    const sp_extent *extent[3];
    const int fd = open(s->path, O_RDONLY);
    sp_status rc = SP_OK;

    if (fd < 0)
        return SP_FAIL(SP_EIO, "%s: cannot be opened", s->path);
    extents_of(s, extent);
    const double begin = sp_now_s();
    for (int64_t i = s->first_sample; i < s->first_sample + s->n_samples; i++)
        for (int e = 0; e < 3 && rc == SP_OK; e++)
            rc = sp_file_read_at(fd, s->path, c->buffer,
                                 io_row_bytes(extent[e]) *
                                     (size_t)sp_dataset_voxels(&c->set, i),
                                 extent[e]->at + sp_dataset_first_voxel(&c->set, i) *
                                                     (int64_t)io_row_bytes(extent[e]));
    *s_read += sp_now_s() - begin;
    close(fd);
    return rc;
}

/* Bytes a second of plain reading; 0 if that would not be the same bytes. */
static sp_status plain_rate(void *arg, double *rate)
{
    const io_case *c = arg;
    double s = 0;

    io_forget(c);
    *rate = 0;
    if (c->is_packed)
        return SP_OK;
    for (int i = 0; i < c->set.n_shards; i++)
        SP_TRY(read_plainly(c, i, &s));
    *rate = c->bytes / fmax(s, 1e-9);
    io_forget(c);
    return SP_OK;
}

static sp_status io_read_samples(void *arg)
{
    io_case *c = arg;

    for (int64_t i = 0; i < c->set.n_samples; i++)
        SP_TRY(sp_sample_read(&c->set, i, &c->request, &c->sample));
    return SP_OK;
}

/* Counts the bytes of all samples and allocates a buffer for the largest part
 * of one. */
static sp_status size_up(io_case *c)
{
    size_t largest = 1;

    for (int s = 0; s < c->set.n_shards; s++) {
        const sp_shard *shard = &c->set.shard[s];
        const sp_extent *extent[3];
        extents_of(shard, extent);
        for (int e = 0; e < 3; e++) {
            c->is_packed |=
                extent[e]->at < 0 && io_row_bytes(extent[e]) > 0 && extent[e]->rows > 0;
            for (int64_t i = 0; i < shard->n_samples; i++) {
                const size_t n =
                    (size_t)sp_dataset_voxels(&c->set, shard->first_sample + i) *
                    io_row_bytes(extent[e]);
                c->bytes += (double)n;
                largest = n > largest ? n : largest;
            }
        }
    }
    c->buffer = malloc(largest);
    return c->buffer ? SP_OK : SP_FAIL(SP_EMEM, "out of memory for %zu bytes", largest);
}

static sp_status io_measure(bench *b, io_case *c)
{
    bench_job job = {.n = c->set.n_voxels,
                     .limit = BENCH_BYTES,
                     .ceiling = plain_rate,
                     .run = io_read_samples,
                     .arg = c};

    if (c->set.n_voxels == 0)
        return SP_FAIL(SP_EDATA, "%s: no voxel, so there is nothing to read",
                       c->options->shard);
    SP_TRY(size_up(c));
    job.bytes = c->bytes;
    job.name = "read";
    SP_TRY(bench_measure(b, &job));
    c->request.verify = true;
    job.name = "read_verified";
    return bench_measure(b, &job);
}

sp_status bench_io(bench *b)
{
    const bench_options *o = b->options;
    io_case c = {.options = o};
    char made[BENCH_PATH] = "", *name[] = {o->shard ? (char *)o->shard : made};
    const sp_strings pattern = {1, name};
    sp_status rc = SP_OK;

    if (!o->shard)
        rc = bench_shard_make(o->voxels.at[0], o->is_quick ? 4 : 32, made);
    if (rc == SP_OK)
        rc = sp_dataset_open(&c.set, &pattern, NULL);
    if (rc == SP_OK)
        rc = io_measure(b, &c);
    sp_sample_destroy(&c.sample);
    sp_dataset_close(&c.set);
    free(c.buffer);
    bench_shard_remove();
    return rc;
}
