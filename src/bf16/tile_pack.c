/* Weights of a convolution, rounded to bf16 and packed for tiles, and the gradient's
 * panels; the ceiling of spbench; the table of this order of sums. */
#include "bf16/tile.h"

#ifdef WITH_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

void TILES(pack)(const float *w, int c_in, int c_out, bool is_transposed, float *packed)
{
    const size_t n_words = (size_t)chunks(c_in) * EDGE;

    for (int at = 0, ld; at < c_out; at += ld, packed += n_words * (size_t)ld) {
        ld = panel_columns(at, c_out);
        const int width = min_i(ld, c_out - at);
        if (width < ld || c_in % CHUNK)
            memset(packed, 0, n_words * (size_t)ld * sizeof *packed);
        if (is_transposed)
            BF16(pack_columns)(w, c_in, at, width, ld, packed);
        else
            BF16(pack_rows)(w, c_in, c_out, at, width, ld, (uint32_t *)(void *)packed);
    }
}

int TILES(n_panels)(int c_out)
{
    return (c_out + PANEL - 1) / PANEL;
}

void TILES(unpack_add)(const float *packed, int c_in, int c_out, float *w)
{
    for (int at = 0, ld; at < c_out; at += ld) {
        ld = panel_columns(at, c_out);
        const int width = min_i(ld, c_out - at);
        for (int i = 0; i < c_in; i++, packed += ld) {
            float *restrict to = w + (size_t)i * (size_t)c_out + at;
            for (int j = 0; j < width; j++)
                to[j] += packed[j];
        }
    }
}

/* ---- peak ---- */

/* ROUND is the number of operations of one round of bf16_peak.c, OPERATION that of one
 * product of tiles, so that a caller may ask all versions for rounds of equal work. */
enum { ROUND = 4 * 16 * 12 * STEPS, OPERATION = 2 * SQUARE * CHUNK };

#ifdef WITH_AMX
double TILES(multiply_add)(int64_t rounds)
{
    static const _Alignas(64) uint32_t ones[SQUARE] = {0x3f7f3f7f};
    const int64_t n = rounds * ROUND / (4 * OPERATION) + 1;

    TILES(begin)();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
    for (int64_t i = 0; i < n; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    TILES(end)();
    return 4.0 * OPERATION * (double)n;
}
#else
double TILES(multiply_add)(int64_t rounds)
{
    static uint32_t ones[SQUARE] = {0x3f7f3f7f};
    float sum[SQUARE] = {0};
    const int64_t n = rounds * ROUND / OPERATION + 1;
    const tile_products p = {.a = (const char *)ones,
                             .ld_a = EDGE * sizeof *ones,
                             .b = ones,
                             .sum = sum,
                             .ld_b = EDGE,
                             .ld = EDGE,
                             .rows = 1,
                             .columns = 1,
                             .n_chunks = 1,
                             .is_added = true};

    for (int64_t i = 0; i < n; i++)
        TILES(multiply)(&p);
    return (double)OPERATION * (double)n;
}
#endif

/* ---- the table ---- */

#ifdef WITH_AMX
/* Linux gives a process the state of tiles on request alone (arch_prctl(2),
 * ARCH_REQ_XCOMP_PERM): it makes signal frames larger, so it fails where an alternate
 * signal stack has no room for one. */
bool sp_amx_permit(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & AMX_BF16 && d & AMX_TILE &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#endif

const sp_cpu_isa TILES(isa) = {
#ifdef WITH_AMX
    .name = "amx",
#else
    .name = "tiles in portable C",
#endif
    .lanes = EDGE,
    .chunk = CHUNK,
    .n_panels = TILES(n_panels),
    .pack = TILES(pack),
    .unpack_add = TILES(unpack_add),
    .conv_tile = TILES(conv_tile),
    .wgrad = TILES(wgrad),
    BF16_ELEMENT_PASSES,
    .multiply_add = TILES(multiply_add),
};
