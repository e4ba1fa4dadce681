/* Convolution of a whole tensor. Threads share tiles (forward, input gradient) or
 * panels of dW (weight gradient). The arithmetic is in cpu_vec_conv.c and
 * cpu_vec_wgrad.c, and in src/bf16. */
#include <assert.h>
#include <omp.h>
#include <string.h>

#include "cpu/cpu_isa.h"

#define IOTA4(n)  n, n + 1, n + 2, n + 3
#define IOTA16(n) IOTA4(n), IOTA4(n + 4), IOTA4(n + 8), IOTA4(n + 12)
#define IOTA64(n) IOTA16(n), IOTA16(n + 16), IOTA16(n + 32), IOTA16(n + 48)
const int32_t sp_cpu_iota[SP_TILE] = {IOTA64(0),   IOTA64(64),  IOTA64(128),
                                      IOTA64(192), IOTA64(256), IOTA64(320),
                                      IOTA64(384), IOTA64(448)};

static size_t conv_padded(int c, int lanes)
{
    return (size_t)((c + lanes - 1) / lanes * lanes);
}

/* The words of packed weights that c input channels take, filled up to chunks: two
 * channels share one in bf16. */
static size_t conv_words_of(const sp_backend *be, int c, int chunk)
{
    return be->precision == SP_BF16 ? conv_padded(c, chunk) / 2 : (size_t)c;
}

size_t sp_cpu_conv_pack_floats(const sp_backend *be, int K, int c_in, int c_out,
                               bool is_grad_input)
{
    const int from = is_grad_input ? c_out : c_in, to = is_grad_input ? c_in : c_out;

    return (size_t)K * conv_words_of(be, from, SP_CPU_CHUNK) *
           conv_padded(to, SP_CPU_LANES);
}

static void conv_pack_offset(const sp_backend *be, const sp_pack_args *a, int k)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    const int from = a->is_grad_input ? a->c_out : a->c_in;
    const int to = a->is_grad_input ? a->c_in : a->c_out;
    const size_t step =
        conv_words_of(be, from, isa->chunk) * conv_padded(to, isa->lanes);
    const size_t place = (size_t)(a->is_mirrored ? a->K - 1 - k : k);

    isa->pack(a->w + (size_t)k * (size_t)a->c_in * (size_t)a->c_out, from, to,
              a->is_grad_input, a->packed + place * step);
}

sp_status sp_cpu_conv_pack(sp_backend *be, const sp_pack_args *args, int n_args)
{
    int64_t n = 0;

    assert(n_args >= 0 && (args || n_args == 0));
    for (int i = 0; i < n_args; i++)
        n += (int64_t)args[i].K * args[i].c_in * args[i].c_out;
#pragma omp parallel num_threads(sp_cpu_threads(be, n))
    for (int i = 0; i < n_args; i++) {
#pragma omp for schedule(dynamic) nowait
        for (int k = 0; k < args[i].K; k++)
            conv_pack_offset(be, &args[i], k);
    }
    return SP_OK;
}

/* ---- tiles of the output ---- */

enum { MOST_SUMS = 2 }; /* the most sums that one convolution fills */

static size_t rounded_bytes(int64_t rows, int c)
{
    return (size_t)rows * (size_t)c * sizeof(uint16_t);
}

/* Products in bf16 round an operand that is stored in fp32, as the gradient of logits
 * is, once before they read its rows many times. */
static sp_status round_operand(sp_backend *be, sp_tensor *x)
{
    const sp_tensor from = *x;
    void *data;

    if (be->precision != SP_BF16 || from.elem == SP_ELEM_BF16)
        return SP_OK;
    SP_TRY(
        sp_cpu_scratch_for(be, SP_CPU_ROUNDED, rounded_bytes(from.n, from.c), &data));
    *x = (sp_tensor){data, from.n, from.c, from.c, SP_ELEM_BF16};
    return sp_cpu_copy(be, from, *x, false);
}

/* The threads for the products of that many pairs. */
static int conv_threads(const sp_backend *be, int64_t pairs, int c_in, int c_out)
{
    return sp_cpu_threads(be, pairs * c_in * c_out / SP_CPU_PRODUCTS);
}

static int64_t conv_pairs(const sp_conv_args *a)
{
    const sp_map *m = a->map;

    if (!m)
        return a->y.n;
    return m->n_tiles ? m->start[(size_t)m->n_tiles * (size_t)m->K] : 0;
}

/* Lists of channels serve convolutions with a centre on one level; narrower ones do not
 * pay. */
static size_t conv_list_bytes(int K, int64_t rows, int c_in, int c_out)
{
    return K == 1 || K % 2 == 0 || c_in < 2 * SP_CPU_LANES || c_out <= 2 * SP_CPU_LANES
               ? 0
               : (size_t)rows * sp_cpu_list_bytes(c_in);
}

/* Takes scratch for the sums of a forward convolution and for its lists after them;
 * *list is NULL if lists do not serve it. The memory does not depend on the zeros, since
 * later batches may have more. */
static sp_status conv_alloc_lists(sp_backend *be, const sp_conv_args *a, uint8_t **list)
{
    const sp_map *m = a->map;
    const size_t bytes = m && m->is_full && sp_cpu_products_of(be)->list_channels
                             ? conv_list_bytes(m->K, a->x.n, a->x.c, a->y.c)
                             : 0;
    const size_t sums = bytes ? sp_cpu_sums_bytes(a->y.c, m->n_tiles, 1) : 0;
    void *at;

    *list = NULL;
    if (bytes == 0)
        return SP_OK;
    SP_TRY(sp_cpu_scratch(be, sums + bytes, &at));
    *list = (uint8_t *)at + sums;
    return SP_OK;
}

/* The share of zeros in some of the rows of x. */
static double conv_share_of_zeros(sp_tensor x)
{
    enum { ROWS = 64 };
    int64_t n = 1, n_zero = 0;

    for (int64_t i = 0; i < x.n; i += x.n / ROWS + 1, n += x.c)
        for (int c = 0; c < x.c; c++)
            n_zero += sp_row(x, i)[c] == 0;
    return (double)n_zero / (double)n;
}

double sp_cpu_reset_left_out(sp_backend *be)
{
    sp_cpu *cpu = be->impl;
    const double left_out = cpu->left_out;

    cpu->left_out = 0;
    return left_out;
}

/* Zeros are left out from this share of them on. Lists in AVX-512: with 30 % of zeros the
 * products of the others take as long as of all, with 50 % 0.73 of the time, with 70 %
 * 0.47 (96 channels). AVX2 with 50 %: 0.6 to 0.8. */
static const double LEAST_ZEROS = 0.4;

/* Lists the channels of the rows of x that are not zero, if that pays. */
static sp_status list_channels(sp_backend *be, const sp_conv_args *a,
                               const uint8_t **list)
{
    uint8_t *at;
    double zeros;

    SP_TRY(conv_alloc_lists(be, a, &at));
    zeros = at ? conv_share_of_zeros(a->x) : 0;
    if (zeros < LEAST_ZEROS)
        return SP_OK;
    ((sp_cpu *)be->impl)->left_out += zeros * (double)conv_pairs(a) * a->x.c * a->y.c;
    *list = at;
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, a->x))
    for (int64_t i = 0; i < sp_cpu_blocks(a->x.n, SP_TILE); i++)
        sp_cpu_isa_of(be)->list_channels(a->x, i * SP_TILE,
                                         sp_least((i + 1) * SP_TILE, a->x.n), at);
    return SP_OK;
}

/* Computes the output tile by tile, with its norm unless that is NULL, and while a tile
 * is still in L2 its part of each of n_sums sums. may_skip: x may have many zeros. */
static sp_status over_tiles(sp_backend *be, const sp_conv_args *a, bool may_skip,
                            const sp_cpu_sums *sums, int n_sums,
                            const sp_norm_args *norm)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    const sp_cpu_isa *rows = sp_cpu_rows_of(be, a->y.elem);
    sp_cpu_conv conv = {.map = a->map,
                        .x = a->x,
                        .y = a->y,
                        .w = a->w_packed,
                        .bias = a->bias,
                        .is_added = a->is_added,
                        .norm = norm};
    int n_tiles = a->map ? a->map->n_tiles : (int)sp_cpu_blocks(a->y.n, SP_TILE), run;
    const int threads = conv_threads(be, conv_pairs(a), a->x.c, a->y.c);

    assert(a->w_packed && (a->map ? a->map->n_in == a->x.n && a->map->n_out == a->y.n
                                  : a->x.n == a->y.n));
    if (sums) {
        assert(!a->map || a->map->n_tiles == sums->n);
        conv.tile = sums->tile;
        n_tiles = sums->n;
    }
    SP_TRY(round_operand(be, &conv.x));
    if (may_skip)
        SP_TRY(list_channels(be, a, &conv.list));
    /* Threads get runs of consecutive tiles, so that the rows that a tile prefetches
     * belong to the same thread's next tile. */
    run = n_tiles / (8 * threads) + 1;
#pragma omp parallel for num_threads(threads) schedule(dynamic, run)
    for (int t = 0; t < n_tiles; t++) {
        isa->conv_tile(&conv, t);
        for (int i = 0; i < n_sums * SP_CPU_SPANS; i++)
            sp_cpu_sum_span(rows, a->y, &sums[i / SP_CPU_SPANS],
                            t * SP_CPU_SPANS + i % SP_CPU_SPANS);
    }
    return SP_OK;
}

sp_status sp_cpu_conv_forward(sp_backend *be, const sp_conv_args *args)
{
    assert(sp_conv_is_sound(args));
    return over_tiles(be, args, true, NULL, 0, NULL);
}

sp_status sp_cpu_conv_forward_norm_apply(sp_backend *be, const sp_conv_args *conv,
                                         const sp_norm_args *norm)
{
    assert(sp_conv_is_sound(conv) && sp_norm_is_sound(norm));
    assert(norm->x.data == conv->y.data && norm->y.data == conv->y.data);
    assert(!norm->res_scale);
    if (norm->finish)
        SP_TRY(sp_cpu_norm_finish(be, norm->finish));
    return over_tiles(be, conv, true, NULL, 0, norm);
}

sp_status sp_cpu_conv_forward_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                        const int32_t *sample_row, int n_samples,
                                        double *sums)
{
    sp_cpu_sums s;
    uint8_t *list;

    assert(sp_conv_is_sound(conv) && sums);
    SP_TRY(conv_alloc_lists(be, conv, &list)); /* the sums are part of this memory */
    SP_TRY(sp_cpu_alloc_sums(be, conv->y.c, sample_row, n_samples, &s, 1));
    SP_TRY(over_tiles(be, conv, true, &s, 1, NULL));
    sp_cpu_add_sums(&s, n_samples, sums);
    return SP_OK;
}

/* The packed weights hold the whole difference to the forward pass, but that gradients
 * are seldom zero. */
sp_status sp_cpu_conv_grad_input(sp_backend *be, const sp_conv_args *args)
{
    assert(sp_conv_is_sound(args));
    return over_tiles(be, args, false, NULL, 0, NULL);
}

sp_status sp_cpu_conv_grad_input_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                           const sp_norm_grad_args *norm,
                                           const sp_norm_grad_args *residual)
{
    const sp_norm_grad_args *of[MOST_SUMS] = {norm, residual};
    const int n = residual ? 2 : 1;
    sp_cpu_sums s[MOST_SUMS];

    assert(sp_conv_is_sound(conv) && sp_norm_grad_sums_are_sound(norm));
    assert(!residual || (residual->slope == 1 && residual->dy.data == norm->dy.data &&
                         residual->x.c == norm->x.c));
    SP_TRY(sp_cpu_alloc_sums(be, norm->x.c, norm->sample_row, norm->n_samples, s, n));
    for (int i = 0; i < n; i++)
        s[i].norm = of[i];
    SP_TRY(over_tiles(be, conv, false, s, n, NULL));
    for (int i = 0; i < n; i++) {
        sp_cpu_add_sums(&s[i], of[i]->n_samples, of[i]->sums);
        sp_cpu_norm_grad_scale(of[i]);
    }
    return SP_OK;
}

/* ---- weight gradient ---- */

enum {
    LEAST_DW_BYTES = 512 << 10, /* of all offsets; less stays in L2 over all tiles */
    FAR_DW_BYTES = 2 << 20,     /* so much does not */
    FAR_ROWS_BYTES = 24 << 20,  /* of rows that stay in the last cache */
    MOST_ROWS_BYTES = 4 << 20,  /* of the rows of all tiles */
    MOST_ROWS_BF16 = 512 << 10  /* the same in bf16 */
};

/* Scratch of one weight gradient and its distribution over threads. */
typedef struct work {
    int K, n_panels, threads;
    float *dw; /* [K] panels of the gradient */
    size_t step;
    int64_t *pairs; /* [K] pairs of each offset */
    int64_t *load;  /* [threads] pairs given to each thread */
    /* [K][n_panels] thread of each panel; [K] offsets by falling pairs */
    uint16_t *owner, *order;
} work;

/* Places the arrays of w, whose numbers are set, at the address `at`; returns their
 * bytes. An estimate places them at 0. */
static size_t work_place(work *w, uintptr_t at)
{
    const size_t K = (size_t)w->K, dw_bytes = K * w->step * sizeof(float);
    uintptr_t end = at + (dw_bytes + 63) / 64 * 64;

    w->dw = (float *)at;
    w->pairs = (int64_t *)end;
    end += K * sizeof *w->pairs;
    w->load = (int64_t *)end;
    end += (size_t)w->threads * sizeof *w->load;
    w->owner = (uint16_t *)end;
    end += K * (size_t)w->n_panels * sizeof *w->owner;
    w->order = (uint16_t *)end;
    return end + K * sizeof *w->order - at;
}

static sp_status wgrad_alloc_work(sp_backend *be, const sp_conv_wgrad_args *a, work *w)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    void *at;

    w->K = a->map ? a->map->K : 1;
    w->n_panels = isa->n_panels(a->dy.c);
    w->threads = be->threads;
    w->step = (size_t)a->x.c * conv_padded(a->dy.c, isa->lanes);
    SP_TRY(sp_cpu_scratch(be, work_place(w, 0), &at));
    work_place(w, (uintptr_t)at);
    return SP_OK;
}

/* As with the widest lanes, the most panels and the most threads: the estimate is the
 * same on ranks with other instructions and cores, which all cut a step alike. */
sp_conv_bytes sp_cpu_conv_bytes(const sp_backend *be, int K, int c_in, int c_out,
                                int n_samples, int64_t rows, int64_t pairs)
{
    enum { MOST_THREADS = 4096 };
    const int64_t n_tiles = rows / SP_TILE + n_samples;
    const size_t sums =
        sp_cpu_sums_bytes(c_out, n_tiles, MOST_SUMS) +
        (be->precision == SP_BF16 ? 0 : conv_list_bytes(K, rows, c_in, c_out));
    work w = {.K = K,
              .n_panels = c_out,
              .threads = MOST_THREADS,
              .step = (size_t)c_in * conv_padded(c_out, SP_CPU_LANES)};
    const size_t weights = work_place(&w, 0);

    (void)pairs;
    return (sp_conv_bytes){
        (int64_t)sp_cpu_scratch_size(sums > weights ? sums : weights),
        be->precision == SP_BF16
            ? (int64_t)sp_cpu_scratch_size(rounded_bytes(rows, c_out))
            : 0};
}

static void conv_count_pairs(const sp_backend *be, const sp_cpu_wgrad *g, work *w)
{
    const sp_map *m = g->map;
    int64_t n = 0;

    for (int k = 0; k < w->K; k++)
        w->pairs[k] = m ? 0 : g->end - g->row;
    for (int t = g->tile0; m && t < g->tile1; t++)
        for (int k = 0; k < m->K; k++)
            w->pairs[k] += m->start[t * m->K + k + 1] - m->start[t * m->K + k];
    for (int k = 0; k < w->K; k++)
        n += w->pairs[k];
    w->threads = conv_threads(be, n, g->x.c, g->dy.c);
}

/* Leaves products by zero out, if that pays. */
static void wgrad_leave_zeros(const sp_backend *be, sp_cpu_wgrad *g, const work *w)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    double zeros;

    if (isa->wgrad_least == 0 || g->dy.c <= (isa->wgrad_least - 1) * isa->lanes)
        return;
    zeros = conv_share_of_zeros(g->x);
    g->has_zeros = zeros >= LEAST_ZEROS;
    for (int k = 0; g->has_zeros && k < w->K; k++)
        ((sp_cpu *)be->impl)->left_out +=
            zeros * (double)w->pairs[k] * g->x.c * g->dy.c;
}

/* Orders the offsets by falling pairs. */
static void conv_order_offsets(work *w)
{
    for (int k = 0, i; k < w->K; k++) {
        for (i = k; i > 0 && w->pairs[w->order[i - 1]] < w->pairs[k]; i--)
            w->order[i] = w->order[i - 1];
        w->order[i] = (uint16_t)k;
    }
}

/* Distributes panels over threads, the offsets with most pairs first, each to the
 * thread with the least work so far. The thread that adds a panel does not affect its
 * bits. */
static void share_out(work *w)
{
    memset(w->load, 0, (size_t)w->threads * sizeof *w->load);
    for (int i = 0; i < w->K * w->n_panels; i++) {
        const int k = w->order[i / w->n_panels];
        int least = 0;
        for (int t = 1; t < w->threads; t++)
            least = w->load[t] < w->load[least] ? t : least;
        w->load[least] += w->pairs[k];
        w->owner[k * w->n_panels + i % w->n_panels] = (uint16_t)least;
    }
}

/* Writes the sums of dy to dbias, or adds them: in double over each sample, samples in
 * order. */
static sp_status add_bias_grad(sp_backend *be, const sp_conv_wgrad_args *a)
{
    const int c = a->dy.c;
    const int64_t most = SP_CPU_ROW_BLOCK;
    double *sums, *part;

    SP_TRY(sp_cpu_scratch(be, 4 * (size_t)c * sizeof *sums, (void **)&sums));
    part = sums + 2 * c;
    if (!a->is_added)
        memset(a->dbias, 0, (size_t)c * sizeof *a->dbias);
    for (int b = a->sample0; b < a->sample1; b++) {
        const int64_t end = sp_cpu_first_row(a->map, a->sample_row, b + 1);
        memset(sums, 0, 2 * (size_t)c * sizeof *sums);
        for (int64_t i = sp_cpu_first_row(a->map, a->sample_row, b); i < end;
             i += most) {
            sp_cpu_rows_of(be, a->dy.elem)
                ->norm_sums(a->dy, i, sp_least(i + most, end), part);
            for (int j = 0; j < c; j++)
                sums[j] += part[j];
        }
        for (int j = 0; j < c; j++)
            a->dbias[j] += (float)sums[j];
    }
    return SP_OK;
}

/* Do the tiles move more bytes of dW, which each of them reads and writes, than the
 * offsets move bytes of rows, and do the rows stay in the last cache? 256 channels,
 * 8,000 rows of 9.3 pairs: 226 MB against 76 in bf16 (37 ms against 23) and 152 in fp32
 * (61 ms against 53). From memory rows come slower than dW. */
static bool conv_dw_is_far(const sp_cpu_wgrad *g, const work *w, size_t dw_bytes,
                           size_t row_bytes)
{
    const double n_tiles = g->map ? g->tile1 - g->tile0 : 1;
    const double each = (double)g->x.c * (double)sp_elem_bytes(g->x.elem) +
                        (double)g->dy.c * (double)sp_elem_bytes(g->dy.elem);
    double pairs = 0;

    for (int k = 0; k < w->K; k++)
        pairs += (double)w->pairs[k];
    return dw_bytes >= FAR_DW_BYTES && row_bytes <= FAR_ROWS_BYTES &&
           pairs * each < 0.9 * 2 * n_tiles * (double)dw_bytes;
}

/* Is the gradient formed offset by offset over all tiles? If dW is larger than L2 and
 * the rows of all tiles are few, each tile would read and write all of dW again: 144 ms
 * against 132 in a step of 2,000 voxels. In bf16, which gathers the rows of each run,
 * few are those that stay in L2 (17 ms against 24 in a step of 400 voxels). Sums by
 * tiles of AMX have groups of their own. */
static bool conv_is_by_offset(const sp_backend *be, const sp_cpu_wgrad *g,
                              const work *w)
{
    const size_t dw_bytes = (size_t)w->K * w->step * sizeof *w->dw;
    const size_t x_rows = g->map ? (size_t)g->map->n_in : (size_t)(g->end - g->row);
    const size_t dy_rows = g->map ? (size_t)g->map->n_out : x_rows;
    const size_t bytes = x_rows * (size_t)g->x.c * sp_elem_bytes(g->x.elem) +
                         dy_rows * (size_t)g->dy.c * sp_elem_bytes(g->dy.elem);
    const bool is_bf16 = be->precision == SP_BF16;

    if ((is_bf16 && be->sums == SP_SUMS_TILES) || w->K < 2 * be->threads ||
        dw_bytes <= LEAST_DW_BYTES)
        return false;
    return bytes <= (is_bf16 ? MOST_ROWS_BF16 : MOST_ROWS_BYTES) ||
           conv_dw_is_far(g, w, dw_bytes, bytes);
}

/* Each thread takes offsets, and writes the sums of one to the gradient while they are
 * in L2. */
static void conv_add_by_offset(sp_backend *be, const sp_conv_wgrad_args *a,
                               const sp_cpu_wgrad *all, const work *w)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    const size_t size = (size_t)a->x.c * (size_t)a->dy.c;

    memset(w->owner, 0, (size_t)w->K * (size_t)w->n_panels * sizeof *w->owner);
#pragma omp parallel num_threads(w->threads)
    {
        sp_cpu_wgrad g = *all;

        g.dw = w->dw + (size_t)omp_get_thread_num() * w->step;
#pragma omp for schedule(dynamic)
        for (int i = 0; i < w->K; i++) {
            g.k0 = w->order[i];
            g.k1 = g.k0 + 1;
            if (w->pairs[g.k0] == 0 && a->is_added)
                continue;
            memset(g.dw, 0, w->step * sizeof *g.dw);
            isa->wgrad(&g, 0);
            isa->unpack(g.dw, a->x.c, a->dy.c, a->dw + (size_t)g.k0 * size,
                        a->is_added);
        }
    }
}

static void conv_add_by_panel(sp_backend *be, const sp_conv_wgrad_args *a,
                              const sp_cpu_wgrad *g, work *w)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);

    share_out(w);
    memset(w->dw, 0, (size_t)w->K * w->step * sizeof *w->dw);
#pragma omp parallel for num_threads(w->threads) schedule(static, 1)
    for (int thread = 0; thread < w->threads; thread++)
        isa->wgrad(g, thread);
#pragma omp parallel for num_threads(                                                  \
    sp_cpu_threads(be, (int64_t)w->K *(int64_t)w->step))
    for (int k = 0; k < w->K; k++)
        isa->unpack(w->dw + (size_t)k * w->step, a->x.c, a->dy.c,
                    a->dw + (size_t)k * (size_t)a->x.c * (size_t)a->dy.c, a->is_added);
}

sp_status sp_cpu_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *a)
{
    const sp_map *m = a->map;
    sp_cpu_wgrad g = {.map = m, .x = a->x, .dy = a->dy};
    work w;

    assert(sp_conv_wgrad_is_sound(a));
    if (a->dbias)
        SP_TRY(add_bias_grad(be, a));
    SP_TRY(wgrad_alloc_work(be, a, &w));
    g.row = sp_cpu_first_row(m, a->sample_row, a->sample0);
    g.end = sp_cpu_first_row(m, a->sample_row, a->sample1);
    if (g.row == g.end && a->is_added)
        return SP_OK;
    g.tile0 = m ? m->sample_tile[a->sample0] : 0;
    g.tile1 = m ? m->sample_tile[a->sample1] : 0;
    g.dw = w.dw;
    g.owner = w.owner;
    g.k1 = w.K;
    conv_count_pairs(be, &g, &w);
    wgrad_leave_zeros(be, &g, &w);
    conv_order_offsets(&w);
    if (conv_is_by_offset(be, &g, &w))
        conv_add_by_offset(be, a, &g, &w);
    else
        conv_add_by_panel(be, a, &g, &w);
    return SP_OK;
}
