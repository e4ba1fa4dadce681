/* Undoes the filters of a chunk: deflate, shuffle and Fletcher-32. Between the files of
 * src/h5; without HDF5. */
#ifndef SP_H5_FILTER_H
#define SP_H5_FILTER_H

#include "h5/sp_h5_rows.h"

enum { SP_H5_DEFLATE = 1, SP_H5_SHUFFLE = 2, SP_H5_FLETCHER32 = 3 };

/* Buffers that only grow: the stored bytes of a chunk, and a second buffer, so that
 * each filter reads one and writes the other. */
typedef struct sp_h5_steps {
    unsigned char *stored, *other;
    size_t stored_room, other_room;
    struct z_stream_s *inflater; /* zlib's state; NULL before the first use */
} sp_h5_steps;

/* True if the filter of this number can be undone. */
bool sp_h5_filter_known(int32_t id);
/* Makes *buffer hold at least `bytes`; the content is not preserved. SP_EMEM. */
sp_status sp_h5_room(unsigned char **buffer, size_t *room, size_t bytes,
                     const char *where);
/* Undoes the filters of chunk i, whose stored bytes are in steps->stored. *result
 * points to exactly `want` bytes within steps. `where` begins every message. SP_EDATA:
 * the chunk is damaged; SP_EMEM. */
sp_status sp_h5_undo(sp_h5_steps *steps, const sp_h5_chunks *chunks, int64_t i,
                     size_t want, const char *where, unsigned char **result);
void sp_h5_steps_free(sp_h5_steps *steps);

#endif
