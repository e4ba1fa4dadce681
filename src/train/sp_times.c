#include "train/sp_times.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "train/sp_trainer.h"

/* Ends the part at hand and adds to its phase; returns the time. */
static double end_part(sp_times *t)
{
    const double now = sp_now_s();
    sp_liveness liveness;
    double own;

    sp_liveness_read(&liveness);
    own = now - liveness.waited_s;
    t->part_s[t->part] += now - t->part_begin_s;
    t->phase_s[t->phase] += own - t->phase_begin_s;
    t->part_begin_s = now;
    t->phase_begin_s = own;
    return now;
}

void sp_times_begin(sp_times *t)
{
    t->begin_s = end_part(t);
    memset(t->part_s, 0, sizeof t->part_s);
    memset(t->phase_s, 0, sizeof t->phase_s);
    t->part = SP_STEP_END;
    t->phase = SP_PHASE_START;
}

sp_phase sp_times_part(sp_times *t, sp_step_part part)
{
    static const sp_phase phases[SP_STEP_PARTS] = {[SP_STEP_READ] = SP_PHASE_READ,
                                                   [SP_STEP_FORWARD] = SP_PHASE_FORWARD,
                                                   [SP_STEP_BACKWARD] =
                                                       SP_PHASE_BACKWARD,
                                                   [SP_STEP_REDUCE] = SP_PHASE_REDUCE,
                                                   [SP_STEP_UPDATE] = SP_PHASE_UPDATE};

    assert(part < SP_STEP_PARTS);
    end_part(t);
    t->part = part;
    if (phases[part] != SP_PHASE_START)
        t->phase = phases[part];
    return phases[part];
}

void sp_times_end(sp_times *t, const sp_learner *l, sp_step_report *report)
{
    const bool is_host = l->optim.backend->ops->is_host;
    const double *s = t->part_s;
    double read_s;

    assert(t->begin_s > 0 && "sp_times_begin comes first");
    report->step_s = end_part(t) - t->begin_s;
    report->forward_s = is_host ? s[SP_STEP_FORWARD] + s[SP_STEP_LOSS] : NAN;
    report->backward_s = is_host ? s[SP_STEP_BACKWARD] : NAN;
    report->update_s = is_host ? s[SP_STEP_UPDATE] : NAN;
    sp_loader_times(l->loader, &report->plan_s, &read_s);
}

static sp_status times_measure_memory(sp_backend *backend, double *bytes)
{
    int64_t used = (int64_t)sp_machine_resident();

    if (!backend->ops->is_host)
        SP_TRY(backend->ops->memory_used(backend, &used));
    *bytes = used > 0 ? (double)used : NAN;
    return SP_OK;
}

sp_status sp_times_reduce(sp_device *device, sp_step_report *report)
{
    double *const value[] = {
        &report->step_s,    &report->result.data_wait_s, &report->result.comm_exposed_s,
        &report->forward_s, &report->backward_s,         &report->update_s,
        &report->plan_s,    &report->memory_bytes};
    enum { N = sizeof value / sizeof *value };
    double greatest[N];

    SP_TRY(times_measure_memory(&device->backend, &report->memory_bytes));
    for (int i = 0; i < N; i++)
        greatest[i] = isfinite(*value[i]) ? *value[i] : -INFINITY;
    SP_TRY(
        sp_comm_allreduce(device->comm, SP_SCOPE_WORLD, greatest, N, SP_F64, SP_MAX));
    for (int i = 0; i < N; i++)
        *value[i] = isfinite(greatest[i]) ? greatest[i] : NAN;
    return SP_OK;
}
