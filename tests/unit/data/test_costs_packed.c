/* Costs come back as they were packed, whatever their width, also from the rows of
 * several files with columns of different widths. */
#include "fixtures/test.h"

#include <stdlib.h>

#include "base/sp_rng.h"
#include "data/sp_costs.h"

enum { ROWS = 300 };

/* Numbers below 2^most, each of a random width; the largest fill it. */
static void draw(int64_t cost[ROWS][SP_COST_COLUMNS], int most, uint64_t seed)
{
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < SP_COST_COLUMNS; k++) {
            const uint64_t word =
                sp_rng_mix(seed ^ (uint64_t)(i * SP_COST_COLUMNS + k));
            const int bits = i % 7 ? (int)(word % (uint64_t)(most + 1)) : most;

            cost[i][k] = bits ? (int64_t)(sp_rng_mix(word) >> (64 - bits)) : 0;
        }
}

static void check_rows(const sp_costs *costs, int64_t at,
                       int64_t cost[ROWS][SP_COST_COLUMNS])
{
    for (int i = 0; i < ROWS; i++)
        for (int k = 1; k < SP_COST_COLUMNS; k++)
            assert_int_equal(sp_costs_get(costs, at + i, k), cost[i][k]);
}

TEST(costs_of_all_widths_come_back)
{
    static int64_t cost[ROWS][SP_COST_COLUMNS];

    for (int most = 0; most <= 36; most++) { /* 27 pairs of 2^31 voxels */
        sp_costs costs;

        draw(cost, most, (uint64_t)most);
        OK(sp_costs_pack(&costs, cost[0], ROWS));
        assert_true(sp_costs_words(&costs, ROWS) <= (5 * most * ROWS + 63) / 64);
        check_rows(&costs, 0, cost);
        free(costs.word);
    }
}

TEST(files_of_different_widths_join)
{
    static int64_t cost[3][ROWS][SP_COST_COLUMNS];
    const int most[3] = {9, 31, 0};
    sp_costs part[3], all = {0};

    for (int i = 0; i < 3; i++) {
        draw(cost[i], most[i], 100 + (uint64_t)i);
        OK(sp_costs_pack(&part[i], cost[i][0], ROWS));
        sp_costs_widen(&all, &part[i]);
    }
    all.word = calloc((size_t)sp_costs_words(&all, 3 * ROWS), sizeof *all.word);
    assert_non_null(all.word);
    for (int i = 0; i < 3; i++)
        sp_costs_copy(&all, (int64_t)i * ROWS, &part[i], ROWS);
    for (int i = 0; i < 3; i++) {
        check_rows(&all, (int64_t)i * ROWS, cost[i]);
        free(part[i].word);
    }
    free(all.word);
}
