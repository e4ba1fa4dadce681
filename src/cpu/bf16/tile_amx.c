/* Products of tiles by TDPBF16PS: the operation of tile.h. The Makefile compiles this
 * file only for AMX_BF16; bf16_portable.c has the same in portable C. */
#include "cpu/bf16/tile.h"

/* Operand of LDTILECFG: all eight tiles have 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config = {.palette = 1,
            .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
            .rows = {EDGE, EDGE, EDGE, EDGE, EDGE, EDGE, EDGE, EDGE}};
_Static_assert(sizeof config == 64, "the layout that LDTILECFG reads");

void TILES(begin)(void)
{
    _tile_loadconfig(&config);
}

void TILES(end)(void)
{
    _tile_release();
}

/* Registers 0 to 3 hold sums, 4 and 5 tiles of a, 6 and 7 tiles of b: a register is a
 * number in the instruction. Four sums are under way at once, since a TDPBF16PS needs
 * 52 cycles and one begins every 16 (measured); their four loads take 32 of 64. */
INLINE void two_rows(const tile_products *p, const uint32_t *b, float *sum,
                     const bool is_two)
{
    const size_t ld_a = p->ld_a, ld_b = 4 * p->ld_b, ld = 4 * p->ld;
    const char *a = p->a;
    float *const below = sum + EDGE * p->ld;

    if (p->is_added) {
        _tile_loadd(0, sum, ld);
        _tile_loadd(2, below, ld);
        if (is_two) {
            _tile_loadd(1, sum + EDGE, ld);
            _tile_loadd(3, below + EDGE, ld);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int q = 0; q < p->n_chunks; q++) {
        _tile_loadd(6, b, ld_b);
        _tile_loadd(4, a, ld_a);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + EDGE * ld_a, ld_a);
        _tile_dpbf16ps(2, 5, 6);
        if (is_two) {
            _tile_loadd(7, b + EDGE, ld_b);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
        a += p->step_a;
        b += EDGE * p->ld_b;
    }
    _tile_stored(0, sum, ld);
    _tile_stored(2, below, ld);
    if (is_two) {
        _tile_stored(1, sum + EDGE, ld);
        _tile_stored(3, below + EDGE, ld);
    }
}

/* One row of up to four tiles, for the rest of a list of pairs. */
INLINE void one_row(const tile_products *p, const uint32_t *b, float *sum, const int n)
{
    const size_t ld_a = p->ld_a, ld_b = 4 * p->ld_b, ld = 4 * p->ld;
    const char *a = p->a;

#define EACH(F)                                                                        \
    F(0, 6) if (n > 1)                                                                 \
    {                                                                                  \
        F(1, 7)                                                                        \
    }                                                                                  \
    if (n > 2) {                                                                       \
        F(2, 6) F(3, 7)                                                                \
    }
#define LOAD(J, B) _tile_loadd(J, sum + J * EDGE, ld);
#define ZERO(J, B) _tile_zero(J);
#define ADD(J, B)                                                                      \
    _tile_loadd(B, b + J * EDGE, ld_b);                                                \
    _tile_dpbf16ps(J, 4, B);
#define STORE(J, B) _tile_stored(J, sum + J * EDGE, ld);
    if (p->is_added) {
        EACH(LOAD)
    } else {
        EACH(ZERO)
    }
    for (int q = 0; q < p->n_chunks; q++) {
        _tile_loadd(4, a, ld_a);
        EACH(ADD)
        a += p->step_a;
        b += EDGE * p->ld_b;
    }
    EACH(STORE)
}

void TILES(multiply)(const tile_products *p)
{
    __asm__ volatile("" ::
                         : "memory"); /* the loads of tiles do not say what they read */
    for (int j = 0, n; j < p->columns; j += n) {
        const int left = p->columns - j;
        const uint32_t *b = p->b + j * EDGE;
        float *sum = p->sum + j * EDGE;
        n = p->rows > 1 ? min_i(left, 2) : left >= 4 ? 4 : min_i(left, 2);
        if (p->rows > 1 && n > 1)
            two_rows(p, b, sum, true);
        else if (p->rows > 1)
            two_rows(p, b, sum, false);
        else if (n == 4)
            one_row(p, b, sum, 4);
        else if (n == 2)
            one_row(p, b, sum, 2);
        else
            one_row(p, b, sum, 1);
    }
}

/* ---- peak ---- */

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
