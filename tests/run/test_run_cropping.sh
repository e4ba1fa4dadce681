#!/bin/sh
# Cropped samples (augment.range, augment.crop) and changed colours (augment.color_*) are the
# same on any number of ranks, with any number of readers and after a continuation in the
# middle of an epoch; keys that are off keep all bits; budgets and memory know of crops; data
# and keys that do not fit are refused.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
deck 'family = "minkunet14A"; width = 0.1; stem_kernel = 3;' 'train = "u.h5"; val = [];' 'size = 4;' \
    'epochs = 3; warmup_steps = 2;' 'log_every = 1;'
world='train.deterministic=world train.schedule=constant'
# 15 samples: 12 steps of 4.
last=12
# shellcheck disable=SC2089 # quotes of the deck
colors='augment.color_columns=["feature0"] augment.color_max=1 augment.color_contrast=0.5 augment.color_shift=0.2
    augment.color_jitter=0.1 augment.color_drop=0.2'
sphere='augment.crop=sphere augment.crop_voxels=50 augment.crop_p=0.7 augment.mix=mix3d augment.mix_p=0.5'
# shellcheck disable=SC2034 # by eval
box='augment.crop=box augment.crop_size=[3,3,0] augment.range=[-1000,-1000,-1000,1000,1000,1000]'

# shellcheck disable=SC2086 # lists of overrides
for kind in colors sphere box; do
    eval "keys=\$$kind"
    same_on_ranks $kind $last $keys $world
    run 1 0 base.deck $world run.dir=$kind-plain
    sums $kind-plain $last >plain
    cmp -s want plain && fail "$kind changes nothing"
done

# Keys that change nothing keep all bits.
# shellcheck disable=SC2086
for off in 'augment.crop=box augment.crop_size=[9e8,9e8,0] augment.range=[-1e9,-1e9,-1e9,1e9,1e9,1e9]' \
    'augment.crop=sphere augment.crop_voxels=5 augment.crop_p=0' \
    'augment.color_jitter=0.5 augment.color_jitter_p=0 augment.color_shift=0.5 augment.color_shift_p=0'; do
    run 2 0 base.deck $world run.dir=off run.resume=never $off
    yields plain "$off" sums off $last
done

# A step has at most as many voxels as its crops leave, and a budget counts these.
plain='augment.drop=0.0 augment.rotate_z=false augment.scale=[]'
"$SHARDS" box even.h5 12 1000 1 2 4 0 || fail "make_shards"
# shellcheck disable=SC2086
{
    run 1 0 base.deck $plain data.train=even.h5 augment.crop=sphere augment.crop_voxels=40 train.steps=3 run.dir=few
    test "$(voxels few | sort -u)" = 160 || fail "4 crops of 40 voxels: $(voxels few)"
    run 2 0 base.deck $plain data.train=even.h5 augment.crop=sphere augment.crop_voxels=500 batch.voxel_budget=1000 \
        train.epochs=1 run.dir=budget
    grep '"event":"step"' budget/metrics.jsonl | grep -qv '"micro_batches":1' && fail "crops are not counted"
    run 2 0 base.deck $plain data.train=even.h5 augment.crop=sphere augment.crop_voxels=500 augment.crop_p=0.9 \
        batch.voxel_budget=1000 train.epochs=1 run.dir=unsure
    grep '"event":"step"' unsure/metrics.jsonl | grep -qv '"micro_batches":2' && fail "chance is counted upon"
}

# What is foreseen is at least what is taken.
spvox scene --out s --samples 6 --extent 40 --seed 3
whole=
for keys in augment.crop=none 'augment.crop=sphere augment.crop_voxels=1000' 'augment.crop=sphere augment.crop_size=[8]'; do
    # shellcheck disable=SC2086
    set -- base.deck $keys 'data.train=s-*.h5' net.width=0.375 run.device=cpu run.threads=1
    takes_foreseen "$@"
    whole=${whole:-$foreseen}
    case $keys in
    *voxels*) test "$foreseen" -lt $((whole * 2 / 3)) || fail "$foreseen MiB foreseen with crops, $whole without" ;;
    esac
done

# After the first epoch a step allocates nothing.
# shellcheck disable=SC2086,SC2090
allocates_nothing 1 $last 4 $colors $sphere

# A sample that the range leaves nothing of is named once.
run 1 0 base.deck augment.range='[1e6,1e6,1e6,2e6,2e6,2e6]' train.steps=3 run.dir=empty
test "$(grep -c 'sample .* of u.h5 has no voxel within augment.range: it trains nothing (reported once)' err)" = 1 ||
    fail "one warning expected"

refused_twice 2 'augment.color_\* changes colours, but the columns in use, \["feature0", "feature1", "feature2"\] of u.h5, have no red' \
    augment.color_jitter=0.05
refused_twice 2 'augment.color_columns: "red" is no column of u.h5 that is used' augment.color_jitter=0.05 \
    'augment.color_columns=["red"]'
refused_twice 2 'augment.crop = "box" needs augment.crop_size or augment.crop_voxels' augment.crop=box
refused_twice 2 'augment.crop_size: a sphere takes \[\] or \[radius\], above 0' augment.crop=sphere 'augment.crop_size=[1,2,3]'
refused_twice 2 'augment.crop_size: a box takes \[\] or edges \[x, y, z\], above 0' augment.crop=box 'augment.crop_size=[0,0,0]'
refused_twice 2 'augment.range takes \[\] or \[x0, y0, z0, x1, y1, z1\]' 'augment.range=[0,0,0,1,1,0]'
refused_twice 2 'augment.mix_bands: 2.5, expected whole numbers' 'augment.mix_bands=[2.5]'
refused_twice 2 'augment.mix_inclination takes \[low, high\]' 'augment.mix_inclination=[3,-25]'
refused_twice 2 'augment.mix_sensor takes \[x, y, z\]' 'augment.mix_sensor=[1]'
run 1 2 base.deck augment.mix=lasermix augment.mix_p=1 'augment.mix_sensor=[1e6,0,0]' run.dir=far
one_diagnosis 'augment.mix = "lasermix" needs scans in coordinates about their sensor (augment.mix_sensor): sample'
run 1 0 check base.deck augment.crop_voxels=5 'augment.mix_bands=[3]'
says err 'ignored, not used by augment.crop = "none": augment.crop_voxels'
says err 'ignored, not used by this augment.mix: augment.mix_bands'
