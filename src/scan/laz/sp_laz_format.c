/* The content of the LAZ VLR:
 *
 *     0 compressor u16 | 2 coder u16 | 4 version u8 u8 u16 | 8 options u32
 *     12 points of a chunk u32 | 16 special EVLRs: number and place, i64 each, -1
 *     32 number of items u16 | 34 items: type, bytes, version, u16 each */
#include <assert.h>
#include <string.h>

#include "scan/laz/sp_laz.h"
#include "scan/laz/sp_laz_field.h"

enum { HEAD_BYTES = 34, ITEM_BYTES = 6, FORMATS = 11 };

/* The items of each point format, without extra bytes. */
typedef struct item_kind {
    sp_laz_type type;
    int bytes;
} item_kind;

static const item_kind items_of[FORMATS][4] = {
    {{SP_LAZ_POINT10, 20}},
    {{SP_LAZ_POINT10, 20}, {SP_LAZ_GPSTIME11, 8}},
    {{SP_LAZ_POINT10, 20}, {SP_LAZ_RGB12, 6}},
    {{SP_LAZ_POINT10, 20}, {SP_LAZ_GPSTIME11, 8}, {SP_LAZ_RGB12, 6}},
    {{SP_LAZ_POINT10, 20}, {SP_LAZ_GPSTIME11, 8}, {SP_LAZ_WAVEPACKET13, 29}},
    {{SP_LAZ_POINT10, 20},
     {SP_LAZ_GPSTIME11, 8},
     {SP_LAZ_RGB12, 6},
     {SP_LAZ_WAVEPACKET13, 29}},
    {{SP_LAZ_POINT14, 30}},
    {{SP_LAZ_POINT14, 30}, {SP_LAZ_RGB14, 6}},
    {{SP_LAZ_POINT14, 30}, {SP_LAZ_RGBNIR14, 8}},
    {{SP_LAZ_POINT14, 30}, {SP_LAZ_WAVEPACKET14, 29}},
    {{SP_LAZ_POINT14, 30}, {SP_LAZ_RGBNIR14, 8}, {SP_LAZ_WAVEPACKET14, 29}}};

void sp_laz_format_default(sp_laz_format *format, int point_format, int record_bytes)
{
    const item_kind *kind = items_of[point_format];
    bool is_layered = point_format >= 6;
    int at = 0;

    assert(point_format >= 0 && point_format <= 10 && record_bytes > 0);
    *format =
        (sp_laz_format){.compressor = is_layered ? SP_LAZ_LAYERED : SP_LAZ_POINTWISE,
                        .chunk_points = SP_LAZ_CHUNK,
                        .record_bytes = record_bytes};
    for (int i = 0; at < record_bytes; i++, kind++) {
        bool is_extra = i == 4 || kind->bytes == 0;
        sp_laz_item *item = &format->item[i];

        item->type = !is_extra ? kind->type : is_layered ? SP_LAZ_BYTE14 : SP_LAZ_BYTE;
        item->bytes = is_extra ? record_bytes - at : kind->bytes;
        item->version = item->type == SP_LAZ_WAVEPACKET13 ? 1 : is_layered ? 3 : 2;
        item->at = at;
        at += item->bytes;
        format->n_items = i + 1;
    }
}

void sp_laz_format_current(sp_laz_format *format)
{
    assert(format->n_items >= 1);
    if (format->compressor == SP_LAZ_STREAM) {
        format->compressor = SP_LAZ_POINTWISE;
        format->chunk_points = SP_LAZ_CHUNK;
    }
    for (int i = 0; i < format->n_items; i++)
        if (format->item[i].version == 1 && format->item[i].type != SP_LAZ_WAVEPACKET13)
            format->item[i].version = 2;
}

static sp_status read_item(const char *path, const unsigned char *at,
                           const sp_laz_item *expected, sp_laz_item *item)
{
    int type = sp_get16(at), bytes = sp_get16(at + 2), version = sp_get16(at + 4);
    bool is_layered = expected->type >= SP_LAZ_POINT14;
    int least = is_layered ? 3 : 1;
    int most = is_layered ? 4 : 2;

    if (type != (int)expected->type || bytes != expected->bytes)
        return SP_FAIL(
            SP_EDATA, "%s: LAZ item of type %d with %d bytes, expected type %d with %d",
            path, type, bytes, (int)expected->type, expected->bytes);
    if (version < least || version > most)
        return SP_FAIL(SP_EDATA,
                       "%s: LAZ item of type %d has version %d, expected %d to %d",
                       path, type, version, least, most);
    *item = *expected;
    item->version = version;
    return SP_OK;
}

static sp_status laz_format_read_head(sp_laz_format *format, const char *path,
                                      const unsigned char *vlr, size_t bytes)
{
    bool is_layered = format->compressor == SP_LAZ_LAYERED;
    int compressor, n_items;

    if (bytes < HEAD_BYTES)
        return SP_FAIL(SP_EDATA, "%s: LAZ VLR of %zu bytes, expected at least %d", path,
                       bytes, HEAD_BYTES);
    compressor = sp_get16(vlr);
    if (is_layered ? compressor != SP_LAZ_LAYERED
                   : compressor != SP_LAZ_STREAM && compressor != SP_LAZ_POINTWISE)
        return SP_FAIL(SP_EDATA, "%s: LAZ compressor %d, expected %s for its points",
                       path, compressor, is_layered ? "3" : "1 or 2");
    format->compressor = (sp_laz_compressor)compressor;
    if (sp_get16(vlr + 2) != 0)
        return SP_FAIL(SP_EDATA, "%s: LAZ coder %d, expected 0 (arithmetic)", path,
                       sp_get16(vlr + 2));
    format->chunk_points = sp_get32(vlr + 12);
    if (format->chunk_points == 0) /* LASzip reads 0 so, and LAStools writes it */
        format->chunk_points = UINT32_MAX;
    n_items = sp_get16(vlr + 32);
    if (n_items != format->n_items || bytes < HEAD_BYTES + ITEM_BYTES * (size_t)n_items)
        return SP_FAIL(SP_EDATA,
                       "%s: %d LAZ items in a VLR of %zu bytes, expected %d items",
                       path, n_items, bytes, format->n_items);
    return SP_OK;
}

sp_status sp_laz_format_read(sp_laz_format *format, const char *path,
                             const unsigned char *vlr, size_t bytes, int point_format,
                             int record_bytes)
{
    sp_laz_format expected;

    assert(path && (vlr || bytes == 0));
    sp_laz_format_default(&expected, point_format, record_bytes);
    *format = expected;
    SP_TRY(laz_format_read_head(format, path, vlr, bytes));
    for (int i = 0; i < format->n_items; i++)
        SP_TRY(read_item(path, vlr + HEAD_BYTES + ITEM_BYTES * i, &expected.item[i],
                         &format->item[i]));
    return SP_OK;
}

size_t sp_laz_format_write(const sp_laz_format *format,
                           unsigned char vlr[SP_LAZ_VLR_BYTES])
{
    unsigned char *at = vlr + HEAD_BYTES;

    assert(format->n_items >= 1 && format->n_items <= SP_LAZ_ITEMS);
    memset(vlr, 0, SP_LAZ_VLR_BYTES);
    sp_put16(vlr, format->compressor);
    vlr[4] = 3; /* the version of LASzip that writes such files */
    vlr[5] = 4;
    sp_put16(vlr + 6, 3);
    sp_put32(vlr + 12, format->chunk_points);
    memset(vlr + 16, 0xff, 16);
    sp_put16(vlr + 32, (uint32_t)format->n_items);
    for (int i = 0; i < format->n_items; i++, at += ITEM_BYTES) {
        sp_put16(at, format->item[i].type);
        sp_put16(at + 2, (uint32_t)format->item[i].bytes);
        sp_put16(at + 4, (uint32_t)format->item[i].version);
    }
    return (size_t)(at - vlr);
}
