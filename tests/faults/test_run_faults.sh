#!/bin/sh
# Bad input and bad numbers end all ranks with the right status and one diagnosis, and
# status.json says it.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 && "$SHARDS" plain p.h5 && "$SHARDS" classes c.h5 || fail "make_shards"
cp u.h5 label.h5 && "$SHARDS" bad-label label.h5 12 || fail "make_shards"
cp u.h5 crc.h5 && "$SHARDS" bad-feature crc.h5 12 || fail "make_shards"
head -c 5000 u.h5 >short.h5
echo "not HDF5" >text.h5
dummy_deck u.h5 'size = 3;' 'steps = 6; warmup_steps = 1;' 'dir = "r"; log_every = 1;'

# refuse STATUS TEXT ARGUMENTS...: on one and two ranks.
refuse() {
    want=$1 text=$2
    shift 2
    for n in 1 2; do
        rm -rf r
        refused $n "$want" "$text" "$@"
        test "$want" = 2 || test "$want" = 4 || status r failed "$want"
    done
}

refuse 3 'no.h5' base.deck data.train=no.h5
refuse 3 'none-\*.h5' base.deck 'data.train=none-*.h5'
refuse 3 'text.h5' base.deck data.train=text.h5
refuse 3 'short.h5' base.deck data.val=short.h5
# One sample in the middle of the training, which one rank alone reads.
refuse 3 'label.h5:/labels: sample 12.* 99' base.deck data.train=label.h5 data.verify=false
refuse 3 'crc.h5:/crc32c: sample 12' base.deck data.train=crc.h5
refuse 3 'crc.h5:/crc32c: sample 12' base.deck data.val=crc.h5
refuse 3 'c.h5.*5' base.deck data.val=c.h5
refuse 3 'u.h5.*0.5' base.deck data.voxel_size=0.7
refuse 3 'feature0' base.deck 'data.features=["featur0"]'
run 2 0 base.deck data.train=crc.h5 data.on_error=skip run.dir=skip train.class_weights=inverse
says err 'sample 12 left out: crc.h5'
# The weights of the classes are without it too, however it is found to be damaged.
run 2 0 base.deck data.train=label.h5 data.on_error=skip run.dir=left train.class_weights=inverse
sums skip 6 >want
yields want "two damages of one sample" sums left 6
# It is named once, not in each epoch. Where no other sample has a label nothing is trained.
run 1 0 base.deck data.train=crc.h5 data.on_error=skip run.dir=once train.steps=12
test "$(grep -c 'sample 12 left out' err)" = 1 || fail "named $(grep -c 'left out' err) times"
"$SHARDS" box one.h5 1 90 1 1 4 0 && "$SHARDS" bad-feature one.h5 0 || fail "make_shards"
refused '1 2' 3 \
    'one.h5:/crc32c: sample 0 .*; no sample that can be read has a label: there is nothing to train on' \
    base.deck data.train=one.h5 data.val='[]' data.on_error=skip run.dir=nothing

# Decks: the place and the nearest name.
refuse 2 'train.epochs' base.deck train.epoch=3
refuse 2 '"\{0,1\}train"\{0,1\}' trian
refuse 2 'train' base.deck trian.epochs=3
refuse 2 'batch.size' base.deck batch.size=0
sed 's/steps = 6/stepps = 6/' base.deck >bad.deck
refuse 2 'bad.deck:4.*train.steps' bad.deck
refuse 2 'no.deck' no.deck
refuse 2 'in fp32 and bf16 only' base.deck train.precision=tf32
refuse 7 'run.device' base.deck run.device=cuda

# A folder that cannot be made.
touch file
refuse 4 'file/r' base.deck run.dir=file/r

# Numbers that stay non-finite: status 8, and the checkpoints before them stay.
run 2 8 base.deck run.dir=nan train.lr=1e30 train.steps=100 train.nonfinite_limit=4 \
    run.checkpoint_every=1 run.keep=2 run.eval_every=0
one_diagnosis 'non-finite 4 steps in a row'
says out ' loss=nan '
says_not out 'loss=-nan'
status nan failed 8
last=$(steps nan | sed -n 's/ null$//p' | head -1 | cut -d ' ' -f 1)
test -n "$last" || fail "no step with loss null"
says nan/metrics.jsonl "\"step\":$((last + 3)),.*\"loss\":null.*\"grad_norm\":null"
test -f "nan/checkpoints/step-$(printf %09d $((last - 1))).h5" || fail "the last good checkpoint is gone"
test -f "nan/checkpoints/step-$(printf %09d "$last").h5" && fail "a checkpoint without numbers"

# Weights alone, as another program would write them.
run 1 0 base.deck run.dir=w
best=w/checkpoints/step-000000006.h5
"$SHARDS" weights $best ok.h5 || fail "weights"
"$SHARDS" weights $best missing.h5 /params/bn2/bias || fail "weights"
"$SHARDS" weights $best shape.h5 "" /params/conv4/weight || fail "weights"
rm -rf r
run 2 0 base.deck run.init_from=ok.h5 train.lr=0
sums r 6 | grep params >a
sums w 6 | grep params >b
same a b "weights of init_from"
run 2 0 eval base.deck run.dir=e run.checkpoint=ok.h5
refuse 3 'missing.h5: /params/bn2/bias is missing' base.deck run.init_from=missing.h5
refuse 3 'shape.h5:/params/conv4/weight' base.deck run.init_from=shape.h5
for name in conv4/weight conv4/bias bn1/weight; do # a dimension of 1 changes nothing
    "$SHARDS" weights $best one.h5 "" /params/$name one || fail "weights"
    run 1 0 base.deck run.resume=never run.init_from=one.h5 train.lr=0
    sums r 6 | grep params >a
    same a b "weights of $name with a dimension of 1"
done
for name in /params/conv2/weight /buffers/bn3/running_var; do
    "$SHARDS" weights $best nan.h5 "" $name nan || fail "weights"
    refuse 3 "nan.h5:$name: element .* is nan" base.deck run.init_from=nan.h5
done
refuse 2 'ok.h5 holds weights only' base.deck run.resume=ok.h5
