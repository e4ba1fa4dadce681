#!/bin/sh
# cuda/reduce/cuda_nccl.h declares what NVIDIA's nccl.h does: compared by a compiler where there is
# an nccl.h (SP_NCCL_H=FOLDER, or beside the CUDA toolkit).
for folder in "${SP_NCCL_H-}" "${CUDA_HOME-}/include" /usr/local/cuda/include /usr/include; do
    [ -n "$folder" ] && [ -f "$folder/nccl.h" ] && [ -f "$folder/cuda_runtime.h" ] && break
    folder=
done
[ -n "$folder" ] || { echo "SKIPPED: no nccl.h with cuda_runtime.h"; exit 77; }
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cat >"$work/same.c" <<'END_C'
#include <nccl.h>

#include "cuda/reduce/cuda_nccl.h"

#define SAME(a, b) _Static_assert((long)(a) == (long)(b), #a " and " #b)
#define SAME_FIELD(mine, theirs) \
    SAME(offsetof(sp_nccl_config, mine), offsetof(ncclConfig_t, theirs))

SAME(SP_NCCL_SUCCESS, ncclSuccess);
SAME(SP_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(SP_NCCL_IN_PROGRESS, ncclInProgress);
SAME(SP_NCCL_INT64, ncclInt64);
SAME(SP_NCCL_FLOAT32, ncclFloat32);
SAME(SP_NCCL_FLOAT64, ncclFloat64);
SAME(SP_NCCL_BFLOAT16, ncclBfloat16);
SAME(SP_NCCL_SUM, ncclSum);
SAME(SP_NCCL_DEFAULT, NCCL_CONFIG_UNDEF_INT);
SAME(sizeof(sp_nccl_id), sizeof(ncclUniqueId));
SAME_FIELD(size, size);
SAME_FIELD(magic, magic);
SAME_FIELD(version, version);
SAME_FIELD(blocking, blocking);
SAME_FIELD(cga_cluster_size, cgaClusterSize);
SAME_FIELD(min_ctas, minCTAs);
SAME_FIELD(max_ctas, maxCTAs);
SAME_FIELD(net_name, netName);
SAME_FIELD(split_share, splitShare);
_Static_assert(sizeof(sp_nccl_config) <= sizeof(ncclConfig_t), "configuration");

/* Arguments and results: enumerations are ints, opaque types pointers. */
#define CAN_CALL(field, call, ...) static void try_##field(sp_nccl *n) \
    { (void)sizeof(n->field(__VA_ARGS__)); (void)sizeof(call(__VA_ARGS__)); (void)n; }
static int number;
static size_t bytes;
static void *data;
CAN_CALL(get_version, ncclGetVersion, &number)
CAN_CALL(get_unique_id, ncclGetUniqueId, data)
CAN_CALL(comm_finalize, ncclCommFinalize, data)
CAN_CALL(comm_destroy, ncclCommDestroy, data)
CAN_CALL(comm_abort, ncclCommAbort, data)
CAN_CALL(comm_get_async_error, ncclCommGetAsyncError, data, data)
CAN_CALL(get_error_string, ncclGetErrorString, 0)
CAN_CALL(get_last_error, ncclGetLastError, data)
CAN_CALL(comm_split, ncclCommSplit, data, number, number, data, data)
CAN_CALL(all_reduce, ncclAllReduce, data, data, bytes, number, number, data, data)
CAN_CALL(mem_alloc, ncclMemAlloc, &data, bytes)
CAN_CALL(mem_free, ncclMemFree, data)
CAN_CALL(comm_register, ncclCommRegister, data, data, bytes, &data)
CAN_CALL(comm_deregister, ncclCommDeregister, data, data)
END_C
src=${SP_SRCDIR-.}
${SP_CC-cc} -std=c11 -Wall -Wno-unused-function -Wno-enum-compare -Wno-deprecated-declarations \
    -Werror=incompatible-pointer-types -fsyntax-only -I"$src/src" -I"$src" -I"$folder" \
    "$work/same.c" || { echo "cuda_nccl.h differs from $folder/nccl.h"; exit 1; }
sed -n 's/.*ENTRY([a-z_]*, "\(nccl[A-Za-z]*\)".*/\1/p' "$src/cuda/reduce/cuda_nccl.c" >"$work/names"
[ "$(wc -l <"$work/names")" -ge 17 ] || { echo "no entry points found in cuda_nccl.c"; exit 1; }
while read -r name; do
    grep -q "[ *]$name *(" "$folder/nccl.h" || { echo "$folder/nccl.h lacks $name"; exit 1; }
done <"$work/names"
echo "as in $folder/nccl.h"
