/* The points of one chunk, in either direction: the state between two points. Only the
 * files of this folder include it. */
#ifndef SP_LAZ_CODEC_H
#define SP_LAZ_CODEC_H

#include "scan/laz/sp_laz.h"
#include "scan/laz/sp_laz_coder.h"

/* Everything that the points of a chunk share. `last` holds the record before, at first
 * the chunk's first record. */
typedef struct laz_codec {
    const sp_laz_format *format;
    laz_pool pool;
    laz_fault fault;
    unsigned char *last, *record; /* [record_bytes] */
    int n_layers;                 /* streams; pointwise: 1 */
    laz_coder *coder;             /* [n_layers] */
    /* Layered: the layer is there, or, while encoding, a value of it has changed. A
     * layer that is not there leaves its values as they were. */
    bool *is_used;                   /* [n_layers] */
    struct laz_pointwise *pointwise; /* the one or the other */
    struct laz_layered *layered;
} laz_codec;

/* All functions are local. */

/* Creates the codec of a format, which is borrowed. SP_EMEM; destroy after failure too.
 */
sp_status sp_laz_codec_create(laz_codec *z, const sp_laz_format *format,
                              bool is_decoding);
void sp_laz_codec_destroy(laz_codec *z);
/* The number of streams of an item of a layered record. */
int sp_laz_layers(const sp_laz_item *item);
/* Begins a chunk with its first record [record_bytes], which is copied; the coders are
 * begun by the caller. SP_EMEM. */
sp_status sp_laz_codec_begin(laz_codec *z, const unsigned char *record);
/* Code the next n points of the chunk, after the first one: decode into records
 * [n][record_bytes], or encode them. They stop early if z->fault.what is set, which the
 * caller checks; it is no error of the function. SP_EMEM. */
sp_status sp_laz_codec_decode(laz_codec *z, unsigned char *records, int64_t n);
sp_status sp_laz_codec_encode(laz_codec *z, const unsigned char *records, int64_t n);

/* Creates the models of n extra bytes, of `symbols` symbols, in the pool of the chunk,
 * but for those that are not used (NULL: all are). SP_EMEM. */
sp_status sp_laz_extra_create(laz_codec *z, int n, unsigned symbols,
                              const bool *is_used, laz_model ***models);

/* ---- the two compressors, which sp_laz_codec.c calls ----
 *
 * create makes z->pointwise or z->layered for z->format, which must be of that kind;
 * destroy frees it if it exists. begin starts a chunk from the record in z->last.
 * decode and encode are as in sp_laz_codec, for the one kind. SP_EMEM. */

sp_status sp_laz_pointwise_create(laz_codec *z);
void sp_laz_pointwise_destroy(laz_codec *z);
sp_status sp_laz_pointwise_begin(laz_codec *z);
sp_status sp_laz_pointwise_decode(laz_codec *z, unsigned char *records, int64_t n);
sp_status sp_laz_pointwise_encode(laz_codec *z, const unsigned char *records,
                                  int64_t n);

sp_status sp_laz_layered_create(laz_codec *z);
void sp_laz_layered_destroy(laz_codec *z);
sp_status sp_laz_layered_begin(laz_codec *z);
sp_status sp_laz_layered_decode(laz_codec *z, unsigned char *records, int64_t n);
sp_status sp_laz_layered_encode(laz_codec *z, const unsigned char *records, int64_t n);

#endif
