#!/bin/sh
# sptrain label shares one large scan between all ranks: each reads a part of its rows and
# writes some sections of the output. The bytes are those of one rank, also after a rank was
# killed and after a request to stop; nothing unfinished stays.
. "$SP_SRCDIR/tests/fixtures/program.sh"
SCANS=$SP_BUILDDIR/tests/tools/make_scans
COPY=$SP_BUILDDIR/tests/tools/laz_copy

# 79,000 points: five sections of LAS, two chunks of LAZ.
mkdir in
"$SCANS" train.las 24 1 1 && "$SCANS" in/a.las 25 3 9 && "$COPY" in/a.las in/b.laz ||
    fail "make_scans"
# A header that claims an extent of another place: the ranks cut twice.
cp in/a.las in/c.las
head -c 48 /dev/zero | dd of=in/c.las bs=1 seek=179 conv=notrunc 2>/dev/null
spvox convert --out t --voxel-size 1 --block 12 --overlap 3 --points --map \
    2=ground,5=vegetation,6=building --features number_of_returns,height train.las
deck 'family = "dummy";' 'train = "t-*.h5"; val = "t-*.h5"; voxel_size = 1.0;' \
    'size = 4;' 'steps = 5; warmup_steps = 1;' 'dir = "r"; eval_every = 0; threads = 1;'
run 1 0 base.deck

# same_outputs DIR: its outputs are those of one rank, and nothing else is in it.
same_outputs() {
    test "$(ls "$1")" = "$(ls want)" || fail "$1 has $(ls "$1")"
    same_files want "$1" "in $1"
    test ! -e "$1/.sptrain/tmp" || fail "unfinished files stay: $(ls "$1/.sptrain/tmp")"
}
label() {
    n=$1 want=$2 to=$3
    shift 3
    run "$n" "$want" label r in/* --out "$to" --confidence run.threads=1 run.watchdog_s=0 "$@"
}
label 1 0 want
test "$(wc -c <want/a.las)" -gt "$(wc -c <in/a.las)" || fail "no field was added"
for n in 2 3 4; do
    label $n 0 ranks$n
    same_outputs ranks$n
done

# A rank is killed while the first scan is predicted, and when its parts are complete.
for point in eval save; do
    rm -rf killed
    SP_TEST_FAULT=kill@1:$point:0 launch 2 label r in/* --out killed --confidence \
        run.threads=1 run.watchdog_s=0 && fail "rank 1 was not killed"
    says err '^fault: kill at '
    test ! -e killed/c.las || fail "all is done before $point"
    label 3 0 killed
    same_outputs killed
done
test -z "$(ls killed/.sptrain | grep part)" || fail "parts stay"

# A request to stop, of which one rank hears, ends all of them within the scan at hand.
rm -rf stopped
SP_TEST_FAULT=term@1:eval:0 label 2 75 stopped
says out '^stopped by signal 15: the outputs in stopped are complete, and the same command'
grep -q 'error: ' err && fail "a request is no error"
says stopped/.sptrain/status-label.json '"state":"stopped","exit_code":75,'
test "$(ls stopped)" = "" || fail "the scan at hand was finished: $(ls stopped)"
test ! -e stopped/.sptrain/tmp || fail "unfinished files stay"
label 3 0 stopped
same_outputs stopped
# Scans that are one sample each: the one at hand is finished, no other is begun.
SP_TEST_FAULT=term@0:eval:0 label 1 75 whole --block 0
test "$(ls whole)" = a.las || fail "finished: $(ls whole)"
test ! -e whole/.sptrain/tmp || fail "unfinished files stay"
label 2 0 whole --block 0
says out 'finished_before=1 '
exit 0
