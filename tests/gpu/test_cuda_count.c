/* The counts of cuda_count.h are those of the kernels: offsets of each tile as the
 * lists of a plan have them, and bytes of rows and weights as the emulator sees them
 * copied. */
#include "cuda/conv/cuda_count.h"
#include "gpu/conv_case.h"

static const cuda_sms emulated = {1, 227 << 10};

/* Writes which offsets each row of the map's order has: has [n_out][K]. */
static bool *list_offsets(const conv_case *p, const cuda_map *m)
{
    int n;
    case_pair *pair = case_pairs(p, &n);
    bool *of_row = test_alloc((size_t)m->n_out * (size_t)m->K * sizeof *of_row);
    bool *has = test_alloc((size_t)m->n_out * (size_t)m->K * sizeof *has);

    for (int i = 0; i < n; i++)
        of_row[pair[i].out * m->K + pair[i].k] = true;
    for (int i = 0; i < m->n_out; i++)
        memcpy(has + (size_t)i * (size_t)m->K,
               of_row + (size_t)m->order[i] * (size_t)m->K, (size_t)m->K);
    return has;
}

/* The number of offsets, or of pairs of offsets, that rows from..from + n - 1 have. */
static int count_any(const bool *has, const cuda_map *m, int from, int n,
                     bool is_shared)
{
    int count = 0;

    for (int k = 0; k < m->K; k += 1 + is_shared) {
        bool any = false;
        for (int i = from; i < from + n && i < m->n_out; i++)
            any = any || has[i * m->K + k] ||
                  (is_shared && k + 1 < m->K && has[i * m->K + k + 1]);
        count += any;
    }
    return count;
}

static void check_tiles(const conv_case *p, int n_samples, int rows)
{
    cuda_row_tiles tiles;
    CLOSED_BY(cuda_map_host_free) cuda_map m;
    bool *has;

    OK(cuda_map_host(&p->map, n_samples, &m));
    OK(cuda_count_tiles(&m, m.n_out, rows, &tiles));
    has = list_offsets(p, &m);
    assert_int_equal(tiles.n, (m.n_out + rows - 1) / rows);
    for (int t = 0; t < tiles.n; t++) {
        int groups = 0, quarters = 0;

        for (int i = 0; i < rows; i += 16)
            groups += count_any(has, &m, t * rows + i, 16, false);
        for (int i = 0; i < rows; i += 64)
            quarters += count_any(has, &m, t * rows + i, 64, false);
        assert_int_equal(tiles.offsets[t], count_any(has, &m, t * rows, rows, false));
        assert_int_equal(tiles.shared[t], count_any(has, &m, t * rows, rows, true));
        assert_int_equal(tiles.groups[t], groups);
        assert_int_equal(tiles.quarters[t], quarters);
    }
    cuda_row_tiles_free(&tiles);
}

TEST(offsets_are_those_of_the_lists)
{
    static const int rows[] = {700, 0, 333};
    static const int kinds[] = {CONV_3, CONV_DOWN, CONV_UP, CONV_5};

    for (int i = 0; i < 4; i++) {
        conv_case p = case_make(&conv_kinds[kinds[i]], SP_BF16, 3, rows, 4, 4, 0);

        check_tiles(&p, 3, CUDA_TILE_ROWS);
        check_tiles(&p, 3, CUDA_TALL_ROWS);
        check_tiles(&p, 3, CUDA_WGMMA_FOUR * CUDA_TILE_ROWS);
    }
}

/* The bytes that the kernels of both passes copy to shared memory. */
static unsigned long copied(sp_backend *be, const conv_case *p, int n_samples,
                            bool is_wgrad)
{
    const bool is_bf16 = p->precision == SP_BF16;
    sp_map map = cu_map(be, &p->map, n_samples);
    const sp_map *of = p->kind->has_map ? &map : NULL;
    const sp_tensor x = cu_put(be, p->x, is_bf16), dy = cu_put(be, p->dy, is_bf16);
    const int32_t *row = p->level[p->kind->out].sample_row;
    const sp_conv_args conv = {.map = of,
                               .x = x,
                               .y = dy,
                               .w_packed = is_wgrad ? NULL : case_packed(be, p, false)};
    const sp_conv_wgrad_args wgrad = {
        .map = of,
        .x = x,
        .dy = dy,
        .sample_row = row,
        .sample1 = n_samples,
        .dw = cu_room(be, (size_t)p->K * p->c_in * p->c_out * sizeof(float))};
    const unsigned long before = hc_copied_bytes();

    if (is_wgrad)
        OK(be->ops->conv_grad_weight(be, &wgrad));
    else
        OK(be->ops->conv_forward(be, &conv));
    OK(be->ops->wait(be));
    return hc_copied_bytes() - before;
}

/* Counts the forward pass and the weight gradient of a case, and runs both. kernel: the
 * one that is expected forward. */
static void check_copies(int kind, sp_precision precision, int c_in, int c_out,
                         bool is_wgmma, const char *kernel)
{
    static const int rows[] = {300, 0, 70};
    conv_case p = case_make(&conv_kinds[kind], precision, 3, rows, c_in, c_out, 0);
    const cuda_conv_shape shape = {precision, p.dy.n, p.K, c_in, c_out, is_wgmma};
    cuda_wgrad_shape wgrad = {precision, p.K,     c_in,   c_out,
                              NULL,      3 * p.K, p.dy.n, is_wgmma};
    cuda_work work = cuda_count_shape(&shape, emulated);
    sp_backend be = case_open(0, precision);
    cuda_row_tiles tiles;
    CLOSED_BY(cuda_map_host_free) cuda_map m;

    be.is_wgmma = is_wgmma;
    OK(cuda_map_host(&p.map, 3, &m));
    OK(cuda_count_tiles(p.kind->has_map ? &m : NULL, p.dy.n, work.rows, &tiles));
    cuda_count_conv(&shape, &tiles, &work);
    assert_string_equal(work.kernel, kernel);
    assert_int_equal(copied(&be, &p, 3, false),
                     (unsigned long)(work.gathered + work.weights));
    wgrad.start = m.pair_start;
    cuda_count_wgrad(&wgrad, &work);
    assert_int_equal(copied(&be, &p, 3, true), (unsigned long)work.gathered);
    cu_close(&be);
    cuda_row_tiles_free(&tiles);
}

TEST(bytes_are_those_that_are_copied)
{
    if (!hc_copied_bytes) {
        puts("SKIPPED: a real device counts no copies");
        return;
    }
    check_copies(CONV_3, SP_BF16, 64, 128, false, "conv bf16 256x128 4x2 whole");
    check_copies(CONV_3, SP_BF16, 96, 96, false, "conv bf16 256x96 4x2 whole");
    check_copies(CONV_3, SP_BF16, 32, 64, false, "conv bf16 64 4x1 whole");
    check_copies(CONV_3, SP_BF16, 24, 40, false, "conv bf16 64 4x1 any");
    check_copies(CONV_3, SP_BF16, 4, 32, false, "conv bf16 32 4x1 any");
    check_copies(CONV_DOWN, SP_BF16, 64, 160, false, "conv bf16 96 2x2 whole");
    check_copies(CONV_3, SP_TF32, 32, 96, false, "conv tf32 256x96 4x2 whole");
    check_copies(CONV_3, SP_FP32, 32, 96, false, "conv fp32 64 4x1 whole");
    check_copies(CONV_3, SP_BF16, 64, 256, true, "wgmma bf16 128 four whole");
    check_copies(CONV_3, SP_BF16, 128, 200, true, "wgmma bf16 128 four whole");
    check_copies(CONV_3, SP_BF16, 192, 128, true, "wgmma bf16 128 four whole");
    check_copies(CONV_3, SP_BF16, 64, 128, true, "wgmma bf16 128 four whole");
    check_copies(CONV_3, SP_BF16, 64, 96, true, "wgmma bf16 96 four whole");
    check_copies(CONV_3, SP_BF16, 96, 96, true, "wgmma bf16 96 deep four whole");
    check_copies(CONV_3, SP_BF16, 96, 128, true, "wgmma bf16 128 deep four whole");
    check_copies(CONV_3, SP_BF16, 64, 192, true, "wgmma bf16 96 four whole");
    check_copies(CONV_DOWN, SP_BF16, 96, 128, true, "wgmma bf16 128 any");
    check_copies(CONV_DOWN, SP_BF16, 64, 256, true, "wgmma bf16 256 whole");
    check_copies(CONV_DOWN, SP_BF16, 64, 128, true, "wgmma bf16 128 whole");
    check_copies(CONV_3, SP_BF16, 40, 128, true, "wgmma bf16 128 any");
    check_copies(CONV_3, SP_BF16, 40, 256, true, "wgmma bf16 256 any");
}

/* Blocks of 256 columns have an SM each and would wait for the others of a cluster. */
TEST(clusters_are_of_blocks_that_share_an_sm)
{
    static const struct {
        int K, c_x, c_y, columns, cluster;
    } all[] = {{27, 256, 256, 128, 4}, {27, 96, 96, 96, 4},     {27, 64, 192, 96, 4},
               {27, 40, 256, 256, 1},  {125, 128, 512, 128, 4}, {8, 256, 256, 256, 1},
               {8, 256, 128, 128, 1}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const cuda_wgmma_tile tile =
            cuda_wgmma_choose(all[i].K, all[i].c_x, all[i].c_y);

        assert_int_equal(tile.columns, all[i].columns);
        assert_int_equal(tile.cluster, all[i].cluster);
    }
}

KERNEL_TESTS(test_cuda_count)
