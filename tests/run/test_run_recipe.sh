#!/bin/sh
# How scans became samples: shards say it, training carries it into checkpoints, and
# `sptrain check MODEL` prints it, for a run folder or a checkpoint. Older files lack it,
# and nothing fails. Shards that differ are warned of once, or refused where no voxels
# could be right; a damaged recipe ends with 3 and its place.
. "$SP_SRCDIR/tests/fixtures/program.sh"
folders recipe recipe-25 recipe-255 recipe-foot coded
check() {
    alone 0 "$SPTRAIN" check "$1"
}
deck 'family = "dummy";' \
    'train = "recipe/s.h5"; val = "recipe/s.h5"; features = ["feature2", "feature0"];' \
    'size = 2; eval_size = 4;' 'steps = 2; warmup_steps = 1;'
for n in 1 3; do
    run $n 0 base.deck run.dir=r$n
    check r$n
    for line in 'r[13]/checkpoints/best.h5: step 2, epoch ' '^convtr3 .*conv_transpose' \
        '^inputs: feature2 (mean 7, standard deviation 3), feature0 (mean 5' \
        '^  voxels     0.5 m$' '^  samples    blocks of 50 m with a margin of 5 m$' \
        '^  columns    feature0$' '^  scans      LAS; coordinates in metre$' \
        '^  classes    0 class0 = 2:1$' '^             3 class3 = 32:31$'; do
        says out "$line"
    done
    test $n != 1 || sed 1d out >rest
    yields rest "recipe of a model trained on $n ranks" sed 1d out
done
check r1/checkpoints/step-000000002.h5
yields rest "the recipe of a file and of its folder" sed 1d out
# A continued run, and the network of a fine-tuned one, keep it.
run 2 0 base.deck run.dir=r1 train.steps=3
check r1/checkpoints/step-000000003.h5
says out '^  samples    blocks of 50 m'

# Older files and those of other programs.
run 2 0 base.deck run.dir=old data.train=coded/s.h5 data.val=recipe-255/s.h5
check old
says out '^  not kept: written by an older version or by another program'
says out '^  classes    0 class0 = 2:1$'
"$SHARDS" weights old/checkpoints/best.h5 w.h5 || fail "weights"
check w.h5
says out 'w.h5: only weights, without a deck'
alone 2 "$SPTRAIN" check r1 train.lr=1
one_diagnosis 'check r1: a model takes no keys, found train.lr=1'
mkdir -p empty/checkpoints
alone 2 "$SPTRAIN" check empty
one_diagnosis 'empty/checkpoints: no checkpoint'

# Shards of one data set that differ: one warning, and what all agree on is kept.
warned() {
    count=$(grep -c 'recipe-25' err)
    test "$count" = 1 || fail "$count warnings, expected one"
    says err "$1"
}
for n in 1 3; do
    run $n 0 base.deck run.dir=cut data.train='["recipe/s.h5","recipe-25/s.h5"]' run.resume=never
    warned 'recipe/s.h5 and recipe-25/s.h5: blocks of 50 with a margin of 5, but of 25 with 5;'
    run $n 0 base.deck run.dir=values data.train='["recipe/s.h5","recipe-255/s.h5"]' run.resume=never
    warned 'recipe-255/s.h5: column feature0 is feature0/1, but feature0/255; a model that'
    run $n 3 base.deck run.dir=foot data.train='["recipe/s.h5","recipe-foot/s.h5"]'
    one_diagnosis 'recipe-foot/s.h5: coordinates in metre, but in foot: files of one'
done
check cut
says out '^  samples    blocks of 50 m'
check values
says out '^  not kept'
# Data for validation, evaluation and prediction that are not like those of the training.
run 2 0 base.deck run.dir=v data.val=recipe-255/s.h5
says err 'recipe/s.h5 and recipe-255/s.h5: column feature0 is feature0/1, but feature0/255; convert'
run 2 0 eval base.deck run.dir=r1 data.val=recipe-255/s.h5
says err 'best.h5 and recipe-255/s.h5: column feature0 is feature0/1'
run 2 3 eval base.deck run.dir=r1 data.val=recipe-foot/s.h5
one_diagnosis 'best.h5 and recipe-foot/s.h5: coordinates in metre, but in foot'
run 2 0 eval base.deck run.dir=r1 data.val=recipe-25/s.h5
! grep -q 'recipe-25' err || fail "a warning of other blocks"

# Damage of a text, which HDF5 gives no checksum, and of the group's header, which it does.
for text in metre feature1 recipe; do
    at=$(LC_ALL=C grep -abo $text recipe/s.h5 | tail -1 | cut -d: -f1)
    cp recipe/s.h5 bad.h5
    printf X | dd of=bad.h5 bs=1 seek="$at" conv=notrunc 2>/dev/null
    refused 2 3 'bad.h5' base.deck run.dir=bad data.train=bad.h5 data.val='[]'
done
