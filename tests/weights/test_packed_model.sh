# A packed model gives the bits of `sptrain predict` through the library for prediction, which
# needs neither MPI nor HDF5: rows in any order, several threads, errors with text; in fp32
# and bf16. predict, eval and label take it too.
. "$SP_SRCDIR/tests/run/story.sh"
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
# shellcheck disable=SC2154 # story.sh sets dir
grep -aq "$dir" fp32.spm && fail "a path of the training is in the packed model"
"$SPTRAIN" weights list fp32.spm >out 2>err || fail list
grep -q '/params/final/weight .*F32 .*\[10, 5\]' out || fail "list does not show the arrays"

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
