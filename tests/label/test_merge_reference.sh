#!/bin/sh
# Merged predictions of overlapping blocks equal a reference in float64 that merges the plain
# logits point by point; the shards name the points of each margin. Skipped without numpy and
# h5py.
. "$SP_SRCDIR/tests/fixtures/program.sh"
find_python "numpy, h5py"
reference=$SP_SRCDIR/tests/label/merge_reference.py
awk 'BEGIN {
    srand(3); print "x y z intensity label"
    for (i = 0; i < 5000; i++) {
        x = 37 * rand(); y = 24 * rand()
        if (x > 20 && x < 30 && y < 10) continue
        c = x + 3 * sin(y) < 17 ? 1 : y < 12 ? 2 : 3
        printf "%.3f %.3f %.3f %d %d\n", 500 + x, 70 + y, c == 2 ? 3 * rand() : rand(),
            40 * c + 60 * rand(), rand() < 0.9 ? c : 9
    }
}' >a.txt
deck 'family = "dummy";' 'train = "s-*.h5"; val = "s-*.h5"; voxel_size = 0.75;' \
    'size = 4; eval_size = 3;' 'steps = 6; warmup_steps = 2;' 'eval_every = 0;'
for overlap in 2.5 8; do # the second reaches beyond the next block
    rm -rf s-* r plain merged
    spvox convert --voxel-size 0.75 --map "1=low,2=high,3=other" --points --block 8 \
        --overlap $overlap --shards 2 --out s a.txt
    "$python" "$reference" blocks a.txt s-*.h5 || fail "blocks of overlap $overlap"
    run 1 0 base.deck run.dir=r
    model=run.checkpoint=r/checkpoints/step-000000006.h5
    run 1 0 predict base.deck run.dir=plain $model run.logits=true
    run 2 0 predict base.deck run.dir=merged $model eval.merge=true
    run 3 0 eval base.deck run.dir=merged $model eval.merge=true
    "$python" "$reference" compare merged/evaluations.jsonl plain/predictions \
        merged/predictions s-*.h5 >>compared || fail "merged predictions of overlap $overlap"
done
cat compared
grep -q ' [1-9][0-9]* changed' compared || fail "merging changed no prediction of any overlap"

# damage NAME HOW: changes a copy of the shards and demands exit 3 with this message.
damage() {
    cp s-00000-of-00002.h5 d-0.h5
    cp s-00001-of-00002.h5 d-1.h5
    "$python" - "$1" <<'PYTHON' || fail "damage $1"
import sys, h5py
with h5py.File("d-1.h5", "r+") as f:
    exec({
        "absent": "del f['context_point']",
        "row": "f['context_point'][3] = 60000",
        "voxel": "f['context_voxel'][3] = 4000000000",
        "offsets": "f['context_offsets'][-1] = f['context_offsets'][-1] + 1",
        "square": "f['block'][1, 2] = -1e9",
        "number": "f['block_number'][1, 1] = 1000",
        "margin": "f['block'][0, 4] = float('nan')",
    }[sys.argv[1]])
PYTHON
    refused '1 2' 3 "$2" eval base.deck run.dir=d $model eval.merge=true \
        'data.val="d-*.h5"'
    alone 3 "$SP_BUILDDIR/spvox" info d-0.h5 d-1.h5
    says err "error: $2"
}
damage absent 'd-1.h5: .* without /context_point'
spvox convert --voxel-size 0.75 --out whole a.txt
for n in 1 2; do # check refuses what a training would
    run $n 3 check base.deck run.dir=c run.eval_every=1 eval.merge=true \
        data.train=whole-00000-of-00001.h5 data.val=whole-00000-of-00001.h5
    one_diagnosis 'whole-00000-of-00001.h5:/context_voxel is absent, expected for eval.merge'
done
damage row 'd-1.h5:/context_point: sample 0: point 3 of the margin is row 60000 of block'
damage voxel 'd-1.h5:/context_voxel: sample 0 (a.txt\[.*\]): point 3: 4000000000, expected'
damage offsets 'd-1.h5:/context_offsets: the last is [0-9]*, expected [0-9]*'
damage square 'd-1.h5:/block: sample 1: .*expected x0 < x1'
damage number 'd-1.h5:/block_number: sample 1: block [0-9]*, of 1000 to'
damage margin 'd-1.h5:/block: sample 0: '
