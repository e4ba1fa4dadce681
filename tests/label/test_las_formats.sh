#!/bin/sh
# sptrain label: the copy of a LAS or LAZ file of every point format, made by laspy and lazrs,
# differs in the class and in added fields only, as these read it (las_copies.py). Needs
# Python with laspy and lazrs; SP_LAZ_PYTHON names one, else python3.
. "$SP_SRCDIR/tests/fixtures/program.sh"
python=${SP_LAZ_PYTHON-python3}
if ! "$python" -c 'import laspy, lazrs' 2>/dev/null; then
    echo "SKIPPED: $python has no laspy and lazrs (pip install laspy lazrs): copies are not compared"
    exit 77
fi
here=$SP_SRCDIR/tests/label
mkdir in
"$SP_BUILDDIR/tests/tools/make_scans" a.las 24 1 1 && "$python" "$here/las_formats.py" a.las in ||
    fail "las_formats.py"
spvox convert --out t --voxel-size 1 --block 8 --overlap 3 --points \
    --map '2=ground,5=tree,6=building' --features number_of_returns,height a.las
deck 'family = "dummy";' 'train = "t-*.h5"; val = []; voxel_size = 1.0;' \
    'size = 4;' 'steps = 20; warmup_steps = 1;' 'dir = "r"; eval_every = 0; threads = 1;'
run 1 0 base.deck
run 2 0 label r in/*.la[sz] --out plain --any-format run.threads=1
run 2 0 label r in/*.la[sz] --out fields --any-format --class-field mine --margin run.threads=1
for f in in/*.la[sz]; do
    "$python" "$here/las_copies.py" "$f" "plain/${f#in/}" 1 &&
        "$python" "$here/las_copies.py" "$f" "fields/${f#in/}" 0 mine margin || fail "copy of $f"
done
exit 0
