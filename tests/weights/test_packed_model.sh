# A packed model gives the bits of `sptrain predict` through the library for prediction, which
# needs neither MPI nor HDF5: rows in any order, several threads, errors with text; in fp32
# and bf16. predict, eval and label take it too.
. "$SP_SRCDIR/tests/fixtures/program.sh"
for library in "$SP_BUILDDIR"/libsptrain-predict.so.*; do :; done
test -e "$library" || skip "no libsptrain-predict in this build"
"$SP_BUILDDIR/spvox" scene --out s --samples 3 --extent 16 --seed 5 >out 2>err || fail scene
deck 'family = "minkunet14A"; width = 0.1;' 'train = "s*.h5"; val = "s*.h5";' \
    'size = 3; eval_size = 2;' 'steps = 3;' 'threads = 1; dir = "run"; logits = true;'
"$SPTRAIN" train base.deck >out 2>err || fail train

ldd "$library" >out || fail ldd
grep -Ei 'mpi|hdf5' out && fail "the library for prediction needs MPI or HDF5"

best=run/checkpoints/best.h5
for precision in fp32 bf16; do
    "$SPTRAIN" weights export $best --packed --precision $precision -o $precision.spm \
        >out 2>err || fail "export $precision"
    for model in $best $precision.spm; do
        cp "$model" model # predictions tell its name
        "$SPTRAIN" predict base.deck run.checkpoint=model run.dir="$precision.${model##*/}" \
            train.precision=$precision >out 2>err || fail "predict $model"
    done
    for shard in s-*.h5; do
        cmp $precision.best.h5/predictions/"$shard" \
            $precision.$precision.spm/predictions/"$shard" ||
            fail "predict: other bits from the packed model in $precision"
    done
done
test "$(wc -c <bf16.spm)" -lt "$(($(wc -c <fp32.spm) * 2 / 3))" || fail "bf16 is not smaller"
# shellcheck disable=SC2154 # program.sh sets dir
grep -aq "$dir" fp32.spm && fail "a path of the training is in the packed model"
"$SPTRAIN" weights list fp32.spm >out 2>err || fail list
grep -q '/params/final/weight .*F32 .*\[10, 5\]' out || fail "list does not show the arrays"

"$SPTRAIN" check $best 2>err | tail -n +2 >out.best || fail "check of a checkpoint"
"$SPTRAIN" check fp32.spm 2>err | tail -n +2 >out || fail "check of a packed model"
grep -q final out || fail "check does not print the network"
cmp out.best out || fail "check tells other things of the packed model"
"$SPTRAIN" check base.deck run.checkpoint=fp32.spm >out 2>err || fail "check of a deck with one"
"$SPTRAIN" weights list $best >out 2>err || fail "list of a checkpoint"
grep -q '/params/final/weight .*f32 .*\[10, 5\]' out || fail "arrays of a checkpoint"
"$SPTRAIN" weights list base.deck >out 2>err
test $? -eq 3 || fail "a deck is listed"

# On several ranks too, and for eval and label.
for model in $best fp32.spm; do
    "$MPIEXEC" -n 2 "$SPTRAIN" eval base.deck run.checkpoint="$model" run.dir="e.${model##*/}" \
        >out 2>err || fail "eval $model"
    grep -o '"confusion":[^"]*' "e.${model##*/}/metrics.jsonl" >"${model##*/}.confusion"
done
grep -q confusion best.h5.confusion || fail "no confusion"
cmp best.h5.confusion fp32.spm.confusion || fail "eval: another confusion"
"$SPTRAIN" predict base.deck run.checkpoint=bf16.spm run.dir=other >out 2>err
test $? -eq 2 || fail "a model in bf16 is run in fp32 without a word"
grep -q 'train.precision=bf16' err || fail "no advice about the precision"

# label writes the same scan with the packed model as with its run folder.
awk 'BEGIN { srand(3); for (i = 0; i < 3000; i++) printf "%.2f %.2f %.2f %d %d\n",
    rand() * 15, rand() * 15, rand() * 4, rand() * 200, rand() * 2 }' >scan.txt
"$SP_BUILDDIR/spvox" convert --out t --voxel-size 0.5 --columns x,y,z,intensity,label \
    --map "0=a,1=b" --features intensity,height scan.txt >out 2>err || fail convert
"$SPTRAIN" train base.deck data.train=t-*.h5 data.val=t-*.h5 run.dir=t >out 2>err ||
    fail "train on the scan"
"$SPTRAIN" weights export t --packed -o t.spm >out 2>err || fail "export t"
for model in t t.spm; do
    "$SPTRAIN" label "$model" scan.txt --out "labelled.$model" >out 2>err ||
        fail "label with $model"
done
cmp labelled.t/scan.txt labelled.t.spm/scan.txt || fail "label: other classes"

# Absent statistics and names: the columns are not normalized, and weights alone get numbers.
"$SPTRAIN" train base.deck data.normalize=false run.dir=plain >out 2>err || fail "train plain"
"$SPTRAIN" weights export plain/checkpoints/best.h5 --packed -o plain.spm >out 2>err ||
    fail "export plain"
for model in plain/checkpoints/best.h5 plain.spm; do
    cp "$model" model
    "$SPTRAIN" predict base.deck run.checkpoint=model run.dir="p.${model##*/}" >out 2>err ||
        fail "predict $model"
done
cmp p.best.h5/predictions/s-00000-of-00001.h5 p.plain.spm/predictions/s-00000-of-00001.h5 ||
    fail "without statistics: other bits"
"$SPTRAIN" weights export $best -o alone.h5 >out 2>err || fail "weights alone"
"$SPTRAIN" weights export alone.h5 --packed -o alone.spm >out 2>err
test $? -eq 2 || fail "weights alone are packed without a network"
"$SPTRAIN" weights export alone.h5 --deck base.deck --packed -o alone.spm >out 2>err ||
    fail "weights alone, packed"
"$SPTRAIN" check alone.spm >out 2>err || fail "check of weights alone"
grep -q 'inputs: column_0, column_1' out || fail "columns without names have no numbers"

# A damaged file is named.
head -c 5000 fp32.spm >cut.spm
"$SPTRAIN" weights list cut.spm >out 2>err
test $? -eq 3 || fail "a truncated model is taken"
{ head -c 9000 fp32.spm; printf x; tail -c +9002 fp32.spm; } >bit.spm
"$SPTRAIN" predict base.deck run.checkpoint=bit.spm run.dir=bit >out 2>err
test $? -eq 3 || fail "a damaged model is taken"
grep -q 'crc32c' err || fail "the checksum is not named"

find_python h5py,numpy
for precision in fp32 bf16; do
    "$python" "$SP_SRCDIR/tests/weights/packed_predict.py" "$library" $precision.spm \
        s-00000-of-00001.h5 $precision.best.h5/predictions/s-00000-of-00001.h5 ||
        fail "the library, $precision"
done
