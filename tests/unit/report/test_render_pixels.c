/* Pictures of known scenes have so many pixels of each colour; what is nearer hides
 * what is behind; a PNG file holds exactly the pixels that were drawn. */
#include "config.h"

#include "fixtures/test.h"

#include "report/sp_canvas.h"
#include "report/sp_figure.h"
#ifdef SP_WITH_PNG
#include <png.h>
#endif

/* A picture of 424 x 424 leaves 400 pixels beside its margins: 100 for a metre of a
 * scene of 4 m. */
enum { SIDE = 424, ROOM = 400, MOST = 5000 };

static const sp_colour red = {200, 0, 0, 255}, green = {0, 200, 0, 255};
static const sp_colour nothing = {0, 0, 0, 0};
static float xyz[3 * MOST];
static uint16_t colour[MOST];
static sp_colour palette[3];
static sp_cloud cloud;
static sp_canvas canvas;

static void new_cloud(void)
{
    palette[0] = red;
    palette[1] = green;
    cloud = (sp_cloud){0, xyz, colour, palette, 1, NULL};
    sp_canvas_destroy(&canvas);
}

static void add(double x, double y, double z, int index)
{
    xyz[3 * cloud.n] = (float)x;
    xyz[3 * cloud.n + 1] = (float)y;
    xyz[3 * cloud.n + 2] = (float)z;
    colour[cloud.n++] = (uint16_t)index;
}

/* A floor of 4 x 4 cubes of 1 m whose left half is red and right half green. */
static void add_floor(void)
{
    for (int i = 0; i < 16; i++)
        add(i % 4, i / 4, 0, i % 4 >= 2);
}

static void draw(sp_render_from from)
{
    sp_render view;

    sp_canvas_destroy(&canvas);
    OK(sp_render_open(&view, &cloud, from, SIDE, SIDE));
    OK(sp_canvas_create(&canvas, view.width, view.height, nothing));
    OK(sp_render_draw(&view, &cloud, 1, &canvas, 0, 0));
}

static void refuses(sp_render_from from, sp_status code)
{
    sp_render view;

    assert_int_equal(sp_render_open(&view, &cloud, from, SIDE, SIDE), code);
}

static int count(const sp_canvas *of, sp_colour c)
{
    int n = 0;

    for (int i = 0; i < of->width * of->height; i++)
        n += memcmp(&of->pixel[i], &c, sizeof c) == 0;
    return n;
}

/* Counts pixels in which this colour is shaded or not. */
static int count_hue(bool is_red)
{
    int n = 0;

    for (int i = 0; i < canvas.width * canvas.height; i++)
        n += canvas.pixel[i].a == 255 &&
             (is_red ? canvas.pixel[i].r > 0 : canvas.pixel[i].g > 0);
    return n;
}

#define CLOUD_TEST(name) TEST_AFTER(new_cloud, name)

CLOUD_TEST(cubes_fill_their_squares)
{
    add_floor();
    draw(SP_FROM_TOP);
    assert_int_equal(canvas.width, SIDE);
    assert_int_equal(canvas.height, SIDE);
    assert_int_equal(count(&canvas, red), ROOM * ROOM / 2);
    assert_int_equal(count(&canvas, green), ROOM * ROOM / 2);
    assert_int_equal(count(&canvas, nothing), SIDE * SIDE - ROOM * ROOM);
    /* The first row of the picture is the north, its left the west. */
    assert_memory_equal(&canvas.pixel[13 * SIDE + 13], &red, sizeof red);
    assert_memory_equal(&canvas.pixel[13 * SIDE + SIDE - 14], &green, sizeof green);
}

CLOUD_TEST(the_upper_cube_hides_the_lower)
{
    for (int order = 0; order < 2; order++) {
        new_cloud();
        add_floor();
        if (order)
            for (int i = 0; i < 16; i++)
                xyz[3 * i + 2] = 3; /* the floor is above what follows */
        for (int i = 0; i < 16; i++)
            add(i % 4, i / 4, 1, 0);
        draw(SP_FROM_TOP);
        assert_int_equal(count_hue(false), order ? ROOM * ROOM / 2 : 0);
        assert_int_equal(count_hue(true), order ? ROOM * ROOM / 2 : ROOM * ROOM);
    }
}

CLOUD_TEST(a_step_is_shaded_at_its_foot)
{
    add_floor();
    for (int i = 0; i < 16; i++)
        if (i % 4 >= 2)
            xyz[3 * i + 2] = 1; /* the green half stands a metre higher */
    draw(SP_FROM_TOP);
    assert_int_equal(count(&canvas, green), ROOM * ROOM / 2);
    /* Three pixels beside the edge lose light, no others. */
    assert_int_equal(count(&canvas, red), (ROOM / 2 - 3) * ROOM);
}

/* A wall along the southern side hides the ground behind it from the south. */
CLOUD_TEST(the_oblique_view_is_from_the_south)
{
    int behind = 0, before = 0;

    for (int side = 0; side < 2; side++) {
        new_cloud();
        cloud.cell = 0.1;
        for (int i = 0; i < 1600; i++)
            add(0.1 * (i % 40), 0.1 * (i / 40), 0, 1);
        for (int i = 0; i < 1600; i++)
            add(0.1 * (i % 40), side ? 4 : -0.1, 0.1 * (i / 40), 0);
        draw(SP_FROM_OBLIQUE);
        *(side ? &behind : &before) = count_hue(false);
    }
    assert_true(behind > 2 * before);
}

CLOUD_TEST(the_sensor_sees_all_round)
{
    int at[3] = {-1, -1, -1};

    palette[2] = (sp_colour){0, 0, 200, 255};
    cloud.cell = 0;
    for (int i = 0; i < 360; i++) /* a ring of walls, so that all borders are known */
        for (int z = -6; z < 6; z++)
            add(20 * cos(i / 57.29578), 20 * sin(i / 57.29578), z / 3.0, 0);
    add(5, 0, 0, 1); /* straight on */
    add(0, 5, 0, 2); /* to the left */
    draw(SP_FROM_SENSOR);
    for (int i = 0; i < canvas.width * canvas.height; i++) {
        at[1] = canvas.pixel[i].g > 0 ? i % canvas.width : at[1];
        at[2] = canvas.pixel[i].b > 0 ? i % canvas.width : at[2];
    }
    assert_in_range(at[1], canvas.width / 2 - 3, canvas.width / 2 + 3);
    assert_in_range(at[2], 1, canvas.width / 3);
    new_cloud();
    for (int i = 0; i < 16; i++)
        add(100 + i % 4, 100 + i / 4, 0, 0);
    refuses(SP_FROM_SENSOR, SP_EUSAGE);
}

CLOUD_TEST(a_stray_point_does_not_shrink_the_picture)
{
    for (int i = 0; i < 4900; i++)
        add(i % 70, i / 70, 0, 0);
    add(1e6, 35, 0, 1);
    draw(SP_FROM_TOP);
    assert_true(count_hue(true) > 0.9 * ROOM * ROOM);
    assert_int_equal(count_hue(false), 0);
}

CLOUD_TEST(points_without_size_leave_no_gaps)
{
    cloud.cell = 0;
    for (int i = 0; i < 4900; i++)
        add(i % 70, i / 70, 0, 0);
    draw(SP_FROM_TOP);
    assert_true(count_hue(true) > 0.95 * ROOM * ROOM);
}

/* A room: a red floor below a green ceiling. */
CLOUD_TEST(what_is_hidden_covers_nothing)
{
    uint8_t hidden[32] = {0};

    add_floor();
    for (int i = 0; i < 16; i++)
        colour[i] = 0;
    for (int i = 0; i < 16; i++, hidden[15 + i] = 1)
        add(i % 4 + (i > 11 ? 9 : 0), i / 4, 3, 1);
    draw(SP_FROM_TOP);
    assert_true(count_hue(false) > 0);
    cloud.hidden = hidden;
    draw(SP_FROM_TOP);
    assert_int_equal(count(&canvas, red),
                     ROOM * ROOM); /* the borders are the floor's */
    assert_int_equal(count_hue(false), 0);
    memset(hidden, 1, sizeof hidden);
    refuses(SP_FROM_TOP, SP_EDATA);
    assert_true(sp_render_hides("Ceiling", SP_FROM_OBLIQUE));
    assert_false(sp_render_hides("ceiling", SP_FROM_SENSOR));
    assert_false(sp_render_hides("floor", SP_FROM_TOP));
}

CLOUD_TEST(several_colourings_are_the_pictures_one_by_one)
{
    uint16_t other[16];
    sp_canvas both[2], alone;
    sp_cloud clouds[2];

    add_floor();
    for (int i = 0; i < 16; i++)
        other[i] = (uint16_t)(i % 2);
    clouds[0] = clouds[1] = cloud;
    clouds[1].colour = other;
    for (int side = 0; side < 2; side++) {
        const sp_render_from from = side ? SP_FROM_OBLIQUE : SP_FROM_TOP;

        OK(sp_figure_draw_plain(clouds, 2, from, SIDE, SIDE, both));
        for (int k = 0; k < 2; k++) {
            OK(sp_figure_draw_plain(&clouds[k], 1, from, SIDE, SIDE, &alone));
            assert_memory_equal(both[k].pixel, alone.pixel,
                                (size_t)alone.width * (size_t)alone.height *
                                    sizeof red);
            sp_canvas_destroy(&alone);
        }
        assert_true(
            memcmp(both[0].pixel, both[1].pixel,
                   (size_t)both[0].width * (size_t)both[0].height * sizeof red) != 0);
        sp_canvas_destroy(&both[0]);
        sp_canvas_destroy(&both[1]);
    }
}

CLOUD_TEST(no_point_is_an_error)
{
    refuses(SP_FROM_TOP, SP_EDATA);
    add(7, 7, 7, 1);
    draw(SP_FROM_TOP);
    assert_int_equal(count(&canvas, green), ROOM * ROOM);
}

CLOUD_TEST(a_figure_has_legend_and_ground)
{
    const sp_legend_row row[] = {{red, "<script>alert(1)</script>", 8},
                                 {green, "V\xc3\xa9g\xc3\xa9tation \xe6\xa4\x8d", 8}};
    sp_figure figure = {.title = "title",
                        .subtitle = "",
                        .what = "class",
                        .unit = "voxels",
                        .row = row,
                        .n_rows = 2};
    CLOSED_BY(sp_canvas_destroy) sp_canvas again;

    add_floor();
    OK(sp_figure_draw(&figure, &cloud, SP_FROM_TOP, &canvas));
    /* The swatches of the legend are beside the view. */
    assert_true(count(&canvas, red) > 256 && count(&canvas, green) > 256);
    OK(sp_figure_draw(&figure, &cloud, SP_FROM_TOP, &again));
    assert_memory_equal(canvas.pixel, again.pixel,
                        (size_t)canvas.width * (size_t)canvas.height * sizeof red);
    sp_canvas_destroy(&again);
    figure.n_rows = 0; /* a ramp */
    OK(sp_figure_draw(&figure, &cloud, SP_FROM_TOP, &again));
    for (int i = 0; i < SP_RAMP; i++)
        assert_true(count(&again, sp_palette_ramp(i)) >= 28 * 4);
}

CLOUD_TEST(text_is_measured_cut_and_never_absent)
{
    const sp_colour black = {0, 0, 0, 255};
    char one[2] = "";

    assert_true(sp_font_width("", 12) == 0);
    assert_true(sp_font_width("ab", 12) > sp_font_width("a", 12));
    assert_true(sp_font_width("ab", 24) == 2 * sp_font_width("ab", 12));
    for (int c = 1; c < 256; c++) {
        one[0] = (char)c;
        OK(sp_canvas_create(&canvas, 40, 40, nothing));
        sp_font_draw(&canvas, 8, 30, 16, 0, black, one);
        assert_int_equal(c == ' ', count(&canvas, nothing) == 1600);
        sp_canvas_destroy(&canvas);
    }
    OK(sp_canvas_create(&canvas, 300, 40, nothing));
    assert_true(sp_font_draw(&canvas, 0, 30, 16, 100, black,
                             "a name that is much longer than that") <= 100);
    for (int y = 0; y < 40; y++)
        for (int x = 102; x < 300; x++)
            assert_int_equal(canvas.pixel[y * 300 + x].a, 0);
}

CLOUD_TEST(colours_of_classes_differ)
{
    for (int a = 0; a < 60; a++)
        for (int b = 0; b < a; b++) {
            const sp_colour x = sp_palette_class(a), y = sp_palette_class(b);

            assert_true(memcmp(&x, &y, sizeof x) != 0);
        }
    for (int i = 1; i < SP_RAMP; i++) {
        const sp_colour x = sp_palette_ramp(i - 1), y = sp_palette_ramp(i);

        assert_true(2 * y.r + 5 * y.g + y.b >= 2 * x.r + 5 * x.g + x.b);
    }
}

#ifdef SP_WITH_PNG
/* Both kinds of files are decoded by libpng itself. */
CLOUD_TEST(a_png_holds_the_pixels)
{
    for (int n_colours = 2; n_colours < 1000; n_colours += 700) {
        png_image image = {.version = PNG_IMAGE_VERSION};
        FREED sp_colour *found;
        FREED char *bytes;
        size_t n;

        OK(sp_canvas_create(&canvas, 33, 31, nothing));
        for (int i = 0; i < 33 * 31; i++) {
            const int k = i % n_colours;

            canvas.pixel[i] = (sp_colour){(uint8_t)(k / 4), (uint8_t)(k % 4), 7,
                                          (uint8_t)(k % 3 ? 255 : 128)};
        }
        OK(sp_png_encode(&canvas, &bytes, &n));
        assert_true(png_image_begin_read_from_memory(&image, bytes, n));
        assert_int_equal(image.width, 33);
        assert_int_equal(image.height, 31);
        image.format = PNG_FORMAT_RGBA;
        found = malloc(PNG_IMAGE_SIZE(image));
        assert_true(png_image_finish_read(&image, NULL, found, 0, NULL));
        assert_memory_equal(found, canvas.pixel, 33 * 31 * sizeof *found);
        sp_canvas_destroy(&canvas);
    }
}
#else
CLOUD_TEST(a_png_needs_libpng)
{
    char *bytes;
    size_t n;

    OK(sp_canvas_create(&canvas, 2, 2, nothing));
    assert_int_equal(sp_png_encode(&canvas, &bytes, &n), SP_EUSAGE);
}
#endif

/* The diagonal of a perfect matrix is dark and the rest is light, for any number of
 * classes. */
TEST(a_matrix_is_drawn)
{
    static const int counts[] = {1, 2, 9, 20, 101, 700};

    for (int i = 0; i < 6; i++) {
        const int n = counts[i];
        int64_t *confusion = calloc((size_t)(n * n), sizeof *confusion), dark = 0;
        CLOSED_BY(sp_canvas_destroy) sp_canvas drawn;

        for (int c = 0; c < n; c++)
            confusion[c * n + c] = 1000 + c;
        OK(sp_heatmap_draw(confusion, n, &drawn));
        assert_non_null(drawn.pixel);
        assert_true(drawn.width == drawn.height && drawn.width <= 1100);
        for (int p = 0; p < drawn.width * drawn.height; p++)
            dark += drawn.pixel[p].r == 8 && drawn.pixel[p].g == 48 &&
                    drawn.pixel[p].b == 107;
        assert_true(dark >= n);
        assert_true(dark < (int64_t)drawn.width * drawn.height / n + 1);
        free(confusion);
    }
}

TEST(too_many_classes_are_not_drawn)
{
    static int64_t confusion[1];
    sp_canvas drawn;

    OK(sp_heatmap_draw(confusion, 0, &drawn));
    assert_null(drawn.pixel);
    OK(sp_heatmap_draw(confusion, SP_HEATMAP_CLASSES + 1, &drawn));
    assert_null(drawn.pixel);
}
