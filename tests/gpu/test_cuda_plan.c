/* Plans of the device equal those of the host's builder number by number: every level,
 * the order, and every map in the device's form. The device refuses the same inputs in
 * the same words. */
#include "fixtures/test.h"

#include <pthread.h>

#include "cpu/cpu.h"
#include "fixtures/plan_samples.h"
#include "gpu/cuda_fixture.h"

/* ---- numbers of both ---- */

static void same_data(sp_backend *be, const char *what, int at, const void *device,
                      const void *host, size_t bytes)
{
    char *got = test_alloc(bytes);

    OK(be->ops->download(be, got, device, bytes));
    if (bytes && memcmp(got, host, bytes))
        fail_msg("%s %d differs from the host's", what, at);
}

static void same_levels(sp_backend *be, const sp_plan *got, const sp_plan *want)
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

static void same_map(sp_backend *be, int at, const sp_map *map, const sp_map *from,
                     int n_samples)
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
    assert_memory_equal(m->pair_start, want.pair_start, n_lists * 4);
}

/* ---- plans of both ---- */

static sp_arena host_arena;

/* The memory is at most what was foreseen and not much less: samples are rounded up,
 * and the library's sort needs room. */
static void took_as_foreseen(const sp_plan_spec *spec, const sp_plan *plan,
                             const sp_arena *arena)
{
    const sp_plan_counts counts = sp_plan_count(plan);
    const int64_t foreseen = sp_cuda_ops.plan_bytes(spec, &counts).arena;

    if ((int64_t)arena->high > foreseen)
        fail_msg("%zu bytes of plan, %lld foreseen", arena->high, (long long)foreseen);
    if (plan->n_samples == 1 && foreseen > (int64_t)arena->high * 102 / 100 + 150000)
        fail_msg("%zu bytes of plan, %lld foreseen", arena->high, (long long)foreseen);
}

static void check_in_order(const sp_plan_spec *spec, const batch *b,
                           const sp_plan *want, int order)
{
    CLOSED_BY(cu_close) sp_backend be = cu_open(order);
    sp_arena arena;
    sp_plan plan;

    OK(be.ops->arena_create(&arena, 0, "test"));
    for (int again = order != 1; again < 2; again++) { /* once in used memory too */
        sp_arena_reset(&arena);
        OK(be.ops->plan_build(&be, spec, b->coords, b->row, b->n_samples, &arena,
                              &plan));
        same_levels(&be, &plan, want);
        for (int m = 0; m < spec->n_maps; m++)
            same_map(&be, m, &plan.map[m], &want->map[m], b->n_samples);
    }
    took_as_foreseen(spec, &plan, &arena);
    be.ops->arena_destroy(&arena);
}

static void check_in_orders(const sp_plan_spec *spec, const batch *b, int from, int n)
{
    sp_plan want;

    sp_arena_reset(&host_arena);
    OK(sp_cpu_plan_build(NULL, spec, b->coords, b->row, b->n_samples, &host_arena,
                         &want));
    for (int order = from; order < from + n; order++)
        check_in_order(spec, b, &want, order);
}

static void check(const sp_plan_spec *spec, const batch *b)
{
    check_in_orders(spec, b, 0, cu_orders());
}

/* One order each, in turn: for batches and plans whose launches, and so what an order
 * can change, are those of a case that runs in all orders. */
static void check_in_turn(const sp_plan_spec *spec, const batch *b)
{
    static int turn;

    check_in_orders(spec, b, turn++ % cu_orders(), 1);
}

/* Builds every kernel that a graph can ask for; `cubes`: with the 3^3 maps that spare a
 * search. */
static sp_plan_spec odd_spec(bool has_cubes)
{
    sp_plan_spec s = {0};

    for (int n = 1; n <= SP_MAX_KERNEL; n++) {
        oracle_map(&s, 0, 0, n, 0);
        oracle_map(&s, 0, 0, n, 1);
        oracle_map(&s, 0, 1, n, 0);
        oracle_map(&s, 1, 0, n, 0);
        oracle_map(&s, 1, 3, n, 0);
        oracle_map(&s, 3, 1, n, 0);
    }
    for (int l = 1; l < 5 && has_cubes; l++)
        oracle_map(&s, l, l, 3, 0);
    oracle_map(&s, 0, 6, 7, 0);
    oracle_map(&s, 6, 0, 7, 0);
    return s;
}

TEST(families)
{
    sp_plan_spec spec[3] = {oracle_dummy_spec(), oracle_minkunet_spec(5),
                            oracle_minkunet_spec(3)};
    batch b = mixed_batch(320, 70, 100);

    for (int i = 0; i < 3; i++)
        check(&spec[i], &b);
}

TEST(levels_that_a_kernel_generates)
{
    sp_plan_spec spec[2] = {oracle_dilated_spec(0), oracle_dilated_spec(10)};
    batch b = mixed_batch(320, 70, 100), empty = empty_batch(), none = {0};

    for (int i = 0; i < 2; i++) {
        check_in_turn(&spec[i], &b);
        check_in_turn(&spec[i], &empty);
        check_in_turn(&spec[i], &none);
    }
}

TEST(every_kernel_and_stride)
{
    sp_plan_spec searched = odd_spec(false), found = odd_spec(true);
    batch b = mixed_batch(320, 70, 100);

    check_in_turn(&searched, &b);
    check(&found, &b);
}

TEST(every_number_of_voxels)
{
    static const int32_t n[] = {0, 1, 31, 33, 127, 257, 2000};
    sp_plan_spec spec = oracle_minkunet_spec(5);

    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        batch b = {0};
        add_surface(&b, n[i], 5, -9, 3);
        n[i] == 2000 ? check(&spec, &b) : check_in_turn(&spec, &b);
    }
}

/* The first two samples share a window of the order, the third has the next. */
TEST(order_of_several_windows)
{
    const sp_plan_spec spec = {.n_levels = 2, .n_maps = 1, .map = {{0, 0, 3, false}}};
    batch b = {0};
    sp_plan want;

    if (hc_is_checked()) /* ten times as long, and nothing new */
        return;
    add_surface(&b, 40000, 0, 0, 0);
    add_surface(&b, 30000, 5, 5, 5);
    add_surface(&b, 300, 0, 0, 0);
    sp_arena_reset(&host_arena);
    OK(sp_cpu_plan_build(NULL, &spec, b.coords, b.row, b.n_samples, &host_arena,
                         &want));
    check_in_order(&spec, &b, &want, 1);
}

TEST(dense_block_fills_every_offset)
{
    sp_plan_spec spec = odd_spec(true);
    batch b = dense_batch(7);

    check_in_turn(&spec, &b);
}

/* The batch has no samples, empty ones, one voxel, or levels that shrink to one cell
 * and beyond. */
TEST(nothing_and_deep_nets)
{
    sp_plan_spec spec = odd_spec(true), deep = {0};
    int32_t one[3] = {3, -4, 5};
    batch none = {0}, empty = empty_batch(), single = {0}, small = {0};

    for (int l = 0; l < SP_MAX_LEVELS; l++) {
        oracle_map(&deep, l, l, 3, 0);
        if (l)
            oracle_map(&deep, l - 1, l, 2, 0);
    }
    oracle_map(&deep, 0, 11, 3, 0);
    oracle_map(&deep, 11, 0, 3, 0);
    batch_add(&single, one, 1);
    add_surface(&small, 40, -3, -3, -3);
    add_surface(&small, 9, 30, 0, 100);
    check_in_turn(&spec, &none);
    check_in_turn(&spec, &empty);
    check_in_turn(&spec, &single);
    check_in_turn(&deep, &single);
    check(&deep, &small);
    check_in_turn(&deep, &empty);
}

/* Keys of 60 bits with 40 samples do not fit into one word. Corners stand on every
 * border of the range. */
TEST(whole_range)
{
    sp_plan_spec spec[2] = {oracle_minkunet_spec(5), oracle_dummy_spec()};
    int32_t lo = -SP_COORD_LIMIT, hi = SP_COORD_LIMIT - 1, corner[16][3];
    batch b = {0}, many = {0};

    corners(corner);
    batch_add(&b, corner[0], 16);
    batch_add(&b, corner[0], 16); /* they would touch if samples stood side by side */
    add_scatter(&b, 150, lo, hi + 1);
    add_surface(&b, 50, lo, lo, lo);
    for (int i = 0; i < 40; i++)
        batch_add(&many, corner[0], i % 17);
    check_in_turn(&spec[0], &b);
    check_in_turn(&spec[1], &b);
    check_in_turn(&spec[0], &many);
    check(&spec[1], &many);
}

/* ---- operations and waits ---- */

/* Two samples of a few metres, one voxel of the first 205 m away at 5 cm: 12 bits an
 * axis. */
static void wide_batch(batch *b)
{
    *b = (batch){0};
    add_surface(b, 2500, 0, 0, 0);
    add_surface(b, 1500, 7, -9, 3);
    b->coords[0] = 4095;
}

/* Every operation costs the device some microseconds, every wait the host a round trip.
 * The limits are what was counted; the plan's own count is held against what was
 * queued. A sort of few pairs may take fewer operations than the plan counts. */
TEST(few_operations_and_waits)
{
    static const struct {
        int stem, operations, waits;
    } limits[] = {{3, 77, 3}, {5, 94, 3}};
    CLOSED_BY(cu_close) sp_backend be = cu_open(0);
    sp_arena arena;
    sp_plan plan;
    batch b;

    wide_batch(&b);
    OK(be.ops->arena_create(&arena, 0, "test"));
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const sp_plan_spec spec = oracle_minkunet_spec(limits[i].stem);
        const unsigned waits = hc_waits(), operations = hc_operations();

        sp_arena_reset(&arena);
        OK(be.ops->plan_build(&be, &spec, b.coords, b.row, b.n_samples, &arena, &plan));
        printf("MinkUNet, stem %d: %d operations (%u queued), %d waits\n",
               limits[i].stem, plan.n_operations, hc_operations() - operations,
               plan.n_waits);
        assert_int_equal(hc_waits() - waits, plan.n_waits);
        assert_in_range(hc_operations() - operations, plan.n_operations / 2,
                        plan.n_operations);
        assert_in_range(plan.n_operations, 1, limits[i].operations);
        assert_in_range(plan.n_waits, 1, limits[i].waits);
    }
    be.ops->arena_destroy(&arena);
}

/* ---- refusals ---- */

static void refused_alike(const batch *b)
{
    sp_plan_spec spec = oracle_minkunet_spec(3);
    CLOSED_BY(cu_close) sp_backend be = cu_open(1);
    char message[sizeof sp_error_last()->message];
    sp_arena arena;
    sp_plan plan;

    OK(be.ops->arena_create(&arena, 0, "test"));
    sp_arena_reset(&host_arena);
    assert_int_equal(sp_cpu_plan_build(NULL, &spec, b->coords, b->row, b->n_samples,
                                       &host_arena, &plan),
                     SP_EDATA);
    snprintf(message, sizeof message, "%s", sp_error_last()->message);
    assert_int_equal(
        be.ops->plan_build(&be, &spec, b->coords, b->row, b->n_samples, &arena, &plan),
        SP_EDATA);
    assert_string_equal(sp_error_last()->message, message);
    be.ops->arena_destroy(&arena);
}

TEST(bad_coordinates_are_named)
{
    int32_t twice[15] = {1, 2, 3, 5, 5, -5, 0, 0, 0, 5, 5, -5, 9, 9, 9};
    int32_t far[6] = {0, 0, 0, 1, SP_COORD_LIMIT, 1}, again[6] = {5, 5, -5, 1, 2, 3};
    batch duplicate = {0}, outside = {0};

    batch_add(&duplicate, again, 2); /* equal in another sample: no duplicates */
    batch_add(&duplicate, NULL, 0);
    batch_add(&duplicate, twice, 5);
    refused_alike(&duplicate);
    batch_add(&outside, again, 2);
    batch_add(&outside, far, 2);
    refused_alike(&outside);
}

TEST(full_arena_is_an_error)
{
    sp_plan_spec spec = oracle_minkunet_spec(5);
    CLOSED_BY(cu_close) sp_backend be = cu_open(0);
    sp_arena arena;
    sp_plan plan;
    batch b = {0};

    add_surface(&b, 20000, 0, 0, 0);
    OK(be.ops->arena_create(&arena, 1 << 20, "small"));
    assert_int_equal(be.ops->plan_build(&be, &spec, b.coords, b.row, 1, &arena, &plan),
                     SP_EMEM);
    be.ops->arena_destroy(&arena);
}

/* ---- two threads, two streams ---- */

enum { ROUNDS = 4, C = 8, BUSY = 500 };

typedef struct filling {
    sp_backend *be;
    sp_arena *arena;
    const batch *b;
    float value;
    float *features; /* device, [rows][C] */
    sp_plan plan;
    sp_status rc;
} filling;

/* Builds plans as the planner of the loader does. */
static sp_status fill(filling *f)
{
    const sp_plan_spec spec = oracle_minkunet_spec(3);
    const size_t n = (size_t)f->b->row[f->b->n_samples] * C;
    FREED float *rows = malloc(n * sizeof *rows);

    SP_TRY(f->be->ops->arena_pass(f->be, f->arena, SP_FILL_BEGIN));
    sp_arena_reset(f->arena);
    SP_TRY(f->be->ops->plan_build(f->be, &spec, f->b->coords, f->b->row,
                                  f->b->n_samples, f->arena, &f->plan));
    SP_TRY(SP_ALLOC(f->arena, n, &f->features));
    for (size_t i = 0; i < n; i++)
        rows[i] = f->value;
    SP_TRY(f->be->ops->upload(f->be, f->features, rows, n * sizeof *rows));
    memset(rows, 0, n * sizeof *rows); /* it is the caller's again */
    return f->be->ops->arena_pass(f->be, f->arena, SP_FILL_END);
}

static void *fill_main(void *arg)
{
    filling *f = arg;

    f->rc = fill(f);
    return NULL;
}

static void fill_in_thread(filling *f)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, fill_main, f), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    OK(f->rc);
}

/* The compute stream copies each round's rows while the next round is filled into the
 * same arena, and only the planner waits. */
static void pass_and_use(uint64_t seed, const batch *b)
{
    const int64_t n = b->row[b->n_samples];
    CLOSED_BY(cu_close) sp_backend be = cu_open(0);
    sp_tensor host = fx_tensor(n, C, C, 1), out[ROUNDS];
    sp_arena arena;

    hc_set_order(seed, true);
    OK(be.ops->arena_create(&arena, 0, "test"));
    for (int i = 0; i < ROUNDS; i++)
        out[i] = cu_put(&be, host, false);
    for (int i = 0; i < ROUNDS; i++) {
        filling f = {.be = &be, .arena = &arena, .b = b, .value = (float)i};
        fill_in_thread(&f);
        OK(be.ops->arena_pass(&be, &arena, SP_USE_BEGIN));
        for (int k = 0; k < i % 2 * BUSY; k++) /* a step behind the planner */
            OK(be.ops->fill(&be, out[i].data, 0, sizeof(float)));
        OK(be.ops->copy(&be, (sp_tensor){.data = f.features, .n = n, .c = C, .ld = C},
                        out[i], false));
        OK(be.ops->arena_pass(&be, &arena, SP_USE_END));
    }
    for (int i = 0; i < ROUNDS; i++) {
        cu_read(&be, out[i], host);
        for (int64_t k = 0; k < n * C; k++)
            assert_true(host.data[k] == (float)i);
    }
    be.ops->arena_destroy(&arena);
}

TEST(streams_wait_for_what_they_use)
{
    batch b = {0};

    add_surface(&b, 60, 0, 0, 0);
    for (uint64_t seed = 1; seed < 5; seed++)
        pass_and_use(seed, &b);
}

static void open_host(void)
{
    OK(sp_arena_create(&host_arena, 0, "host"));
}

KERNEL_TEST(test_cuda_plan)
{
    return run_group(own_tests, n_own_tests, open_host);
}
