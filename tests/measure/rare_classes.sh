#!/bin/sh
# rare_classes.sh TILES [RUNS]: what losses and class weights do to rare classes, and averaged
# weights (train.ema) to the result. TILES has the five LAS tiles of input/nimes3.deck; here
# each of the codes 1 to 6 is a class, of which low and medium vegetation (2 % and 3 % of the
# voxels) are rare. Three seeds of each kind are trained for 400 steps, one after another, in
# folders of RUNS (rare-classes); finished runs stay. The table that is printed, and is
# RUNS/table.txt, has each run's last evaluation, over points: nothing is chosen by it. From
# the build folder, or with SP_BUILDDIR. KINDS, SEEDS: some of them only.
build=$(cd "${SP_BUILDDIR:-.}" && pwd) || exit 1
deck=$(cd "$(dirname "$0")/../../input" && pwd)/nimes3.deck || exit 1
test $# -ge 1 || {
    echo "usage: rare_classes.sh TILES [RUNS]" >&2
    exit 2
}
tiles=$(cd "$1" && pwd) || exit 1
runs=${2:-rare-classes}
mkdir -p "$runs" && cd "$runs" || exit 1

convert() {
    out=$1
    shift
    test -e "$out-made" && return
    "$build/spvox" convert --out "$out" --voxel-size 0.5 --points --features height,number_of_returns \
        --map '1=unclassified,2=ground,3=low,4=medium,5=high,6=building' "$@" >/dev/null || exit 1
    : >"$out-made"
}
convert train --shards 4 "$tiles/77050_627755.las" "$tiles/77050_627760.las" "$tiles/77055_627755.las" \
    "$tiles/77060_627755.las"
convert val "$tiles/77055_627760.las"

lovasz='( { name = "cross_entropy"; weight = 1.0; }, { name = "lovasz"; weight = 1.0; } )'
# train KIND SEED: the kind's loss and class weights, from its name.
train() {
    loss='"cross_entropy"' weights=none ema=0.97
    case $1 in lovasz*) loss=$lovasz ;; esac
    case $1 in *_sqrt) weights=sqrt_inverse ;; *_log) weights=log_inverse ;; esac
    "$build/sptrain" "$deck" 'data.train=["train-*.h5"]' 'data.val=["val-*.h5"]' "run.dir=$1-$2" run.threads=1 \
        run.checkpoint_every=1000 "train.loss=$loss" train.class_weights=$weights train.ema=$ema \
        "train.seed=$2" >"$1-$2.log" 2>&1 || exit 1
}
# number FILE NAME: of the last evaluation; a class after the point_iou that has it.
number() {
    sed -n 's/.*"event":"eval".*"'"$2"'":\([0-9.e-]*\).*/\1/p' "$1" | tail -n 1
}
classes() {
    sed -n 's/.*"event":"eval".*"point_iou":{[^}]*"'"$2"'":\([0-9.e-]*\).*/\1/p' "$1" | tail -n 1
}
for kind in ${KINDS:-ce lovasz lovasz_sqrt lovasz_log}; do
    for seed in ${SEEDS:-1 2 3}; do
        train "$kind" "$seed"
        file=$kind-$seed/metrics.jsonl
        echo "$kind $seed $(number "$file" point_accuracy) $(number "$file" point_miou) $(classes "$file" low)" \
            "$(classes "$file" medium) $(number "$file" ema_point_accuracy) $(number "$file" ema_point_miou)"
    done
done | awk '
    BEGIN { print "kind         seed  accuracy   mIoU    low  medium   ema: accuracy   mIoU" }
    function row(name, seed) {
        printf "%-12s %4s    %.4f %.4f %6.3f  %6.3f          %.4f %.4f\n", name, seed, x[3], x[4], x[5], x[6], x[7], x[8]
    }
    function mean(    i) {
        for (i = 3; i <= 8; i++)
            x[i] = sum[i] / n
        row(kind, "mean")
        n = 0
        delete sum
    }
    {
        if (n > 0 && $1 != kind)
            mean()
        kind = $1
        for (i = 3; i <= 8; i++) {
            x[i] = $i
            sum[i] += $i
        }
        n++
        row($1, $2)
    }
    END { if (n > 0) mean() }' | tee table.txt
