#include "report/sp_canvas.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

sp_status sp_canvas_create(sp_canvas *canvas, int width, int height, sp_colour colour)
{
    assert(width > 0 && height > 0);
    *canvas = (sp_canvas){.width = width, .height = height};
    SP_TRY(SP_NEW(&canvas->pixel, (size_t)width * (size_t)height, "a picture"));
    sp_canvas_fill(canvas, 0, 0, width, height, colour);
    return SP_OK;
}

void sp_canvas_destroy(sp_canvas *canvas)
{
    free(canvas->pixel);
    memset(canvas, 0, sizeof *canvas);
}

void sp_canvas_fill(sp_canvas *canvas, int x, int y, int width, int height,
                    sp_colour colour)
{
    const int right = x + width < canvas->width ? x + width : canvas->width;
    const int bottom = y + height < canvas->height ? y + height : canvas->height;

    assert(canvas->pixel);
    for (int row = y > 0 ? y : 0; row < bottom; row++)
        for (int column = x > 0 ? x : 0; column < right; column++)
            canvas->pixel[(size_t)row * (size_t)canvas->width + (size_t)column] =
                colour;
}

static uint8_t canvas_mix(float below, float above, float share)
{
    return (uint8_t)(below + (above - below) * share + 0.5f);
}

void sp_canvas_blend(sp_canvas *canvas, int x, int y, sp_colour colour, float share)
{
    sp_colour *p;
    float above, all, part;

    if (x < 0 || y < 0 || x >= canvas->width || y >= canvas->height || share <= 0)
        return;
    p = &canvas->pixel[(size_t)y * (size_t)canvas->width + (size_t)x];
    above = share * (float)colour.a / 255;
    all = above + (float)p->a / 255 * (1 - above);
    part = all > 0 ? above / all : 0;
    p->r = canvas_mix(p->r, colour.r, part);
    p->g = canvas_mix(p->g, colour.g, part);
    p->b = canvas_mix(p->b, colour.b, part);
    p->a = (uint8_t)(all * 255 + 0.5f);
}

/* ---- colours ---- */

#define RGB(hex)                                                                       \
    {                                                                                  \
        (hex) >> 16 & 255, (hex) >> 8 & 255, (hex)&255, 255                            \
    }

const sp_colour sp_palette_ignored = RGB(0xB4B4B0);
const sp_colour sp_palette_right = RGB(0x8FA8BF), sp_palette_wrong = RGB(0xD0431F);

/* The colours of Okabe and Ito, ordered so that the first few differ most, then
 * Tol's. */
static const sp_colour classes[] = {
    RGB(0xE69F00), RGB(0x009E73), RGB(0xD55E00), RGB(0x0072B2), RGB(0xCC79A7),
    RGB(0x56B4E9), RGB(0xF0E442), RGB(0x882255), RGB(0x44AA99), RGB(0x332288),
    RGB(0xDDCC77), RGB(0x117733), RGB(0xCC6677), RGB(0x88CCEE), RGB(0x999933)};
enum { N_CLASSES = sizeof classes / sizeof *classes };

/* Five colours between which the ramp is linear. */
static const sp_colour ramp[] = {RGB(0x00224E), RGB(0x434E6C), RGB(0x7D7C78),
                                 RGB(0xBCAF6F), RGB(0xFEE838)};
enum { RAMP_PARTS = sizeof ramp / sizeof *ramp - 1 };

static uint8_t palette_between(int a, int b, int part, int whole)
{
    return (uint8_t)(a + (b - a) * part / whole);
}

static sp_colour palette_mix(sp_colour a, sp_colour b, int part, int whole)
{
    return (sp_colour){palette_between(a.r, b.r, part, whole),
                       palette_between(a.g, b.g, part, whole),
                       palette_between(a.b, b.b, part, whole), 255};
}

sp_colour sp_palette_class(int index)
{
    static const int part[] = {0, 4, 5, 6};
    const sp_colour base = classes[index % N_CLASSES];
    const sp_colour black = RGB(0x000000), white = RGB(0xFFFFFF);
    const int turn = index / N_CLASSES % 4;

    assert(index >= 0);
    return palette_mix(base, turn == 2 ? white : black, part[turn], 10);
}

sp_colour sp_palette_ramp(int i)
{
    const int at = i * RAMP_PARTS;
    const int part =
        at / (SP_RAMP - 1) < RAMP_PARTS ? at / (SP_RAMP - 1) : RAMP_PARTS - 1;

    assert(i >= 0 && i < SP_RAMP);
    return palette_mix(ramp[part], ramp[part + 1], at - part * (SP_RAMP - 1),
                       SP_RAMP - 1);
}
