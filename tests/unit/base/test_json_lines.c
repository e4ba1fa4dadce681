/* jansson reads back exactly what the writer wrote, and a line allocates nothing once
 * the buffer has its size. */
#include "fixtures/test.h"

#include <jansson.h>

#include "base/sp_json.h"

TEST(line_is_as_shown)
{
    CLOSED_BY(sp_json_destroy) sp_json json = {0};
    const char *line;

    sp_json_begin(&json);
    sp_json_text(&json, "event", "eval");
    sp_json_int(&json, "step", INT64_MIN);
    sp_json_bool(&json, "ok", true);
    sp_json_null(&json, "none");
    sp_json_text(&json, "text", NULL);
    sp_json_begin_array(&json, "confusion");
    for (int i = 0; i < 2; i++) {
        sp_json_begin_array(&json, NULL);
        sp_json_int(&json, NULL, i);
        sp_json_int(&json, NULL, -i);
        sp_json_end_array(&json);
    }
    sp_json_end_array(&json);
    sp_json_begin_object(&json, "iou");
    sp_json_double(&json, "road", 0.5);
    sp_json_double(&json, "car", NAN);
    sp_json_double(&json, "tree", INFINITY);
    sp_json_end_object(&json);
    sp_json_begin_object(&json, "empty");
    sp_json_end_object(&json);
    OK(sp_json_end(&json, &line));
    assert_string_equal(
        line, "{\"event\":\"eval\",\"step\":-9223372036854775808,\"ok\":true,"
              "\"none\":null,\"text\":null,\"confusion\":[[0,0],[1,-1]],"
              "\"iou\":{\"road\":0.5,\"car\":null,\"tree\":null},\"empty\":{}}");
    sp_json_begin(&json);
    OK(sp_json_end(&json, &line));
    assert_string_equal(line, "{}");
}

TEST(numbers_read_back_exactly)
{
    const double x[] = {0.1, -1e300, 5e-324, 1.0 / 3, 12345678901234567.0, -0.0, 7};
    enum { N = sizeof x / sizeof *x };
    CLOSED_BY(sp_json_destroy) sp_json json = {0};
    const char *line;
    json_t *root, *f64;

    sp_json_begin(&json);
    sp_json_begin_array(&json, "f64");
    for (int i = 0; i < N; i++)
        sp_json_double(&json, NULL, x[i]);
    sp_json_end_array(&json);
    OK(sp_json_end(&json, &line));
    root = json_loads(line, 0, NULL);
    f64 = json_object_get(root, "f64");
    for (int i = 0; i < N; i++)
        assert_true(json_number_value(json_array_get(f64, (size_t)i)) == x[i]);
    json_decref(root);
}

TEST(any_text_is_valid_json)
{
    static const char *const texts[][2] = {
        {"a \"b\" \\ \n\t\x01", "a \"b\" \\ \n\t\x01"},
        {"Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\xb2",
         "Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\xb2"},
        {"\xff\xfe cut \xe2\x82", "\\xff\\xfe cut \\xe2\\x82"},
        {"\xc0\xaf\xed\xa0\x80", "\\xc0\\xaf\\xed\\xa0\\x80"},
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
        {"ends in {", "ends in {"},
        {"a terminal obeys \x7f \xc2\x9b", "a terminal obeys \x7f \xc2\x9b"},
    };
    CLOSED_BY(sp_json_destroy) sp_json json = {0};
    const char *line;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *root;

        sp_json_begin(&json);
        sp_json_text(&json, texts[i][0], texts[i][0]);
        sp_json_int(&json, "next", 1);
        OK(sp_json_end(&json, &line));
        assert_null(strpbrk(line, "\x01\n\x7f"));
        assert_null(strstr(line, "\xc2\x9b"));
        root = json_loads(line, 0, NULL);
        assert_non_null(root);
        assert_string_equal(json_string_value(json_object_get(root, texts[i][1])),
                            texts[i][1]);
        json_decref(root);
    }
}

TEST(the_buffer_is_kept)
{
    sp_json json = {0};
    const char *line, *first = NULL;

    for (int turn = 0; turn < 3; turn++) {
        sp_json_begin(&json);
        for (int i = 0; i < 10000; i++)
            sp_json_int(&json, "number", i);
        OK(sp_json_end(&json, &line));
        assert_int_equal(strlen(line), json.length);
        assert_true(!first || line == first);
        first = line;
    }
    sp_json_destroy(&json);
    assert_null(json.text);
}
