#include "comm/sp_comm.h"

#define XXH_INLINE_ALL
#include <assert.h>
#include <xxhash.h>

sp_status sp_comm_agree(sp_comm *comm, sp_status mine)
{
    int64_t lowest = mine == SP_OK ? comm->size : comm->rank;
    sp_error_record record;

    assert(0 <= comm->rank && comm->rank < comm->size);
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &lowest, 1, SP_I64, SP_MIN));
    if (lowest == comm->size)
        return SP_OK;
    if (mine != SP_OK && sp_error_last()->code != mine)
        SP_FAIL_INTERNAL(mine, "%s", sp_status_text(mine)); /* no message was left */
    sp_error_save(&record);
    SP_TRY(sp_comm_bcast(comm, &record, sizeof record, (int)lowest));
    comm->failed_rank = (int)lowest;
    return sp_error_raise(&record);
}

sp_status sp_comm_is_same(sp_comm *comm, const void *data, size_t bytes, bool *is_same)
{
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    /* ~x falls as x rises, so one all-reduce of minima finds the minimum and the
     * maximum */
    int64_t ends[6] = {(int64_t)hash.low64, (int64_t)hash.high64, (int64_t)bytes};

    assert(is_same && (data || bytes == 0));
    for (int i = 0; i < 3; i++)
        ends[3 + i] = ~ends[i];
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, ends, 6, SP_I64, SP_MIN));
    *is_same = ends[0] == ~ends[3] && ends[1] == ~ends[4] && ends[2] == ~ends[5];
    return SP_OK;
}
