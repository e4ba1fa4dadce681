/* The filters of a chunk, undone. Between the files of src/h5. */
#ifndef SP_H5_FILTER_H
#define SP_H5_FILTER_H

#include "h5/sp_h5_rows.h"

enum { SP_H5_DEFLATE = 1, SP_H5_SHUFFLE = 2, SP_H5_FLETCHER32 = 3 };

typedef struct sp_h5_inflater sp_h5_inflater;

/* Buffers that grow: the stored bytes of a chunk, and room for the steps between. */
typedef struct sp_h5_steps {
    unsigned char *stored, *other;
    size_t stored_room, other_room;
    sp_h5_inflater *inflater;
} sp_h5_steps;

/* Whether the pipeline can be undone; *name gets the filter that cannot. */
bool sp_h5_filter_known(int32_t id);
/* At least `bytes` in *buffer, content not kept. */
sp_status sp_h5_room(unsigned char **buffer, size_t *room, size_t bytes,
                     const char *where);
/* steps->stored holds `bytes` of chunk number i. Undone, exactly `want` bytes are in
 * *result, which points into steps. */
sp_status sp_h5_undo(sp_h5_steps *steps, const sp_h5_chunks *chunks, int64_t i,
                     size_t want, const char *where, unsigned char **result);
void sp_h5_steps_free(sp_h5_steps *steps);

#endif
