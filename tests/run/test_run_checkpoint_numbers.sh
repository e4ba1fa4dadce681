#!/bin/sh
# Checksums prove bytes, not their author: a checkpoint with right checksums and impossible
# numbers is refused with 3 where it is named, by training and by evaluation, and skipped
# like a damaged one where the run looks for the newest.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" plain p.h5 || fail "make_shards"
dummy_deck p.h5 'size = 2;' 'steps = 4; warmup_steps = 1; class_weights = "inverse";' \
    'log_every = 1; checkpoint_every = 2; dir = "r";'
run 2 0 base.deck
good=r/checkpoints/step-000000004.h5
echo "secret first line" >secret.txt

# hostile RANKS NAME VALUE TEXT
hostile() {
    "$SHARDS" craft $good x.h5 "$2" "$3" || fail "craft $2"
    rm -rf q && cp -r r q && cp x.h5 q/checkpoints/step-000000004.h5
    rm q/status.json q/metrics.jsonl
    refused "$1" 3 "x.h5:.*$4" base.deck run.dir=named run.resume=x.h5
    grep -q secret err && fail "another file is shown"
    run "$1" 0 base.deck run.dir=q
    says err "damaged checkpoint skipped: q/checkpoints/step-000000004.h5:.*$4"
    says q/metrics.jsonl '"event":"end","state":"done","step":4,'
}
most=9223372036854775807
hostile 3 position 6 'position is 6, expected less than the 6 samples'
hostile 1 position -1 'position is -1'
hostile 1 position 1 'samples_seen is 8, expected epoch 1 times 6 samples and position 1'
hostile 1 step $most "step is $most, expected 0 to 8"
hostile 1 epoch $most "epoch is $most, expected 0 to 4"
hostile 1 samples_seen $most "samples_seen is $most"
hostile 1 updates $most "updates is $most, expected 0 to 4"
hostile 1 skipped 1 'skipped is 1, expected 0 to 0'
hostile 1 metrics_bytes -1 'metrics_bytes is -1'
hostile 1 best_miou 7 'best_miou is 7'
hostile 1 seed 99 'seed is 99, expected 1'
for n in 0 65537; do
    hostile 1 classes $n "attribute class_names has $n names, expected 1 to 65536"
done
hostile 3 rank5 '' '/extra: 5 dimensions, expected at most 4'
hostile 1 /loss/class_weights -1 '/loss/class_weights: element 3 is -1'
hostile 1 /normalization/mean inf '/normalization/mean: element 2 is inf'
hostile 1 /params/conv2/weight unsummed '/params/conv2/weight: missing attribute crc32c'
hostile 3 deck "@include \"$dir/secret.txt\"" '@include in a text'
for std in nan 0 -1; do
    hostile 1 /normalization/std $std "/normalization/std: element 2 is $std"
    run 1 3 eval base.deck run.dir=e run.checkpoint=x.h5
    one_diagnosis "x.h5:/normalization/std: element 2 is $std, expected a finite number above 0"
done
# The best score is one on data.val: other data begin it anew. A file of an older version
# does not say which data it had, and keeps its score.
cp p.h5 v.h5
"$SHARDS" craft $good known.h5 best_miou 1 && "$SHARDS" craft known.h5 older.h5 val_hash 0 || fail "craft"
# begun_anew TIMES FILE VAL BEST: how often a run that continues FILE on VAL says so.
begun_anew() {
    rm -rf q && cp -r r q && cp "$2" q/checkpoints/step-000000004.h5
    run 2 0 base.deck run.dir=q train.steps=6 data.val="$3"
    same q/checkpoints/best.h5 "$4" "best.h5 of $2 on $3"
    test "$(grep -c 'begins anew$' out)" = "$1" || fail "$2 on $3: begun anew"
}
begun_anew 0 known.h5 p.h5 r/checkpoints/best.h5
begun_anew 0 older.h5 v.h5 r/checkpoints/best.h5
begun_anew 1 known.h5 v.h5 q/checkpoints/step-000000006.h5
# A deck that this version cannot read is no damage: the run ends, and begins nothing anew.
"$SHARDS" craft $good x.h5 deck 'train2 : { lr = 1; };' || fail "craft deck"
rm -rf q && cp -r r q && cp x.h5 q/checkpoints/step-000000004.h5
run 1 3 base.deck run.dir=q
one_diagnosis 'attribute deck: .*step-000000004.h5:.*unknown section train2'
run 1 3 eval base.deck run.dir=e run.checkpoint=x.h5
