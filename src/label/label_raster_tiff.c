/* Maps as GeoTIFF (OGC 19-008r4), by libtiff: float32 in planes, a band for each class
 * and one for doubt, NaN without points. The names of the bands, and what stands for no
 * value, are in the two fields that GDAL has for them. */
#include "label/label_raster.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tiffio.h>
#include <unistd.h>

#include "base/sp_file.h"

bool label_raster_is_built(void)
{
    return true;
}

enum {
    PIXEL_SCALE = 33550,
    TIE_POINT = 33922,
    GEO_KEYS = 34735,
    GDAL_METADATA = 42112,
    GDAL_NODATA = 42113
};

static void raster_add_fields(TIFF *to)
{
    static const TIFFFieldInfo field[] = {
        {PIXEL_SCALE, -1, -1, TIFF_DOUBLE, FIELD_CUSTOM, true, true, (char *)"scale"},
        {TIE_POINT, -1, -1, TIFF_DOUBLE, FIELD_CUSTOM, true, true, (char *)"tie"},
        {GEO_KEYS, -1, -1, TIFF_SHORT, FIELD_CUSTOM, true, true, (char *)"keys"},
        {GDAL_METADATA, -1, -1, TIFF_ASCII, FIELD_CUSTOM, true, false, (char *)"bands"},
        {GDAL_NODATA, -1, -1, TIFF_ASCII, FIELD_CUSTOM, true, false, (char *)"nodata"}};

    TIFFMergeFieldInfo(to, field, sizeof field / sizeof *field);
}

/* Writes a text with XML's five characters as their names. */
static void raster_put_xml(FILE *to, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '&':
            fputs("&amp;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        default:
            putc(*text, to);
        }
}

/* The names of the bands; malloc'd, NULL if there is no memory. */
static char *raster_band_names(const label_raster *r, char *const *class_name)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);

    if (!to)
        return NULL;
    fputs("<GDALMetadata>", to);
    for (int b = 0; b <= r->n_classes; b++) {
        fprintf(to, "<Item name=\"DESCRIPTION\" sample=\"%d\" role=\"description\">",
                b);
        raster_put_xml(to, b < r->n_classes ? class_name[b] : "doubtful");
        fputs("</Item>", to);
    }
    fputs("</GDALMetadata>", to);
    return sp_file_close(to) ? text : NULL;
}

static void raster_set_place(TIFF *to, const label_raster *r, int epsg)
{
    const double scale[3] = {r->edge, r->edge, 0};
    const double tie[6] = {0,
                           0,
                           0,
                           (double)r->first[0] * r->edge,
                           (double)(r->first[1] + r->n[1]) * r->edge,
                           0};
    /* Version 1.1.0; a pixel is an area; the projected system, if it is known. */
    const uint16_t keys[16] = {1,    1, 0, (uint16_t)(epsg > 0 ? 3 : 1),
                               1024, 0, 1, 1,
                               1025, 0, 1, 1,
                               3072, 0, 1, (uint16_t)epsg};
    const uint16_t plain[8] = {1, 1, 0, 1, 1025, 0, 1, 1};

    TIFFSetField(to, PIXEL_SCALE, 3, scale);
    TIFFSetField(to, TIE_POINT, 6, tie);
    if (epsg > 0)
        TIFFSetField(to, GEO_KEYS, 16, keys);
    else
        TIFFSetField(to, GEO_KEYS, 8, plain);
}

static void raster_set_form(TIFF *to, const label_raster *r)
{
    uint16_t extra[VOX_MAX_CLASSES + 1] = {0};

    TIFFSetField(to, TIFFTAG_IMAGEWIDTH, (uint32_t)r->n[0]);
    TIFFSetField(to, TIFFTAG_IMAGELENGTH, (uint32_t)r->n[1]);
    TIFFSetField(to, TIFFTAG_SAMPLESPERPIXEL, (uint16_t)(r->n_classes + 1));
    TIFFSetField(to, TIFFTAG_BITSPERSAMPLE, 32);
    TIFFSetField(to, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_IEEEFP);
    TIFFSetField(to, TIFFTAG_PLANARCONFIG, PLANARCONFIG_SEPARATE);
    TIFFSetField(to, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    TIFFSetField(to, TIFFTAG_EXTRASAMPLES, (uint16_t)r->n_classes, extra);
    TIFFSetField(to, TIFFTAG_COMPRESSION, COMPRESSION_LZW);
    TIFFSetField(to, TIFFTAG_ROWSPERSTRIP,
                 (uint32_t)r->n[1] < 64 ? (uint32_t)r->n[1] : 64);
    TIFFSetField(to, GDAL_NODATA, "nan");
}

/* The share of one band in a row of cells, from the north. */
static void raster_row(const label_raster *r, int band, int64_t row, float *share)
{
    const size_t c = (size_t)r->n_classes + 1;
    const int64_t *count = r->count + (size_t)((r->n[1] - 1 - row) * r->n[0]) * c;

    for (int64_t x = 0; x < r->n[0]; x++, count += c) {
        int64_t all = 0;

        for (int k = 0; k < r->n_classes; k++)
            all += count[k];
        share[x] = all > 0 ? (float)((double)count[band] / (double)all) : NAN;
    }
}

static bool raster_put_bands(TIFF *to, const label_raster *r, float *share)
{
    for (int band = 0; band <= r->n_classes; band++)
        for (int64_t row = 0; row < r->n[1]; row++) {
            raster_row(r, band, row, share);
            if (TIFFWriteScanline(to, share, (uint32_t)row, (uint16_t)band) != 1)
                return false;
        }
    return true;
}

sp_status label_raster_write(const label_raster *r, const char *path,
                             char *const *class_name, int epsg)
{
    char temporary[PATH_MAX + 16];
    SP_FREED float *share = malloc((size_t)r->n[0] * sizeof *share);
    SP_FREED char *bands = raster_band_names(r, class_name);
    bool is_written = false;
    TIFF *to = NULL;

    assert(r->count);
    snprintf(temporary, sizeof temporary, "%s" SP_FILE_UNFINISHED, path);
    if (share && bands) {
        TIFFSetErrorHandler(NULL);
        TIFFSetWarningHandler(NULL);
        to = TIFFOpen(temporary, "w");
    }
    if (to) {
        raster_add_fields(to);
        raster_set_form(to, r);
        raster_set_place(to, r, epsg);
        TIFFSetField(to, GDAL_METADATA, bands);
        is_written = raster_put_bands(to, r, share) && TIFFWriteDirectory(to) == 1;
        TIFFClose(to);
    }
    if (!share || !bands || !is_written) {
        const bool is_memory = !share || !bands;

        unlink(temporary);
        return SP_FAIL(is_memory ? SP_EMEM : SP_EIO, "%s: %s", path,
                       is_memory ? "no memory to write it" : "cannot be written");
    }
    return sp_file_rename(temporary, path);
}
