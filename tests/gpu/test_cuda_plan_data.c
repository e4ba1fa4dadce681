/* The plan of a real scan on the emulated device equals the host's in every neighbour,
 * for MinkUNet's maps. It prints the share of work that tiles waste. SP_BENCH_DATA
 * names a shard; the batch has its first sample twice. */
#include "fixtures/test.h"

#include "base/sp_log.h"
#include "cpu/cpu.h"
#include "data/sp_shard.h"
#include "gpu/cuda_plan_same.h"
#include "reference/plan_oracle.h"

enum { N_SAMPLES = 2 };

/* Returns the rows times offsets that tiles of `height` rows compute, over the
 * pairs. */
static double waste(const cuda_map *m, int height)
{
    int64_t work = 0;

    for (int32_t at = 0; at < m->n_out; at += height) {
        const int32_t end = at + height < m->n_out ? at + height : m->n_out;
        for (int w = 0; w < m->n_words; w++) {
            uint32_t any = 0;
            for (int32_t i = at; i < end; i++)
                any |= m->mask[(size_t)w * (size_t)m->n_out + (size_t)m->order[i]];
            work += (int64_t)(end - at) * __builtin_popcount(any);
        }
    }
    return (double)work / (double)m->pairs;
}

static void print_waste(const sp_map *map)
{
    CLOSED_BY(cuda_map_host_free) cuda_map m;

    OK(cuda_map_host(map, N_SAMPLES, &m));
    printf("map %d -> %d kernel %d: %d rows, %.2f pairs a row, waste at 16 rows %.2f, "
           "64 %.2f, 128 %.2f\n",
           map->key.level_in, map->key.level_out, map->key.kernel, m.n_out,
           (double)m.pairs / m.n_out, waste(&m, 16), waste(&m, 64), waste(&m, 128));
}

static sp_status read_coords(const char *path, int32_t **coords, int32_t row[])
{
    char *pattern = (char *)path;
    const sp_strings patterns = {.at = &pattern, .n = 1};
    const sp_sample_request request = {.verify = true};
    sp_sample sample = {0};
    sp_dataset set;

    SP_TRY(sp_dataset_open(&set, &patterns, NULL));
    SP_TRY(sp_sample_read(&set, 0, &request, &sample));
    *coords = test_alloc((size_t)sample.n * 12 * N_SAMPLES);
    row[0] = 0;
    for (int b = 0; b < N_SAMPLES; b++) {
        memcpy(*coords + 3 * (size_t)row[b], sample.coords, (size_t)sample.n * 12);
        row[b + 1] = row[b] + (int32_t)sample.n;
    }
    sp_sample_destroy(&sample);
    sp_dataset_close(&set);
    return SP_OK;
}

static size_t foresee(const sp_plan_spec *spec, const sp_plan *plan)
{
    int64_t voxels[SP_MAX_LEVELS], pairs[SP_MAX_MAPS];

    oracle_counts(plan, voxels, pairs);
    return (size_t)sp_cuda_ops.plan_bytes(spec, plan->n_samples, voxels, pairs);
}

TEST(scan_is_planned_as_on_the_host)
{
    const sp_plan_spec spec = oracle_minkunet_spec(5);
    CLOSED_BY(cu_close) sp_backend be = cu_open(0);
    int32_t *coords = NULL, row[N_SAMPLES + 1] = {0};
    sp_arena host, device;
    sp_plan want, got;
    size_t foreseen;
    double begun;

    OK(read_coords(getenv("SP_BENCH_DATA"), &coords, row));
    OK(sp_arena_create(&host, 0, "host"));
    OK(be.ops->arena_create(&device, 0, "device"));
    begun = sp_now_s();
    OK(sp_cpu_plan_build(NULL, &spec, coords, row, N_SAMPLES, &host, &want));
    printf("%d voxels: host's builder %.3f s", row[N_SAMPLES], sp_now_s() - begun);
    begun = sp_now_s();
    OK(be.ops->plan_build(&be, &spec, coords, row, N_SAMPLES, &device, &got));
    printf(", device emulated %.1f s, %.1f MB of its memory, %.1f MB of the host's\n",
           sp_now_s() - begun, (double)device.used * 1e-6, (double)host.used * 1e-6);
    foreseen = foresee(&spec, &got);
    printf("its arena: %.1f MB, %.1f foreseen\n", (double)device.high * 1e-6,
           (double)foreseen * 1e-6);
    assert_in_range(foreseen, device.high, device.high * 102 / 100);
    same_levels(&be, &got, &want);
    for (int m = 0; m < spec.n_maps; m++) {
        same_map(&be, m, &got.map[m], &want.map[m], N_SAMPLES);
        print_waste(&want.map[m]);
    }
    be.ops->arena_destroy(&device);
    sp_arena_destroy(&host);
}

KERNEL_TEST(test_cuda_plan_data)
{
    const char *path = getenv("SP_BENCH_DATA");
    if (!path || !*path) {
        printf("SKIPPED: SP_BENCH_DATA names no shard\n");
        return 77;
    }
    return run_group(own_tests, n_own_tests, NULL);
}
