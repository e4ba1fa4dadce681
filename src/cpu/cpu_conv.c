/* Convolution of a whole tensor. Threads share tiles (forward, input gradient) or
 * panels of dW (weight gradient). The arithmetic is in cpu_vec_conv.c and
 * cpu_vec_wgrad.c, and in src/bf16. */
#include <assert.h>
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

static void cpu_conv_pack(sp_backend *be, const sp_pack_args *a)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    const int from = a->is_grad_input ? a->c_out : a->c_in;
    const int to = a->is_grad_input ? a->c_in : a->c_out;
    const size_t step =
        conv_words_of(be, from, isa->chunk) * conv_padded(to, isa->lanes);

#pragma omp parallel for num_threads(be->threads) if (a->K > 1)
    for (int k = 0; k < a->K; k++) {
        const size_t at = (size_t)(a->is_mirrored ? a->K - 1 - k : k);
        isa->pack(a->w + at * (size_t)a->c_in * (size_t)a->c_out, from, to,
                  a->is_grad_input, a->packed + (size_t)k * step);
    }
}

sp_status sp_cpu_conv_pack(sp_backend *be, const sp_pack_args *args, int n_args)
{
    assert(n_args >= 0 && (args || n_args == 0));
    for (int i = 0; i < n_args; i++)
        cpu_conv_pack(be, &args[i]);
    return SP_OK;
}

/* ---- tiles of the output ---- */

enum { MOST_SUMS = 2 }; /* the most sums that one convolution fills */

/* Products in bf16 round an operand that is stored in fp32, as the gradient of logits
 * is, once before they read its rows many times. */
static sp_status round_operand(sp_backend *be, sp_tensor *x)
{
    const sp_tensor from = *x;
    void *data;

    if (be->precision != SP_BF16 || from.elem == SP_ELEM_BF16)
        return SP_OK;
    SP_TRY(sp_cpu_scratch_for(
        be, SP_CPU_ROUNDED, (size_t)from.n * (size_t)from.c * sizeof(uint16_t), &data));
    *x = (sp_tensor){data, from.n, from.c, from.c, SP_ELEM_BF16};
    return sp_cpu_copy(be, from, *x, false);
}

/* Computes the output tile by tile, with its norm unless that is NULL, and while a tile
 * is still in L2 its part of each of n_sums sums. */
static sp_status over_tiles(sp_backend *be, const sp_conv_args *a,
                            const sp_cpu_sums *sums, int n_sums,
                            const sp_norm_args *norm)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    const sp_cpu_isa *rows = sp_cpu_rows_of(be, a->y.elem);
    sp_cpu_conv conv = {a->map,  a->x,        a->y, a->w_packed,
                        a->bias, a->is_added, NULL, norm};
    int n_tiles = a->map ? a->map->n_tiles : (int)sp_cpu_blocks(a->y.n, SP_TILE), run;

    assert(a->w_packed && (a->map ? a->map->n_in == a->x.n && a->map->n_out == a->y.n
                                  : a->x.n == a->y.n));
    if (sums) {
        assert(!a->map || a->map->n_tiles == sums->n);
        conv.tile = sums->tile;
        n_tiles = sums->n;
    }
    SP_TRY(round_operand(be, &conv.x));
    /* Threads get runs of consecutive tiles, so that the rows that a tile prefetches
     * belong to the same thread's next tile. */
    run = n_tiles / (8 * be->threads) + 1;
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(dynamic, run) if (n_tiles > 1)
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
    return over_tiles(be, args, NULL, 0, NULL);
}

sp_status sp_cpu_conv_forward_norm_apply(sp_backend *be, const sp_conv_args *conv,
                                         const sp_norm_args *norm)
{
    assert(sp_conv_is_sound(conv) && sp_norm_is_sound(norm));
    assert(norm->x.data == conv->y.data && norm->y.data == conv->y.data);
    if (norm->finish)
        SP_TRY(sp_cpu_norm_finish(be, norm->finish));
    return over_tiles(be, conv, NULL, 0, norm);
}

sp_status sp_cpu_conv_forward_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                        const int32_t *sample_row, int n_samples,
                                        double *sums)
{
    sp_cpu_sums s;

    assert(sp_conv_is_sound(conv) && sums);
    SP_TRY(sp_cpu_take_sums(be, conv->y.c, sample_row, n_samples, &s, 1));
    SP_TRY(over_tiles(be, conv, &s, 1, NULL));
    sp_cpu_add_sums(&s, n_samples, sums);
    return SP_OK;
}

/* The packed weights hold the whole difference to the forward pass. */
sp_status sp_cpu_conv_grad_input(sp_backend *be, const sp_conv_args *args)
{
    assert(sp_conv_is_sound(args));
    return over_tiles(be, args, NULL, 0, NULL);
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
    SP_TRY(sp_cpu_take_sums(be, norm->x.c, norm->sample_row, norm->n_samples, s, n));
    for (int i = 0; i < n; i++)
        s[i].norm = of[i];
    SP_TRY(over_tiles(be, conv, s, n, NULL));
    for (int i = 0; i < n; i++) {
        sp_cpu_add_sums(&s[i], of[i]->n_samples, of[i]->sums);
        sp_cpu_norm_grad_scale(of[i]);
    }
    return SP_OK;
}

/* ---- weight gradient ---- */

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

static sp_status take_work(sp_backend *be, const sp_conv_wgrad_args *a, work *w)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    size_t dw_bytes, K;
    char *at;

    w->K = a->map ? a->map->K : 1;
    w->n_panels = isa->n_panels(a->dy.c);
    w->threads = be->threads;
    w->step = (size_t)a->x.c * conv_padded(a->dy.c, isa->lanes);
    K = (size_t)w->K;
    dw_bytes = (K * w->step * sizeof(float) + 63) / 64 * 64;
    SP_TRY(sp_cpu_scratch(be,
                          dw_bytes + (K + (size_t)w->threads) * sizeof *w->pairs +
                              (K * (size_t)w->n_panels + K) * sizeof *w->owner,
                          (void **)&at));
    w->dw = (float *)at;
    w->pairs = (int64_t *)(at + dw_bytes);
    w->load = w->pairs + K;
    w->owner = (uint16_t *)(w->load + w->threads);
    w->order = w->owner + K * (size_t)w->n_panels;
    return SP_OK;
}

static void conv_count_pairs(const sp_cpu_wgrad *g, work *w)
{
    const sp_map *m = g->map;

    for (int k = 0; k < w->K; k++)
        w->pairs[k] = m ? 0 : g->end - g->row;
    for (int t = g->tile0; m && t < g->tile1; t++)
        for (int k = 0; k < m->K; k++)
            w->pairs[k] += m->start[t * m->K + k + 1] - m->start[t * m->K + k];
}

/* Distributes panels over threads, the offsets with most pairs first, each to the
 * thread with the least work so far. The thread that adds a panel does not affect its
 * bits. */
static void share_out(work *w)
{
    for (int k = 0, i; k < w->K; k++) {
        for (i = k; i > 0 && w->pairs[w->order[i - 1]] < w->pairs[k]; i--)
            w->order[i] = w->order[i - 1];
        w->order[i] = (uint16_t)k;
    }
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

/* Adds the sums of dy to dbias: in double over each sample, samples in order. */
static sp_status add_bias_grad(sp_backend *be, const sp_conv_wgrad_args *a)
{
    const int c = a->dy.c;
    const int64_t most = SP_CPU_ROW_BLOCK;
    double *sums, *part;

    SP_TRY(sp_cpu_scratch(be, 4 * (size_t)c * sizeof *sums, (void **)&sums));
    part = sums + 2 * c;
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

sp_status sp_cpu_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *a)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    const sp_map *m = a->map;
    sp_cpu_wgrad g = {.map = m, .x = a->x, .dy = a->dy};
    work w;

    assert(sp_conv_wgrad_is_sound(a));
    if (a->dbias)
        SP_TRY(add_bias_grad(be, a));
    SP_TRY(take_work(be, a, &w));
    g.row = sp_cpu_first_row(m, a->sample_row, a->sample0);
    g.end = sp_cpu_first_row(m, a->sample_row, a->sample1);
    if (g.row == g.end)
        return SP_OK;
    g.tile0 = m ? m->sample_tile[a->sample0] : 0;
    g.tile1 = m ? m->sample_tile[a->sample1] : 0;
    g.dw = w.dw;
    g.owner = w.owner;
    conv_count_pairs(&g, &w);
    share_out(&w);
    memset(w.dw, 0, (size_t)w.K * w.step * sizeof *w.dw);
#pragma omp parallel for num_threads(be->threads) schedule(static, 1)
    for (int thread = 0; thread < w.threads; thread++)
        isa->wgrad(&g, thread);
#pragma omp parallel for num_threads(be->threads) if (w.K > 1)
    for (int k = 0; k < w.K; k++)
        isa->unpack_add(w.dw + (size_t)k * w.step, a->x.c, a->dy.c,
                        a->dw + (size_t)k * (size_t)a->x.c * (size_t)a->dy.c);
    return SP_OK;
}
