/* Linked with sptrain on an emulated device (the linker's --wrap). For each optimizer
 * step standard error says how often the training thread stopped for the device and for
 * other ranks, and how many kernels it launched. Waits with no kernel launched between
 * them are one stop. */
#include <stdio.h>

#include "cuda/device/cuda_ops.h"
#include "fixtures/wrapped.h"
#include "net/sp_bucket.h"
#include "net/sp_net.h"

unsigned hc_launches(void);

/* One kind of wait: how often it happened, and how many kernels had been launched by
 * the last time. */
typedef struct stops {
    unsigned n, launched;
} stops;

static stops device, ranks;
static unsigned launched_before; /* kernels, when the step began */

static void stop(stops *s)
{
    s->n += hc_launches() != s->launched;
    s->launched = hc_launches();
}

/* NOLINTBEGIN: names given by the linker */
WRAPPED(sp_status, sp_buckets_begin, sp_buckets *buckets)
{
    device = ranks = (stops){0, hc_launches()};
    launched_before = hc_launches();
    return __real_sp_buckets_begin(buckets);
}

/* This function is called at the end of a step. */
WRAPPED(sp_status, sp_net_sync_running, sp_net *net)
{
    sp_status rc = __real_sp_net_sync_running(net);

    fprintf(stderr, "stops device %u ranks %u launches %u\n", device.n, ranks.n,
            hc_launches() - launched_before);
    return rc;
}

WRAPPED_BEHIND(stop(is_for_others ? &ranks : &device), sp_status, sp_comm_wait_for,
               (comm, is_for_others, test, arg), sp_comm *comm, bool is_for_others,
               sp_comm_test_fn *test, void *arg)
WRAPPED_BEHIND(stop(&ranks), sp_status, sp_comm_allreduce,
               (comm, scope, data, count, type, op), sp_comm *comm, sp_scope scope,
               void *data, size_t count, sp_type type, sp_reduce_op op)
WRAPPED_BEHIND(stop(&device), sp_status, sp_cuda_wait, (be), sp_backend *be)
WRAPPED_BEHIND(stop(&device), sp_status, sp_cuda_download, (be, to_host, from, bytes),
               sp_backend *be, void *to_host, const void *from, size_t bytes)
/* NOLINTEND */
