/* Tables of words: rows are found by name, a misspelt word finds the nearest one, and
 * the table is printed in lines that fit a terminal. */
#include "fixtures/test.h"

#include "base/sp_word_table.h"

typedef struct row {
    double weight; /* the word need not be all that a row has */
} row;

static const struct {
    sp_word_entry word;
    row own;
} rows[] = {
    {{"train", NULL, "trains"}, {1}},
    {{"status", "DIR",
      "state of the run in a folder, and of all the ranks that it had when they "
      "were last heard, which may be long ago"},
     {2}},
    {{"a-word-that-is-longer-than-a-column", "X", "short"}, {3}}};

TEST(a_row_is_found_by_its_name_alone)
{
    assert_ptr_equal(sp_word_table_find(SP_WORD_TABLE(rows), "status"), &rows[1]);
    assert_null(sp_word_table_find(SP_WORD_TABLE(rows), "Status"));
    assert_null(sp_word_table_find(SP_WORD_TABLE(rows), "stat"));
    assert_null(sp_word_table_find(SP_WORD_TABLE(rows), ""));
}

TEST(a_misspelt_word_finds_the_nearest)
{
    assert_ptr_equal(sp_word_table_nearest(SP_WORD_TABLE(rows), "trian"),
                     &rows[0].word);
    assert_ptr_equal(sp_word_table_nearest(SP_WORD_TABLE(rows), "STAT"), &rows[1].word);
    assert_int_equal(sp_word_distance("trian", "train"), 2);
    assert_int_equal(sp_word_distance("voxel", "Voxel_size"), 1);
    assert_int_equal(sp_word_distance("same", "SAME"), 0);
    assert_int_equal(sp_word_distance("", "abc"), 3);
}

/* Words of other programs that share no letters with the program's. */
TEST(a_word_that_means_the_same_is_near)
{
    static const struct {
        const char *given, *nearest;
    } words[] = {{"gpu", "cuda"},      {"GPU", "cuda"},       {"nvidia", "cuda"},
                 {"none", "constant"}, {"off", "constant"},   {"fp16", "bf16"},
                 {"half", "bf16"},     {"adam", "adamw"},     {"float", "fp32"},
                 {"cuda:0", "cuda"},   {"const", "constant"}, {"sgdm", "sgd"}};
    static const struct {
        sp_word_entry word;
    } all[] = {{{"cpu", NULL, ""}},  {{"auto", NULL, ""}},     {{"cuda", NULL, ""}},
               {{"poly", NULL, ""}}, {{"constant", NULL, ""}}, {{"cosine", NULL, ""}},
               {{"tf32", NULL, ""}}, {{"bf16", NULL, ""}},     {{"fp32", NULL, ""}},
               {{"sgd", NULL, ""}},  {{"adamw", NULL, ""}}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_string_equal(
            sp_word_table_nearest(SP_WORD_TABLE(all), words[i].given)->name,
            words[i].nearest);
    assert_int_equal(sp_word_distance("none", "none"), 0);
    assert_int_equal(sp_word_distance("", ""), 0);
}

TEST(the_table_fits_a_terminal)
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

    assert_non_null(to);
    sp_word_table_print(SP_WORD_TABLE(rows), to);
    sp_word_wrap(to, 0, "first\n\nthird");
    fclose(to);
    assert_string_equal(text, want);
}

/* ---- options ---- */

typedef struct values {
    bool is_quick;
    int64_t n;
    double x;
    const char *text;
    int word;
} values;

#define AT(member) .offset = offsetof(values, member)
static const sp_option table[] = {
    {{"--quick", NULL, ""}, SP_OPTION_FLAG, AT(is_quick)},
    {{"--number", "N", ""}, SP_OPTION_WHOLE, AT(n), 1, 9},
    {{"--length", "X", ""}, SP_OPTION_REAL, AT(x)},
    {{"--text", "T", ""}, SP_OPTION_TEXT, AT(text)},
    {{"--word", "one|other", ""}, SP_OPTION_WORD, AT(word), 5},
    SP_OPTION_HELP_ROW,
};

/* Reads a line of words that blanks divide; argv [16] keeps them. */
static sp_status read_line(const char *line, values *v, char *argv[16], int *n_words)
{
    static char copy[128];
    int argc = 0;

    *v = (values){0};
    snprintf(copy, sizeof copy, "%s", line);
    for (char *at = strtok(copy, " "); at; at = strtok(NULL, " "))
        argv[argc++] = at;
    return sp_options_read(v, SP_WORD_TABLE(table), "prog", argc, argv, n_words);
}

TEST(options_go_where_their_rows_say)
{
    char *argv[16];
    values v;
    int n;

    assert_int_equal(read_line("run a --number 3 b --length=2 --quick --text - --word "
                               "other c -- --quack -",
                               &v, argv, &n),
                     SP_OK);
    assert_true(v.is_quick && v.n == 3 && v.x == 2 && v.word == 6);
    assert_string_equal(v.text, "-");
    assert_int_equal(n, 5);
    assert_string_equal(argv[3], "c");
    assert_string_equal(argv[4], "--quack");
    assert_string_equal(argv[5], "-");
}

TEST(wrong_options_are_refused)
{
    static const char *const wrong[][2] = {
        {"run --numbr 3", "prog run: unknown option --numbr; nearest: --number"},
        {"run --number", "--number needs a value"},
        {"run --number=", "--number needs a value"},
        {"run --number 10", "--number 10: expected a whole number in 1 .. 9"},
        {"run --number 3x", "--number 3x: expected a whole number in 1 .. 9"},
        {"run --length 0", "--length 0: expected a number above 0"},
        {"run --length nan", "--length nan: expected a number above 0"},
        {"run --word othe", "--word othe: expected one|other"},
        {"run --word one|other", "--word one|other: expected one|other"},
        {"run --quick=1", "--quick takes no value"},
        {"run --help=1", "--help takes no value"}};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *argv[16];
        values v;
        int n;

        FAILS(read_line(wrong[i][0], &v, argv, &n), SP_EUSAGE, wrong[i][1]);
    }
}
