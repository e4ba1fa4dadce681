/* An input is read once as context of its neighbours, in parts too: what the others need
 * comes from its rim. A damaged input, and a reach that no extent explains, have none. */
#include "fixtures/scan_files.h"

#include <unistd.h>

#include "vox/vox_cloud.h"
#include "vox/vox_rim.h"
#include "vox/vox_spill.h"

enum { LEFT, MIDDLE, RIGHT, N_INPUTS };
static char *const input[N_INPUTS] = {"left.txt", "middle.txt", "right.txt"};
/* The inputs lie side by side along x, 10 m each. */
static const vox_extent extent[N_INPUTS] = {
    {{0, 0}, {10, 5}}, {{10, 0}, {20, 5}}, {{20, 0}, {30, 5}}};
static const vox_extent left_reach = {{-2, -2}, {12, 7}},
                        right_reach = {{18, -2}, {32, 7}};

static vox_options rim_options(void)
{
    vox_options o = {.buffer = 2,
                     .extent = extent,
                     .rims = "rim",
                     .n_features = 1,
                     .n_inputs = N_INPUTS,
                     .input = (char **)(uintptr_t)input,
                     .is_quiet = true};

    o.feature[0] =
        (vox_feature){.kind = VOX_ATTRIBUTE, .name = "intensity", .divisor = 1};
    return o;
}

/* Points 0.25 m apart; the intensity is their number. */
static void write_middle(const char *last_line)
{
    FILE *to = fopen(input[MIDDLE], "w");

    assert_non_null(to);
    fputs("x y z intensity\n", to);
    for (int i = 0; i < 40; i++)
        fprintf(to, "%g %d 7 %d\n", 10.125 + 0.25 * i, i % 5, i);
    fputs(last_line, to);
    assert_int_equal(fclose(to), 0);
}

/* What was taken: bit i is the point with number i. */
static sp_status take(void *set, const double *xyz, const double *attr)
{
    const int i = (int)attr[0];

    assert_true(xyz[0] == 10.125 + 0.25 * i && xyz[1] == i % 5 && xyz[2] == 7);
    assert_false(*(uint64_t *)set >> i & 1);
    *(uint64_t *)set |= (uint64_t)1 << i;
    return SP_OK;
}

static sp_status each(int n_parts, const vox_extent *reach, uint64_t *set)
{
    const vox_options o = rim_options();
    sp_status rc = SP_OK;

    *set = 0;
    for (int part = 0; part < n_parts && rc == SP_OK; part++)
        rc = vox_rim_each(&o, &(vox_rim_part){MIDDLE, part, n_parts}, reach, take, set);
    return rc;
}

/* The points that lie within 2 m of the others: 8 at each end. */
static const uint64_t near_points = 0xff000000ff, all_points = 0xffffffffff;

TEST(neighbours_after_the_first_read_the_rim)
{
    const vox_options o = rim_options();
    uint64_t set;

    for (int n_parts = 1; n_parts <= 3; n_parts++) {
        write_middle("");
        OK(each(n_parts, &left_reach, &set));
        assert_true(set == all_points);
        assert_int_equal(unlink(input[MIDDLE]), 0);
        OK(each(n_parts, &right_reach, &set));
        assert_true(set == near_points);
        vox_rim_remove(&o, MIDDLE, n_parts);
        assert_int_not_equal(each(n_parts, &right_reach, &set), SP_OK);
    }
}

TEST(a_reach_beyond_all_extents_reads_the_input)
{
    const vox_extent wide = {{17, -2}, {32, 7}};
    const vox_options o = rim_options();
    uint64_t set;

    write_middle("");
    OK(each(1, &left_reach, &set));
    OK(each(1, &wide, &set));
    assert_true(set == all_points);
    vox_rim_remove(&o, MIDDLE, 1);
}

TEST(a_damaged_input_has_no_rim)
{
    uint64_t set;

    write_middle("1 2 damaged\n");
    for (int again = 0; again < 2; again++) {
        assert_int_equal(each(1, &left_reach, &set), SP_EDATA);
        assert_int_equal(access("rim-1-0-1", F_OK), -1);
        assert_int_equal(access("rim-1-0-1.new", F_OK), -1);
    }
}

/* Cuts the left input into blocks of 5 m with a margin of 1 m; returns the points of the
 * others in the blocks that begin at 5 m and at 10 m. */
static void cut_left(const vox_block_number *done, int n_done, bool *is_partial,
                     int64_t n_foreign[2])
{
    static const char path[] = "cut-00000.tmp";
    const vox_box box = {{0, 0, 7}, {10, 4, 7}};
    vox_options o = rim_options();
    unsigned char is_damaged[N_INPUTS] = {0};
    vox_cut cut = {.options = &o,
                   .file = LEFT,
                   .n_parts = 1,
                   .path = path,
                   .done = done,
                   .n_done = n_done,
                   .is_damaged = is_damaged};
    vox_parts parts = {.options = &o, .file = LEFT, .path = "cut"};
    FREED vox_piece *piece = NULL;
    vox_layout layout;
    int64_t n = 0;

    o.block = 5;
    o.overlap = 1;
    OK(vox_cut_layout(&o, LEFT, &box, &layout));
    OK(vox_cut_open(&cut, NULL));
    OK(vox_cut_run(&cut, &layout));
    *is_partial = cut.is_partial;
    if (cut.is_partial) {
        assert_true(is_damaged[MIDDLE] && !is_damaged[LEFT]);
        OK(vox_cut_run(&cut, &layout));
        assert_false(cut.is_partial);
    }
    vox_cut_close(&cut);
    OK(vox_parts_open(&parts, &layout, 1));
    OK(vox_parts_list(&parts, &piece, &n));
    for (int64_t i = 0; i < n; i++)
        if (piece[i].block.low[1] == 0 && piece[i].block.low[0] >= 5)
            n_foreign[piece[i].block.low[0] > 5] = piece[i].n_foreign;
    vox_parts_close(&parts);
    vox_rim_remove(&o, MIDDLE, 1);
}

/* The middle's points from 10.125 to 10.875 m are in both blocks, those up to 11.875 m in
 * the second one. A cut beside a damaged input says so, and the next is without it. */
TEST(blocks_that_are_done_get_no_points_of_others)
{
    const vox_block_number done[] = {{1, 0}, {2, 0}};
    int64_t n[2] = {-1, -1};
    bool is_partial;
    FILE *to = fopen(input[LEFT], "w");

    fputs("x y z intensity\n0 0 7 1\n9.5 4 7 2\n", to);
    assert_int_equal(fclose(to), 0);
    write_middle("");
    cut_left(NULL, 0, &is_partial, n);
    assert_true(n[0] == 4 && n[1] == 8 && !is_partial);
    cut_left(done, 1, &is_partial, n);
    assert_true(n[0] == 0 && n[1] == 8 && !is_partial);
    cut_left(done, 2, &is_partial, n);
    assert_true(n[0] == 0 && n[1] == 0);
    write_middle("1 2 damaged\n");
    cut_left(NULL, 0, &is_partial, n);
    assert_true(is_partial && n[0] == 0 && n[1] == 0);
}
