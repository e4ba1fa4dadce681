#!/bin/sh
# sptrain on emulated devices with the tests' NCCL (tests/emulator/nccl_double) has the
# losses of MPI, of the CPU and of other numbers of ranks, with overlap and in node groups.
# A library that is missing, old or failing is named.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
SP_PEER_MEMORY=0 # all sums are NCCL's here
export SP_PEER_MEMORY

three_steps "bucket_mb = 0.008; watchdog_s = 20;"

# log_says TEXT RANK: this rank made such a call of the library.
log_says() {
    grep -q "$1" log."$2" || fail "rank $2 did not: $1: $(tr '\n' ';' <log."$2")"
}

# ---- the same losses ----
SPTRAIN=$CPU
run 1 0 train d.deck run.dir=cpu run.device=cpu
SPTRAIN=$CUDA
for n in 2 3; do
    rm -f log.*
    NCCL_DOUBLE_LOG=log healthy $n train d.deck run.dir=nccl-$n
    says out "all-reduce by NCCL 2.28.9, fp32 on the wire"
    says nccl-$n/metrics.jsonl '"transport":"nccl"'
    close_to nccl-$n cpu 1e-5
    for r in $(seq 0 $((n - 1))); do
        log_says "^init rank $r of $n" "$r"
        log_says "^register " "$r"
        [ "$(grep -c "^finalize" log."$r")" = 2 ] || fail "rank $r: communicators left open"
        [ "$(grep -c "^destroy" log."$r")" = 2 ] || fail "rank $r: communicators left"
        grep -q "^abort" log."$r" && fail "rank $r aborted"
    done
done
run 3 0 train d.deck run.dir=staged-3 run.transport=mpi
says out "all-reduce by MPI through the host"
close_to staged-3 cpu 1e-5
# Other orders, lazy streams and no overlap give the same bits.
HC_SEED=7 HC_LAZY=1 run 3 0 train d.deck run.dir=again
same_steps nccl-3 again
run 3 0 train d.deck run.dir=late run.overlap=false
same_steps nccl-3 late
# Gradients in several buckets travel before the last batch-norm sum of a step's backward.
awk '/type 7/ { n++ } /type 8/ && n == 1 { between = 1 } END { exit !(n >= 6 && between) }' \
    log.0 || fail "buckets: $(tr '\n' ';' <log.0)"

# ---- node groups, exact sums, bf16 ----
SP_RANKS_PER_NODE=2
export SP_RANKS_PER_NODE
rm -f log.*
NCCL_DOUBLE_LOG=log run 4 0 train d.deck run.dir=nodes train.bn_scope=node
log_says "^split color 1: rank 1 of 2" 3
log_says "over 2$" 0
SPTRAIN=$CPU
run 4 0 train d.deck run.dir=nodes-cpu run.device=cpu train.bn_scope=node
SPTRAIN=$CUDA
unset SP_RANKS_PER_NODE
close_to nodes nodes-cpu 1e-5
run 1 0 train d.deck run.dir=exact-1 train.deterministic=world
run 2 0 train d.deck run.dir=exact-2 train.deterministic=world
same_steps exact-1 exact-2
rm -f log.*
NCCL_DOUBLE_LOG=log run 2 0 train d.deck run.dir=bf16 run.reduce_wire=bf16
says out "bf16 on the wire"
log_says "of type 9" 1
close_to bf16 cpu 1e-2

# ---- without the library ----
SP_NCCL_LIB=$dir/nowhere run 2 0 train d.deck run.dir=auto
says out "MPI through the host (NCCL: SP_NCCL_LIB: .*nowhere"
SP_NCCL_LIB=$dir/nowhere run 2 6 train d.deck run.dir=none run.transport=nccl
one_diagnosis 'run.transport = "nccl": NCCL: SP_NCCL_LIB: .*nowhere'
NCCL_DOUBLE_VERSION=21003 run 2 0 train d.deck run.dir=old
says out "MPI through the host (NCCL: .* is version 2.10.3; 2.18 or later is needed)"
NCCL_DOUBLE_VERSION=21003 run 2 6 train d.deck run.dir=older run.transport=nccl
one_diagnosis "is version 2.10.3; 2.18 or later is needed"
run 2 0 train d.deck run.dir=shared run.oversubscribe=true 'run.devices=[0, 0]'
says out "MPI through the host (ranks share a GPU)"
run 2 2 train d.deck run.dir=cpus run.device=cpu run.transport=nccl
one_diagnosis "NCCL only sums memory of CUDA devices"

# ---- when it fails ----
watch_s=$(patience nccl-2)
# fails FAILURE TEXT ARGUMENTS...: all ranks leave with 6 and one diagnosis.
fails() {
    failure=$1 text=$2
    shift 2
    rm -rf run log.*
    NCCL_DOUBLE_LOG=log NCCL_DOUBLE_FAIL=$failure run 2 6 train d.deck run.dir=run "$@"
    failing=${failure#*:}
    gone_within $((watch_s + late_s)) "log.${failing%%:*}"
    one_diagnosis "$text"
    status run failed 6
}
fails init:1 "rank 1/2 .* NCCL: ncclCommInitRankConfig: unhandled system error: stand-in: no device"
fails error:1:9 "rank 1/2 .* NCCL: .*: unhandled system error: stand-in: socket"
log_says "^abort$" 1
# A sum that is refused within a group leaves no group open: the abort would wait for it.
fails refused:1:2 "rank 1/2 .* NCCL: ncclAllReduce: unhandled system error: stand-in: no room"
log_says "^abort$" 1
fails remote:1:9 "rank 1/2 .* NCCL: .*: unhandled system error: stand-in: socket"
fails absent:1:9 "error: " run.watchdog_s="$watch_s"
echo "ok"
