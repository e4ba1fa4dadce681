/* Reads a sample again if its file could not be read. A server that restarts, a
 * mount that comes back or a file that is being replaced must not end a long run. */
#include <assert.h>

#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "data/sp_shard_internal.h"

enum { TRIES = 4 };

#define FIRST_PAUSE_S 0.25 /* the pause doubles each time: 1.75 s in all */

sp_status sp_sample_read(const sp_dataset *set, int64_t sample,
                         const sp_sample_request *request, sp_sample *out)
{
    double wait_s = FIRST_PAUSE_S;
    sp_status rc = sp_sample_read_once(set, sample, request, out);
    sp_error_record first;

    assert(0 <= sample && sample < set->n_samples && request && out);
    if (rc == SP_EIO)
        sp_error_save(&first);
    for (int i = 1; i < TRIES && rc == SP_EIO; i++, wait_s *= 2) {
        if (i == 1)
            sp_log_warn("trying again: %s", sp_error_last()->message);
        sp_sleep_s(wait_s);
        sp_liveness_count();
        sp_shard_forget(set, sp_dataset_shard_of(set, sample));
        rc = sp_sample_read_once(set, sample, request, out);
    }
    /* the files are input, so the run ends as with damaged data */
    if (rc == SP_EIO)
        return SP_FAIL(SP_EDATA, "%s (tried %d times)", first.message, TRIES);
    SP_TRY(rc);
    return SP_OK;
}
