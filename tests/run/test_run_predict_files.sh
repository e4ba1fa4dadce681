#!/bin/sh
# Predictions of many shards: few files are open at a time, the bytes are the same on any
# number of ranks and under any limit, and a failure leaves nothing behind.
. "$SP_SRCDIR/tests/fixtures/program.sh"
n_shards=60
"$SHARDS" bare bare.h5 && "$SHARDS" bare-huge huge.h5 || fail "make_shards"
spvox scene --out s --samples 100 --shards $n_shards --extent 5 --seed 3 --voxel-size \
    0.5 --points
test "$(ls s-*.h5 | wc -l)" = $n_shards || fail "$(ls s-*.h5 | wc -l) shards"
deck 'family = "dummy";' 'train = "s-0000[0-3]*.h5"; val = "s-*.h5";' \
    'size = 2; eval_size = 7;' 'steps = 2; warmup_steps = 1;' \
    'dir = "r"; eval_every = 0; threads = 1;'
run 2 0 base.deck
model=r/checkpoints/step-000000002.h5

run 1 0 predict base.deck run.dir=want run.checkpoint=$model run.logits=true
test "$(ls want/predictions | wc -l)" = $n_shards || fail "not one file a shard"
for n in 1 3; do
    (
        ulimit -n $n_shards # a rank has some 40 of its own and of its caller's
        run $n 0 predict base.deck run.dir=few$n run.checkpoint=$model run.logits=true \
            batch.eval_size=20
    ) || exit 1
    same_files want/predictions "few$n/predictions" "on $n ranks"
    test "$(ls few$n/predictions | wc -l)" = $n_shards || fail "few$n: other files"
done

# left DIR WANT: all that is in the folder of the predictions.
left() {
    found=$(ls -A "$1/predictions" 2>/dev/null | tr '\n' ' ')
    test "$found" = "$2" || fail "$1/predictions has: $found"
}
# A failure after some files are complete and before others are begun: none stays, but
# for the predictions that were there before.
for i in 1 2 3 4 5 6 7 8 9; do cp bare.h5 b$i.h5; done
mv huge.h5 b5.h5
sed 's/"s-[^"]*"/"bare.h5"/g; s/family = .*;/family = "minkunet14A"; width = 0.1; };/' base.deck \
    >bare.deck
run 1 0 bare.deck run.dir=b
for n in 1 3; do
    run $n 8 predict bare.deck run.dir=f$n data.val='b[1-9].h5' \
        run.checkpoint=b/checkpoints/step-000000002.h5
    one_diagnosis 'b5.h5: sample 2: .*the output of layer `final` is not finite'
    left f$n ""
    test ! -e f$n/predictions || fail "an empty folder stays"
done
run 2 0 predict bare.deck run.dir=b data.val='b[1-3].h5'
run 2 8 predict bare.deck run.dir=b data.val='b[1-9].h5'
left b "b1.h5 b2.h5 b3.h5 "
# A name that cannot be given: the message tells which files are new, and the same command
# again makes all of them.
rm b/predictions/b2.h5
mkdir b/predictions/b2.h5
run 2 4 predict bare.deck run.dir=b data.val='b[1-3].h5'
one_diagnosis 'of the 3 files of predictions the first 1 are new, the others as they were: run the'
left b "b1.h5 b2.h5 b3.h5 "
rmdir b/predictions/b2.h5
run 2 0 predict bare.deck run.dir=b data.val='b[1-3].h5'
# The second file cannot become as large as it must.
for i in 1 2 3; do
    "$SHARDS" box c$i.h5 2 $((500 + i / 2 * 15000)) 1 3 64 0 || fail "make_shards box"
done
run 1 0 base.deck run.dir=c data.train=c1.h5 train.steps=1 'data.val=[]'
(
    ulimit -f 12000 # of 512 bytes or of 1024, by the shell
    run 1 4 predict base.deck run.dir=c 'data.val=["c1.h5","c2.h5","c3.h5"]' run.logits=true
) || exit 1
left c ""
# Names that predictions cannot have.
cp bare.h5 b1.h5.tmp
run 2 2 predict bare.deck run.dir=b 'data.val=["b1.h5","b1.h5.tmp"]'
one_diagnosis 'data.val: b1.h5.tmp: its predictions would have the name'
left b "b1.h5 b2.h5 b3.h5 "
