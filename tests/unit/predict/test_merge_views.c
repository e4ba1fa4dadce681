/* The views that an augmentation allows: their number, their order, and that no two of
 * them are the same. */
#include "fixtures/test.h"

#include "predict/sp_view.h"

static sp_views make(const char *keys, bool has_subvoxel, int wanted)
{
    char *override[4] = {0}, text[256], *rest;
    CLOSED_BY(sp_config_destroy) sp_config config;
    sp_views views;
    int n = 0;

    snprintf(text, sizeof text, "%s", keys);
    for (char *word = strtok_r(text, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest))
        override[n++] = word;
    OK(sp_config_read(&config, NULL, n, override));
    views = sp_views_make(&config, has_subvoxel, wanted);
    return views;
}

TEST(numbers)
{
    char text[SP_VIEWS_TEXT];
    sp_views v = make("", false, 24);

    assert_int_equal(v.n, 8);
    sp_views_print(&v, text);
    assert_string_equal(text, "8: 0, 90, 180, 270, 0 x, 90 x, 180 x, 270 x");
    assert_int_equal(make("", true, 24).n, 24);
    assert_false(sp_views_are_scaled(&v));
    v = make("", true, 9);
    assert_true(sp_views_are_scaled(&v) && v.n == 9 && v.n_possible == 24);
    assert_true(v.at[8].scale == 0.95 && v.at[8].angle == 0);
    v = make("augment.rotate_z=false augment.scale=[]", true, 8);
    assert_int_equal(v.n, 4);
    sp_views_print(&v, text);
    assert_string_equal(text, "4: 0, 0 x, 0 y, 0 xy");
    v = make("augment.rotate_max=90 augment.scale=[]", true, 8); /* not by 180 */
    assert_int_equal(v.n, 4);
    v = make("augment.rotate_z=false augment.flip=false augment.scale=[1,1]", true, 8);
    assert_int_equal(v.n, 1);
    v = make("augment.flip=false augment.scale=[0.9,1]", true, 8);
    assert_int_equal(v.n, 8);
    sp_views_print(&v, text);
    assert_string_equal(text,
                        "8: 0, 90, 180, 270, 0 *0.9, 90 *0.9, 180 *0.9, 270 *0.9");
    assert_int_equal(make("", true, 1).n, 1);
}

/* Three voxels without symmetry: each view without scale shows them differently, and
 * the first as stored. */
TEST(views_differ)
{
    int32_t coords[] = {0, 0, 0, 3, 0, 0, 3, 1, 5}, labels[] = {0, 1, 2};
    float features[] = {1, 2, 3};
    const sp_sample s = {
        .n = 3, .coords = coords, .features = features, .labels = labels};
    const sp_views v = make("", false, 8);
    sp_voxels seen[8];
    CLOSED_BY(sp_arena_destroy) sp_arena arena;

    OK(sp_arena_create(&arena, 0, "views"));
    for (int i = 0; i < v.n; i++) {
        OK(sp_voxelize(&s, &v.at[i], 1, 1, NULL, NULL, &arena, &seen[i]));
        assert_int_equal(seen[i].n, 3);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(seen[i].coords, seen[k].coords, sizeof coords);
        for (int r = 0; r < 3; r++)
            assert_true(seen[i].features[seen[i].row_of[r]] == features[r]);
    }
    assert_memory_equal(seen[0].coords, coords, sizeof coords);
}
