/* What the transports of device memory share: a stream beside the compute stream, and
 * the events of posted sums. */
#ifndef CUDA_REDUCE_CUH
#define CUDA_REDUCE_CUH

#include "cuda/device/cuda_util.cuh"
#include "compute/sp_transport.h"

/* A posted sum: its handle. */
typedef struct cuda_sum {
    struct cuda_sum *next; /* in the list of free ones */
    cudaEvent_t computed;  /* the compute stream has made the summands */
    cudaEvent_t done;      /* the sums are in place */
    int n_left;            /* staged: pieces on their way */
} cuda_sum;

extern const sp_transport_ops sp_cuda_staged_ops, sp_cuda_nccl_ops;
extern const sp_peer_ops sp_cuda_peer_ops;

/* A stream that the device serves before the compute stream. */
sp_status cuda_urgent_stream(cudaStream_t *stream);
/* A sum from the list, or a new one; `computed` is recorded in the compute stream. */
sp_status cuda_sum_take(sp_backend *be, cuda_sum **list, cuda_sum **taken);
void cuda_sum_give(cuda_sum **list, cuda_sum *sum);
void cuda_sums_destroy(cuda_sum **list);
/* sp_cuda.wait where the compute stream waits for other ranks: whoever waits for it
 * looks for what went wrong between them too. */
sp_status cuda_wait_idle(void *transport, cudaStream_t compute);
/* cudaEventQuery: has the device come here? */
sp_status cuda_is_past(cudaEvent_t event, bool *is_past);

#endif
