/* Replaces label_raster_tiff.c in a build without libtiff. */
#include "label/label_raster.h"

bool label_raster_is_built(void)
{
    return false;
}

sp_status label_raster_write(const label_raster *raster, const char *path,
                             char *const *class_name, int epsg)
{
    (void)raster;
    (void)class_name;
    (void)epsg;
    return SP_FAIL(SP_EUSAGE, "%s: this build has no libtiff", path);
}
