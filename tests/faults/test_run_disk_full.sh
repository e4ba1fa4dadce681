#!/bin/sh
# A full disk costs checkpoints, not the run: each failure is reported, training goes on,
# and a failure of the last checkpoint ends with 4. With room again the run goes on from the
# last whole checkpoint.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
mkdir small
mount -t tmpfs -o size=8m tmpfs small 2>/dev/null || {
    echo "SKIPPED: no tmpfs can be mounted here (not root)" >&2
    exit 77
}
clean_up() { umount -l "$dir/small"; }
dummy_deck u.h5 'size = 2;' 'epochs = 2; warmup_steps = 5;' \
    'log_every = 1; checkpoint_every = 3; keep = 2; dir = "small/r";'
run 2 0 base.deck run.dir=want
sums want 16 >want.sums
SP_TEST_FAULT=kill@0:read:5 launch 2 base.deck
room=$(df -k small | awk 'END { print $4 }')
dd if=/dev/zero of=small/fill bs=1k count=$((room - 100)) 2>/dev/null # lines still fit
run 2 4 base.deck
says err 'no checkpoint of step [0-9]* was written; the run goes on'
test -z "$(ls small/r/checkpoints | grep tmp)" || fail "an unfinished file stays"
rm small/fill
run 2 0 base.deck
yields want.sums "weights after a full disk" sums small/r 16

# A disk on which not even a line fits any more: lines wait in memory and follow when there
# is room again, so that metrics.jsonl has no gap; status.json is written over in place.
fill() {
    dd if=/dev/zero of=small/fill bs=4k 2>/dev/null
    test "$(df -k small | awk 'END { print $4 }')" = 0 || fail "the disk is not full"
}
begin_stopped() {
    SP_TEST_FAULT=stop@0:read:5 begin 2 base.deck run.dir=small/q train.epochs="$1" \
        run.checkpoint_every=40 run.eval_every=0 run.resume=never
    await_stopped small/q 0
    fill
    kill -CONT "$pid"
    await "no word about lines that wait" grep -q 'the run goes on, and its lines wait in memory' err
}
begin_stopped 400
rm small/fill
finishes 0 "after a disk that was full"
says out 'small/q/metrics.jsonl: the lines that waited are written'
status small/q done 0
steps small/q | awk '$1 != NR { exit 1 } END { exit NR != 3200 }' || fail "gaps in metrics.jsonl"
begin_stopped 40
finishes 4 "on a disk that stays full"
status small/q failed 4
rm -r small/fill small/q
umount small
mount -t tmpfs -o size=8m,nr_inodes=12 tmpfs small || fail "mount" # no inodes instead
mkdir small/q
for i in 1 2 3 4 5 6 7 8 9; do : >small/$i; done 2>/dev/null
rm small/1 small/2 small/3 small/4 small/5
run 1 4 base.deck run.dir=small/q
status small/q failed 4
umount small
mount -t tmpfs -o size=8m tmpfs small || fail "mount"

# Nothing crashes wherever in a file the room ends, and a file under its final name is
# whole.
sed 's/^net.*/net : { layers = (LAYERS); };/' base.deck >narrow.deck
layers=
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    layers="$layers { name = \"c$i\"; op = \"conv\"; out = 4; kernel = 1; }, { name = \"n$i\"; op = \"batchnorm\"; },"
done
sed -i "s/LAYERS/$layers { name = \"e\"; op = \"linear\"; out = 4; }/" narrow.deck
umount small
for room in 80 84 88 92 96 100 104 108 112 116 120; do
    mount -t tmpfs -o size=${room}k tmpfs small || fail "mount"
    run 1 4 narrow.deck run.keep=9 run.eval_every=0
    for file in small/r/checkpoints/*; do
        test ! -e "$file" || "$SHARDS" sums "$file" >/dev/null || fail "$file is not whole"
    done
    umount small
done
