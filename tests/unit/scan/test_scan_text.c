/* The first point of a text file tells its separator, numbers may have decimal commas,
 * and a line that does not fit is refused as a whole. */
#include "fixtures/scan_files.h"

static const sp_scan_options named = {.columns = "x,y,z,intensity,label"};

/* The file has two points: (450012.75, 6277601.25, 12.5) with 100 and label 2, and
 * (-3, 1e3, 0.125) with 101 and no label. */
static void check_points(const char *text, const sp_scan_options *options)
{
    static const double want[2][4] = {{450012.75, 6277601.25, 12.5, 100},
                                      {-3, 1e3, 0.125, 101}};
    const char *intensity = "intensity";
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    scan_write_text("a.csv", text);
    OK(sp_scan_open(&scan, "a.csv", options));
    OK(sp_scan_select(scan, 1, &intensity));
    for (int pass = 0; pass < 2; pass++) {
        OK(sp_scan_next(scan, 100, &p));
        if (p.n != 2)
            fail_msg("%d points of %s", (int)p.n, text);
        for (int i = 0; i < 2; i++) {
            for (int a = 0; a < 3; a++)
                if (p.xyz[3 * i + a] != want[i][a])
                    fail_msg("%.17g, expected %.17g: %s", p.xyz[3 * i + a], want[i][a],
                             text);
            assert_true(p.attr[i] == want[i][3]);
            assert_int_equal(p.label[i], i == 0 ? 2 : SP_SCAN_UNLABELLED);
        }
        OK(sp_scan_next(scan, 100, &p));
        assert_int_equal(p.n, 0);
        OK(sp_scan_rewind(scan));
    }
}

TEST(the_separator_is_recognized)
{
    static const char *const files[] = {
        "450012.75 6277601.25 12.5 100 2\n-3 1e3 .125 101 -1\n",
        "  450012.75\t6277601.25\t12.5 \t100 2 \r\n\r\n-3\t1e3\t0.125\t101\t-1",
        "450012.75,6277601.25,12.5,100,2\n-3,1e3,0.125,101,-1\n",
        "450012.75, 6277601.25, 12.5, 100, 2\n-3 , 1e3 ,\t0.125, 101, -1,\n",
        "450012.75;6277601.25;12.5;100;2;\n# -3\n-3; 1e3; 0.125; 101; -1\n",
        "\xef\xbb\xbf"
        "450012.75 6277601.25 12.5 100 2\n-3 1e3 .125 101 -1\n",
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_points(files[i], &named);
}

TEST(numbers_may_have_decimal_commas)
{
    static const char *const files[] = {
        "450012,75;6277601,25;12,5;100;2\n-3;1e3;0,125;101;-1\n",
        "450012,75 6277601,25 12,5 100 2\n-3 1e3 0,125 101 -1\n",
        "450012,750\t6277601,250\t1,25e1\t100,0\t2\n-3\t1e3\t0,125\t101\t-1\n",
        "450012,75 ; 6277601,25 ; 12,5 ; 100 ; 2 ;\n-3;1e3;0,125;101;-1;\n",
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_points(files[i], &named);
}

TEST(the_first_line_names_columns)
{
    static const sp_scan_options by_name = {.label_field = "Klasse 1"};
    static const char *const files[] = {
        "X;Y;Z;Intensity;Klasse "
        "1\n450012,75;6277601,25;12,5;100;2\n-3;1e3;0,125;101;-1\n",
        "\xef\xbb\xbfX;Y;Z;Intensity;\"Klasse "
        "1\";\r\n450012,75;6277601,25;12,5;100;2;\r\n"
        "-3;1e3;0,125;101;-1\r\n",
        "x,y,z,intensity, Klasse "
        "1\n450012.75,6277601.25,12.5,100,2\n-3,1e3,.125,101,-1",
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_points(files[i], &by_name);
    check_points(
        "# two points\n// X Y Z Intensity Class\n450012.75,6277601.25,12.5,100,2"
        "\n-3,1e3,.125,101,-1\n",
        NULL);
    check_points("x\ty z label intensity\n450012.75 6277601.25 12.5 2 100\n"
                 "-3 1e3 .125 -1 101\n",
                 NULL);
}

TEST(what_does_not_fit_is_refused)
{
    static const struct {
        const char *text, *says;
    } files[] = {
        {"1 2 3\n4 5 6 7\n", "line 2: 4 numbers, expected 3"},
        {"1 2 3\n4 5\n", "line 2: 2 numbers, expected 3"},
        {"1;2;3\n4;;6\n", "line 2: value 2, \"\", is no number"},
        {"1;2;3\n4;5 6\n", "line 2: value 2, \"5 6\", is no number"},
        {"1 2 3\n4 5 6 # 7\n", "line 2: value 4, \"#\", is no number"},
        {"1,5;2,5;3\n4;5.5;6\n", "line 2: value 2, \"5.5\", is no number: numbers "
                                 "before it have decimal commas"},
        {"1.5 2 3\n4 5,5 6\n", "line 2: value 2, \"5,5\", is no number: numbers before "
                               "it have decimal points"},
        {"1;2;3\n4;1.234,5;6\n", "line 2: value 2, \"1.234,5\", is no number"},
        {"1;2;3\n4;1,234,5;6\n", "line 2: value 2, \"1,234,5\", is no number"},
        {"1 2 3x\n4 5 6\n", "line 1: value 3, \"3x\", is no number"},
        {"1.#QNAN 2 3\n4 5 6\n", "line 1: value 1, \"1.#QNAN\", is no number"},
        {"NA 2 3\n4 5 6\n", "line 1: value 1, \"NA\", is no number"},
        {"null,2,3\n4,5,6\n", "line 1: value 1, \"null\", is no number"},
        {"X;Y;Z\n450012,750,6277601,250,12,500\n",
         "line 1 names 3 columns, line 2 has 6 numbers"},
        {"x y z label\n1 2 3\n", "line 1 names 4 columns, line 2 has 3 numbers"},
        {"x y z\n# none\n", "no line with coordinates"},
        {"", "no line with coordinates"},
        {"4\n1 2\n3 4\n", "line 2: 2 numbers, expected 3 or more"},
    };
    FREED char *wide = malloc((2 << 20) + 1);

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        scan_text_refused("b.txt", files[i].text, files[i].says);
    }
    scan_refused("b.txt",
                 "\xff\xfe"
                 "1\0 \0002\0 \0003\0\n\0",
                 14, "line 1 holds a zero byte");
    scan_refused("b.txt", "1 2 3\n4 5 6\0 7\n", 15, "line 2 holds a zero byte");
    assert_non_null(wide);
    memset(wide, '1', 2 << 20);
    memcpy(wide, "1 2 3\n", 6);
    scan_refused("b.txt", wide, 2 << 20, "line 2 is longer than 1048576 bytes");
    for (int i = 0; i < 2 << 20; i++)
        wide[i] = i % 2 ? ' ' : '1';
    scan_refused("b.txt", wide, 600, "line 1: more than 256 numbers");
}

/* A column that is passed over may hold words, times, quoted separators or nothing. */
TEST(columns_that_are_passed_over_hold_any_text)
{
    static const struct {
        const char *columns, *text;
    } files[] = {
        {"-,x,y,z,intensity,label",
         "\"\",\"X\",\"Y\",\"Z\",\"I\",\"L\"\n\"1\",450012.75,6277601.25,12.5,100,2\n"
         "\"2, b\",-3,1e3,.125,101,-1\n"},
        {"-,x,y,z,intensity,label",
         "time,x,y,z,i,l\n2021-05-06T12:00,450012.75,6277601.25,12.5,100,2\n"
         "2021-05-06T12:01,-3,1e3,.125,101,-1\n"},
        {"-,x,y,z,intensity,label",
         "2021-05-06 12:00:00,450012.75,6277601.25,12.5,100,2\n"
         ",-3,1e3,.125,101,-1\n"},
        {"x,y,z,-,intensity,label,-",
         "450012.75;6277601.25;12.5;tree trunk;100;2;\n-3;1e3;.125;;101;-1;a\n"},
        {"x,y,z,-,intensity,label",
         "450012,75 6277601,25 12,5 tree 100 2\n-3 1e3 0,125 12:00 101 -1\n"},
        {"-, x, y, z, intensity, label, _",
         "a b\t450012.75\t6277601.25\t12.5\t100\t2\tc\n\t-3\t1e3\t.125\t101\t-1\t\n"},
        {"x,y,z,intensity,label",
         "450012.75,6277601.25,12.5,100,2,ground,\n-3,1e3,.125,101,-1,,\n"},
        {"x,y,z,intensity,label,-",
         "450012.75\t6277601.25 12.5 100 2 a\r-3 1e3 .125 101 -1 b\r"}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_points(files[i].text, &(sp_scan_options){.columns = files[i].columns});
    scan_write_text("b.txt", "1,2,3,a\n1,2\n");
    scan_check_refused("b.txt", &(sp_scan_options){.columns = "x,y,z,-"}, SP_EDATA,
                       "line 2: 2 numbers, expected 4");
    scan_write_text("b.txt", "1,2,3,a\n1,b,3,c\n");
    scan_check_refused("b.txt", &(sp_scan_options){.columns = "x,y,z,-"}, SP_EDATA,
                       "line 2: value 2, \"b\", is no number; \"-\" in --columns");
}

/* Old computers end lines by a carriage return. */
TEST(a_name_for_two_columns_is_refused)
{
    static const char *const lists[] = {"x,y,z,z,label", "x,y,z,Label,label",
                                        "x,y,z,x,label"};
    static const char *const names[] = {"z", "label", "x"};
    char text[96];

    scan_write_text("a.txt", "1 2 3 4 5\n2 3 4 5 6\n");
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "--columns %s: two columns are named %s", lists[i],
                 names[i]);
        scan_check_refused("a.txt", &(sp_scan_options){.columns = lists[i]}, SP_EUSAGE,
                           text);
    }
    scan_write_text("a.txt", "x y z z label\n1 2 3 4 5\n");
    scan_check_refused("a.txt", &(sp_scan_options){0}, SP_EUSAGE,
                       "has two columns z; of text, --columns x,y,z,... says what");
    check_points("x y z intensity label label\n450012.75 6277601.25 12.5 100 2 5\n"
                 "-3 1e3 0.125 101 -1 5\n",
                 &(sp_scan_options){.columns = "x,y,z,intensity,label,_"});
}

TEST(a_carriage_return_ends_lines)
{
    check_points("x y z intensity label\r450012.75 6277601.25 12.5 100 2\r\r"
                 "-3 1e3 .125 101 -1",
                 NULL);
    check_points("450012.75 6277601.25 12.5 100 2\r\r\n-3 1e3 .125 101 -1\r\r\n",
                 &named);
}

/* Colours of PCD in ascii: integers, as PCL writes them, negative where they are
 * signed, and the floats of the same bits, as it wrote them. The float of an opaque
 * colour is no number. */
TEST(packed_colours_are_unpacked)
{
    static const struct {
        char type;
        const char *text, *fault;
    } at[] = {{'U', "1122867", NULL},
              {'U', "4279312947", NULL},
              {'I', "-15654349", NULL},
              {'F', "1.5734718e-39", NULL},
              {'F', "2.6656831e-38", NULL},
              {'F', "nan", "point 0: red is nan"},
              {'U', "nan", "line 8: rgb nan, expected an integer of 4 bytes"},
              {'U', "4294967296", "line 8: rgb 4294967296, expected an integer"},
              {'I', "2147483648", "line 8: rgb 2147483648, expected an integer"}};
    static const char *const names[] = {"red", "green", "blue"};
    char text[300];

    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
        CLOSED_BY(sp_scan_done) sp_scan *scan;
        const char *name;
        char kind;
        int size;

        snprintf(text, sizeof text,
                 "FIELDS x y z rgb label\nSIZE 4 4 4 4 4\nTYPE F F F %c U\n"
                 "COUNT 1 1 1 1 1\nWIDTH 1\nHEIGHT 1\nDATA ascii\n1 2 3 %s 7\n",
                 at[k].type, at[k].text);
        scan_write_text("c.pcd", text);
        OK(sp_scan_open(&scan, "c.pcd", NULL));
        OK(sp_scan_select(scan, 3, names));
        for (int i = 0; (name = sp_scan_attribute(scan, i, &kind, &size)); i++)
            if (strcmp(name, "red") == 0) /* NaN is none of a byte's values */
                assert_int_equal(kind, at[k].type == 'F' ? 'f' : 'u');
        if (at[k].fault) {
            FAILS(sp_scan_next(scan, 1, &p), SP_EDATA, at[k].fault);
        } else {
            OK(sp_scan_next(scan, 1, &p));
            assert_int_equal(p.label[0], 7);
            for (int c = 0; c < 3; c++)
                assert_true(p.attr[c] == 0x11 * (c + 1));
        }
    }
}

/* A double holds all whole numbers below 2^53 alone. Those that it holds, and measured
 * numbers, stay. */
TEST(a_copy_does_not_round_whole_numbers)
{
    static const sp_scan_options without = {.columns = "x,y,z,-,w,label"};
    const int32_t code[] = {7, 8};
    const sp_scan_labels labels = {.n = 2, .get = scan_get_codes, .from = code};
    CLOSED_BY(sp_scan_done) sp_scan *whole = NULL;
    CLOSED_BY(sp_scan_done) sp_scan *less = NULL;

    scan_write_text("a.csv", "x,y,z,id,w,label\n1,2,3,9007199254740994,5,1\n"
                             "1, 2 ,3 , -9007199254740993, 9007199254740993.,1\n");
    OK(sp_scan_open(&whole, "a.csv", NULL));
    FAILS(sp_scan_write(whole, "b.txt", &labels), SP_EDATA,
          "line 3: value 4, id = -9007199254740993, would be rounded to "
          "-9007199254740992: leave it out by \"-\" in --columns");
    OK(sp_scan_open(&less, "a.csv", &without));
    OK(sp_scan_write(less, "b.txt", &labels));
    assert_string_equal(test_content("b.txt", NULL),
                        "x y z w label\n1 2 3 5 7\n1 2 3 9007199254740992 8\n");
    assert_true(scan_first_value("a.csv", "id") == 9007199254740994);
}
