/* Points of overlapping blocks merged over the ranks, against sums over all blocks
 * that contain each point, formed by brute force. One rank is without MPI. */
#include "fixtures/test.h"
#include "base/sp_program.h"

#include "base/sp_rng.h"
#include "predict/sp_merger.h"

/* Scan "a" is 3 x 2 blocks of 10 m with margins of 3 m, of which one has no points and
 * one is not in the set; scan "b" is one block without a margin, and one voxel. */
enum { POINTS = 900, CLASSES = 3, MOST = 8, CELL = 2, WIDE = 40, ABSENT = 5, BARE = 4 };

static sp_comm comm;

typedef struct world {
    double xy[POINTS][2];
    sp_shard shard;
    sp_dataset set;
    sp_sample sample[MOST];
    sp_spans point_rows, context_rows, scan_row;
    char *scan[MOST], scan_bytes[2 * MOST];
    sp_block block[MOST];
    uint64_t *voxel_sum[MOST];
    int row[POINTS];       /* of the point among those of its block */
    int n_done, last_done; /* on this rank */
    int seen;              /* samples, of all ranks after a sum */
} world;

static int block_of(const double *xy)
{
    return (int)(xy[1] / 10) * 3 + (int)(xy[0] / 10);
}

static uint64_t value(int64_t sample, int64_t voxel, int class)
{
    return sp_rng_mix((uint64_t)(sample * 1000003 + voxel * 17 + class)) % (1u << 30);
}

static bool is_within(const world *w, int s, const double *xy)
{
    const sp_block *b = &w->block[s];

    for (int a = 0; a < 2; a++)
        if (xy[a] < b->low[a] - b->margin || xy[a] > b->high[a] + b->margin)
            return false;
    return true;
}

/* The weight of the point's voxel in sample s, as sp_merge.h states it. */
static uint64_t weight(const world *w, int s, const double *xy)
{
    const sp_block *b = &w->block[s];
    double product = 1;

    for (int a = 0; a < 2 && b->margin > 0; a++) {
        const double x = (floor(xy[a] / CELL) + 0.5) * CELL;
        double t = fmin(x - b->low[a] + b->margin, b->high[a] + b->margin - x) /
                   (2 * b->margin);

        t = fmin(fmax(t, 0), 1);
        product *= t * t * (3 - 2 * t);
    }
    return 1 + (uint64_t)(65535 * product + 0.5);
}

static int voxel_of(const double *xy)
{
    return (int)(floor(xy[1] / CELL) + 4) * WIDE + (int)floor(xy[0] / CELL) + 4;
}

/* Fills sample s with all cells, and with the points of its block and its margin. */
static void fill(world *w, int s)
{
    sp_sample *p = &w->sample[s];
    const bool is_b = w->scan[s][0] == 'b';
    int32_t own = 0, context = 0;

    *p = (sp_sample){.id = s, .n = WIDE * WIDE};
    p->coords = test_alloc(3 * WIDE * WIDE * sizeof *p->coords);
    p->point_voxel = test_alloc(POINTS * sizeof *p->point_voxel);
    p->context_voxel = test_alloc(POINTS * sizeof *p->context_voxel);
    p->context_block = test_alloc(POINTS * sizeof *p->context_block);
    p->context_point = test_alloc(POINTS * sizeof *p->context_point);
    w->voxel_sum[s] = test_alloc(WIDE * WIDE * CLASSES * sizeof **w->voxel_sum);
    for (int v = 0; v < WIDE * WIDE; v++) {
        p->coords[3 * v] = v % WIDE - 4;
        p->coords[3 * v + 1] = v / WIDE - 4;
        for (int c = 0; c < CLASSES; c++)
            w->voxel_sum[s][v * CLASSES + c] = value(s, v, c);
    }
    for (int i = 0; i < (is_b ? 1 : POINTS); i++) {
        if (is_b || block_of(w->xy[i]) == w->block[s].number) {
            p->point_voxel[own++] = (uint32_t)voxel_of(w->xy[i]);
        } else if (is_within(w, s, w->xy[i])) {
            p->context_voxel[context] = (uint32_t)voxel_of(w->xy[i]);
            p->context_block[context] = (uint32_t)block_of(w->xy[i]);
            p->context_point[context++] = (uint32_t)w->row[i];
        }
    }
    p->n_points = own;
    p->n_context = context;
    w->point_rows.n[s] = (uint32_t)own;
    w->context_rows.n[s] = (uint32_t)context;
}

/* is_reversed: the blocks stand in the set against their order. */
static void build(world *w, bool is_reversed)
{
    static const int64_t number[] = {0, 1, 2, 3};
    sp_rng rng = sp_rng_open(5, SP_RNG_AUGMENT, 0, 0);
    int count[6] = {0};

    memset(w, 0, sizeof *w);
    for (int i = 0; i < POINTS; i++) {
        do {
            w->xy[i][0] = 30 * sp_rng_unit(&rng);
            w->xy[i][1] = 20 * sp_rng_unit(&rng);
        } while (block_of(w->xy[i]) == BARE);
        if (i == 0)
            w->xy[i][0] = 10, w->xy[i][1] = 7; /* on the border of two blocks */
        if (i == 1)
            w->xy[i][0] = 13, w->xy[i][1] = 7; /* on the edge of a margin */
        w->row[i] = count[block_of(w->xy[i])]++;
    }
    for (int s = 0; s < 5; s++) {
        const int k = is_reversed ? 4 - s : s;
        const bool is_b = k == 4;
        const int64_t b = is_b ? 0 : number[k];

        w->scan[s] = is_b ? "b" : "a";
        w->scan_bytes[2 * s] = *w->scan[s];
        w->scan_row.n[s] = 2;
        w->block[s] =
            (sp_block){.low = {10.0 * (double)(b % 3), 10.0 * (double)(b / 3)},
                       .margin = is_b ? 0 : 3,
                       .number = b,
                       .last = is_b ? 0 : 5};
        w->block[s].high[0] = w->block[s].low[0] + (is_b ? 30 : 10);
        w->block[s].high[1] = w->block[s].low[1] + (is_b ? 20 : 10);
    }
    w->shard = (sp_shard){.path = "a.h5", .n_samples = 5};
    w->set = (sp_dataset){.n_shards = 1,
                          .shard = &w->shard,
                          .n_samples = 5,
                          .voxel_size = CELL,
                          .has_points = true,
                          .has_blocks = true,
                          .point_rows = &w->point_rows,
                          .context_rows = &w->context_rows,
                          .scan = {.row = &w->scan_row, .bytes = w->scan_bytes},
                          .block = w->block};
    for (int s = 0; s < 5; s++)
        fill(w, s);
    w->last_done = -1;
}

/* The sum of a point over all samples of its scan that contain it. */
static uint64_t expected(const world *w, int sample, int point, int class)
{
    uint64_t sum = 0;

    for (int s = 0; s < 5; s++)
        if (w->scan[s][0] == w->scan[sample][0] &&
            (s == sample || is_within(w, s, w->xy[point])))
            sum += weight(w, s, w->xy[point]) * value(s, voxel_of(w->xy[point]), class);
    return sum;
}

static sp_status compare(void *arg, const sp_merger_sample *done)
{
    world *w = arg;
    const int s = (int)done->id;
    int at = 0;

    assert_int_equal(done->id % comm.size, comm.rank);
    assert_true(done->id > w->last_done);
    w->last_done = s;
    assert_int_equal(done->payload_bytes, 3 + done->id);
    assert_memory_equal(done->payload, "payload", 3 + done->id);
    assert_int_equal(done->n_points, w->sample[s].n_points);
    for (int i = 0; i < POINTS && at < done->n_points; i++) {
        if (w->scan[s][0] == 'a' && block_of(w->xy[i]) != w->block[s].number)
            continue;
        for (int c = 0; c < CLASSES; c++)
            assert_int_equal(done->sum[at * CLASSES + c], expected(w, s, i, c));
        at++;
    }
    assert_int_equal(at, done->n_points);
    w->n_done++;
    return SP_OK;
}

/* Merges `batch` samples at a time, dealt to the ranks in some way. */
static void merge(bool is_reversed, int batch)
{
    static world w;
    int64_t n_done;
    CLOSED_BY(sp_merger_destroy) sp_merger m;

    build(&w, is_reversed);
    OK(sp_merger_open(&m, &w.set, CLASSES, &comm, compare, &w));
    for (int64_t first = 0; first < 5; first += batch) {
        const int64_t end = first + batch < 5 ? first + batch : 5;

        for (int64_t s = first; s < end; s++)
            if ((s * 7 + first) % comm.size == comm.rank)
                OK(sp_merger_add(&m, &w.sample[s], w.voxel_sum[s], "payload",
                                 (size_t)(3 + s)));
        OK(sp_merger_exchange(&m, end));
        /* A sample that is complete is handed over at once: its memory is free then. */
        assert_true(m.next >= 5 || m.scans.end[m.next] > end);
    }
    n_done = w.n_done;
    OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, &n_done, 1, SP_I64, SP_SUM));
    assert_int_equal(n_done, 5);
    assert_true(sp_merger_bytes(&m.scans, CLASSES, batch, comm.size) > 0);
}

TEST(points_have_the_sums_of_all_blocks)
{
    for (int batch = 1; batch <= 5; batch++) {
        merge(false, batch);
        merge(true, batch);
    }
}

/* A sample that was left out has no points of its own, only those of its neighbours. */
TEST(a_sample_may_be_missing)
{
    static world w;
    sp_sample none = {.id = 4};
    CLOSED_BY(sp_merger_destroy) sp_merger m;

    build(&w, false);
    OK(sp_merger_open(&m, &w.set, CLASSES, &comm, compare, &w));
    if (comm.rank == 0) {
        for (int s = 0; s < 4; s++)
            OK(sp_merger_add(&m, &w.sample[s], w.voxel_sum[s], "payload",
                             (size_t)(3 + s)));
        OK(sp_merger_add(&m, &none, NULL, NULL, 0));
    }
    OK(sp_merger_exchange(&m, 4)); /* the last sample is complete in no exchange */
}

static void refused(world *w, const char *message)
{
    CLOSED_BY(sp_merger_destroy) sp_merger m;

    OK(sp_merger_open(&m, &w->set, CLASSES, &comm, compare, w));
    FAILS(sp_merger_add(&m, &w->sample[0], w->voxel_sum[0], NULL, 0), SP_EDATA,
          message);
}

TEST(wrong_rows_are_refused)
{
    static world w;

    build(&w, false);
    w.sample[0].context_point[2] = 1000000;
    refused(&w, "a.h5:/context_point: sample 0: point 2 of the margin is row "
                "1000000 of block");
}

TEST(a_block_out_of_range_is_refused)
{
    static world w;

    build(&w, false);
    w.block[1].first = w.block[1].last = 1;
    refused(&w, "a.h5:/context_block: sample 0: block 0 has points of "
                "block 1: /block_number says");
}

TEST(a_block_is_there_once)
{
    static world w;
    CLOSED_BY(sp_merger_destroy) sp_merger m;

    build(&w, false);
    w.block[1].number = w.block[0].number;
    FAILS(sp_merger_open(&m, &w.set, CLASSES, &comm, compare, &w), SP_EDATA,
          "both have block 0 of scan \"a\"");
    sp_merger_destroy(&m);
    w.set.has_blocks = false;
    FAILS(sp_merger_open(&m, &w.set, CLASSES, &comm, compare, &w), SP_EDATA,
          "--overlap");
}

int main(int argc, char **argv)
{
    int failed;

    sp_program_begin("sptrain");
    open_ranks(&comm, argc, argv, "_np1");
    failed = run_all_tests();
    sp_comm_close(&comm);
    return failed;
}
