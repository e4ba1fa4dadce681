#include "fake_shard.h"

#include <time.h>

#include "plan_oracle.h"
#include "test.h"

fake_state fake;

void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.bad[0] = fake.bad[1] = fake.slow = -1;
}

static int32_t fake_voxels(int64_t id)
{
    return id % 7 == 3 ? 0 : (int32_t)(1 + id * 71 % 300);
}

void fake_dataset(sp_dataset *set, int64_t n)
{
    *set = (sp_dataset){.n_samples = n,
                        .voxel_size = 0.5,
                        .n_classes = FAKE_CLASSES,
                        .ignore_label = 255,
                        .n_features = FAKE_FEATURES,
                        .has_labels = true,
                        .has_subvoxel = true};
}

int64_t sp_dataset_voxels(const sp_dataset *set, int64_t sample)
{
    (void)set;
    return fake_voxels(sample);
}

int64_t sp_dataset_cost(const sp_dataset *set, int64_t sample)
{
    (void)set;
    return fake_voxels(sample);
}

static void nap(int64_t id)
{
    struct timespec t = {.tv_nsec = 0};

    if (fake.is_slow)
        t.tv_nsec = id * 7919 % 5 * 500000;
    if (id == fake.slow)
        t.tv_nsec = 20000000;
    if (t.tv_nsec)
        nanosleep(&t, NULL);
}

static void grow(sp_sample *s, int64_t n)
{
    s->coords = realloc(s->coords, (size_t)(n + 1) * 12);
    s->features = realloc(s->features, (size_t)(n + 1) * FAKE_FEATURES * 4);
    s->labels = realloc(s->labels, (size_t)(n + 1) * 4);
    s->subvoxel = realloc(s->subvoxel, (size_t)(n + 1) * 3);
}

sp_status sp_sample_read(const sp_dataset *set, int64_t id,
                         const sp_sample_request *request, sp_sample *out)
{
    int32_t at[3] = {(int32_t)(id * 100) - 700, -50, 3}, i;

    (void)set;
    (void)request;
    __atomic_add_fetch(&fake.n_reads[id], 1, __ATOMIC_RELAXED);
    nap(id);
    if (id == fake.bad[0] || id == fake.bad[1])
        return SP_FAIL(SP_EDATA, "fake.h5:/coords: sample %lld: bad", (long long)id);
    out->id = id;
    out->n = fake_voxels(id);
    grow(out, out->n);
    if (out->n)
        oracle_surface(out->coords, (int32_t)out->n, at, (uint32_t)id);
    for (i = 0; i < out->n; i++) {
        out->features[2 * i] = (float)id + 0.001f * (float)i;
        out->features[2 * i + 1] = (float)(i * 37 % 101);
        out->labels[i] = (int32_t)(id + i) % (FAKE_CLASSES + 1) - 1;
        out->subvoxel[3 * i] = out->subvoxel[3 * i + 1] = (uint8_t)(i * 29);
        out->subvoxel[3 * i + 2] = 128;
    }
    return SP_OK;
}

void sp_sample_destroy(sp_sample *s)
{
    free(s->coords);
    free(s->features);
    free(s->labels);
    free(s->subvoxel);
    memset(s, 0, sizeof *s);
}
