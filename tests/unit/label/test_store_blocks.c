/* Sums of blocks that two scans of an area have: which these are, and what a file gives
 * back of them. */
#include "fixtures/test.h"

#include <unistd.h>

#include "label/label_store.h"

enum { ROWS = 40, SUMS = 3 };

/* Two tiles of 20 m beside each other, and one that was skipped. */
static const vox_extent extent[] = {
    {{0, 0}, {20, 20}}, {{20, 0}, {40, 20}}, LABEL_NO_EXTENT};

/* Blocks of 10 m with a margin of 2 m. */
static vox_options options(double buffer)
{
    return (vox_options){
        .block = 10, .overlap = 2, .buffer = buffer, .extent = extent, .n_inputs = 3};
}

static const label_files files = {.work = ".", .tmp = "."};

/* A piece as a tile sees it that begins at a multiple of the edge. */
static vox_piece piece_at(double x, double y)
{
    return (vox_piece){.block = {.low = {x, y}, .high = {x + 10, y + 10}, .margin = 2}};
}

/* Opens the store of a scan; the later ones are listed by their numbers. */
static void open_store(label_store *store, const vox_options *o, int scan,
                       const label_stored *stored)
{
    OK(label_store_open(store, o, &files, scan, SUMS, stored));
    for (int i = scan + 1; i < 3; i++)
        OK(label_store_add_later(store, &extent[i]));
    store->own = extent[scan];
}

/* Which of the blocks from x = -10 to 40 m are stored, a bit each. */
static unsigned stored_blocks(const label_stored *stored, const vox_options *o)
{
    unsigned set = 0;

    for (int i = 0; i < 6; i++) {
        const double low[2] = {-10 + 10 * i, 0};

        if (vox_block_is_in(vox_block_at(o, low), stored->block, stored->n))
            set |= 1u << i;
    }
    return set;
}

/* All pieces of a tile are cut; returns the blocks that are stored then. */
static unsigned note_all(label_stored *stored, const vox_options *o, int scan,
                         bool has_fault)
{
    vox_piece piece[6];
    label_store store;

    for (int i = 0; i < 6; i++)
        piece[i] = piece_at(-10 + 10 * i, 0);
    open_store(&store, o, scan, stored);
    if (has_fault)
        store.own = LABEL_NO_EXTENT;
    OK(label_store_note(&store, piece, 6, stored));
    label_store_close(&store);
    return stored_blocks(stored, o);
}

TEST(blocks_of_both_scans_are_stored_until_the_second)
{
    const vox_options o = options(14), little = options(11.5);
    label_stored stored = {0};

    assert_int_equal(note_all(&stored, &o, 0, false), 1 << 2 | 1 << 3);
    assert_int_equal(note_all(&stored, &o, 1, false), 0);
    /* Some points of a block are too far from one of the scans. */
    assert_int_equal(note_all(&stored, &little, 0, false), 0);
    /* A damaged neighbour has left out points. */
    assert_int_equal(note_all(&stored, &o, 0, true), 0);
    free(stored.block);
}

/* All voxels, coordinates and positions within them, and their sums. */
typedef struct sums {
    int32_t coords[3 * ROWS];
    uint8_t subvoxel[3 * ROWS];
    uint64_t sum[SUMS * ROWS];
    sp_sample sample;
} sums;

static void fill_sums(sums *s)
{
    for (int i = 0; i < 3 * ROWS; i++) {
        s->coords[i] = i * i - 50;
        s->subvoxel[i] = (uint8_t)(7 * i);
    }
    for (int i = 0; i < SUMS * ROWS; i++)
        s->sum[i] = ((uint64_t)i << 40) + 3;
    s->sample = (sp_sample){.id = 1,
                            .n = ROWS,
                            .origin = {-16, 24.5, 1e6},
                            .coords = s->coords,
                            .subvoxel = s->subvoxel};
}

/* The later scan reads what the earlier one wrote, and then removes the file. */
TEST(a_later_scan_reads_the_block)
{
    const vox_options o = options(14);
    const vox_piece piece = piece_at(10, 0), other = piece_at(0, 0);
    label_stored stored = {0};
    uint64_t sum[SUMS * ROWS];
    sp_grid grid = {0};
    label_store store;
    sums s;

    fill_sums(&s);
    open_store(&store, &o, 0, &stored);
    assert_false(label_store_is_done(&store, &piece));
    OK(label_store_put(&store, &piece, &s.sample, s.sum));
    OK(label_store_put(&store, &other, &s.sample, s.sum)); /* nobody else has it */
    label_store_close(&store);
    assert_int_equal(access("block-1-0", F_OK), 0);
    assert_int_equal(access("block-0-0", F_OK), -1);
    note_all(&stored, &o, 0, false);
    open_store(&store, &o, 1, &stored);
    assert_true(label_store_is_done(&store, &piece));
    assert_false(label_store_is_done(&store, &other));
    OK(label_store_get(&store, &piece, &grid));
    assert_int_equal(grid.sample.n, ROWS);
    assert_memory_equal(grid.sample.origin, s.sample.origin, sizeof s.sample.origin);
    assert_memory_equal(grid.sample.coords, s.coords, sizeof s.coords);
    assert_memory_equal(grid.sample.subvoxel, s.subvoxel, sizeof s.subvoxel);
    OK(label_store_sums(&store, &piece, sum));
    assert_memory_equal(sum, s.sum, sizeof sum);
    label_store_clean(&store);
    assert_int_equal(access("block-1-0", F_OK), -1);
    assert_int_equal(label_store_get(&store, &piece, &grid), SP_EIO);
    label_store_close(&store);
    sp_grid_destroy(&grid);
    free(stored.block);
}

TEST(a_file_that_was_cut_off_is_a_failure)
{
    const vox_options o = options(14);
    const vox_piece piece = piece_at(10, 0);
    const label_stored none = {0};
    uint64_t sum[SUMS * ROWS];
    label_store store;
    sums s;

    fill_sums(&s);
    open_store(&store, &o, 0, &none);
    OK(label_store_put(&store, &piece, &s.sample, s.sum));
    assert_int_equal(truncate("block-1-0", 900), 0);
    assert_int_equal(label_store_sums(&store, &piece, sum), SP_EIO);
    store.n_sums++;
    assert_int_equal(label_store_sums(&store, &piece, sum), SP_EIO);
    label_store_close(&store);
}
