#!/bin/sh
# Merged predictions of overlapping blocks and of views: the same matrix and the same bytes
# on any number of ranks and for batches of any size, beside plain numbers that stay as they
# are; data that do not tell their blocks are refused. (test_merge_reference.sh has the
# values.)
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" plain p.h5 || fail "make_shards"

# scan FILE SHIFT: 40 m x 30 m with a hole, three classes that a network can learn in part.
scan() {
    awk -v s="$2" 'BEGIN {
        srand(s); print "x y z intensity label"
        for (i = 0; i < 4000; i++) {
            x = 40 * rand(); y = 30 * rand()
            if (x > 10 && x < 20 && y > 10 && y < 20) continue
            c = x + 3 * sin(y) < 17 ? 1 : y < 15 ? 2 : 3
            printf "%.3f %.3f %.3f %d %d\n", 1000 + s * 100 + x, 2000 + y,
                c == 2 ? 3 + rand() : rand(), 40 * c + 60 * rand(), rand() < 0.9 ? c : 9
        }
    }' >"$1"
}
scan a.txt 1
scan b.txt 2
convert() {
    spvox convert --voxel-size 0.5 --map "1=low,2=high,3=other" --points "$@"
}
convert --block 10 --overlap 3 --shards 3 --out s a.txt b.txt
convert --block 10 --out t a.txt
convert --out whole a.txt
dummy_deck 's-*.h5' 'size = 4; eval_size = 5;' 'steps = 12; warmup_steps = 2;'
echo 'eval : { merge = true; views = 4; };' >>base.deck
# plain FILE: prints the evaluation without its merged numbers.
plain() { sed 's/,"merged":{.*}}$/}/' "$1"; }
run 2 0 base.deck run.dir=r
says out 'views 4: 0, 90, 180, 270 '
says out ' point_miou=[0-9.]* point_accuracy=[0-9.]* merged_point_miou='
evals r | tail -1 >trained
model=run.checkpoint=r/checkpoints/step-000000012.h5

run 1 0 eval base.deck run.dir=p $model eval.merge=false eval.views=1
evaluations p >want
test "$(evaluations p)" = "$(plain want)" || fail "plain evaluation has merged numbers"
for n in 1 2 3 8; do
    run $n 0 eval base.deck run.dir=e$n $model batch.eval_size=$n
    test $n != 1 || evaluations e$n >a
    yields a "merged evaluation on $n ranks" evaluations e$n
    says out '^class .* merged point IoU$'
done
yields want "plain numbers beside merged ones" plain a
same a trained "merged evaluation while training"
says a '"merged":{"views":4,"blocks":true,"points":[1-9]'
# Every labelled point is merged once.
points=$(sed 's/.*"points":\([0-9]*\),.*"merged".*/\1/' a)
says a "\"merged\":{\"views\":4,\"blocks\":true,\"points\":$points,"
merged=$(sed 's/.*"merged":.*"point_confusion"://' a)
case $merged in '[['*) ;; *) fail "no merged matrix: $merged" ;; esac
test "$merged" != "$(sed 's/"merged".*//; s/.*"point_confusion":\(.*\),$/\1/' a)}}" ||
    fail "nothing merged"
# Each view counts.
for n in 1 2 3; do
    run 1 0 eval base.deck run.dir=views$n $model eval.views=$n
    fewer=$(evaluations views$n | sed 's/.*"merged":.*"point_confusion"://')
    case $fewer in '[['*) ;; *) fail "no matrix of $n views: $fewer" ;; esac
    test "$merged" != "$fewer" || fail "$n views are like 4"
done

# Predictions: points merged, the same bytes on any number of ranks.
for way in 'eval.views=1' 'eval.views=4' 'eval.merge=false eval.views=4'; do
    for n in 1 2 3; do
        rm -rf q$n
        run $n 0 predict base.deck run.dir=q$n $model run.logits=true batch.eval_size=$((2 * n)) \
            $way
        same_files q1/predictions "q$n/predictions" "predictions on $n ranks: $way"
    done
done

# Blocks that do not overlap have the plain numbers; so has a run without views or blocks.
run 2 0 eval base.deck run.dir=t $model 'data.val="t-*.h5"' eval.views=1
evaluations t >a
test "$(sed 's/.*"merged":{"views":1,"blocks":true,\(.*\)}}$/\1/' a)" = \
    "$(sed 's/,"merged".*//; s/.*"points"/"points"/' a)" || fail "no overlap: $(cat a)"
# Views without blocks count voxels too.
run 2 0 eval base.deck run.dir=v $model data.val=whole-00000-of-00001.h5 eval.merge=false
evaluations v >a
says a '"merged":{"views":4,"blocks":false,"voxels":[1-9].*"point_confusion"'
voxels=$(sed 's/.*"voxels":\([0-9]*\),.*"merged".*/\1/' a)
says a "\"blocks\":false,\"voxels\":$voxels,"

# More views than the model's augmentation has; it is that of the checkpoint.
run 1 0 eval base.deck run.dir=w $model eval.merge=false eval.views=24 \
    augment.scale='[]' augment.rotate_z=false
says err '24 views asked for: the model.s augmentation allows 4 (flip = true, rotate_z = false'
says out 'views 4: 0, 0 x, 0 y, 0 xy '

# Data that do not tell their blocks, and one that tells them in part.
for n in 1 2; do
    run $n 3 eval base.deck run.dir=x $model data.val=whole-00000-of-00001.h5
    one_diagnosis 'whole-00000-of-00001.h5:/context_voxel is absent, expected for eval.merge'
    run $n 3 base.deck run.dir=y$n data.val=p.h5 data.train=p.h5
    one_diagnosis 'p.h5:/context_voxel is absent, expected for eval.merge'
    test ! -e y$n/metrics.jsonl || test -z "$(evals y$n)" || fail "trained before refusing"
done
cp s-00000-of-00003.h5 again.h5
run 2 3 eval base.deck run.dir=x $model 'data.val=["again.h5","s-*.h5"]'
one_diagnosis 'again.h5 and s-00000-of-00003.h5 both have block 0 of scan "a.txt crc32c'

# Two scans that were converted under one relative path are two scans.
mkdir pa pb
scan pa/t.txt 3
scan pb/t.txt 4
for at in pa pb; do
    cp $at/t.txt $at.txt
    (cd $at && convert --block 10 --overlap 3 --out ../$at t.txt)
done
convert --block 10 --overlap 3 --out named pa.txt pb.txt
run 2 0 eval base.deck run.dir=named $model 'data.val="named-*.h5"'
evaluations named >a
run 2 0 eval base.deck run.dir=paths $model 'data.val=["pa-*.h5","pb-*.h5"]'
yields a "scans of one relative path" evaluations paths

# Shards whose blocks begin anywhere, as older versions wrote them, and strides that the
# blocks' alignment does not fit, are said.
! grep -q 'begin at multiples' out || fail "aligned blocks are complained of"
run 2 0 eval base.deck run.dir=five $model data.voxel_size=2.5
says out "eval.merge: the blocks of s-00000-of-00003.h5 begin at multiples of 192 .* is 10:"
# A sample that cannot be read is left out on any number of ranks, and its neighbours have
# no points of its own to merge: all other numbers are as before.
cp s-00001-of-00003.h5 hurt.h5
at=$(($(wc -c <hurt.h5) / 8)) # among the coordinates and features of some sample
printf '\377\377\377' | dd of=hurt.h5 bs=1 seek=$at conv=notrunc 2>/dev/null
for n in 1 2 3; do
    run $n 0 eval base.deck run.dir=h$n $model data.on_error=skip \
        'data.val=["s-00000-of-00003.h5","hurt.h5","s-00002-of-00003.h5"]'
    says err 'sample [0-9]* left out: hurt.h5'
    evaluations h$n >b
    test $n = 1 && cp b a
    says b "\"samples\":$(($(evaluations p | sed 's/.*"samples":\([0-9]*\),.*/\1/') - 1)),"
    same a b "merged evaluation without a sample on $n ranks"
    run $n 0 predict base.deck run.dir=h$n $model data.on_error=skip run.logits=true \
        'data.val=["s-00000-of-00003.h5","hurt.h5","s-00002-of-00003.h5"]'
    says out "predictions of $(sed 's/.*"samples":\([0-9]*\),.*/\1/' b) samples (1 left out by"
    same_files h1/predictions "h$n/predictions" "predictions without a sample, $n ranks"
    says h$n/metrics.jsonl '"event":"predict".*"left_out":1,'
done
points=$(sed 's/.*"points":\([0-9]*\),.*"merged".*/\1/' a)
says a "\"merged\":{\"views\":4,\"blocks\":true,\"points\":$points,"
# No reader takes the rows of that sample for predictions of a point of the scan.
for scan in a b; do
    spvox apply h1/predictions/*.h5 $scan.txt --out applied.txt
done
if (find_python h5py) 2>/dev/null; then
    find_python h5py
    "$python" - h1/predictions/hurt.h5 <<'PY' || fail "rows of a sample left out"
import sys
import h5py

with h5py.File(sys.argv[1]) as f:
    no_class, left_out = f.attrs["ignore_label"], 0
    row, point = f["offsets"][:], f["point_offsets"][:]
    for i in range(len(row) - 1):
        rows, points = slice(row[i], row[i + 1]), slice(point[i], point[i + 1])
        is_none = (f["labels"][rows] == no_class).all()
        assert (f["point_labels"][points] == no_class).all() == is_none
        assert (f["point_index"][points] == 2 ** 64 - 1).all() == is_none
        assert (f["logits"][rows] != f["logits"][rows]).all() == is_none
        left_out += is_none
    assert left_out == 1, left_out
PY
fi
# A part of the shards is a scan with a border.
run 2 0 eval base.deck run.dir=z $model data.val=again.h5
# A request to stop that one rank got ends a merged pass on all of them.
for command in eval predict; do
    SP_TEST_FAULT=term@1:eval:0 run 2 75 $command base.deck run.dir=stop $model
    says stop/status-$command.json '"state":"stopped","exit_code":75,'
    test ! -e stop/predictions || fail "left $(ls stop/predictions)"
done

# The integers of a shard may be of any type, those of its margins too.
if (find_python h5py) 2>/dev/null; then
    find_python h5py
    "$python" - s-*.h5 <<'PY'
import sys
import h5py

for path in sys.argv[1:]:
    with h5py.File(path, "a") as f:
        for name, kind in ("context_block", ">i8"), ("context_voxel", "i4"), ("context_point", "u8"):
            data = f[name][:]
            del f[name]
            f[name] = data.astype(kind)
PY
    run 2 0 eval base.deck run.dir=wide $model
    evaluations wide >b
    yields b "merged evaluation with margins of other types" evaluations e1
fi
