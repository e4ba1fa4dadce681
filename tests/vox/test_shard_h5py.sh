#!/bin/sh
# Shards written by a dozen lines of h5py are read, whatever types and storage they have; h5py
# reads ours. Skipped without python3, h5py and numpy.
. "$SP_SRCDIR/tests/fixtures/program.sh"
find_python "h5py, numpy"
"$SHARDS" costly ours.h5 || fail "make_shards"
"$python" "$SP_SRCDIR/tests/vox/shard_h5py.py" "$SHARDS" "$dir" \
    ours.h5 || fail "h5py reads other numbers"

# The lines of README write a shard, and the arguments before them train on it.
sed -n '/^    import h5py/,/^  *feature_names=/s/^    //p' "$SP_SRCDIR/README" >readme.py
"$python" readme.py || fail "README's lines of h5py"
arguments=$(grep -o 'data.train=mine-.*h5.*' "$SP_SRCDIR/README")
# shellcheck disable=SC2086
run 2 0 net.family=dummy train.epochs=1 run.dir=readme $arguments

# Training on float64 features is training on the same rounded to float32: the same bits,
# and one warning.
cat >write.py <<'PY'
import sys
import h5py
import numpy as np

kind, path = sys.argv[1:]
rng = np.random.default_rng(5)
cells = rng.permutation(16 ** 3)[:900]
with h5py.File(path, "w") as f:
    f.attrs.update(format="sptrain-voxels", version=1, voxel_size=0.5, num_classes=2,
                   ignore_label=255, class_names=["a", "b"], feature_names=["x", "y"])
    f["offsets"] = np.arange(0, 901, 300)
    f["coords"] = np.stack([cells % 16, cells // 16 % 16, cells // 256], 1)
    f["features"] = (rng.random((900, 2)) / 3).astype(kind)
    f["labels"] = rng.integers(0, 2, 900).astype("u1")
PY
for kind in f4 f8; do
    "$python" write.py $kind t.h5 || fail "no shard"
    rm -rf $kind
    run 2 0 net.family=dummy data.train=t.h5 'data.val=[]' batch.size=3 train.epochs=3 \
        train.warmup_steps=1 run.dir=r
    test "$(grep -c rounded err)" = "$(test $kind = f8 && echo 1 || echo 0)" ||
        fail "$kind: warnings"
    mv r $kind
    # Each start looks through such features, so an index file leaves them out.
    spvox index t.h5
    says out "spvox.index: $(test $kind = f8 && echo 0 || echo 1) shard"
    rm spvox.index
done
cat >same.py <<'PY'
import glob
import sys
import h5py

a, b = (h5py.File(sorted(glob.glob(run + "/checkpoints/step-*.h5"))[-1]) for run in sys.argv[1:])
names = []
for group in "params", "buffers":
    a[group].visititems(lambda name, x, group=group: names.append(group + "/" + name)
                        if isinstance(x, h5py.Dataset) else None)
assert len(names) > 10
for name in names:
    assert a[name][:].tobytes() == b[name][:].tobytes(), name
PY
"$python" same.py f4 f8 || fail "float64: other weights"

# A file of weights may be compressed a thousandfold: it is verified in little memory.
cat >pack.py <<'PY'
import h5py

with h5py.File("packed.h5", "w") as f:
    f.create_dataset("/params/conv4/bias", (1 << 26,), "f4", chunks=(1 << 20,),
                     compression="gzip", fillvalue=0)[:] = 0
PY
"$python" pack.py || fail "no file of weights"
alone 3 "$SP_BUILDDIR/tests/tools/peak_memory" mib "$MPIEXEC" -n 1 "$SPTRAIN" eval \
    net.family=dummy data.val=t.h5 run.dir=r run.checkpoint=packed.h5
one_diagnosis 'packed.h5: the model has 67108864 classes, the data 2'
test "$(cat mib)" -lt 200 || fail "$(cat mib) MiB taken for a file of $(wc -c <packed.h5) bytes"

# info checks costs, which only balance ranks and foresee memory, and the points of margins too.
printf '1 1 1 0\n2.5 1 1 1\n4 1 1 0\n' >m.txt
spvox convert --out m --points --block 2 --overlap 1 --columns x,y,z,label m.txt
while read -r name row value option words; do
    cp m-00000-of-00001.h5 "$name.h5"
    "$python" -c "import h5py; h5py.File('$name.h5', 'a')['$name'][$row] = $value" || fail "$name"
    # shellcheck disable=SC2086
    alone 3 "$SP_BUILDDIR/spvox" info ${option#.} "$name.h5"
    says err "$name.h5:/$name: sample $words"
done <<'CASES'
cost 0,5 9 . 0: column 5 is 9, expected 2 as of its voxels
cost 1,5 9 --samples 1: column 5 is 9, expected 2 as of its voxels
context_voxel 0 9 . 1 
CASES
