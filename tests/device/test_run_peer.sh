#!/bin/sh
# On emulated devices that reach each other's memory, batch statistics of ranks go through
# it, with the bits of NCCL's sums. The program says why where they do not, and a rank that
# is lost is named although the others' devices wait for it.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
THROUGH="; batch statistics through the devices' memory"
NOT="; batch statistics likewise, since devices share no memory:"

three_steps "watchdog_s = 20;"

# ---- the same losses as through NCCL, in any order of what devices do ----
for n in 2 3; do
    rm -f log.*
    NCCL_DOUBLE_LOG=log run $n 0 train d.deck run.dir=peer-$n
    says out "fp32 on the wire (.*)$THROUGH"
    # three steps: NCCL has the gradients and what travels with them, no statistics
    small=$(grep -c "^sum.*type 8" log.0)
    [ "$small" = 3 ] || fail "$small small sums by NCCL: $(tr '\n' ';' <log.0)"
    SP_PEER_MEMORY=0 run $n 0 train d.deck run.dir=nccl-$n
    says out "$NOT SP_PEER_MEMORY=0"
    same_steps nccl-$n peer-$n
done
HC_SEED=7 HC_LAZY=1 HC_DELAY=1 healthy 3 train d.deck run.dir=lazy
same_steps nccl-3 lazy

# ---- nodes ----
SP_RANKS_PER_NODE=2
export SP_RANKS_PER_NODE
run 4 0 train d.deck run.dir=nodes train.bn_scope=node
says out "fp32 on the wire (.*)$THROUGH"
SP_PEER_MEMORY=0 run 4 0 train d.deck run.dir=nodes-nccl train.bn_scope=node
same_steps nodes-nccl nodes
run 4 0 train d.deck run.dir=world train.steps=1
says out "$NOT 2 nodes"
unset SP_RANKS_PER_NODE

# ---- without NCCL, or without devices of one's own ----
SP_NCCL_LIB=$dir/nowhere run 2 0 train d.deck run.dir=staged
says out "MPI through the host (NCCL: .*)$THROUGH"
same_steps nccl-2 staged
run 2 0 train d.deck run.dir=mpi run.transport=mpi train.steps=1
grep -q "batch statistics" out && fail "run.transport = mpi, and yet: $(grep statistics out)"
run 2 0 train d.deck run.dir=shared run.oversubscribe=true 'run.devices=[0, 0]' train.steps=1
says out "MPI through the host (ranks share a GPU)$NOT ranks share a GPU"
HC_NO_PEER=1 run 2 0 train d.deck run.dir=apart train.steps=1
says out "$NOT the device of rank 0 cannot reach the device of rank 1"

# ---- a rank that is lost ----
watch_s=$(patience lazy)
# lost FAULT TEXT: the others leave.
lost() {
    rm -rf run
    SP_TEST_FAULT=$1 launch 3 train d.deck run.dir=run run.watchdog_s="$watch_s"
    got=$?
    ended 6 "after $1"
    gone_within $((watch_s + late_s)) err
    one_diagnosis "$2"
    status run failed 6
}
lost hang@1:forward:2 "error: rank 1/3 .* hangs: no progress"
lost stop@2:backward:2 "error: rank 2/3 .* is silent"
rm -rf run # the launcher may be faster than any word
SP_TEST_FAULT=kill@1:backward:2 launch 3 train d.deck run.dir=run run.watchdog_s="$watch_s"
[ $? != 0 ] || fail "status 0 after a kill"
status run failed 6
says run/status.json "rank 1/3 .*died"
echo "ok"
