#!/bin/sh
# One training step of dummy and minkunet18 equals an independent float64 reference: loss,
# every gradient, running statistics. Skipped without numpy and h5py.
. "$SP_SRCDIR/tests/fixtures/program.sh"
find_python "numpy, h5py"
spvox scene --out one --samples 3 --extent 6 --seed 5 --voxel-size 0.75
shard=one-00000-of-00001.h5

check() { # check FAMILY STEM WIDTH RANKS...
    net="$shard $1 $2 $3 weights.h5" keys="net.family=$1 net.stem_kernel=$2 net.width=$3"
    shift 3
    # shellcheck disable=SC2086
    "$python" "$SP_SRCDIR/tests/run/reference.py" write $net || fail "write $net"
    rm -rf run1 run2
    for np; do
        # shellcheck disable=SC2086
        run $np 0 train "$SP_SRCDIR/input/default.deck" data.train=$shard 'data.val=[]' \
            data.voxel_size=0.75 run.dir=run$np $keys run.init_from=weights.h5 train.steps=1 \
            train.schedule=constant train.warmup_steps=0 train.weight_decay=0 batch.size=3 \
            'augment.scale=[]' augment.flip=false augment.rotate_z=false augment.drop=0 \
            augment.jitter=0 run.device=cpu
    done
    # shellcheck disable=SC2086
    "$python" "$SP_SRCDIR/tests/run/reference.py" compare $net run[12] ||
        fail "other numbers: $net"
}
check dummy 5 1 1 2
check minkunet18 5 0.25 1 2 # a sixteenth of the weights, most of whose time is a checkpoint's
check minkunet18 3 1 2
