/* Replaces sp_png.c in a build without libpng. */
#include "report/sp_canvas.h"

sp_status sp_png_encode(const sp_canvas *canvas, char **bytes, size_t *n)
{
    (void)canvas;
    *bytes = NULL;
    *n = 0;
    return SP_FAIL(SP_EUSAGE, "this build has no libpng, so it draws no pictures: "
                              "install libpng-dev and configure anew");
}

bool sp_png_is_built(void)
{
    return false;
}
