#!/bin/sh
# A kernel that fails while it runs (an illegal address, memory with errors) is noticed by a
# later call of any kind, and from then on each call says so. The run ends with 7 on all
# ranks, soon, whichever call notices: of the plan, of a step, of a sum over ranks.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
three_steps "watchdog_s = 60;"
healthy 2 train d.deck run.dir=r

# broken FAULT SETTING OVERRIDES...: on one rank, and on the second of two. No end may take a
# limit of the program's own.
broken() {
    fault=$1 setting=$2
    shift 2
    for n in 1 2; do
        rm -rf r
        begin=$(date +%s)
        faulty="env $setting HC_FAULT=$fault $SPTRAIN train d.deck run.dir=r $*"
        if [ $n = 1 ]; then
            launched timeout -k 5 "$limit_s" "$MPIEXEC" -n 1 $faulty >out 2>err </dev/null
        else
            launched timeout -k 5 "$limit_s" "$MPIEXEC" -n 1 env "$setting" "$SPTRAIN" train \
                d.deck run.dir=r "$@" : -n 1 $faulty >out 2>err </dev/null
        fi
        ended 7 "$n ranks: $fault $setting $*"
        says err "error: .*: an illegal memory access was encountered"
        status r failed 7
        test $(($(date +%s) - begin)) -le "$late_s" || fail "a late end: $n ranks: $fault $setting $*"
    done
}

for fault in conv_kernel:21 update_kernel:3 plan_maps:25; do
    broken $fault HC_LAZY=0
    broken $fault HC_LAZY=1
done
broken wgrad_kernel:14 HC_LAZY=0 train.bn_scope=rank
broken update_kernel:3 HC_LAZY=1 run.transport=mpi
broken plan_each:5 HC_LAZY=1
