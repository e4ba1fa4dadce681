/* PNG files by libpng. */
#include <assert.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/sp_canvas.h"

enum { COLOURS = 256, SLOTS = 1024 };

/* The colours of a canvas, found by a hash table with open addressing. */
typedef struct colours {
    int n; /* above COLOURS: more than a palette holds */
    uint32_t colour[COLOURS];
    int16_t slot[SLOTS]; /* index of the colour; -1: free */
} colours;

static uint32_t png_bits_of(sp_colour c)
{
    return (uint32_t)c.r | (uint32_t)c.g << 8 | (uint32_t)c.b << 16 |
           (uint32_t)c.a << 24;
}

/* Returns the index of a colour, which is added if it is new; -1 if it does not fit. */
static int png_index_of(colours *table, uint32_t colour)
{
    uint32_t at = (colour * 2654435761u) >> 22;

    while (table->slot[at] >= 0 && table->colour[table->slot[at]] != colour)
        at = (at + 1) % SLOTS;
    if (table->slot[at] >= 0)
        return table->slot[at];
    if (table->n == COLOURS)
        return -1;
    table->colour[table->n] = colour;
    table->slot[at] = (int16_t)table->n;
    return table->n++;
}

/* The canvas as rows of palette indices; NULL if it has too many colours, or there
 * is no memory for them. */
static png_byte *make_indices(const sp_canvas *canvas, colours *table)
{
    const size_t n = (size_t)canvas->width * (size_t)canvas->height;
    png_byte *indices = malloc(n);
    int last = -1;
    uint32_t before = 0;

    memset(table, 0, sizeof *table);
    memset(table->slot, 0xff, sizeof table->slot);
    for (size_t i = 0; indices && i < n; i++) {
        const uint32_t colour = png_bits_of(canvas->pixel[i]);

        if (last < 0 || colour != before)
            last = png_index_of(table, colour);
        if (last < 0) {
            free(indices);
            return NULL;
        }
        before = colour;
        indices[i] = (png_byte)last;
    }
    return indices;
}

static void set_palette(png_structp png, png_infop info, const colours *table)
{
    png_color palette[COLOURS];
    png_byte alpha[COLOURS];

    for (int i = 0; i < table->n; i++) {
        palette[i].red = (png_byte)table->colour[i];
        palette[i].green = (png_byte)(table->colour[i] >> 8);
        palette[i].blue = (png_byte)(table->colour[i] >> 16);
        alpha[i] = (png_byte)(table->colour[i] >> 24);
    }
    png_set_PLTE(png, info, palette, table->n);
    png_set_tRNS(png, info, alpha, table->n, NULL);
}

/* Writes header and rows. libpng leaves by longjmp if it fails. */
static bool write_image(png_structp png, png_infop info, const sp_canvas *canvas,
                        const png_byte *indices, const colours *table, FILE *to)
{
    const size_t width = (size_t)canvas->width;

    if (setjmp(png_jmpbuf(png)))
        return false;
    png_init_io(png, to);
    png_set_IHDR(png, info, (png_uint_32)canvas->width, (png_uint_32)canvas->height, 8,
                 indices ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_RGB_ALPHA,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png, 6);
    if (indices)
        set_palette(png, info, table);
    png_write_info(png, info);
    for (size_t row = 0; row < (size_t)canvas->height; row++)
        png_write_row(png, indices ? indices + row * width
                                   : (png_const_bytep)(canvas->pixel + row * width));
    png_write_end(png, info);
    return true;
}

sp_status sp_png_encode(const sp_canvas *canvas, char **bytes, size_t *n)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    colours table;
    png_byte *indices = make_indices(canvas, &table);
    bool is_written;
    FILE *to;

    assert(bytes && n);
    assert(sizeof(sp_colour) == 4);
    to = open_memstream(bytes, n);
    is_written = to && info && write_image(png, info, canvas, indices, &table, to);
    png_destroy_write_struct(&png, &info);
    free(indices);
    if (to && fclose(to) == 0 && is_written)
        return SP_OK;
    if (to)
        free(*bytes);
    *bytes = NULL;
    return SP_FAIL(SP_EMEM, "no memory for the PNG of a picture of %d x %d",
                   canvas->width, canvas->height);
}

bool sp_png_is_built(void)
{
    return true;
}
