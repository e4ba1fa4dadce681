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
