#!/bin/sh
# A request to stop ends convert, scene and apply with 75 on all ranks and one plain line,
# whichever rank gets it; nothing unfinished stays, and outputs of before are as they were. Two
# that make shards of one name at a time do not mix them, and of several first starts of
# sptrain one makes the sample data.
. "$SP_SRCDIR/tests/fixtures/program.sh"
SPTRAIN=$SP_BUILDDIR/spvox # what run starts
awk 'BEGIN { srand(3); print "x y z intensity label"
    for (i = 0; i < 3000; i++) printf "%.2f %.2f %.2f 1 %d\n", 40 * rand(), 40 * rand(), rand(), i % 2 }' >a.txt
cp a.txt b.txt
mkdir made

# stopped FAULT RANKS WHAT ARGUMENTS...
stopped() {
    ls -l --full-time made >before
    fault=$1 ranks=$2
    shift 2
    SP_TEST_FAULT=term@$fault run "$ranks" 75 "$@"
    says err '^fault: term at '
    test "$(grep -c '^stopped by signal 15, and nothing was written: run the same command again$' out)" = 1 ||
        fail "$*: no line, or several"
    ! grep 'error: ' err || fail "a request is no error"
    ls -l --full-time made >after
    same before after "$* left: $(ls made)"
}
convert="convert --voxel-size 0.5 --points --shards 3 a.txt b.txt --out made/s"
scene="scene --samples 4 --shards 2 --extent 6 --seed 1 --out made/scene"
for pass in "nothing is there" "shards of before"; do
    # shellcheck disable=SC2086
    for n in 1 3; do
        stopped 0:voxelize:0 $n $convert --block 10
        stopped $((n - 1)):write:0 $n $convert --block 10
        stopped 0:voxelize:0 $n $convert
        stopped $((n / 2)):write:0 $n $scene
    done
    # What a killed run leaves is removed by the next, whatever ranks, inputs and shards it has.
    # shellcheck disable=SC2086
    SP_TEST_FAULT=kill@2:write:0 launch 3 $convert --block 10 --shards 4 && fail "not killed"
    says err '^fault: kill at '
    ls made >after
    test "$(grep -c '\.tmp$\|\.part$' after)" -gt 5 || fail "left by a killed run: $(cat after)"
    run 1 0 convert a.txt --out made/s
    ls made >after
    ! grep '\.tmp$\|\.part$' after || fail "left by a killed run"
    rm made/s-00000-of-00001.h5
    # shellcheck disable=SC2086
    run 2 0 $convert --block 10
    # shellcheck disable=SC2086
    run 2 0 $scene
done
# Nobody else makes shards of the same name meanwhile.
SP_TEST_FAULT=stop@0:voxelize:0 "$SPTRAIN" convert a.txt --out made/s >out1 2>err &
job=$!
await "no fault" grep -q '^fault: stop' err
await "convert is not stopped" is_state T $job
cp err err1
run 2 4 convert b.txt --out made/s
says err 'made/s: another process is making shards of this name'
kill -CONT $job
finish
test $got = 0 || fail "convert: $(cat err1)"
test ! -e made/s.lock || fail "the lock stays"
rm made/s-00000-of-00001.h5
SPTRAIN=$SP_BUILDDIR/sptrain
run 1 0 data.train='made/s-*.h5' 'data.val=[]' net.family=dummy train.steps=1 run.dir=r
run 1 0 predict data.train='made/s-*.h5' data.val='made/s-*.h5' net.family=dummy run.dir=r
SPTRAIN=$SP_BUILDDIR/spvox
for format in txt ply; do
    for n in 1 2; do
        stopped 0:write:0 $n apply r/predictions/*.h5 a.txt --out made/a.$format
    done
    run 1 0 apply r/predictions/*.h5 a.txt --out made/a.$format
    stopped 0:write:0 1 apply r/predictions/*.h5 a.txt --out made/a.$format
done
# Of several first starts of the default deck one makes the sample data.
for n in 1 2 3; do
    "$SP_BUILDDIR/sptrain" check run.dir="check$n" >"made.$n" 2>err.$n || echo "$n ended with $?" >bad &
done
wait
test ! -e bad || fail "$(cat bad err.?)"
cat made.? >made.all
test "$(grep -c 'making sample data' made.all)" = 1 || fail "$(cat made.?)"
