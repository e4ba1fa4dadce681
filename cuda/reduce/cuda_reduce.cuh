/* Transports of device memory (sp_transport.h): the interface between the files of this
 * folder.
 *
 *     file                  posted sums (gradients)     small sums (batch statistics)
 *     cuda_reduce_nccl.cu   NCCL, reduce stream         NCCL, compute stream
 *     cuda_reduce.cu        MPI through pinned memory   through the host
 *     cuda_peer.cu          -                           memory of the node's devices,
 *                                                       in place of either of the above
 *
 *     compute stream  ... summands | computed               | join waits for done ...
 *     reduce stream                        | sum | done
 *
 * Posted sums run in streams of their own, which the device serves before the compute
 * stream. Waits of the host test for failures of other ranks too (cuda_wait_idle).
 */
#ifndef CUDA_REDUCE_CUH
#define CUDA_REDUCE_CUH

#include "compute/sp_transport.h"
#include "cuda/device/cuda_util.cuh"

/* The handle of a posted sum (sp_sum.handle). */
typedef struct cuda_sum {
    struct cuda_sum *next; /* next in the list of free handles */
    cudaEvent_t computed;  /* recorded in the compute stream after the summands */
    cudaEvent_t done;      /* recorded after the sums */
    int n_left;            /* staged transport only: pieces in progress */
} cuda_sum;

extern const sp_transport_ops sp_cuda_staged_ops, sp_cuda_nccl_ops;
extern const sp_peer_ops sp_cuda_peer_ops;

/* Creates a stream that the device serves before the compute stream. */
sp_status cuda_urgent_stream(cudaStream_t *stream);
/* Gives the sum a handle from the list, or a new one, and records its `computed` in the
 * compute stream. SP_EMEM, SP_EDEVICE. */
sp_status cuda_sum_begin(sp_backend *be, cuda_sum **list, sp_sum *sum);
/* Looks how far the sum has come. The handle of one that has ended goes back into the
 * list, for the next sum; a sum without a handle has ended before. */
sp_status cuda_sum_test(sp_backend *be, cuda_sum **list, sp_sum *sum, bool *is_done);
/* Destroys the handles of the list. */
void cuda_sums_destroy(cuda_sum **list);
/* The function for sp_cuda.wait if the compute stream may wait for other ranks: waits
 * until the stream is idle and looks for failures of the transport meanwhile. */
sp_status cuda_wait_idle(void *transport, cudaStream_t compute);

#endif
