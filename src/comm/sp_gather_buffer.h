/* Records of any length, gathered from all ranks on one, or sent by each rank to each.
 *
 *     rank 0   | bytes | record   | bytes | record |
 *     rank 1   nothing                                gather--> rank 0: its own,
 *     rank 2   | bytes | record |                               then of rank 1, ...
 *
 * Each record begins at a multiple of 8 bytes. The memory is kept for the next round.
 */
#ifndef SP_GATHER_BUFFER_H
#define SP_GATHER_BUFFER_H

#include "comm/sp_comm.h"

typedef struct sp_gather_buffer {
    char *data; /* [bytes] this rank's records, laid out as drawn above */
    size_t bytes, room;
    void *gathered; /* on rank 0: all ranks' records of the last gather */
    size_t gathered_bytes, at;
} sp_gather_buffer;

/* Frees all memory; the caller zeroes the struct before first use. */
void sp_gather_buffer_destroy(sp_gather_buffer *records);
/* Drops this rank's records and keeps the memory. Local. */
void sp_gather_buffer_clear(sp_gather_buffer *records);
/* Adds a record: *record is zeroed and valid until the next add. Local. SP_EMEM. */
sp_status sp_gather_buffer_add(sp_gather_buffer *records, size_t bytes, void **record);
/* Gathers the records on rank 0, which can then walk them in the order of the ranks; on
 * other ranks the list is empty. Collective over the world. SP_EMEM. */
sp_status sp_gather_buffer_gather(sp_gather_buffer *records, sp_comm *comm);
/* Sends the records of to[r] to rank r, for each of the comm->size ranks. Those that
 * the ranks sent to this one can then be walked in `records`, rank by rank. Collective
 * over the world. SP_EMEM. */
sp_status sp_gather_buffer_exchange(sp_gather_buffer *records,
                                    const sp_gather_buffer *to, sp_comm *comm);
/* Returns the next gathered record, valid until the next gather or exchange, or NULL
 * after the last. bytes may be NULL. Local. */
void *sp_gather_buffer_next(sp_gather_buffer *records, size_t *bytes);

#endif
