/* Records of any length, from all ranks to one.
 *
 *     rank 0   | bytes | record   | bytes | record |
 *     rank 1   nothing                                  gather--> root: those of rank 0,
 *     rank 2   | bytes | record |                                 then of rank 1, ...
 *
 * Each begins at a multiple of 8 bytes. Memory is kept for the next round.
 */
#ifndef SP_RECORDS_H
#define SP_RECORDS_H

#include "comm/sp_comm.h"

typedef struct sp_records {
    char *data; /* [bytes] as drawn */
    size_t bytes, room;
    void *gathered; /* root: of the last gather */
    size_t gathered_bytes, at;
} sp_records;

void sp_records_destroy(sp_records *records);
/* Forget this rank's records. */
void sp_records_clear(sp_records *records);
/* Room for one more: *record is zeroed and valid until the next add. Local. SP_EMEM. */
sp_status sp_records_add(sp_records *records, size_t bytes, void **record);
/* Collective over the world: root can then walk all ranks' records, in the order of the
 * ranks; elsewhere there are none to walk. SP_EMEM. */
sp_status sp_records_gather(sp_records *records, sp_comm *comm, int root);
/* The next gathered record, valid until the next gather; NULL: no more. bytes may be
 * NULL. */
void *sp_records_next(sp_records *records, size_t *bytes);

#endif
