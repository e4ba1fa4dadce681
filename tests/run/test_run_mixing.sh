#!/bin/sh
# Mixed samples (augment.mix) are the same on any number of ranks and after a continuation
# in the middle of an epoch; they count as both samples for budgets and memory, steps of
# later epochs allocate nothing, and evaluations are not mixed. Sets of one sample, empty
# and damaged partners work or are named.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 && "$SHARDS" box one.h5 1 500 1 2 4 0 || fail "make_shards"
narrow_deck u.h5 'size = 4; eval_size = 4;' 'epochs = 3; warmup_steps = 2;' 'log_every = 1;'
# 15 samples: 12 steps of 4.
last=12
polar='augment.mix=polarmix augment.mix_p=0.9 augment.mix_classes=["1","2"]'
cloud='augment.mix=mix3d augment.mix_p=0.9'
laser='augment.mix=laserpolarmix augment.mix_p=0.9 augment.mix_bands=[2,5] augment.mix_inclination=[-60,60]
    augment.mix_sensor=[700,700,700]
    augment.mix_classes=["1"]'

total() {
    awk '{ n += $1 } END { print n }'
}

# shellcheck disable=SC2086 # lists of overrides
for kind in polar cloud laser; do
    eval "keys=\$$kind"
    same_on_ranks $kind $last $keys train.deterministic=world train.schedule=constant
done

# Killed in the middle of the second epoch, and continued on as many ranks.
# shellcheck disable=SC2086
for n in 1 2; do
    keys=$polar
    test $n = 1 || keys=$cloud
    run $n 0 base.deck $keys run.dir=through$n
    SP_TEST_FAULT=kill@0:update:6 launch $n base.deck $keys run.dir=killed$n run.checkpoint_every=1 &&
        fail "the run was not killed"
    run $n 0 base.deck $keys run.dir=killed$n run.checkpoint_every=1
    sums through$n $last >want
    yields want "killed and continued on $n ranks" sums killed$n $last
done

# Without dropping and merging, a sample that is united with another one has the voxels of
# both, less those that coincide. One sample is mixed with itself: at least its own.
plain='augment.drop=0.0 augment.rotate_z=false augment.scale=[]'
# shellcheck disable=SC2086
{
    run 1 0 base.deck $plain run.dir=alone train.steps=3
    run 1 0 base.deck $plain augment.mix=mix3d augment.mix_p=0 run.dir=never train.steps=3
    run 1 0 base.deck $plain augment.mix=mix3d augment.mix_p=1 run.dir=both train.steps=3
    voxels alone >want
    yields want "mix_p = 0 mixes" voxels never
    sums alone 3 >want
    yields want "mix_p = 0 changes bits" sums never 3
    test "$(voxels both | total)" -gt "$(voxels alone | total)" || fail "mixed samples are no larger"
    run 1 0 base.deck $plain data.train=one.h5 data.val=[] batch.size=1 train.steps=3 augment.flip=false \
        augment.mix=mix3d augment.mix_p=1 run.dir=self
    test "$(voxels self | sort -u)" = 500 || fail "one sample with itself: $(voxels self)"
    run 2 0 base.deck data.train=one.h5 data.val=[] train.steps=3 $polar run.dir=self-polar
}

# Evaluations are not mixed.
# shellcheck disable=SC2086
{
    run 1 0 eval base.deck $polar data.val=u.h5 run.dir=alone
    run 1 0 eval base.deck data.val=u.h5 run.dir=alone
    evaluations alone | tail -2 | sed 's/.*"confusion"/"confusion"/' | sort -u >got
    test "$(wc -l <got)" = 1 || fail "an evaluation is mixed"
}

# The budget holds for both samples together.
"$SHARDS" box even.h5 12 1000 1 2 4 0 || fail "make_shards"
# shellcheck disable=SC2086
run 2 0 base.deck $cloud augment.mix_p=1 data.train=even.h5 data.val=[] batch.voxel_budget=2000 train.epochs=1 run.dir=budget
grep '"event":"step"' budget/metrics.jsonl | grep -qv '"micro_batches":2' && fail "mixed samples share a budget"

# What is foreseen is at least what is taken, and a bound is kept.
spvox scene --out s --samples 6 --extent 40 --seed 3
for kind in polar cloud; do
    eval "keys=\$$kind"
    # shellcheck disable=SC2086
    set -- base.deck $keys 'data.train=s-*.h5' data.val=[] net.width=0.375 run.device=cpu run.threads=1
    takes_foreseen "$@"
    peak 1 0 train "$@" run.dir=$kind-bound run.memory_mb=$((foreseen * 3 / 4))
    says err 'cut into micro-batches'
    test "$taken" -le $((foreseen * 3 / 4)) || fail "$kind: $taken MiB taken of $((foreseen * 3 / 4))"
done

# After the first epoch a step allocates nothing.
for kind in polar cloud laser; do
    eval "keys=\$$kind"
    # shellcheck disable=SC2086
    allocates_nothing 1 $last 4 $keys data.val=[]
done

# A damaged partner is named, or leaves its samples unmixed.
cp u.h5 damaged.h5 && "$SHARDS" bad-feature damaged.h5 0 || fail "make_shards"
# shellcheck disable=SC2086
{
    run 1 3 base.deck $cloud data.train='["u.h5","damaged.h5"]' data.val=[] run.dir=stopped
    one_diagnosis 'damaged.h5:/crc32c: sample 0'
    run 1 0 base.deck $cloud data.train='["u.h5","damaged.h5"]' data.val=[] run.dir=skipped data.on_error=skip
    test "$(grep -c 'sample 0 left out: damaged.h5' err)" = 1 || fail "one warning expected"
}

# Classes are named as the data name them, or by their number.
run 1 3 check base.deck augment.mix=polarmix augment.mix_classes=car
one_diagnosis 'augment.mix_classes: "car" is no class of u.h5, expected names of .* or numbers from 0 to 3'
run 2 3 base.deck augment.mix=polarmix 'augment.mix_classes=["1","4"]' run.dir=refused
one_diagnosis 'augment.mix_classes: "4" is no class of u.h5'
run 1 2 check base.deck augment.mix=mixup
one_diagnosis 'augment.mix = "mixup" is not one of none|mix3d|polarmix|lasermix|laserpolarmix'
