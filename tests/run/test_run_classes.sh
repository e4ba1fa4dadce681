#!/bin/sh
# Classes are matched by name, in evaluation, prediction and between training and validation
# data; another set of them is refused with both lists; unlabelled shards need none.
. "$SP_SRCDIR/tests/fixtures/program.sh"
folders plain coded rotated classes far flat bare bare-nameless
dummy_deck coded/s.h5 'size = 2; eval_size = 4;' 'steps = 6; warmup_steps = 2;'
codes() {
    "$SHARDS" codes "$1" || fail "no codes in $1"
}
all='\["class0", "class1", "class2", "class3"\]'
others='\["class3", "class0", "class1", "class2"\]'

run 2 0 base.deck run.dir=r
evals r | tail -1 >want
run 2 0 predict base.deck run.dir=r
mv r/predictions/s.h5 want.h5
for n in 1 3; do
    run $n 0 eval base.deck run.dir=r data.val=rotated/s.h5
    says out 'rotated/s.h5: classes are in another order than in r/checkpoints/best.h5'
    yields want "evaluation of classes in another order on $n ranks" last evaluations r
    run $n 0 predict base.deck run.dir=r data.val=rotated/s.h5
    same want.h5 r/predictions/s.h5 "predictions of classes in another order on $n ranks"
done
codes want.h5 >got
echo 'class0=2:1 class1=12:11 class2=22:21 class3=32:31' | cmp - got || fail "codes: $(cat got)"
# Data without codes take the model's; a model without codes those of the data.
run 2 0 predict base.deck run.dir=r data.val=plain/s.h5
codes r/predictions/s.h5 | cmp - got || fail "codes of the model"
run 2 0 base.deck run.dir=p data.train=plain/s.h5 data.val=rotated/s.h5
evals p | tail -1 | sed 's/"loss.*"iou"/"iou"/' >one
run 2 0 base.deck run.dir=q data.train=plain/s.h5 data.val=plain/s.h5
evals q | tail -1 | sed 's/"loss.*"iou"/"iou"/' >two
same one two "validation data in another order"
run 2 0 predict base.deck run.dir=p data.val=rotated/s.h5
codes r/predictions/s.h5 | cmp - got || fail "codes of the data"

# Another set of classes is refused.
for n in 1 3; do
    for command in eval predict; do
        run $n 3 $command base.deck run.dir=r data.val=classes/s.h5
        one_diagnosis "classes/s.h5: classes \\[.*\"class4\"\\], but r/checkpoints/best.h5 has $all;"
    done
done
run 2 3 base.deck run.dir=f data.val=classes/s.h5
one_diagnosis "classes/s.h5: classes \\[.*\"class4\"\\], but coded/s.h5 has $all;"
# A run continues with the classes that it began with; weights begin none in another order.
run 2 2 base.deck run.dir=r data.train=rotated/s.h5 train.steps=8
one_diagnosis "classes $all, but rotated/s.h5 has $others"
run 2 3 base.deck run.dir=f data.train=rotated/s.h5 run.init_from=r/checkpoints/best.h5
one_diagnosis "classes $all, but rotated/s.h5 has $others"
run 2 3 base.deck run.dir=f data.train=classes/s.h5 data.val='[]' run.init_from=r/checkpoints/best.h5
one_diagnosis 'r/checkpoints/best.h5: the model has 4 classes, the data 5;'

# Unlabelled shards of one nameless class: predictions are those of the labelled ones.
run 2 0 base.deck run.dir=b data.train=bare/s.h5 data.val=bare/s.h5
run 2 0 predict base.deck run.dir=b data.val=bare/s.h5 run.logits=true
mv b/predictions/s.h5 want.h5
for n in 1 3; do
    run $n 0 predict base.deck run.dir=b data.val=bare-nameless/s.h5 run.logits=true
    same want.h5 b/predictions/s.h5 "predictions of unlabelled shards on $n ranks"
done
"$SHARDS" weights b/checkpoints/best.h5 w.h5 || fail "make_shards weights"
run 2 3 predict base.deck run.dir=w run.checkpoint=w.h5 data.val=bare-nameless/s.h5
one_diagnosis 'w.h5: the model has 4 classes, the data 1;'

# Columns whose statistics are far from the model's.
run 2 0 eval base.deck run.dir=r data.val=far/s.h5
says err 's.h5: column feature0 has mean 500 and standard deviation 1, but the model was trained on 5 and 1'
run 2 0 eval base.deck run.dir=r
grep -q 'another unit' err && fail "a warning of the same statistics"
run 2 0 base.deck run.dir=v data.val=far/s.h5 train.steps=1
says err 'column feature0 has mean 500'
grep -q 'are in data.train too' err && fail "a warning of other data"
run 1 0 base.deck run.dir=v data.val="$dir/coded/../coded/s.h5" train.steps=2
says err 'files of data.val that are in data.train too: 1 of 1'

# Tables are as wide as their longest name; a letter of two bytes takes one column.
awk 'BEGIN { for (i = 0; i < 300; i++) print i % 20, int(i / 20), 0, 1 + i % 2 }' >named.txt
long=a-class-whose-name-is-very-long
spvox convert --out named --columns x,y,z,label --voxel-size 1 --map \
    "1=$long,2=Gebäude" named.txt
spvox info named-00000-of-00001.h5
grep -Eq '^labels {38}voxels    share' out || fail "head of the labels"
grep -Eq '^    1 Gebäude {24} [ 0-9]{13}   ' out || fail "labels"
grep -Eq "^    0 $long [ 0-9]{13}   " out || fail "labels, long name"
run 1 0 base.deck run.dir=t data.train=named-00000-of-00001.h5 data.val=named-00000-of-00001.h5 \
    data.voxel_size=1 train.steps=1
for name in 'class {26}' "$long" 'Gebäude {24}' 'mean {27}'; do
    grep -Eq "^$name [ 0-9]{12} |^$name {7}voxels " out || fail "table: $name"
done

# A column of standard deviation 0 is divided by 1.
run 2 0 base.deck run.dir=z data.train=flat/s.h5 data.val='[]' train.steps=1 train.warmup_steps=0
"$SPTRAIN" check z >out 2>err || fail "check z"
says out '^inputs: feature0 (mean 5, standard deviation 1), feature1'
