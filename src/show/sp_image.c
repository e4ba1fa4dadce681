#include "show/sp_image.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { CHUNK = 12, HEADER = 13, BIT_DEPTH = 8, COLOR_RGB = 2, SIGNATURE = 8 };

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* Completes a chunk whose data stand at to + 8: length, type and checksum. Returns its
 * end. */
static unsigned char *close_chunk(unsigned char *to, const char type[4], size_t bytes)
{
    put_u32(to, (uint32_t)bytes);
    memcpy(to + 4, type, 4);
    put_u32(to + 8 + bytes,
            (uint32_t)crc32(crc32(0, NULL, 0), to + 4, (uInt)bytes + 4));
    return to + CHUNK + bytes;
}

/* The rows as PNG compresses them: a byte for the filter (0: none) before each. */
static unsigned char *make_rows(const unsigned char *rgb, int width, int height)
{
    const size_t row = 3 * (size_t)width;
    unsigned char *rows = malloc((row + 1) * (size_t)height);

    for (size_t y = 0; rows && y < (size_t)height; y++) {
        rows[y * (row + 1)] = 0;
        memcpy(rows + y * (row + 1) + 1, rgb + y * row, row);
    }
    return rows;
}

sp_status sp_image_encode(const unsigned char *rgb, int width, int height,
                          unsigned char **png, size_t *bytes)
{
    static const unsigned char signature[SIGNATURE] = {0x89, 'P',  'N',  'G',
                                                       '\r', '\n', 0x1a, '\n'};
    const uLong raw = (3 * (uLong)width + 1) * (uLong)height;
    uLongf packed = compressBound(raw);
    unsigned char *rows, *at;
    int rc = Z_MEM_ERROR;

    assert(rgb && 0 < width && width < 1 << 15 && 0 < height && height < 1 << 15);
    rows = make_rows(rgb, width, height);
    *png = malloc(SIGNATURE + 3 * CHUNK + HEADER + packed);
    if (*png && rows) {
        at = *png + SIGNATURE;
        memcpy(*png, signature, SIGNATURE);
        put_u32(at + 8, (uint32_t)width);
        put_u32(at + 12, (uint32_t)height);
        memcpy(at + 16, (unsigned char[5]){BIT_DEPTH, COLOR_RGB, 0, 0, 0}, 5);
        at = close_chunk(at, "IHDR", HEADER);
        rc = compress2(at + 8, &packed, rows, raw, Z_BEST_COMPRESSION);
    }
    free(rows);
    if (rc != Z_OK) {
        free(*png);
        *png = NULL;
        return SP_FAIL(SP_EMEM, "no memory for a picture of %d x %d", width, height);
    }
    at = close_chunk(at, "IDAT", packed);
    at = close_chunk(at, "IEND", 0);
    *bytes = (size_t)(at - *png);
    return SP_OK;
}
