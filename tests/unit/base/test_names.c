/* Tables of words: rows are found by name, a misspelt word finds the nearest one, and
 * the table is printed in lines that fit a terminal. */
#include "config.h"

#include "fixtures/test.h"

#include "base/sp_names.h"

typedef struct row {
    double weight; /* the word need not be all that a row has */
} row;

static const struct {
    sp_named word;
    row own;
} rows[] = {
    {{"train", NULL, "trains"}, {1}},
    {{"status", "DIR",
      "state of the run in a folder, and of all the ranks that it had when they "
      "were last heard, which may be long ago"},
     {2}},
    {{"a-word-that-is-longer-than-a-column", "X", "short"}, {3}}};

static void a_row_is_found_by_its_name_alone(void **state)
{
    (void)state;
    assert_ptr_equal(sp_names_find(SP_NAMES(rows), "status"), &rows[1]);
    assert_null(sp_names_find(SP_NAMES(rows), "Status"));
    assert_null(sp_names_find(SP_NAMES(rows), "stat"));
    assert_null(sp_names_find(SP_NAMES(rows), ""));
}

static void a_misspelt_word_finds_the_nearest(void **state)
{
    (void)state;
    assert_ptr_equal(sp_names_nearest(SP_NAMES(rows), "trian"), &rows[0].word);
    assert_ptr_equal(sp_names_nearest(SP_NAMES(rows), "STAT"), &rows[1].word);
    assert_int_equal(sp_names_distance("trian", "train"), 2);
    assert_int_equal(sp_names_distance("voxel", "Voxel_size"), 1);
    assert_int_equal(sp_names_distance("same", "SAME"), 0);
    assert_int_equal(sp_names_distance("", "abc"), 3);
}

static void the_table_fits_a_terminal(void **state)
{
    static const char want[] =
        "  train       trains\n"
        "  status DIR  state of the run in a folder, and of all the ranks that it had\n"
        "              when they were last heard, which may be long ago\n"
        "  a-word-that-is-longer-than-a-column X\n"
        "              short\n"
        "first\n"
        "\n"
        "third\n";
    char text[1024];
    FILE *to = fmemopen(text, sizeof text, "w");

    (void)state;
    assert_non_null(to);
    sp_names_print(SP_NAMES(rows), to);
    sp_names_wrap(to, 0, "first\n\nthird");
    fclose(to);
    assert_string_equal(text, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_found_by_its_name_alone),
        cmocka_unit_test(a_misspelt_word_finds_the_nearest),
        cmocka_unit_test(the_table_fits_a_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
