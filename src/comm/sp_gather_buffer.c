#include "comm/sp_gather_buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

enum { ALIGNMENT = 8, HEAD = 8 };

void sp_gather_buffer_destroy(sp_gather_buffer *records)
{
    free(records->data);
    free(records->gathered);
    memset(records, 0, sizeof *records);
}

void sp_gather_buffer_clear(sp_gather_buffer *records)
{
    records->bytes = 0;
}

sp_status sp_gather_buffer_add(sp_gather_buffer *records, size_t bytes, void **record)
{
    const uint64_t head = bytes;
    size_t at = records->bytes, end = at + HEAD + sp_multiple(bytes, ALIGNMENT);

    assert(record);
    if (!sp_list_reserve(&records->data, &records->room, end))
        return SP_FAIL(SP_EMEM, "no memory for records of %zu bytes", end);
    memcpy(records->data + at, &head, sizeof head);
    memset(records->data + at + HEAD, 0, sp_multiple(bytes, ALIGNMENT));
    *record = records->data + at + HEAD;
    records->bytes = end;
    return SP_OK;
}

/* Drops the last gathered records. */
static void records_forget(sp_gather_buffer *records)
{
    free(records->gathered);
    records->gathered = NULL;
    records->gathered_bytes = records->at = 0;
}

sp_status sp_gather_buffer_exchange(sp_gather_buffer *records,
                                    const sp_gather_buffer *to, sp_comm *comm)
{
    const size_t n = (size_t)comm->size;
    SP_FREED const void **data = NULL;
    SP_FREED size_t *bytes = NULL;
    sp_status rc = SP_NEW(&data, n, "the sizes of an exchange");

    if (rc == SP_OK)
        rc = SP_NEW(&bytes, n, "the sizes of an exchange");
    records_forget(records);
    SP_TRY(sp_comm_agree(comm, rc));
    for (size_t r = 0; r < n; r++) {
        data[r] = to[r].data;
        bytes[r] = to[r].bytes;
    }
    return sp_comm_exchange(comm, data, bytes, &records->gathered,
                            &records->gathered_bytes);
}

sp_status sp_gather_buffer_gather(sp_gather_buffer *records, sp_comm *comm)
{
    records_forget(records);
    return sp_comm_gather(comm, records->data, records->bytes, &records->gathered,
                          &records->gathered_bytes);
}

void *sp_gather_buffer_next(sp_gather_buffer *records, size_t *bytes)
{
    char *at = (char *)records->gathered + records->at;
    uint64_t head;

    assert(records->gathered || records->gathered_bytes == 0);
    if (records->at >= records->gathered_bytes)
        return NULL;
    memcpy(&head, at, sizeof head);
    if (bytes)
        *bytes = head;
    records->at += HEAD + sp_multiple(head, ALIGNMENT);
    return at + HEAD;
}
