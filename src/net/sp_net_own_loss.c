/* The logits in host memory, for functions of the calling program: its metrics, and a
 * loss of its own. */
#include <assert.h>

#include "net/sp_net_impl.h"

sp_status sp_net_fetch_matrix(sp_net *net, sp_tensor x, sp_arena *arena, float **out)
{
    const size_t n = (size_t)x.n, c = (size_t)x.c, ld = (size_t)x.ld;
    const size_t size = sp_elem_bytes(x.elem), used = n ? (n - 1) * ld + c : 0;
    char *host;

    SP_TRY(SP_ALLOC(arena, n * c + 1, out));
    SP_TRY(SP_ALLOC(arena, used * size + 1, &host));
    if (used)
        SP_TRY(net->backend->ops->download(net->backend, host, x.data, used * size));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < c; k++)
            (*out)[i * c + k] =
                x.elem == SP_ELEM_BF16
                    ? sp_bf16_to_float(((const uint16_t *)(void *)host)[i * ld + k])
                    : ((const float *)(void *)host)[i * ld + k];
    return SP_OK;
}

sp_status sp_net_fetch_rows(sp_net *net, const sp_batch *batch, sp_arena *arena,
                            sp_net_rows *rows)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_tensor logits = impl->logits;
    const bool is_of_voxels = logits.n == batch->n;
    float *host;
    int32_t *labels = NULL;

    assert(impl->batch == batch && "sp_net_forward comes first");
    SP_TRY(sp_net_fetch_matrix(net, logits, arena, &host));
    if (is_of_voxels) {
        const size_t bytes = (size_t)batch->n * sizeof *labels;

        SP_TRY(SP_ALLOC(arena, batch->n + 1, &labels));
        if (bytes)
            SP_TRY(net->backend->ops->download(net->backend, labels, batch->labels,
                                               bytes));
    }
    *rows = (sp_net_rows){.n = logits.n,
                          .n_classes = logits.c,
                          .logits = host,
                          .labels = labels,
                          .n_samples = batch->n_samples,
                          .sample = batch->sample_id,
                          .sample_row = sp_net_sample_row(
                              net, impl->low.value[impl->low.n_values - 1].level)};
    return SP_OK;
}

/* All of it is written as the loss of the first sample, since the program gives one
 * number; the sums of the others are 0. */
static sp_status upload_sums(sp_net *net, const sp_loss_args *args, double loss_sum,
                             double weight_sum)
{
    const sp_backend_ops *ops = net->backend->ops;
    const double first[2] = {loss_sum, weight_sum};

    if (args->n_samples == 0) {
        if (loss_sum == 0 && weight_sum == 0)
            return SP_OK;
        return SP_FAIL(SP_EUSAGE,
                       "the program's loss gave %g and the weight %g on a rank without "
                       "samples, expected 0 and 0",
                       loss_sum, weight_sum);
    }
    SP_TRY(ops->fill(net->backend, args->sums, 0,
                     2 * (size_t)args->n_samples * sizeof *args->sums));
    return ops->upload(net->backend, args->sums, first, sizeof first);
}

static sp_status own_loss(sp_net *net, const sp_loss_args *args)
{
    sp_backend *backend = net->backend;
    sp_arena *arena = &net->impl->host;
    const sp_tensor to = args->dlogits;
    double loss_sum = 0, weight_sum = 0;
    float *gradient;
    sp_net_rows rows;

    SP_TRY(sp_net_fetch_rows(net, net->impl->batch, arena, &rows));
    SP_TRY(SP_ALLOC(arena, (size_t)rows.n * (size_t)rows.n_classes + 1, &gradient));
    if (net->own_loss.fn(net->own_loss.arg, &rows, gradient, &loss_sum, &weight_sum))
        return SP_FAIL(SP_EUSAGE, "the program's loss has failed");
    for (int64_t i = 0; i < rows.n && to.c != to.ld; i++)
        SP_TRY(backend->ops->upload(backend, to.data + i * to.ld, gradient + i * to.c,
                                    (size_t)to.c * sizeof *gradient));
    if (rows.n && to.c == to.ld)
        SP_TRY(backend->ops->upload(backend, to.data, gradient,
                                    (size_t)rows.n * (size_t)to.c * sizeof *gradient));
    SP_TRY(upload_sums(net, args, loss_sum, weight_sum));
    return backend->ops->wait(backend);
}

sp_status sp_net_run_own_loss(sp_net *net, const sp_loss_args *args)
{
    const size_t mark = net->impl->host.used;
    const sp_status rc = own_loss(net, args);

    sp_arena_rewind(&net->impl->host, mark);
    return rc;
}
