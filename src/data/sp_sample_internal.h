/* Inside of sp_sample: the reader of one sample and its buffers. Buffers only grow, so
 * that a step allocates nothing once the largest sample was read. */
#ifndef SP_SAMPLE_INTERNAL_H
#define SP_SAMPLE_INTERNAL_H

#include "data/sp_shard_internal.h"

/* Bytes that are read at a time. Measured: with half of it reading needs a tenth more
 * time, because of the calls. */
enum { SAMPLE_PIECE = 256 * 1024 };

enum { SAMPLE_ARRAYS = 10 }; /* the arrays of sp_sample */

/* The buffers of a sample, or of a thread that reads samples. The numbers are bytes
 * allocated for each array of sp_sample and for gathered columns, and keys. */
struct sp_sample_buffers {
    size_t array[SAMPLE_ARRAYS], gather, table;
    /* [raw_bytes] a piece of a dataset as stored: SAMPLE_PIECE bytes, or one row. */
    void *raw;
    size_t raw_bytes;
    void *gathered;
    uint64_t *keys; /* [table] hash table to find duplicates */
};

/* A sample while it is read. */
typedef struct sample_reader {
    const sp_dataset *set;
    const sp_shard *shard;
    const sp_sample_request *request;
    sp_sample *out;
    /* The buffers of the sample, or of the thread that reads. */
    struct sp_sample_buffers *own;
    sp_shard_handle file;
    int64_t sample; /* the sample's number in its shard */
    int64_t first, first_point, first_context;
    int n_columns;
    bool has_all_columns; /* true: all columns, in the order stored */
    bool has_crc, is_summed;
    /* CRC-32C of all that was read so far, and of only the coordinates. */
    uint32_t crc, coords_crc;
} sample_reader;

/* Makes *array hold at least `need` elements of `size` bytes, with room to grow. *have
 * is the number of elements it can hold. The content is not preserved. SP_EMEM. */
sp_status sp_sample_grow(void *array, size_t *have, size_t need, size_t size);
/* Makes room for the reader's sample and for its pieces. SP_EMEM. */
sp_status sp_sample_grow_all(const sample_reader *r);
/* Reads the reader's sample from the program that has it (data/sp_source.h). */
sp_status sp_source_sample(sample_reader *r);
/* Sets id, n, n_points and n_context of `out` from the index. */
void sp_sample_measure(const sp_dataset *set, int64_t id,
                       const sp_sample_request *request, sp_sample *out);

#endif
