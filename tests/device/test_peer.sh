#!/bin/sh
# The peer's networks are sptrain's: the same layers at the same strides, with as many
# channels and parameters. Only a GPU with spconv can tell that it measures right.
command -v python3 >/dev/null 2>&1 || { echo "SKIPPED: no python3"; exit 77; }
peer=$SP_SRCDIR/tests/measure/peer_spconv.py
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99

fail() {
    echo "FAILED: $*"
    exit 1
}

# 4 features and 20 classes, as --dry assumes
"$SP_BUILDDIR/spbench" voxels --voxels 200 --out voxels.h5 || fail "spbench voxels"
for net in minkunet14 minkunet18 minkunet34; do
    for stem in 3 5; do
        "$SP_BUILDDIR/sptrain" check 'data.train="voxels.h5"' 'data.val="voxels.h5"' \
            data.voxel_size=0.05 net.family=$net net.stem_kernel=$stem >check 2>log ||
            { cat log; fail "sptrain check"; }
        # name, stride, kernel, channels, parameters
        sed 's/\^3 \/ 2/^3/' check | awk '
            $2 == "conv" || $2 == "conv_transpose" {
                sub(/\^3/, "", $4); print $1, $3, $4, $5, $6, $7 }
            $2 == "batchnorm" { print $1, $3, 1, $4, $5, $6 }
            / parameters; / { split($0, part, "; "); split(part[2], word, " ")
                print "sum", word[1] }' >ours
        python3 "$peer" --dry --net $net --stem $stem >theirs || fail "peer_spconv.py --dry"
        [ "$(wc -l <ours)" -gt 40 ] || { cat check; fail "$net: no layers"; }
        diff ours theirs || fail "$net, stem $stem: the networks differ"
    done
done
tail -n 1 theirs | grep -qx 'sum 37860052' || { tail -n 1 theirs; fail "minkunet34: parameters"; }

# An installed spconv trains on the CPU, with the same levels and a loss that falls.
"$SP_BUILDDIR/spbench" voxels --shard voxels.h5 --out raw || fail "spbench voxels --shard"
if python3 -c 'import torch, spconv.pytorch' 2>/dev/null; then
    timeout 600 python3 "$peer" --raw raw --cpu --net minkunet14 --stem 3 --batch 1 \
        --precision fp32 --warm 1 --repeats 5 >out 2>log || { cat log; fail "training"; }
    sed -n 's/.*"name": "step".*"loss_first": \([0-9.]*\), "loss_last": \([0-9.]*\).*/\1 \2/p' \
        out | awk '$2 < 0.95 * $1 { good = 1 } END { exit !good }' || { cat out; fail "loss"; }
else
    echo "not tried: no torch and spconv for python3"
fi

# It says so where spconv or a GPU is absent.
CUDA_VISIBLE_DEVICES= python3 "$peer" --raw raw >out 2>&1
[ $? = 77 ] && grep -q '^skipped: ' out || { cat out; fail "not skipped"; }
