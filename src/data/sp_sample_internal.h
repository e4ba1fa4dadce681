/* Inside of sp_sample: the buffers that a sample is read into and by way of. They only
 * grow, so that a step allocates nothing once the largest sample was seen. */
#ifndef SP_SAMPLE_INTERNAL_H
#define SP_SAMPLE_INTERNAL_H

#include "data/sp_shard_internal.h"

/* Bytes that are read at a time. Measured: half of it costs a tenth more, in calls. */
enum { SAMPLE_PIECE = 256 * 1024 };

/* Arrays of a sample and room for its reading; each only grows. */
struct sp_sample_buffers {
    size_t voxels, features, subvoxel, points, gather, table; /* allocated */
    void *raw;                                                /* [SAMPLE_PIECE], or one row */
    size_t raw_bytes;
    void *gathered;
    uint64_t *keys; /* [table] */
    sp_h5_unpacker *unpacker;
};

/* One sample on its way into memory. */
typedef struct sample_reader {
    const sp_dataset *set;
    const sp_shard *shard;
    const sp_sample_request *request;
    sp_sample *out;
    struct sp_sample_buffers *own; /* of the sample, or of the thread that reads */
    sp_shard_handle file;
    int64_t sample; /* in the shard */
    int64_t first, first_point;
    int n_columns;
    bool has_all_columns; /* all, in the order stored */
    bool has_crc, is_summed;
    uint32_t crc, coords_crc; /* of what was read, of coords alone */
} sample_reader;

/* Makes *array hold at least `need` elements of `size` bytes, with room to grow; *have
 * is how many it holds. The content is not kept. SP_EMEM. */
sp_status sp_sample_grow(void *array, size_t *have, size_t need, size_t size);
/* Makes room for the reader's sample and for its rows on their way. SP_EMEM. */
sp_status sp_sample_grow_all(const sample_reader *r);
/* The voxels and points of sample id, as the index has them. */
void sp_sample_measure(const sp_dataset *set, int64_t id,
                       const sp_sample_request *request, sp_sample *out);

#endif
