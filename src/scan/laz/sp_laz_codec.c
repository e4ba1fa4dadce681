/* The parts that the two compressors share. */
#include "scan/laz/sp_laz_codec.h"
#include "base/sp_list.h"

#include <assert.h>
#include <stdlib.h>

int sp_laz_layers(const sp_laz_item *item)
{
    return item->type == SP_LAZ_POINT14    ? 9
           : item->type == SP_LAZ_RGBNIR14 ? 2
           : item->type == SP_LAZ_BYTE14   ? item->bytes
                                           : 1;
}

sp_status sp_laz_codec_create(laz_codec *z, const sp_laz_format *format,
                              bool is_decoding)
{
    size_t bytes = (size_t)format->record_bytes;
    bool is_layered = format->compressor == SP_LAZ_LAYERED;

    assert(format->n_items >= 1 && format->n_items <= SP_LAZ_ITEMS);
    *z = (laz_codec){.format = format, .n_layers = is_layered ? 0 : 1};
    z->pool.is_decoding = is_decoding;
    for (int i = 0; is_layered && i < format->n_items; i++)
        z->n_layers += sp_laz_layers(&format->item[i]);
    SP_TRY(SP_NEW(&z->coder, z->n_layers, "a LAZ coder"));
    SP_TRY(SP_NEW(&z->is_used, z->n_layers, "a LAZ coder"));
    SP_TRY(SP_NEW(&z->last, 2 * bytes, "a LAZ coder"));
    z->record = z->last + bytes;
    for (int i = 0; i < z->n_layers; i++) {
        z->coder[i].pool = &z->pool;
        z->coder[i].fault = &z->fault;
    }
    return is_layered ? sp_laz_layered_create(z) : sp_laz_pointwise_create(z);
}

void sp_laz_codec_destroy(laz_codec *z)
{
    if (!z->format)
        return;
    sp_laz_pointwise_destroy(z);
    sp_laz_layered_destroy(z);
    sp_laz_pool_destroy(&z->pool);
    for (int i = 0; z->coder && i < z->n_layers; i++)
        free(z->coder[i].begin);
    free(z->coder);
    free(z->is_used);
    free(z->last);
    *z = (laz_codec){0};
}

sp_status sp_laz_extra_create(laz_codec *z, int n, unsigned symbols,
                              const bool *is_used, laz_model ***models)
{
    *models = sp_laz_pool_alloc(&z->pool, (size_t)n * sizeof **models);
    if (!*models)
        return SP_EMEM;
    for (int i = 0; i < n; i++) {
        if (is_used && !is_used[i])
            continue;
        SP_TRY(sp_laz_pool_reserve(&z->pool, 1));
        (*models)[i] = sp_laz_model_create(&z->pool, symbols);
    }
    return SP_OK;
}

sp_status sp_laz_codec_begin(laz_codec *z, const unsigned char *record)
{
    assert(z->format && record);
    sp_laz_pool_reset(&z->pool);
    z->fault = (laz_fault){.point = 1};
    memcpy(z->last, record, (size_t)z->format->record_bytes);
    return z->layered ? sp_laz_layered_begin(z) : sp_laz_pointwise_begin(z);
}

sp_status sp_laz_codec_decode(laz_codec *z, unsigned char *records, int64_t n)
{
    assert(n >= 0 && (records || n == 0) && z->pool.is_decoding);
    return z->layered ? sp_laz_layered_decode(z, records, n)
                      : sp_laz_pointwise_decode(z, records, n);
}

sp_status sp_laz_codec_encode(laz_codec *z, const unsigned char *records, int64_t n)
{
    assert(n >= 0 && (records || n == 0) && !z->pool.is_decoding);
    return z->layered ? sp_laz_layered_encode(z, records, n)
                      : sp_laz_pointwise_encode(z, records, n);
}
