/* Plans of the device against plans of the host's builder, number by number. */
#ifndef CUDA_PLAN_SAME_H
#define CUDA_PLAN_SAME_H

#include "gpu/cuda_fixture.h"

/* Device data is what the host has. */
static inline void same_data(sp_backend *be, const char *what, int at,
                             const void *device, const void *host, size_t bytes)
{
    char *got = test_alloc(bytes);

    OK(be->ops->download(be, got, device, bytes));
    if (bytes && memcmp(got, host, bytes))
        fail_msg("%s %d differs from the host's", what, at);
}

static inline void same_levels(sp_backend *be, const sp_plan *got, const sp_plan *want)
{
    assert_int_equal(got->n_samples, want->n_samples);
    assert_int_equal(got->n_levels, want->n_levels);
    assert_int_equal(got->n_maps, want->n_maps);
    assert_int_equal(got->level[0].n, want->level[0].n);
    if (want->level[0].n)
        assert_memory_equal(got->order, want->order, (size_t)want->level[0].n * 4);
    for (int l = 0; l < want->n_levels; l++) {
        const sp_level *a = &got->level[l], *b = &want->level[l];
        const size_t n = (size_t)b->n;
        assert_int_equal(a->n, b->n);
        assert_memory_equal(a->sample_row, b->sample_row,
                            ((size_t)want->n_samples + 1) * 4);
        same_data(be, "keys of level", l, a->key, b->key, n * 8);
        assert_true(!a->parent == !b->parent);
        if (b->parent)
            same_data(be, "parents of level", l, a->parent, b->parent, n * 4);
    }
}

static inline void same_map(sp_backend *be, int at, const sp_map *map,
                            const sp_map *from, int n_samples)
{
    const cuda_map *m = map->device;
    const size_t n = (size_t)from->n_out, pairs = (size_t)from->pairs;
    const size_t n_lists = (size_t)(n_samples * from->K) + 1;
    CLOSED_BY(cuda_map_host_free) cuda_map want;

    OK(cuda_map_host(from, n_samples, &want));
    assert_memory_equal(&map->key, &from->key, sizeof map->key);
    assert_int_equal(map->K, from->K);
    assert_int_equal(map->n_in, from->n_in);
    assert_int_equal(map->n_out, from->n_out);
    assert_int_equal(map->pairs, from->pairs);
    assert_int_equal(map->is_full, from->is_full);
    assert_int_equal(map->centre, from->centre);
    assert_int_equal(m->K, want.K);
    assert_int_equal(m->n_words, want.n_words);
    assert_int_equal(m->n_in, want.n_in);
    assert_int_equal(m->n_out, want.n_out);
    assert_int_equal(m->n_samples, n_samples);
    assert_int_equal(m->pairs, want.pairs);
    same_data(be, "masks of map", at, m->mask, want.mask, n * (size_t)want.n_words * 4);
    same_data(be, "first neighbours of map", at, m->first, want.first, (n + 1) * 4);
    same_data(be, "neighbours of map", at, m->nbr, want.nbr, pairs * 4);
    same_data(be, "order of map", at, m->order, want.order, n * 4);
    same_data(be, "pair_in of map", at, m->pair_in, want.pair_in, pairs * 4);
    same_data(be, "pair_out of map", at, m->pair_out, want.pair_out, pairs * 4);
    same_data(be, "pair starts of map", at, m->pair_start, want.pair_start_host,
              n_lists * 4);
    assert_memory_equal(m->pair_start_host, want.pair_start_host, n_lists * 4);
}

#endif
