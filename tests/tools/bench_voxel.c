/* bench_voxel [EDGE] prints the time of one voxel in sp_voxelize, for a bent sheet of
 * EDGE x EDGE voxels in Morton order with four columns, by step of the default
 * augmentation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sp_log.h"
#include "base/sp_rng.h"
#include "data/sp_voxel.h"

enum { PASSES = 15, C = 4 };

static void fill(sp_sample *s, int32_t edge)
{
    int64_t room = 1, n = 0;

    while (room < (int64_t)edge * edge)
        room *= 4;
    s->n = (int64_t)edge * edge;
    s->coords = malloc((size_t)s->n * 3 * sizeof *s->coords);
    s->labels = malloc((size_t)s->n * sizeof *s->labels);
    s->features = malloc((size_t)s->n * C * sizeof *s->features);
    s->subvoxel = malloc((size_t)s->n * 3);
    for (int64_t key = 0; key < room; key++) {
        int32_t x = 0, y = 0;

        for (int i = 0; i < 16; i++) {
            x |= (int32_t)(key >> 2 * i & 1) << i;
            y |= (int32_t)(key >> (2 * i + 1) & 1) << i;
        }
        if (x >= edge || y >= edge)
            continue;
        s->coords[3 * n] = x;
        s->coords[3 * n + 1] = y;
        s->coords[3 * n + 2] = (int32_t)(20 + 20 * sin(x * 0.02) * cos(y * 0.03));
        s->labels[n] = (x / 16 + y / 16) % 5;
        for (int c = 0; c < C; c++)
            s->features[C * n + c] = (float)(n % 97 - c);
        for (int a = 0; a < 3; a++)
            s->subvoxel[3 * n + a] = (uint8_t)sp_rng_mix((uint64_t)(3 * n + a));
        n++;
    }
}

static sp_status measure(const char *name, const sp_sample *s, sp_augment aug,
                         sp_arena *arena)
{
    static const double mean[C] = {1, 2, 3, 4}, std[C] = {2, 3, 4, 5};
    double best = 1e9, start, time;
    sp_voxels v = {0};

    for (int pass = 0; pass < PASSES; pass++) {
        sp_arena_reset(arena);
        start = sp_now_s();
        SP_TRY(sp_voxelize(s, &aug, 1, C, mean, std, arena, &v));
        time = sp_now_s() - start;
        best = time < best ? time : best;
    }
    printf("augment=%s rows=%lld voxels=%d ns_per_row=%.1f\n", name, (long long)s->n,
           v.n, best / (double)s->n * 1e9);
    return SP_OK;
}

static sp_status run(int32_t edge)
{
    sp_augment none = sp_augment_none(), turn = none, drop = none, jitter = none, all;
    sp_sample s = {0};
    sp_arena arena;

    turn.angle = 0.7;
    turn.scale = 1.03;
    drop.drop = 0.1;
    jitter.jitter = 0.01;
    all = turn;
    all.drop = 0.1;
    all.jitter = 0.01;
    SP_TRY(sp_arena_create(&arena, 0, "bench"));
    fill(&s, edge);
    SP_TRY(measure("none", &s, none, &arena));
    SP_TRY(measure("drop", &s, drop, &arena));
    SP_TRY(measure("jitter", &s, jitter, &arena));
    SP_TRY(measure("turn", &s, turn, &arena));
    SP_TRY(measure("all", &s, all, &arena));
    sp_arena_destroy(&arena);
    free(s.coords);
    free(s.labels);
    free(s.features);
    free(s.subvoxel);
    return SP_OK;
}

int main(int argc, char **argv)
{
    if (run(argc > 1 ? atoi(argv[1]) : 400) == SP_OK)
        return 0;
    sp_log_error(sp_error_last());
    return sp_error_last()->code;
}
