#!/bin/sh
# One training step of dummy and minkunet18 equals an independent float64 reference: loss,
# every gradient, running statistics. Skipped without numpy and h5py.
set -eu
. "$SP_SRCDIR/tests/run/story.sh"
find_python "numpy, h5py"
"$SP_BUILDDIR/spvox" scene --out one --samples 3 --extent 6 --seed 4 --voxel-size 0.75 >/dev/null
shard=one-00000-of-00001.h5

check() { # check FAMILY STEM RANKS...
    family=$1 stem=$2
    shift 2
    "$python" "$SP_SRCDIR/tests/run/reference.py" write $shard $family $stem weights.h5
    rm -rf run1 run2
    for np; do
        $MPIEXEC -n $np "$SP_BUILDDIR/sptrain" train "$SP_SRCDIR/input/default.deck" \
            "data.train=$shard" 'data.val=[]' data.voxel_size=0.75 run.dir=run$np \
            net.family=$family net.stem_kernel=$stem run.init_from=weights.h5 \
            train.steps=1 train.schedule=constant train.warmup_steps=0 train.weight_decay=0 \
            batch.size=3 'augment.scale=[]' augment.flip=false augment.rotate_z=false \
            augment.drop=0 augment.jitter=0 run.device=cpu >log 2>&1 || { cat log; exit 1; }
    done
    "$python" "$SP_SRCDIR/tests/run/reference.py" compare $shard $family $stem weights.h5 run[12]
}
check dummy 5 1 2
check minkunet18 5 1 2
check minkunet18 3 2
