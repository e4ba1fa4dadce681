/* The units of a scan's coordinates are what its records about their system say, in
 * well-known text of both generations or in GeoTIFF keys, also in extended records;
 * what they do not say, or say in damaged records, is unknown. Heights in another unit
 * than x and y are refused, or converted. */
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
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    write_las(text, keys, n_keys);
    OK(sp_scan_open(&scan, "u.las", NULL));
    assert_string_equal(sp_scan_format_name(scan), "LAS");
    if (!unit)
        assert_null(sp_scan_unit(scan));
    else
        assert_string_equal(sp_scan_unit(scan), unit);
    assert_true(!unit || strchr(unit, '"') || sp_recipe_is_unit(unit));
    if (unit && strchr(unit, '"'))
        FAILS(sp_scan_check_units(scan, true), SP_EDATA, unit);
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
    of_text("PROJCS( \"P\" ,\n  UNIT ( \"foot\" , 0.3048 ) )", "foot");
    of_text("LOCAL_CS[\"here\",UNIT[\"metre\",1]]", "metre");
    of_text("ENGCRS[\"site\",CS[Cartesian,2],LENGTHUNIT[\"foot\",0.3048]]", "foot");
    of_text("PROJCS[\"P\",UNIT[\"Foot_US\",0.3048006]]", "US survey foot");
    of_text("PROJCS[\"P\",UNIT[\"British foot (Sears 1922)\",0.30479947]]", "foot");
    of_text("PROJCS[\"P\",UNIT[\"fathom\",1.8288]]", "\"fathom\" of 1.8288 m");
}

TEST(lengths_from_the_centre_of_the_earth_are_no_degrees)
{
    static const char *const texts[] = {
        "GEODCRS[\"W\",DATUM[\"D\",ELLIPSOID[\"W\",6378137,298.257,LENGTHUNIT["
        "\"metre\",1]]],PRIMEM[\"G\",0,ANGLEUNIT[\"degree\",0.017]],CS[Cartesian,3],"
        "AXIS[\"(X)\",geocentricX],AXIS[\"(Y)\",geocentricY],AXIS[\"(Z)\","
        "geocentricZ],LENGTHUNIT[\"metre\",1]]",
        "GEODETICCRS[\"W\",CS[Cartesian,3],AXIS[\"X\",geocentricX,LENGTHUNIT[\"metre\","
        "1]]]",
        "GEOCCS[\"W\",DATUM[\"D\",SPHEROID[\"W\",6378137,298.257]],UNIT[\"metre\",1]]"};
    uint16_t keys[] = {1, 1, 0, 2, 1024, 0, 1, 3, 2048, 0, 1, 4978};

    for (int i = 0; i < 4; i++) {
        CLOSED_BY(sp_scan_done) sp_scan *scan;

        if (i < 3)
            of_text(texts[i], "metre");
        else
            is_unit(NULL, keys, sizeof keys / sizeof *keys, "metre");
        OK(sp_scan_open(&scan, "u.las", NULL));
        assert_true(sp_scan_is_geocentric(scan));
        OK(sp_scan_check_units(scan, false));
    }
    of_text("GEODCRS[\"W\",CS[ellipsoidal,3],AXIS[\"lat\",north]]", "degree");
    of_text("GEODETICCRS[\"W\",ANGLEUNIT[\"degree\",0.017]]", "degree");
}

/* ---- heights ---- */

/* z of the scan's point, which is 5 in the file, with an option. */
static sp_status read_z(sp_scan_z_unit z_unit, double *z)
{
    CLOSED_BY(sp_scan_done) sp_scan *scan;
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};

    SP_TRY(sp_scan_open(&scan, "u.las", &(sp_scan_options){.z_unit = z_unit}));
    SP_TRY(sp_scan_check_units(scan, false));
    SP_TRY(sp_scan_select(scan, 0, NULL));
    SP_TRY(sp_scan_next(scan, 1, &p));
    *z = p.xyz[2];
    return SP_OK;
}

/* Sets z to 500 hundredths. */
static void raise_point(void)
{
    size_t n;
    char *file = (char *)test_content("u.las", &n);
    static char b[1 << 14];

    memcpy(b, file, n);
    b[n - POINT + 8] = (char)(500 & 255);
    b[n - POINT + 9] = 500 >> 8;
    scan_write("u.las", b, n);
}

static void has_heights(const char *text, const uint16_t *keys, size_t n_keys,
                        const char *says, sp_scan_z_unit z_unit, double factor)
{
    double z;

    write_las(text, keys, n_keys);
    raise_point();
    FAILS(read_z(SP_SCAN_Z_OF_RECORDS, &z), SP_EDATA, says);
    OK(read_z(z_unit, &z));
    assert_float_equal(z, 5 * factor, 1e-9);
    OK(read_z(SP_SCAN_Z_SAME, &z));
    assert_float_equal(z, 5, 1e-9);
}

#define METRES "PROJCS[\"P\"," GEOGRAPHIC ",UNIT[\"metre\",1]]"
#define FEET   "PROJCS[\"P\"," GEOGRAPHIC ",UNIT[\"US survey foot\",0.304800609601219]]"

TEST(heights_in_another_unit_are_refused_or_converted)
{
    uint16_t keys[] = {1, 1, 0, 2, 3076, 0, 1, 9001, 4099, 0, 1, 9003};
    const size_t n = sizeof keys / sizeof *keys;
    double z;

    has_heights("COMPD_CS[\"c\"," METRES ",VERT_CS[\"V\",VERT_DATUM[\"D\",2005],UNIT["
                "\"US survey foot\",0.3048006096012192],AXIS[\"Up\",UP]]]",
                NULL, 0,
                "z is in US survey foot, but x and y in metre: --z-unit us-foot",
                SP_SCAN_Z_US_FOOT, 1200.0 / 3937);
    has_heights(FEET ",VERTCS[\"V\",VDATUM[\"D\"],UNIT[\"Meter\",1.0]]", NULL, 0,
                "z is in metre, but x and y in US survey foot: --z-unit metre",
                SP_SCAN_Z_METRE, 3937.0 / 1200);
    has_heights(
        "COMPOUNDCRS[\"c\",PROJCRS[\"P\",CS[Cartesian,2],LENGTHUNIT[\"metre\",1]"
        "],VERTCRS[\"V\",CS[vertical,1],AXIS[\"H\",up,LENGTHUNIT[\"foot\","
        "0.3048]]]]",
        NULL, 0, "--z-unit foot", SP_SCAN_Z_FOOT, 0.3048);
    has_heights(
        "PROJCRS[\"P\",CS[Cartesian,3],AXIS[\"E\",east,LENGTHUNIT[\"metre\",1]],"
        "AXIS[\"N\",north,LENGTHUNIT[\"metre\",1]],AXIS[\"h\",up,LENGTHUNIT["
        "\"foot\",0.3048]]]",
        NULL, 0, "--z-unit foot", SP_SCAN_Z_FOOT, 0.3048);
    has_heights(NULL, keys, n, "--z-unit us-foot", SP_SCAN_Z_US_FOOT, 1200.0 / 3937);
    has_heights(METRES, keys, n, "--z-unit us-foot", SP_SCAN_Z_US_FOOT, 1200.0 / 3937);
    keys[8] = 4096; /* a vertical system in place of its unit */
    keys[11] = 8228;
    has_heights(NULL, keys, n, "--z-unit foot", SP_SCAN_Z_FOOT, 0.3048);
    has_heights("COMPD_CS[\"c\"," METRES ",VERT_CS[\"V\",UNIT[\"fathom\",1.8288]]]",
                NULL, 0, "z is in units \"fathom\" of 1.8288 m", SP_SCAN_Z_SAME, 1);
    keys[11] = 5703;
    write_las(NULL, keys, n);
    OK(read_z(SP_SCAN_Z_OF_RECORDS, &z));
}

TEST(heights_in_the_same_unit_stay)
{
    double z;

    write_las("COMPD_CS[\"c\"," FEET ",VERT_CS[\"V\",UNIT[\"Foot_US\",0.3048006]]]",
              NULL, 0);
    raise_point();
    OK(read_z(SP_SCAN_Z_OF_RECORDS, &z));
    assert_float_equal(z, 5, 1e-9);
    write_las(NULL, NULL, 0); /* x and y count as metres */
    raise_point();
    OK(read_z(SP_SCAN_Z_FOOT, &z));
    assert_float_equal(z, 5 * 0.3048, 1e-9);
    write_las(GEOGRAPHIC, NULL, 0);
    FAILS(read_z(SP_SCAN_Z_FOOT, &z), SP_EUSAGE, "leave --z-unit out");
}

/* ---- extended records ---- */

/* Moves the records of u.las behind its points, as extended ones of LAS 1.4. */
static void extend_records(void)
{
    enum { HEADER_1_4 = 375, HEAD = 54, EXTENDED_HEAD = 60 };
    static unsigned char to[1 << 15];
    size_t n, at = HEADER, end = HEADER_1_4 + POINT;
    const unsigned char *from = (const unsigned char *)test_content("u.las", &n);
    const int n_records = from[100];

    memset(to, 0, sizeof to);
    memcpy(to, from, HEADER);
    to[25] = 4;
    scan_put(to + 94, HEADER_1_4, 'u', 2, false);
    scan_put(to + 96, HEADER_1_4, 'u', 4, false);
    to[100] = 0;
    scan_put(to + 235, (double)end, 'u', 8, false);
    scan_put(to + 243, n_records, 'u', 4, false);
    scan_put(to + 247, 1, 'u', 8, false);
    memcpy(to + HEADER_1_4, from + n - POINT, POINT);
    for (int i = 0; i < n_records; i++) {
        const size_t bytes = (size_t)(from[at + 20] | from[at + 21] << 8);

        memcpy(to + end, from + at, 22);
        memcpy(to + end + EXTENDED_HEAD, from + at + HEAD, bytes);
        at += HEAD + bytes;
        end += EXTENDED_HEAD + bytes;
    }
    scan_write("u.las", to, end);
}

TEST(extended_records_name_the_units)
{
    uint16_t keys[] = {1, 1, 0, 2, 1024, 0, 1, 2, 4099, 0, 1, 9003};
    const size_t n = sizeof keys / sizeof *keys;
    static const struct {
        const char *text, *unit;
    } cases[] = {{GEOGRAPHIC, "degree"}, {FEET, "US survey foot"}, {NULL, "degree"}};
    double z;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLOSED_BY(sp_scan_done) sp_scan *scan;

        write_las(cases[i].text, cases[i].text ? NULL : keys, n);
        extend_records();
        OK(sp_scan_open(&scan, "u.las", NULL));
        assert_string_equal(sp_scan_unit(scan), cases[i].unit);
    }
    write_las("COMPD_CS[\"c\"," METRES ",VERT_CS[\"V\",UNIT[\"foot\",0.3048]]]", NULL,
              0);
    extend_records();
    FAILS(read_z(SP_SCAN_Z_OF_RECORDS, &z), SP_EDATA, "z is in foot");
}

TEST(what_is_not_said_is_unknown)
{
    of_text("PROJCS[\"P\"," GEOGRAPHIC "]", NULL);
    of_text("PROJCS[\"UNIT[1,1]\"," GEOGRAPHIC "]", NULL);
    of_text("PROJCS[\"P]\"," GEOGRAPHIC ",UNIT[\"foot\",0.3048]]", "foot");
    of_text("PROJCS[\"P\",UNIT[\"metre\"", NULL);
    of_text("PROJCS[\"P\",UNIT[", NULL);
    of_text("PROJCS[\"P\",UNIT[\"none\",0]]", NULL);
    of_text("PROJCS[\"P\",UNIT[\"none\",nan]]", NULL);
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
    keys[15] = 9036;
    is_unit(NULL, keys, n, "\"EPSG unit 9036\" of 1000 m");
    keys[13] = 34737; /* the value stands elsewhere */
    is_unit(NULL, keys, n, NULL);
    keys[7] = 2;
    is_unit(NULL, keys, n, "degree");
    is_unit(NULL, keys, 2, NULL);
}

/* A unit of one's own has its size in the record of doubles. */
TEST(sizes_of_units_are_read)
{
    const uint16_t keys[] = {1, 1, 0, 2, 3076, 0, 1, 32767, 3077, 34736, 1, 1};
    const double doubles[] = {7, 0.3048};
    static unsigned char b[1024];
    size_t at = add_vlr(b, HEADER, KEYS, keys, sizeof keys);
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    at = add_vlr(b, at, 34736, doubles, sizeof doubles);
    scan_put_las(b, &(scan_las){2, 0, (int64_t)at, 2, POINT, 1, 0.01});
    scan_write("u.las", b, at + POINT);
    OK(sp_scan_open(&scan, "u.las", NULL));
    assert_string_equal(sp_scan_unit(scan), "foot");
}

/* The code is the one of the system of x and y. */
TEST(records_name_the_code_of_the_system)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"COMPD_CS[\"c\",PROJCS[\"P\",GEOGCS[\"G\",UNIT[\"degree\",0.017],AUTHORITY["
         "\"EPSG\",\"4171\"]],UNIT[\"metre\",1],AUTHORITY[\"EPSG\",\"2154\"]],VERT_CS["
         "\"V\",UNIT[\"metre\",1],AUTHORITY[\"EPSG\",\"5720\"]]]",
         2154},
        {"PROJCRS[\"P\",CS[Cartesian,2],LENGTHUNIT[\"metre\",1],ID[\"EPSG\",32631]]",
         32631},
        {"GEOGCRS[\"G\",CS[ellipsoidal,2],ID[\"EPSG\",4326]]", 4326},
        {"PROJCS[\"P\",UNIT[\"metre\",1],AUTHORITY[\"ESRI\",\"102100\"]]", 0},
        {NULL, 2154}};
    uint16_t keys[] = {1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 2154};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLOSED_BY(sp_scan_done) sp_scan *scan;

        write_las(cases[i].text, cases[i].text ? NULL : keys,
                  sizeof keys / sizeof *keys);
        OK(sp_scan_open(&scan, "u.las", NULL));
        assert_int_equal(sp_scan_epsg(scan), cases[i].code);
    }
}
