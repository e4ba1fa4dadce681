/* A live line is never wider than the terminal, keeps what counts most, and shows names
 * from outside as text. */
#include "fixtures/test.h"

#include "report/sp_live.h"

static sp_live line;

static const char *layout(int columns)
{
    static char text[2048];

    sp_live_layout(&line, columns, text, sizeof text);
    return text;
}

static void put_training(void)
{
    sp_live_begin(&line);
    sp_live_add(&line, 90, "epoch %d/%d", 3, 30);
    sp_live_add_bar(&line, 45, 0.25);
    sp_live_add(&line, 100, "step %d/%d", 1234, 45000);
    sp_live_add(&line, 95, "loss %.4g", 0.69311);
    sp_live_add(&line, 60, "mIoU %.3f", 0.5123);
    sp_live_add(&line, 70, "%.3g/s", 38.1);
    sp_live_add(&line, 80, "left %s", "1:02:03");
    sp_live_add(&line, 50, "%s", "812 MiB");
    sp_live_add(&line, 40, "lr %.3g", 0.05);
}

TEST(eighty_columns_have_what_counts)
{
    put_training();
    assert_string_equal(layout(80),
                        "epoch 3/30 step 1234/45000 loss 0.6931 mIoU 0.512 38.1/s left "
                        "1:02:03 812 MiB");
}

TEST(wide_terminals_have_all_and_a_bar)
{
    put_training();
    assert_string_equal(layout(200),
                        "epoch 3/30 [##########..............................] step "
                        "1234/45000 loss 0.6931 mIoU 0.512 38.1/s left 1:02:03 812 MiB "
                        "lr 0.05");
}

TEST(no_width_is_too_small)
{
    put_training();
    for (int columns = 1; columns < 220; columns++)
        assert_true(strlen(layout(columns)) <= (size_t)(columns > 1 ? columns - 1 : 1));
    assert_string_equal(layout(40), "epoch 3/30 step 1234/45000 loss 0.6931");
    assert_string_equal(layout(8), "step 12");
}

TEST(names_are_text_and_do_not_wrap)
{
    char name[400];

    sp_live_begin(&line);
    sp_live_add(&line, 2, "predicting");
    sp_live_add(&line, 1, "%s", "\033[2J<script>\"x\"\xff\n\xe6\xa0\x91");
    assert_string_equal(layout(80),
                        "predicting \\x1b[2J<script>\"x\"\\xff\\n\xe6\xa0\x91");
    /* Characters beyond ASCII may be two columns wide. */
    for (int i = 0; i < 130; i++)
        memcpy(name + 3 * i, "\xe6\xa0\x91", 4);
    sp_live_begin(&line);
    sp_live_add(&line, 1, "%s", name);
    assert_int_equal(strlen(layout(80)), 3 * 39);
    assert_int_equal(strlen(layout(21)), 3 * 10);
}

TEST(empty_fields_take_no_room)
{
    sp_live_begin(&line);
    assert_string_equal(layout(80), "");
    sp_live_add(&line, 2, "a");
    sp_live_add(&line, 1, "%s", "");
    sp_live_add(&line, 3, "b");
    assert_string_equal(layout(80), "a b");
}

TEST(bars_are_within_their_ends)
{
    static const double shares[] = {-1, 0, 0.999, 1, 7};
    static const char *const bars[] = {"[..........]", "[..........]", "[#########.]",
                                       "[##########]", "[##########]"};
    for (int i = 0; i < 5; i++) {
        sp_live_begin(&line);
        sp_live_add_bar(&line, 1, shares[i]);
        assert_string_equal(layout(13), bars[i]);
    }
}

TEST(times_and_bytes_have_units)
{
    char to[SP_DURATION];

    assert_string_equal(sp_live_duration(0, to), "0:00");
    assert_string_equal(sp_live_duration(59.6, to), "1:00");
    assert_string_equal(sp_live_duration(3723, to), "1:02:03");
    assert_string_equal(sp_live_duration(273900, to), "3d 04:05");
    assert_string_equal(sp_live_duration(NAN, to), "?");
    assert_string_equal(sp_live_duration(INFINITY, to), "?");
    assert_string_equal(sp_live_duration(-1, to), "?");
    assert_string_equal(sp_live_duration(1e300, to), "?");
    assert_string_equal(sp_live_bytes(851443712, to), "812 MiB");
    assert_string_equal(sp_live_bytes(3.1 * (1 << 30), to), "3.1 GiB");
}
