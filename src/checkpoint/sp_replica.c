#include "checkpoint/sp_replica.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Number of sums that equal `sum`. */
static int replica_count_of(const int64_t *sums, int n, int64_t sum)
{
    int count = 0;

    for (int r = 0; r < n; r++)
        count += sums[r] == sum;
    return count;
}

/* The lowest rank that has the most frequent sum. */
static int find_reference(const int64_t *sums, int n)
{
    int best = 0, most = 0;

    for (int r = 0; r < n && 2 * most <= n; r++) {
        int count = replica_count_of(sums, n, sums[r]);

        if (count > most) {
            most = count;
            best = r;
        }
    }
    return best;
}

static sp_status replica_judge(const int64_t *sums, int n, int64_t step)
{
    int reference = find_reference(sums, n);
    int same = replica_count_of(sums, n, sums[reference]);
    char ranks[256] = "";
    size_t used = 0;

    if (same == n)
        return SP_OK;
    for (int r = 0; r < n && used + 16 < sizeof ranks; r++)
        if (sums[r] != sums[reference])
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d",
                                     used ? ", " : "", r);
    return SP_FAIL(SP_ENUMERIC,
                   "step %lld: the weights of rank %s differ from the weights of rank "
                   "%d%s; they must be the same bits: memory, processor or network of "
                   "one is at fault. Checkpoints of earlier steps are whole",
                   (long long)step, ranks, reference,
                   2 * same > n ? " and most others" : "");
}

sp_status sp_replica_check(sp_comm *comm, const float *data, int64_t n, int64_t step)
{
    SP_FREED int64_t *sums = NULL;

    assert(n >= 0 && (data || n == 0));
    if (comm->size == 1)
        return SP_OK;
    SP_TRY(
        sp_comm_agree(comm, SP_NEW(&sums, comm->size, "the checksums of the weights")));
    sums[comm->rank] = (int64_t)XXH3_64bits(data, (size_t)n * sizeof *data);
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, sums, (size_t)comm->size, SP_I64,
                             SP_SUM));
    return replica_judge(sums, comm->size, step);
}
