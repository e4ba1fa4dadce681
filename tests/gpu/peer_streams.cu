/* Ranks that are streams of one process and share a device, for test_peer_streams.c:
 * the kernels of cuda_peer_sum.cuh wait for each other as those of several devices do.
 */
#include "cuda/reduce/cuda_peer_sum.cuh"

#include <string.h>

namespace
{

struct rank_stream {
    peer_ranks p;
    cudaStream_t stream;
    double *data; /* [n_sums][n] */
};

sp_status begin(rank_stream *r, int ranks, double limit_s, const double *from,
                size_t bytes)
{
    const size_t places = 2 * (size_t)ranks * PEER_PLACE_WORDS * sizeof(uint64_t);

    SP_CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    SP_CUDA(cudaHostAlloc((void **)&r->p.rec, sizeof *r->p.rec, 0));
    memset(r->p.rec, 0, sizeof *r->p.rec);
    SP_CUDA(cudaMalloc((void **)&r->p.memory[r->p.rank], places));
    SP_CUDA(cudaMalloc((void **)&r->data, bytes));
    SP_CUDA(cudaMemsetAsync(r->p.memory[r->p.rank], 0, places, r->stream));
    SP_CUDA(cudaMemcpyAsync(r->data, from, bytes, cudaMemcpyHostToDevice, r->stream));
    SP_CUDA(cudaStreamSynchronize(r->stream));
    r->p.size = ranks;
    r->p.limit_ns = (uint64_t)(1e9 * limit_s);
    return SP_OK;
}

void end(rank_stream *r)
{
    cudaFree(r->data);
    cudaFree(r->p.memory[r->p.rank]);
    cudaFreeHost(r->p.rec);
    cudaStreamDestroy(r->stream);
}

/* Puts the sums of all ranks but the absent one into their streams. */
sp_status put_all(rank_stream *all, int ranks, int absent, int n_sums, int n)
{
    for (int k = 0; k < n_sums; k++)
        for (int r = 0; r < ranks; r++) {
            double *at = all[r].data + (size_t)k * n;

            if (r != absent)
                SP_TRY(peer_put_sum(&all[r].p, all[r].stream, at, at, n));
        }
    return SP_OK;
}

} // namespace

extern "C" sp_status peer_streams(int ranks, int absent, double limit_s, int n_sums,
                                  int n, double *data, int *lost)
{
    const size_t each = (size_t)n_sums * (size_t)n;
    rank_stream all[PEER_MOST] = {};

    *lost = 0;
    for (int r = 0; r < ranks; r++) {
        all[r].p.rank = r;
        SP_TRY(begin(&all[r], ranks, limit_s, data + each * r, each * sizeof *data));
    }
    for (int r = 0; r < ranks; r++)
        for (int other = 0; other < ranks; other++)
            all[r].p.memory[other] = all[other].p.memory[other];
    SP_TRY(put_all(all, ranks, absent, n_sums, n));
    for (int r = 0; r < ranks; r++) {
        SP_CUDA(cudaMemcpyAsync(data + each * r, all[r].data, each * sizeof *data,
                                cudaMemcpyDeviceToHost, all[r].stream));
        SP_CUDA(cudaStreamSynchronize(all[r].stream));
        *lost = all[r].p.rec->lost ? (int)all[r].p.rec->lost : *lost;
    }
    for (int r = 0; r < ranks; r++)
        end(&all[r]);
    return SP_OK;
}
