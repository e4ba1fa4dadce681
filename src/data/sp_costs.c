#include "data/sp_costs.h"
#include "base/sp_list.h"

#include <assert.h>
#include <stdlib.h>

enum { WORD = 64 }; /* bits */

/* The bits of the columns before `column`; SP_COST_COLUMNS: of a row. */
static int costs_before(const sp_costs *c, int column)
{
    int bits = 0;

    for (int i = 0; i < column; i++)
        bits += c->bits[i];
    return bits;
}

/* The first bit of a column. */
static uint64_t costs_place(const sp_costs *c, int64_t row, int column)
{
    return (uint64_t)row * (uint64_t)costs_before(c, SP_COST_COLUMNS) +
           (uint64_t)costs_before(c, column);
}

int64_t sp_costs_words(const sp_costs *c, int64_t n)
{
    return (int64_t)((costs_place(c, n, 0) + WORD - 1) / WORD);
}

/* Reads `bits` bits from bit `at` on. */
static uint64_t costs_read(const uint64_t *word, uint64_t at, int bits)
{
    const uint64_t shift = at % WORD;
    uint64_t value;

    if (bits == 0)
        return 0;
    value = word[at / WORD] >> shift;
    if (shift + (uint64_t)bits > WORD)
        value |= word[at / WORD + 1] << (WORD - shift);
    return value & (UINT64_MAX >> (WORD - bits));
}

/* Writes a number where all bits are 0. */
static void costs_write(uint64_t *word, uint64_t at, int bits, uint64_t value)
{
    const uint64_t shift = at % WORD;

    if (bits == 0)
        return;
    word[at / WORD] |= value << shift;
    if (shift + (uint64_t)bits > WORD)
        word[at / WORD + 1] |= value >> (WORD - shift);
}

int64_t sp_costs_get(const sp_costs *c, int64_t row, int column)
{
    assert(row >= 0 && 1 <= column && column < SP_COST_COLUMNS);
    return (int64_t)costs_read(c->word, costs_place(c, row, column), c->bits[column]);
}

void sp_costs_widen(sp_costs *c, const sp_costs *other)
{
    for (int k = 1; k < SP_COST_COLUMNS; k++)
        if (other->bits[k] > c->bits[k])
            c->bits[k] = other->bits[k];
}

void sp_costs_copy(sp_costs *c, int64_t at, const sp_costs *from, int64_t n)
{
    uint64_t to_bit = costs_place(c, at, 0), from_bit = 0;

    for (int64_t i = 0; i < n; i++)
        for (int k = 1; k < SP_COST_COLUMNS; k++) {
            costs_write(c->word, to_bit, c->bits[k],
                        costs_read(from->word, from_bit, from->bits[k]));
            to_bit += c->bits[k];
            from_bit += from->bits[k];
        }
}

sp_status sp_costs_pack(sp_costs *c, const int64_t *cost, int64_t n)
{
    uint64_t bit = 0;

    *c = (sp_costs){0};
    for (int64_t i = 0; i < n; i++)
        for (int k = 1; k < SP_COST_COLUMNS; k++)
            while (cost[i * SP_COST_COLUMNS + k] >> c->bits[k])
                c->bits[k]++;
    SP_TRY(SP_NEW(&c->word, sp_costs_words(c, n), "the costs of samples"));
    for (int64_t i = 0; i < n; i++)
        for (int k = 1; k < SP_COST_COLUMNS; k++) {
            costs_write(c->word, bit, c->bits[k],
                        (uint64_t)cost[i * SP_COST_COLUMNS + k]);
            bit += c->bits[k];
        }
    return SP_OK;
}
