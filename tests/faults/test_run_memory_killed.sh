#!/bin/sh
# Ranks that need more memory together than their node, or its cgroup, has: check and the
# training cut the steps alike or refuse alike, and where the kernel ends a rank all the
# same, its out-of-memory killer is named with limit and peak.
. "$SP_SRCDIR/tests/fixtures/program.sh"
group=
for folder in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    test -e $folder/cgroup.procs && mkdir "$folder/sptrain-test-$$" 2>/dev/null || continue
    group=$folder/sptrain-test-$$
    for limit in memory.limit_in_bytes memory.max; do
        test -w "$group/$limit" && break 2
    done
    rmdir "$group"
    group=
done
test -n "$group" || skip "no cgroup whose memory can be limited (not root, or a container)"
clean_up() { rmdir "$group"; }
spvox() { timeout "$limit_s" "$SP_BUILDDIR/spvox" "$@" >out 2>err || fail "spvox $*"; }
spvox scene --out s --samples 4 --extent 40 --seed 3 --voxel-size 0.5
deck 'family = "minkunet18"; width = 0.5;' \
    'train = "s-00000-of-00001.h5"; val = "s-00000-of-00001.h5";' 'size = 4; eval_size = 2;' \
    'steps = 2; warmup_steps = 0;' 'dir = "r"; threads = 1; device = "cpu";'
printf '#!/bin/sh\necho $$ >%s/cgroup.procs && exec "$@"\n' "$group" >within
chmod +x within
launcher=$MPIEXEC
MPIEXEC=$dir/limited
printf '#!/bin/sh\nexec "%s/within" "%s" "$@"\n' "$dir" "$launcher" >limited
chmod +x limited

# need RANKS: the MiB of each rank as check foresees them without a limit.
need() {
    MPIEXEC=$launcher run "$1" 0 check base.deck
    sed -n 's/.*memory: about \([0-9]*\) MiB a rank.*/\1/p' out
}
mib=$(need 2)
test "$mib" -gt 100 || fail "a step of $mib MiB"

# Room for one rank and a third, where two are started.
echo $((mib * 4 / 3 * 1048576)) >"$group/$limit" || skip "the limit cannot be set"
for command in check train; do
    run 2 5 $command base.deck
    says err "memory: the largest step needs about [0-9.]* MiB of each rank, 2 ranks of a node have [0-9.]* MiB"
    one_diagnosis 'needs about [0-9.]* MiB .*run.memory_mb'
    run 1 0 $command base.deck run.resume=never
    says_not err 'memory:'
done

# Weights alone that do not fit twice.
rm -rf r
for command in check train; do
    refused 2 5 'the 2 ranks of this node need about .* MiB each .* start fewer ranks on a node' \
        $command base.deck net.width=0.75
done

# Told to take what there is not, a rank is killed; who did it is said.
rm -rf r
launch 2 base.deck run.memory_mb=100000
got=$?
test $got != 0 || fail "status 0 with a rank that was killed"
status r failed 6
says r/status.json "rank [01]/2 host $(hostname) .*died.*; memory ran out: the kernel's out-of-memory killer has ended [12] process.* of this job's cgroup (limit $((mib * 4 / 3)).0 MiB, peak $((mib * 4 / 3)).0 MiB, .*sptrain-test-"
exit 0
