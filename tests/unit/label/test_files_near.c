/* Which of many scans are near one: the sorted list finds what a full search finds. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "label/label_files.h"

enum { EDGE = 100, TILES = EDGE * EDGE };

/* Tiles of about 50 m, on a grid, in a mixed order; a few are long, a few have no extent. */
static label_file tile_of(int i, sp_rng *rng)
{
    const int at = i * 7919 % TILES;
    const double x = 50.0 * (at % EDGE), y = 50.0 * (at / EDGE);
    const double length = sp_rng_u32(rng) % 100 == 0 ? 900 : 50;
    label_file file = {.extent = {{x, y}, {x + length, y + 50}}};

    for (int a = 0; a < 2; a++)
        file.extent.low[a] += sp_rng_u32(rng) % 5;
    if (sp_rng_u32(rng) % 50 == 0)
        file.extent = (vox_extent){{1e9, 1e9}, {-1e9, -1e9}};
    return file;
}

static void compare(const label_files *f, int i, double distance)
{
    int *near = NULL, n = 0, k = 0;

    OK(label_files_near(f, i, distance, &near, &n));
    for (int j = 0; j < f->n; j++) {
        if (j == i ||
            !vox_extent_is_near(&f->file[i].extent, &f->file[j].extent, distance))
            continue;
        assert_true(k < n);
        assert_int_equal(near[k++], j);
    }
    assert_int_equal(k, n);
    free(near);
}

TEST(ten_thousand_tiles_have_the_neighbours_of_a_full_search)
{
    static label_file file[TILES];
    label_files f = {.n = TILES, .file = file};
    sp_rng rng = sp_rng_open(3, SP_RNG_INIT, 0, 0);

    for (int i = 0; i < TILES; i++)
        file[i] = tile_of(i, &rng);
    OK(label_files_sort(&f));
    for (int i = 0; i < TILES; i += 37) {
        compare(&f, i, 0);
        compare(&f, i, 24);
        compare(&f, i, 400);
    }
    free(f.begin);
}
