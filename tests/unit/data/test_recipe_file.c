/* A recipe reads back from a file and from bytes as it was written; one that is absent
 * stays absent; a damaged one is refused with file, attribute, found and expected; what
 * two recipes differ in is found, and what they share is kept. */
#include "fixtures/test.h"

#include "data/sp_recipe.h"

static const char *path = "test_recipe_file.h5";
static char *columns[] = {"one", "height", "intensity"};
static char *sources[] = {"one", "height", "Reflectance"};
static double divisors[] = {1, 2.5, 65535};
static char *formats[] = {"LAS", "PLY"};

static sp_recipe example(void)
{
    return (sp_recipe){.voxel_size = 0.5,
                       .block = 25,
                       .overlap = 3,
                       .n_columns = 3,
                       .column = columns,
                       .source = sources,
                       .divisor = divisors,
                       .height_percentile = SP_RECIPE_PERCENTILE,
                       .scan_columns = "x,y,z,Reflectance",
                       .label_field = "class",
                       .n_formats = 2,
                       .format = formats,
                       .unit = "metre"};
}

static void assert_example(const sp_recipe *r)
{
    const sp_recipe want = example();

    assert_non_null(r);
    assert_true(r->voxel_size == want.voxel_size && r->block == want.block &&
                r->overlap == want.overlap &&
                r->height_percentile == want.height_percentile);
    assert_int_equal(r->n_columns, want.n_columns);
    assert_int_equal(r->n_formats, want.n_formats);
    for (int i = 0; i < want.n_columns; i++) {
        assert_string_equal(r->column[i], want.column[i]);
        assert_string_equal(r->source[i], want.source[i]);
        assert_true(r->divisor[i] == want.divisor[i]);
    }
    for (int i = 0; i < want.n_formats; i++)
        assert_string_equal(r->format[i], want.format[i]);
    assert_string_equal(r->scan_columns, want.scan_columns);
    assert_string_equal(r->label_field, want.label_field);
    assert_string_equal(r->unit, want.unit);
}

static void write_file(const sp_recipe *recipe)
{
    sp_h5 *file;

    OK(sp_h5_create(&file, path));
    OK(sp_recipe_write(file, recipe));
    OK(sp_h5_close(file));
}

static sp_status read_file(sp_recipe **recipe)
{
    sp_h5 *file;
    sp_status rc;

    OK(sp_h5_open(&file, path));
    rc = sp_recipe_read(file, recipe);
    sp_h5_close(file);
    return rc;
}

TEST(recipes_read_back)
{
    sp_recipe whole = example(), bare = example(), *back, *copy;

    write_file(&whole);
    OK(read_file(&back));
    assert_example(back);
    OK(sp_recipe_copy(back, &copy));
    sp_recipe_destroy(back);
    assert_example(copy);
    sp_recipe_destroy(copy);

    bare.scan_columns = bare.label_field = bare.unit = NULL;
    bare.n_formats = 0;
    bare.format = NULL;
    bare.block = bare.overlap = 0;
    write_file(&bare);
    OK(read_file(&back));
    assert_true(!back->scan_columns && !back->label_field && !back->unit);
    assert_true(back->block == 0 && back->n_formats == 0);
    assert_int_equal(back->alignment, 0);
    sp_recipe_destroy(back);
}

/* A file whose blocks are aligned is of another version, so that older programs do not
 * take it for damaged; others stay as they were. */
TEST(alignments_read_back)
{
    sp_recipe aligned = example(), plain = example(), *back, *copy;
    char text[SP_RECIPE_DIFFERENCE];
    int64_t version;
    sp_h5 *file;

    aligned.alignment = SP_RECIPE_ALIGNMENT;
    for (int i = 0; i < 2; i++) {
        write_file(i == 0 ? &plain : &aligned);
        OK(sp_h5_open(&file, path));
        OK(sp_h5_attr_read_int(file, "/recipe", "version", &version));
        assert_int_equal(version, 1 + i);
        assert_true(sp_h5_attr_has(file, "/recipe", "alignment") == (i == 1));
        OK(sp_h5_close(file));
    }
    OK(read_file(&back));
    assert_example(back);
    OK(sp_recipe_copy(back, &copy));
    assert_int_equal(copy->alignment, SP_RECIPE_ALIGNMENT);
    assert_int_equal(sp_recipe_compare(copy, &aligned, text), SP_RECIPE_SAME);
    assert_int_equal(sp_recipe_compare(copy, &plain, text), SP_RECIPE_OTHER_CUT);
    assert_non_null(strstr(text, "at multiples of 192 voxels, but of 0"));
    sp_recipe_destroy(copy);
    sp_recipe_destroy(back);
}

TEST(an_absent_recipe_stays_absent)
{
    sp_recipe *back = (sp_recipe *)&back, *copy = back;
    char text[SP_RECIPE_DIFFERENCE];
    const sp_recipe some = example();

    write_file(NULL);
    OK(read_file(&back));
    assert_null(back);
    OK(sp_recipe_copy(NULL, &copy));
    assert_null(copy);
    assert_int_equal(sp_recipe_compare(NULL, &some, text), SP_RECIPE_SAME);
    assert_int_equal(sp_recipe_compare(&some, NULL, text), SP_RECIPE_SAME);
    OK(sp_recipe_merge(&back, NULL));
    assert_null(back);
    sp_recipe_destroy(NULL);
}

/* By the names of the sources, in whatever order data.features names the columns. */
TEST(vectors_are_found_by_name)
{
    char *column[] = {"one", "a", "b", "nz"},
         *source[] = {"one", "NX", "scalar_ny", "nz"};
    char *names[] = {"b", "nz", "a"}, *bare[] = {"normal_y", "normal_x", "ny", "z"};
    char *positions[] = {"Y", "nx", "z", "x", "ny"};
    double divisor[] = {1, 2, 8, 1};
    sp_recipe r = example();
    sp_vectors n;

    r.n_columns = 4;
    r.column = column;
    r.source = source;
    r.divisor = divisor;
    n = sp_recipe_vectors(&r, 3, names);
    assert_true(n.n == 1 && n.lone == -1);
    assert_true(n.at[0].x == 2 && n.at[0].y == 0 && n.at[0].z == 1);
    assert_true(n.at[0].divisor[0] == 2 && n.at[0].divisor[1] == 8 &&
                n.at[0].divisor[2] == 1);
    n = sp_recipe_vectors(&r, 2, names); /* without the x */
    assert_true(n.n == 0 && n.lone == 0);
    n = sp_recipe_vectors(NULL, 4, bare); /* of another program, two kinds */
    assert_true(n.n == 1 && n.at[0].x == 1 && n.at[0].y == 0 && n.at[0].z == -1 &&
                n.at[0].divisor[0] == 1);
    assert_int_equal(n.lone, 2);
    n = sp_recipe_vectors(NULL, 5, positions);
    assert_true(n.n == 2 && n.lone == -1 && !n.at[0].is_position && n.at[0].z == -1);
    assert_true(n.at[1].x == 3 && n.at[1].y == 0 && n.at[1].z == 2);
    assert_true(n.at[1].is_position);
    n = sp_recipe_vectors(NULL, 3, columns);
    assert_true(n.n == 0 && n.lone == -1);
    n = sp_recipe_vectors(NULL, 3, NULL);
    assert_true(n.n == 0 && n.lone == -1);
}

/* ---- damage ---- */

/* Demands that the file is refused with this message. */
static void is_refused(const char *message)
{
    sp_recipe *back;

    FAILS(read_file(&back), SP_EDATA, message);
    assert_null(back);
}

/* The same of a recipe that its writer would not have made. */
static void refuses(const sp_recipe *recipe, const char *message)
{
    write_file(recipe);
    is_refused(message);
    SAYS(path);
}

TEST(impossible_values_are_refused)
{
    double zero[] = {1, 0, 1};
    sp_recipe r;

    r = example(), r.voxel_size = 0;
    refuses(&r, ":/recipe: attribute voxel_size is 0, expected a length above 0");
    r = example(), r.voxel_size = NAN;
    refuses(&r, "attribute voxel_size is nan");
    r = example(), r.block = -1;
    refuses(&r, "attribute block is -1, expected 0 or a length");
    r = example(), r.block = INFINITY;
    refuses(&r, "attribute block is inf");
    r = example(), r.overlap = 26;
    refuses(&r, "attribute overlap is 26, expected at most block, which is 25");
    r = example(), r.height_percentile = 101;
    refuses(&r, "attribute height_percentile is 101, expected 0 to 100");
    r = example(), r.divisor = zero;
    refuses(&r, "attribute column_divisors: column height has 0, expected");
    r = example(), r.unit = "parsec";
    refuses(&r, "attribute unit is \"parsec\", expected metre, foot");
}

/* Writes attributes of /recipe one by one: those of a number of columns and of their
 * sources, and a checksum. */
static void write_by_hand(int64_t version, int n_sources, bool has_divisors,
                          const uint32_t *crc)
{
    const double one = 1, zero = 0;
    sp_h5 *file;

    OK(sp_h5_create(&file, path));
    OK(sp_h5_write_group(file, "/recipe"));
    OK(sp_h5_attr_write(file, "/recipe", "version", SP_H5_I64, -1, &version));
    OK(sp_h5_attr_write(file, "/recipe", "voxel_size", SP_H5_F64, -1, &one));
    OK(sp_h5_attr_write(file, "/recipe", "block", SP_H5_F64, -1, &zero));
    OK(sp_h5_attr_write(file, "/recipe", "overlap", SP_H5_F64, -1, &zero));
    OK(sp_h5_attr_write(file, "/recipe", "height_percentile", SP_H5_F64, -1, &one));
    OK(sp_h5_attr_write_texts(file, "/recipe", "column_names", 3, columns));
    OK(sp_h5_attr_write_texts(file, "/recipe", "column_sources", n_sources, sources));
    if (has_divisors)
        OK(sp_h5_attr_write(file, "/recipe", "column_divisors", SP_H5_F64, 3,
                            divisors));
    if (crc)
        OK(sp_h5_attr_write(file, "/recipe", "crc32c", SP_H5_U32, -1, crc));
    OK(sp_h5_close(file));
}

TEST(missing_and_misshapen_parts_are_refused)
{
    const uint32_t wrong = 1;
    sp_recipe *back;

    write_by_hand(1, 3, true, NULL); /* as another program writes it */
    OK(read_file(&back));
    assert_int_equal(back->n_columns, 3);
    sp_recipe_destroy(back);
    write_by_hand(3, 3, true, NULL);
    is_refused("test_recipe_file.h5:/recipe: version is 3, expected 1 or 2");
    write_by_hand(2, 3, true, NULL);
    is_refused("test_recipe_file.h5:/recipe: missing attribute alignment");
    write_by_hand(1, 2, true, NULL);
    is_refused(":/recipe: attribute column_sources has 2 names, expected 3");
    write_by_hand(1, 3, false, NULL);
    is_refused(":/recipe: missing attribute column_divisors");
    write_by_hand(1, 3, true, &wrong);
    is_refused(":/recipe: attributes: crc32c ");
}

TEST(columns_are_those_of_the_file)
{
    char *other[] = {"one", "count", "intensity"}, *some[] = {"intensity", "one"};
    const sp_recipe r = example();

    OK(sp_recipe_check_columns(&r, path, 3, columns, false));
    OK(sp_recipe_check_columns(&r, path, 2, some, true));
    OK(sp_recipe_check_columns(NULL, path, 3, columns, false));
    OK(sp_recipe_check_columns(&r, path, 3, NULL, true));
    FAILS(sp_recipe_check_columns(&r, path, 2, some, false), SP_EDATA,
          "has 3 names, expected 2");
    FAILS(sp_recipe_check_columns(&r, path, 3, other, false), SP_EDATA,
          "is height, expected count");
    FAILS(sp_recipe_check_columns(&r, path, 3, other, true), SP_EDATA, "lacks count");
}

/* ---- two recipes ---- */

static void differs(const sp_recipe *b, sp_recipe_match match, const char *text)
{
    const sp_recipe a = example();
    char found[SP_RECIPE_DIFFERENCE];

    assert_int_equal(sp_recipe_compare(&a, b, found), match);
    assert_string_equal(found, text);
}

TEST(the_gravest_difference_is_found)
{
    double other[] = {1, 2.5, 255};
    char *renamed[] = {"one", "height", "intensity"};
    sp_recipe b = example();

    differs(&b, SP_RECIPE_SAME, "");
    b.n_formats = 1; /* scans of several formats make one data set */
    b.unit = b.scan_columns = NULL;
    differs(&b, SP_RECIPE_SAME, "");
    b.overlap = 4;
    differs(&b, SP_RECIPE_OTHER_CUT,
            "blocks of 25 with a margin of 3, but of 25 with 4");
    b.overlap = 3;
    b.block = 50;
    differs(&b, SP_RECIPE_OTHER_CUT,
            "blocks of 25 with a margin of 3, but of 50 with 3");
    b.divisor = other;
    differs(&b, SP_RECIPE_OTHER_VALUES,
            "column intensity is Reflectance/65535, but Reflectance/255");
    b.source = renamed;
    differs(&b, SP_RECIPE_OTHER_VALUES,
            "column intensity is Reflectance/65535, but intensity/255");
    b.height_percentile = 5;
    differs(&b, SP_RECIPE_OTHER_VALUES, "height is above percentile 2 of z, but 5");
    b.unit = "foot";
    differs(&b, SP_RECIPE_OTHER_UNIT, "coordinates in metre, but in foot");
}

TEST(merging_adds_what_one_does_not_say)
{
    char *others[] = {"LAZ", "LAS"};
    sp_recipe a = example(), b = example(), *merged = NULL;

    a.unit = a.scan_columns = a.label_field = NULL;
    b.format = others;
    OK(sp_recipe_merge(&merged, &a));
    assert_null(merged->unit);
    OK(sp_recipe_merge(&merged, &b));
    assert_string_equal(merged->unit, "metre");
    assert_string_equal(merged->scan_columns, "x,y,z,Reflectance");
    assert_int_equal(merged->n_formats, 3);
    assert_string_equal(merged->format[0], "LAS");
    assert_string_equal(merged->format[1], "LAZ");
    assert_string_equal(merged->format[2], "PLY");
    sp_recipe_destroy(merged);
}
