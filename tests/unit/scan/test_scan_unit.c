/* The unit of a scan's coordinates is what its records about their system say, in
 * well-known text of both generations or in GeoTIFF keys; what they do not say, or say
 * in damaged records, is unknown. */
#include "fixtures/scan_files.h"

#include "data/sp_recipe.h"

enum { HEADER = 227, POINT = 20, KEYS = 34735, TEXT = 2112 };

/* Appends a variable length record; returns the file's new size. */
static size_t add_vlr(unsigned char *b, size_t at, int id, const void *data, size_t n)
{
    scan_put_vlr(b + at, "LASF_Projection", id, (int)n);
    memcpy(b + at + 54, data, n);
    return at + 54 + n;
}

/* Writes a scan of one point with up to two records; either may be NULL. */
static void write_las(const char *text, const uint16_t *keys, size_t n_keys)
{
    static unsigned char b[1 << 14];
    scan_las las = {2, 0, 0, (keys != NULL) + (text != NULL), POINT, 1, 0.01};
    size_t at = HEADER;

    memset(b, 0, sizeof b);
    if (keys)
        at = add_vlr(b, at, KEYS, keys, n_keys * sizeof *keys);
    if (text)
        at = add_vlr(b, at, TEXT, text, strlen(text) + 1);
    las.points_at = (int64_t)at;
    scan_put_las(b, &las);
    scan_write("u.las", b, at + POINT);
}

/* The unit of a scan with these records. */
static void is_unit(const char *text, const uint16_t *keys, size_t n_keys,
                    const char *unit)
{
    CLOSED_BY(close_scan) sp_scan *scan;

    write_las(text, keys, n_keys);
    OK(sp_scan_open(&scan, "u.las", NULL));
    assert_string_equal(sp_scan_format_name(scan), "LAS");
    if (!unit)
        assert_null(sp_scan_unit(scan));
    else
        assert_string_equal(sp_scan_unit(scan), unit);
    assert_true(!unit || sp_recipe_is_unit(unit));
}

static void of_text(const char *text, const char *unit)
{
    is_unit(text, NULL, 0, unit);
}

#define GEOGRAPHIC                                                                     \
    "GEOGCS[\"RGF93\",DATUM[\"D\",SPHEROID[\"GRS 1980\",6378137,298.257]],"            \
    "PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433]]"

TEST(well_known_text_names_the_unit)
{
    of_text("PROJCS[\"Lambert-93\"," GEOGRAPHIC ",PROJECTION[\"L\"],PARAMETER[\"x\",1],"
            "UNIT[\"metre\",1,AUTHORITY[\"EPSG\",\"9001\"]],AXIS[\"E\",EAST]]",
            "metre");
    of_text("COMPD_CS[\"both\",PROJCS[\"P\"," GEOGRAPHIC ",UNIT[\"US survey foot\","
            "0.304800609601219]],VERT_CS[\"V\",UNIT[\"metre\",1]]]",
            "US survey foot");
    of_text("PROJCS[\"P\"," GEOGRAPHIC ",UNIT[\"foot\",0.3048]]", "foot");
    of_text(GEOGRAPHIC, "degree");
    of_text(
        "PROJCRS[\"new\",BASEGEOGCRS[\"B\",UNIT[\"degree\",0.017]],CONVERSION[\"c\","
        "PARAMETER[\"a\",1,LENGTHUNIT[\"metre\",1]]],CS[Cartesian,2],"
        "AXIS[\"(E)\",east],AXIS[\"(N)\",north],LENGTHUNIT[\"foot\",0.3048]]",
        "foot");
    of_text("PROJCRS[\"new\",CS[Cartesian,2],AXIS[\"(E)\",east,ORDER[1],"
            "LENGTHUNIT[\"metre\",1]]]",
            "metre");
    of_text("GEOGCRS[\"g\",ANGLEUNIT[\"degree\",0.017]]", "degree");
}

TEST(what_is_not_said_is_unknown)
{
    of_text("PROJCS[\"P\"," GEOGRAPHIC "]", NULL);
    of_text("PROJCS[\"UNIT[1,1]\"," GEOGRAPHIC "]", NULL);
    of_text("PROJCS[\"P]\"," GEOGRAPHIC ",UNIT[\"foot\",0.3048]]", "foot");
    of_text("PROJCS[\"P\",UNIT[\"fathom\",1.8288]]", NULL);
    of_text("PROJCS[\"P\",UNIT[\"metre\"", NULL);
    of_text("PROJCS[\"P\",UNIT[", NULL);
    of_text("LOCAL_CS[\"here\",UNIT[\"metre\",1]]", NULL);
    of_text("]]][[\"", NULL);
    of_text("", NULL);
    of_text(NULL, NULL);
}

TEST(keys_name_the_unit)
{
    uint16_t keys[] = {1, 1, 0, 3, 1024, 0, 1, 1, 3072, 0, 1, 2154, 3076, 0, 1, 9001};
    const size_t n = sizeof keys / sizeof *keys;

    is_unit(NULL, keys, n, "metre");
    keys[15] = 9003;
    is_unit(NULL, keys, n, "US survey foot");
    is_unit("PROJCS[\"P\",UNIT[\"metre\",1]]", keys, n, "metre"); /* the text counts */
    keys[15] = 9002;
    is_unit("nothing", keys, n, "foot");
    keys[3] = 2; /* the third key is not counted */
    is_unit(NULL, keys, n, NULL);
    keys[3] = 60000; /* more than there are */
    is_unit(NULL, keys, n, "foot");
    keys[13] = 34737; /* the value stands elsewhere */
    is_unit(NULL, keys, n, NULL);
    keys[7] = 2;
    is_unit(NULL, keys, n, "degree");
    is_unit(NULL, keys, 2, NULL);
}
