#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/sp_list.h"
#include "data/sp_shard_internal.h"

/* Destroys the data set after a failure. */
static int end_create(sp_data **data, sp_status rc)
{
    if (rc != SP_OK) {
        sp_data_destroy(*data);
        *data = NULL;
    }
    return rc;
}

void sp_data_destroy(sp_data *data)
{
    if (!data)
        return;
    sp_dataset_close(&data->set);
    free(data->samples);
    free(data->rows);
    free(data);
}

int sp_data_open_shards(sp_data **data, sp_comm *comm, int n,
                        const char *const *patterns)
{
    sp_strings list = {0};
    sp_loops caller;
    sp_status rc;

    API_NEED(data, "data");
    *data = NULL;
    API_NEED(comm, "comm");
    caller = sp_loops_begin(0);
    rc = SP_NEW(data, 1, "a data set");
    for (int i = 0; rc == SP_OK && i < n; i++)
        rc = patterns && patterns[i]
                 ? sp_strings_add(&list, patterns[i])
                 : SP_FAIL(SP_EUSAGE, "sp_data_open_shards: pattern %d is NULL", i);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        rc = sp_dataset_open(&(*data)->set, &list, comm);
    sp_strings_free(&list);
    sp_loops_end(caller);
    return end_create(data, rc);
}

/* ---- a source ---- */

static sp_status data_open_source(sp_data *data, const sp_data_about *about,
                                  int64_t n_samples, const int64_t *n_voxels,
                                  sp_source source)
{
    const sp_source_about of = {.voxel_size = about->voxel_size,
                                .n_features = about->n_features,
                                .n_classes = about->n_classes,
                                .feature_name = about->feature_names,
                                .class_name = about->class_names,
                                .mean = about->feature_mean,
                                .std = about->feature_std};

    return sp_source_open(&data->set, &of, n_samples, n_voxels, source);
}

int sp_data_create_source(sp_data **data, const sp_data_about *about, int64_t n_samples,
                          const int64_t *n_voxels, sp_read_fn *read, void *arg)
{
    API_NEED(data, "data");
    *data = NULL;
    API_NEED(about, "about");
    API_NEED(read, "read");
    API_NEED(n_voxels || n_samples <= 0, "n_voxels");
    SP_TRY(SP_NEW(data, 1, "a data set"));
    return end_create(data, data_open_source(*data, about, n_samples, n_voxels,
                                             (sp_source){read, arg}));
}

/* ---- arrays ---- */

static int data_read_arrays(void *arg, int64_t i, int32_t *coords, float *features,
                            int32_t *labels)
{
    const sp_data *data = arg;
    const sp_sample_arrays *s = &data->samples[i];
    const size_t n = (size_t)s->n;

    memcpy(coords, s->coords, 3 * n * sizeof *coords);
    memcpy(features, s->features, n * (size_t)data->set.n_features * sizeof *features);
    memcpy(labels, s->labels, n * sizeof *labels);
    return 0;
}

/* Checks all rows at once, rather than when a step reads them. */
static sp_status check_arrays(const sp_data *data)
{
    SP_FREED uint64_t *keys = NULL;
    size_t slots = 0;

    for (int64_t i = 0; i < data->set.n_samples; i++)
        if (sp_unique_slots(data->samples[i].n) > slots)
            slots = sp_unique_slots(data->samples[i].n);
    SP_TRY(SP_NEW(&keys, slots, "the check of a data set"));
    for (int64_t i = 0; i < data->set.n_samples; i++) {
        const sp_sample_arrays *s = &data->samples[i];

        if (s->n && !(s->coords && s->features && s->labels))
            return SP_FAIL(SP_EUSAGE, "sample %lld: an array is NULL", (long long)i);
        SP_TRY(sp_source_check(&data->set, i, s->n, s->coords, s->features, s->labels,
                               keys, sp_unique_slots(s->n)));
    }
    return SP_OK;
}

/* Opens the data set of data->samples. */
static sp_status open_arrays(sp_data *data, const sp_data_about *about,
                             int64_t n_samples)
{
    SP_FREED int64_t *n_voxels = NULL;

    SP_TRY(SP_NEW(&n_voxels, n_samples, "a data set"));
    for (int64_t i = 0; i < n_samples; i++)
        n_voxels[i] = data->samples[i].n;
    SP_TRY(data_open_source(data, about, n_samples, n_voxels,
                            (sp_source){data_read_arrays, data}));
    return check_arrays(data);
}

static sp_status alloc_samples(sp_data *data, int64_t n)
{
    if (n < 0)
        return SP_FAIL(SP_EUSAGE, "n_samples is %lld, expected 0 or more",
                       (long long)n);
    return SP_NEW(&data->samples, n, "a data set");
}

int sp_data_create_arrays(sp_data **data, const sp_data_about *about, int64_t n_samples,
                          const sp_sample_arrays *samples)
{
    sp_status rc;

    API_NEED(data, "data");
    *data = NULL;
    API_NEED(about, "about");
    API_NEED(samples || n_samples <= 0, "samples");
    SP_TRY(SP_NEW(data, 1, "a data set"));
    rc = alloc_samples(*data, n_samples);
    if (rc == SP_OK && n_samples)
        memcpy((*data)->samples, samples, (size_t)n_samples * sizeof *samples);
    if (rc == SP_OK)
        rc = open_arrays(*data, about, n_samples);
    return end_create(data, rc);
}

/* ---- samples of all ranks ---- */

/* The samples of this rank among all. */
typedef struct share {
    int64_t n, rows;          /* of this rank */
    int64_t n_all, rows_all;  /* of all ranks */
    int64_t first, first_row; /* of this rank among all */
} share;

static sp_status data_count_share(sp_comm *comm, const sp_data_about *about, int64_t n,
                                  const sp_sample_arrays *samples, share *s)
{
    enum { COUNTS = 3 };
    int64_t counts[COUNTS] = {n, 0, about->n_features};
    const size_t n_all = COUNTS * (size_t)comm->size;
    SP_FREED int64_t *all = NULL;

    for (int64_t i = 0; i < n; i++)
        counts[1] += samples[i].n;
    *s = (share){.n = n, .rows = counts[1]};
    SP_TRY(sp_comm_agree(comm, SP_NEW(&all, n_all, "a data set")));
    memcpy(all + COUNTS * comm->rank, counts, sizeof counts);
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, all, n_all, SP_I64, SP_SUM));
    for (int r = 0; r < comm->size; r++) {
        const int64_t *of = all + COUNTS * r;

        if (of[2] != all[2])
            return SP_FAIL(SP_EUSAGE,
                           "n_features is %lld on rank 0 and %lld on rank %d",
                           (long long)all[2], (long long)of[2], r);
        s->first += r < comm->rank ? of[0] : 0;
        s->first_row += r < comm->rank ? of[1] : 0;
        s->n_all += of[0];
        s->rows_all += of[1];
    }
    return SP_OK;
}

/* The arrays of all samples, one after the other, in one allocation: 4-byte numbers.
 * Each rank writes its own and leaves the other ranks' 0, so the sum of all ranks'
 * bytes is the whole. */
static sp_status gather_rows(sp_data *data, sp_comm *comm, int n_features,
                             const sp_sample_arrays *samples, const share *s)
{
    const size_t rows = (size_t)s->rows_all, columns = (size_t)n_features;
    const size_t bytes = rows * (3 + columns + 1) * 4;
    SP_FREED int64_t *n_voxels = NULL;
    int32_t *coords = data->rows = calloc(bytes + 1, 1), *labels;
    float *features;
    size_t at = (size_t)s->first_row;
    sp_status rc = SP_NEW(&n_voxels, s->n_all, "a data set");

    if (rc == SP_OK && !data->rows)
        rc = SP_FAIL(SP_EMEM, "no memory for %zu bytes of data", bytes);
    SP_TRY(sp_comm_agree(comm, rc == SP_OK ? alloc_samples(data, s->n_all) : rc));
    features = (float *)(coords + 3 * rows);
    labels = (int32_t *)(features + columns * rows);
    for (int64_t i = 0; i < s->n; i++) {
        const size_t n = (size_t)samples[i].n;

        n_voxels[s->first + i] = samples[i].n;
        if (n) {
            memcpy(coords + 3 * at, samples[i].coords, 3 * n * sizeof *coords);
            memcpy(features + columns * at, samples[i].features, columns * n * 4);
            memcpy(labels + at, samples[i].labels, n * sizeof *labels);
        }
        at += n;
    }
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, data->rows, bytes, SP_U8, SP_SUM));
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, n_voxels, (size_t)s->n_all, SP_I64,
                             SP_SUM));
    at = 0;
    for (int64_t i = 0; i < s->n_all; i++) {
        data->samples[i] = (sp_sample_arrays){n_voxels[i], coords + 3 * at,
                                              features + columns * at, labels + at};
        at += (size_t)n_voxels[i];
    }
    return SP_OK;
}

/* Checks what the sizes of all arrays follow from, before any is read. */
static sp_status check_share(const sp_data_about *about, int64_t n,
                             const sp_sample_arrays *samples)
{
    sp_data none = {0};
    sp_status rc;

    if (!about || (n > 0 && !samples))
        return SP_FAIL(SP_EUSAGE, "sp_data_create_gathered: %s is NULL",
                       about ? "samples" : "about");
    if (n < 0)
        return SP_FAIL(SP_EUSAGE, "n_samples is %lld, expected 0 or more",
                       (long long)n);
    rc = data_open_source(&none, about, 0, NULL, (sp_source){0});
    sp_dataset_close(&none.set);
    SP_TRY(rc);
    for (int64_t i = 0; i < n; i++) {
        const sp_sample_arrays *s = &samples[i];

        if (s->n < 0 || s->n > INT32_MAX)
            return SP_FAIL(SP_EUSAGE,
                           "sample %lld of this rank has %lld voxels, expected 0 to %d",
                           (long long)i, (long long)s->n, INT32_MAX);
        if (s->n > 0 && !(s->coords && s->features && s->labels))
            return SP_FAIL(SP_EUSAGE, "sample %lld of this rank: an array is NULL",
                           (long long)i);
    }
    return SP_OK;
}

int sp_data_create_gathered(sp_data **data, sp_comm *comm, const sp_data_about *about,
                            int64_t n_samples, const sp_sample_arrays *samples)
{
    share s;
    sp_status rc;

    API_NEED(data, "data");
    *data = NULL;
    API_NEED(comm, "comm");
    rc = SP_NEW(data, 1, "a data set");
    if (rc == SP_OK)
        rc = check_share(about, n_samples, samples);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        rc = data_count_share(comm, about, n_samples, samples, &s);
    if (rc == SP_OK)
        rc = gather_rows(*data, comm, about->n_features, samples, &s);
    if (rc == SP_OK)
        rc = sp_comm_agree(comm, open_arrays(*data, about, s.n_all));
    return end_create(data, rc);
}

/* ---- use ---- */

int64_t sp_data_n_samples(const sp_data *data)
{
    return data ? data->set.n_samples : 0;
}

int64_t sp_data_n_voxels(const sp_data *data)
{
    return data ? data->set.n_voxels : 0;
}

static sp_status data_write_samples(const sp_dataset *set, sp_shard_writer *writer)
{
    const sp_sample_request request = {.verify = true};
    SP_CLOSED_BY(sp_sample_destroy) sp_sample sample = {0};

    for (int64_t i = 0; i < set->n_samples; i++) {
        SP_TRY(sp_sample_read(set, i, &request, &sample));
        SP_TRY(sp_shard_write_sample(writer, i, &sample, NULL, NULL));
    }
    return SP_OK;
}

static sp_status data_write_shard(const sp_dataset *set, const int64_t *n_voxels,
                                  const char *path)
{
    enum { IGNORE_OF_BYTES = 255, IGNORE_OF_WORDS = 65535 };
    const sp_shard_meta meta = {.voxel_size = set->voxel_size,
                                .n_classes = set->n_classes,
                                .ignore_label = set->n_classes <= IGNORE_OF_BYTES
                                                    ? IGNORE_OF_BYTES
                                                    : IGNORE_OF_WORDS,
                                .n_features = set->n_features,
                                .class_name = set->class_name,
                                .feature_name = set->feature_name,
                                .class_code = set->class_code,
                                .feature_mean = set->feature_mean,
                                .feature_std = set->feature_std,
                                .has_labels = set->has_labels,
                                .recipe = set->recipe};
    sp_shard_writer *writer;

    SP_TRY(sp_shard_create(&writer, path, &meta, set->n_samples, n_voxels, NULL));
    return sp_shard_close(writer, data_write_samples(set, writer));
}

int sp_data_write_shard(const sp_data *data, const char *path)
{
    const sp_dataset *set;
    SP_FREED int64_t *n_voxels = NULL;

    API_NEED(data, "data");
    API_NEED(path, "path");
    set = &data->set;
    SP_TRY(SP_NEW(&n_voxels, set->n_samples, "an index"));
    for (int64_t i = 0; i < set->n_samples; i++)
        n_voxels[i] = sp_dataset_voxels(set, i);
    return data_write_shard(set, n_voxels, path);
}
