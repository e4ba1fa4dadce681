/* NCCL's entry points that this program uses, found at run time: the program starts on
 * machines without NCCL and is built without its header.
 *
 * The declarations are from NCCL 2.18 (tests/tools/check_nccl.sh compares them with an
 * nccl.h if there is one); later libraries serve them unchanged.
 */
#ifndef CUDA_NCCL_H
#define CUDA_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "base/sp_error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SP_NCCL_LEAST = 21800 }; /* 2.18: the first with ncclCommSplit */

/* ncclResult_t */
typedef enum sp_nccl_result {
    SP_NCCL_SUCCESS = 0,
    SP_NCCL_REMOTE_ERROR = 6,
    SP_NCCL_IN_PROGRESS = 7
} sp_nccl_result;

/* ncclDataType_t and ncclRedOp_t */
enum {
    SP_NCCL_INT64 = 4,
    SP_NCCL_FLOAT32 = 7,
    SP_NCCL_FLOAT64 = 8,
    SP_NCCL_BFLOAT16 = 9,
    SP_NCCL_SUM = 0
};

typedef struct ncclComm *sp_nccl_comm;

typedef struct sp_nccl_id {
    char bytes[128];
} sp_nccl_id;

/* ncclConfig_t as version 2.18 had it; its fields size and version show that to the
 * library. */
typedef struct sp_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} sp_nccl_config;

enum { SP_NCCL_DEFAULT = INT_MIN }; /* default value of a field of sp_nccl_config */

/* The library's path, version and entry points. Streams are cudaStream_t. */
typedef struct sp_nccl {
    char path[512]; /* path of the library */
    int version;    /* 22809 is 2.28.9 */
    sp_nccl_result (*get_version)(int *version);
    sp_nccl_result (*get_unique_id)(sp_nccl_id *id);
    sp_nccl_result (*comm_init_rank_config)(sp_nccl_comm *comm, int n_ranks,
                                            sp_nccl_id id, int rank,
                                            sp_nccl_config *config);
    sp_nccl_result (*comm_split)(sp_nccl_comm comm, int color, int key,
                                 sp_nccl_comm *part, sp_nccl_config *config);
    sp_nccl_result (*comm_finalize)(sp_nccl_comm comm);
    sp_nccl_result (*comm_destroy)(sp_nccl_comm comm);
    sp_nccl_result (*comm_abort)(sp_nccl_comm comm);
    sp_nccl_result (*comm_get_async_error)(sp_nccl_comm comm, sp_nccl_result *error);
    const char *(*get_error_string)(sp_nccl_result result);
    const char *(*get_last_error)(sp_nccl_comm comm);
    sp_nccl_result (*group_start)(void);
    sp_nccl_result (*group_end)(void);
    sp_nccl_result (*all_reduce)(const void *from, void *to, size_t count, int type,
                                 int op, sp_nccl_comm comm, void *stream);
    /* Available from 2.19 on; NULL in older libraries. */
    sp_nccl_result (*mem_alloc)(void **out, size_t bytes);
    sp_nccl_result (*mem_free)(void *data);
    sp_nccl_result (*comm_register)(sp_nccl_comm comm, void *data, size_t bytes,
                                    void **handle);
    sp_nccl_result (*comm_deregister)(sp_nccl_comm comm, void *handle);
} sp_nccl;

/* Loads the library once and sets *nccl to it: from SP_NCCL_LIB (the file or its
 * folder) if that is set, else from the loader's path, the CUDA toolkit, or NVIDIA's
 * Python package beside either. Local. SP_EMPI if it is not found, too old or
 * incomplete; the message says where it was searched. */
sp_status sp_nccl_load(const sp_nccl **nccl);

#ifdef __cplusplus
}
#endif
#endif
