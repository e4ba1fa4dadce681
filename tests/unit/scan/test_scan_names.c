/* Which columns are x, y and z is told by their names, in any order; names that do not
 * tell it are refused, and so are units that voxels are not measured in. */
#include "fixtures/scan_files.h"

/* Opens a file of one point that is (1, 2, 3) and returns its unit, "" for none. */
static const char *unit_of(const char *text)
{
    static char unit[32];
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    scan_write_text("n.csv", text);
    if (sp_scan_open(&scan, "n.csv", NULL) != SP_OK)
        fail_msg("%s: %s", text, sp_error_last()->message);
    OK(sp_scan_next(scan, 10, &p));
    assert_int_equal(p.n, 1);
    for (int a = 0; a < 3; a++)
        if (p.xyz[a] != a + 1)
            fail_msg("axis %d is %g: %s", a, p.xyz[a], text);
    snprintf(unit, sizeof unit, "%s", sp_scan_unit(scan) ? sp_scan_unit(scan) : "");
    return unit;
}

TEST(axes_are_found_by_name_in_any_order)
{
    static const struct {
        const char *text, *unit;
    } files[] = {{"Northing,Easting,Height\n2,1,3\n", ""},
                 {"z y x\n3 2 1\n", ""},
                 {"\"Y\",\"X\",\"Z\"\n2,1,3\n", ""},
                 {"id;POINT_Y;POINT_X;Elevation\n9;2;1;3\n", ""},
                 {"# N E H\n2 1 3\n", ""},
                 {"// elevation utm_northing utm_easting red\n3 2 1 255\n", ""},
                 {"X_m,Y_m,Z_m\n1,2,3\n", "metre"},
                 {"Z (m);Y (m);X (m)\n3;2;1\n", "metre"},
                 {"x_ft,y_ft,z_ft\n1,2,3\n", "foot"},
                 {"latitude,longitude,altitude\n2,1,3\n", "degree"},
                 {"# lat lon height\n2 1 3\n", "degree"},
                 {"coord_x\tcoord_y\tcoord_z\n1\t2\t3\n", ""},
                 /* x, y and z themselves come first */
                 {"Height,Easting,x,y,z\n8,9,1,2,3\n", ""},
                 /* words come before single letters that may mean more */
                 {"N,Northing,Easting,Elevation\n7,2,1,3\n", ""},
                 /* a title names no columns */
                 {"Export\n1 2 3\n", ""},
                 {"Point Cloud Export\n1,2,3\n", ""},
                 {"# heights above sea\n1 2 3\n", ""}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(unit_of(files[i].text), files[i].unit) != 0)
            fail_msg("unit \"%s\" of %s", unit_of(files[i].text), files[i].text);
}

TEST(names_without_three_axes_ask_for_the_option)
{
    static const struct {
        const char *text, *says;
    } files[] = {
        {"id,x,y\n1,2,3\n", "line 1 names the columns id, x, y: which are x, y and z?"},
        {"depth row col\n1 2 3\n", "names the columns depth, row, col"},
        {"# id x y\n1 2 3\n", "names the columns id, x, y"},
        {"x,y,height,elevation\n1,2,3,4\n", "which are x, y and z? Say what they are: "
                                            "--columns x,y,z"},
        {"x,y,depth,label\n1,2,3,4\n", "names the columns x, y, depth, label"},
        {"X [mm],Y [mm],Z [mm]\n1,2,3\n", "column X [mm]: its unit is neither metre"},
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        scan_write_text("n.csv", files[i].text);
        scan_check_refused("n.csv", NULL, SP_EUSAGE, files[i].says);
        if (strstr(files[i].text, "id"))
            scan_check_refused("n.csv", &(sp_scan_options){.columns = "x,z,w"},
                               SP_EUSAGE, "no coordinate y");
    }
    scan_text_refused("n.csv", "x_m,y_ft,z_m\n1,2,3\n",
                      "x_m and y_ft are in different");
}

/* Axes of other formats have the same names. */
TEST(ply_and_npy_name_axes_too)
{
    scan_write_text("n.ply", "ply\nformat ascii 1.0\nelement vertex 1\n"
                             "property double Northing\nproperty double Easting\n"
                             "property double Elevation\nend_header\n2 1 3\n");
    assert_true(scan_first_value("n.ply", "z") == 3);
    assert_true(scan_first_value("n.ply", "x") == 1);
}

/* The first of the usual names is the label; the scan says that there is another. */
TEST(two_labels_are_remarked)
{
    static const struct {
        const char *names;
        bool is_remarked;
    } files[] = {{"x,y,z,label,class", true},
                 {"x,y,z,Classification,Label", true},
                 {"x,y,z,class,intensity", false},
                 {"x,y,z,a,intensity", false}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CLOSED_BY(sp_scan_done) sp_scan *scan;
        char text[128];

        snprintf(text, sizeof text, "%s\n1,2,3,4,5\n", files[i].names);
        scan_write_text("l.csv", text);
        OK(sp_scan_open(&scan, "l.csv", NULL));
        assert_true((sp_scan_note(scan, SP_SCAN_NOTE_LABEL) != NULL) ==
                    files[i].is_remarked);
        if (files[i].is_remarked)
            assert_non_null(strstr(sp_scan_note(scan, SP_SCAN_NOTE_LABEL),
                                   "is taken as the label, because it comes first"));
        sp_scan_close(scan);
        OK(sp_scan_open(&scan, "l.csv", &(sp_scan_options){.label_field = "z"}));
        assert_null(sp_scan_note(scan, SP_SCAN_NOTE_LABEL));
    }
}

/* A first line that counts the points is compared with what was read. */
TEST(a_wrong_count_is_remarked)
{
    static const struct {
        const char *text;
        bool is_remarked;
    } files[] = {{"2\n1 2 3\n4 5 6\n", false},
                 {"1000\n1 2 3\n4 5 6\n", true},
                 {"1\n1 2 3\n4 5 6\n", true},
                 {"1 2 3\n4 5 6\n", false}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
        CLOSED_BY(sp_scan_done) sp_scan *scan;

        scan_write_text("c.pts", files[i].text);
        OK(sp_scan_open(&scan, "c.pts", NULL));
        do
            OK(sp_scan_next(scan, 1, &p));
        while (p.n > 0);
        assert_true((sp_scan_note(scan, SP_SCAN_NOTE_COUNT) != NULL) ==
                    files[i].is_remarked);
    }
}
