#!/bin/sh
# Several models: label A+B+C averages their probabilities and writes how many agree;
# eval.members does so on shards. Both are held against the models one by one, on several
# ranks, one of them with a temperature. Classes and columns are matched by name; what
# cannot agree is refused by name.
. "$SP_SRCDIR/tests/fixtures/program.sh"

# scan FILE SEED: 40 m x 30 m, three classes that a network learns in part.
scan() {
    awk -v s="$2" 'BEGIN {
        srand(s); print "x y z intensity label"
        for (i = 0; i < 3000; i++) {
            x = 40 * rand(); y = 30 * rand()
            c = x + 3 * sin(y) < 17 ? 1 : y < 15 ? 2 : 3
            printf "%.3f %.3f %.3f %d %d\n", 1000 + x, 2000 + y,
                c == 2 ? 3 + rand() : rand(), 40 * c + 60 * rand(), c
        }
    }' >"$1"
}
scan a.txt 1
scan b.txt 2
convert() {
    spvox convert --voxel-size 1 --points "$@"
}
columns='--features intensity,height'
# shellcheck disable=SC2086 # words
convert $columns --map 1=low,2=high,3=other --shards 2 --out s a.txt b.txt
# shellcheck disable=SC2086 # words
convert $columns --map 3=other,1=low,2=high --out moved a.txt b.txt
convert --features height,intensity --map 1=low,2=high,3=other --out turned a.txt b.txt
# shellcheck disable=SC2086 # words
convert $columns --map 1=low,2=high,3=tree --out named a.txt b.txt
convert --features height --map 1=low,2=high,3=other --out fewer a.txt b.txt
train() {
    name=$1 data=$2
    shift 2
    run 1 0 base.deck "run.dir=$name" "data.train=\"$data-*.h5\"" "$@"
}
deck 'family = "dummy";' 'train = "s-*.h5"; val = "s-*.h5"; voxel_size = 1.0;' \
    'size = 2; eval_size = 3;' 'steps = 12; warmup_steps = 2;'
train A s
train B moved train.seed=2 'data.val=[]'
train C turned train.seed=3 'data.val=[]'
# B has a temperature: its probabilities below, alone and in a mean, are those of p^(1/T).
label_one() {
    run 1 0 label B a.txt --out "$1" --field-type float32 --confidence run.threads=1
}
label_one cold
run 1 0 calibrate B 'data.val="moved-*.h5"' run.threads=1
label_one hot
cmp -s cold/a.txt hot/a.txt && fail "the temperature of B changes nothing"

# ---- label ----
label() {
    n=$1 model=$2 to=$3
    shift 3
    run "$n" 0 label "$model" a.txt --out "$to" --field-type float32 run.threads=1 \
        run.watchdog_s=0 "$@"
}
for m in A B C; do
    label 1 $m $m.out --probabilities low,high,other
done
label 1 A+B+C all --probabilities low,high,other --confidence
says out 'averaging with B/'
says out 'averaging with C/'
head -1 all/a.txt | grep -qx 'x y z intensity confidence p_low p_high p_other agreement label' ||
    head -1 all/a.txt | grep -qx 'x y z intensity confidence agreement p_low p_high p_other label' ||
    fail "columns: $(head -1 all/a.txt)"
# The mean of the three, and the share that has its class.
paste -d ' ' all/a.txt A.out/a.txt B.out/a.txt C.out/a.txt | awk '
function best(at,  k, b) { b = 0; for (k = 1; k < 3; k++) if ($(at + k) > $(at + b)) b = k; return b }
NR == 1 { for (i = 1; i <= 10; i++) if (!($i in column)) column[$i] = i; next }
{
    p = column["p_low"]
    for (k = 0; k < 3; k++) {
        m = ($(10 + 5 + k) + $(18 + 5 + k) + $(26 + 5 + k)) / 3
        if (m - $(p + k) > 1e-5 || $(p + k) - m > 1e-5) { print NR, k, m, $(p + k); exit 1 }
    }
    b = best(p); same = (best(15) == b) + (best(23) == b) + (best(31) == b)
    d = $column["agreement"] - same / 3
    if (d > 1e-5 || d < -1e-5) { print NR, same, $column["agreement"]; exit 2 }
    if ($10 != b + 1) { print NR, $10, b; exit 3 }
    few += same < 3
}
END { if (NR != 3001 || few == 0) { print NR, few; exit 4 } }' ||
    fail "the mean of three models"
for n in 2 3; do
    label $n A+B+C all$n --probabilities low,high,other --confidence
    same_files all all$n "of $n ranks"
done
label 1 A+B+C blocks --block 12 --overlap 3 --buffer 18 --confidence
label 3 A+B+C blocks3 --block 12 --overlap 3 --buffer 18 --confidence
same_files blocks blocks3 "of 3 ranks, in blocks"
label 1 A+B ab --confidence
label 1 B+A ba --confidence
same_files ab ba "with the calibrated model first"
label 1 A+A twice --confidence
label 1 A once --confidence
sed 's/ agreement / /; 2,$s/ 1 \([0-9]*\)$/ \1/' twice/a.txt >twice.txt
same twice.txt once/a.txt "a model with itself"
label 1 A+B quiet --no-agreement
head -1 quiet/a.txt | grep -q agreement && fail "--no-agreement"

# ---- refused ----
run 1 0 base.deck run.dir=N 'data.train="named-*.h5"' 'data.val=[]'
run 1 0 base.deck run.dir=F 'data.train="fewer-*.h5"' 'data.val=[]'
run 1 0 base.deck run.dir=V 'data.train="s-*.h5"' data.voxel_size=2 'data.val=[]'
cannot() {
    run 1 2 label "A+$1" a.txt --out x run.threads=1
    says err "$2"
    test ! -e x || fail "A+$1 has written"
    run 2 2 eval base.deck run.dir=x2 run.checkpoint=A/checkpoints/best.h5 \
        "eval.members=\"$1\""
    says err "$2"
}
cannot N 'classes \["low", "high", "other"\], but N/.* has \["low", "high", "tree"\]'
cannot F 'columns \["intensity", "height"\], but F/.* has \["height"\]'
cannot V 'voxels of 1, but V/.* of 2'
run 1 2 label A+ a.txt --out x
says err 'A+: a model is missing'
run 1 3 label A+nowhere a.txt --out x
says err 'nowhere'

# The weights of all models are foreseen: two of them have room, three do not.
run 1 5 label A a.txt --out x run.threads=1 run.memory_mb=1
says err 'MiB for the weights of the network and .*(net.width)'
most=$(sed -n 's/.*needs about \([0-9.]*\) MiB for the weights of the network and \([0-9.]*\) .*/\1 \2/p' \
    err | awk '{ print 2.5 * $1 + $2 }')
label 1 A+B room run.memory_mb="$most"
run 1 5 label A+B+C a.txt --out x run.threads=1 run.memory_mb="$most"
says err 'MiB for the weights of all models and .* average fewer models'
run 2 5 eval base.deck run.dir=x2 run.checkpoint=A/checkpoints/best.h5 \
    'eval.members=["B", "C"]' run.memory_mb="$most"
says err 'MiB for the weights of all models and .* average fewer models'

# ---- eval.members ----
members() {
    n=$1 dir=$2
    shift 2
    run "$n" 0 eval base.deck "run.dir=$dir" run.checkpoint=A/checkpoints/best.h5 "$@"
}
members 1 alone
members 1 e1 'eval.members=["B", "C"]'
says out 'averaging with B/'
evaluations e1 >want
evaluations alone >plain.txt
sed 's/,"merged":{.*}}$/}/' want >plain.found
same plain.found plain.txt "the first model's own numbers"
says want '"merged":{"views":1,"models":3,"blocks":false,"voxels":[1-9]'
for n in 2 3; do
    members $n e$n 'eval.members=["B", "C"]' batch.eval_size=$n
    evaluations e$n >found
    same found want "the mean of three models on $n ranks"
done
members 1 v1 'eval.members=["B"]' eval.views=2
members 2 v2 'eval.members=["B"]' eval.views=2
evaluations v1 >want
evaluations v2 >found
same found want "the mean of two models and views"
# The points of the matrix are those that label finds.
cut -d ' ' -f 5 a.txt >truth
cut -d ' ' -f 10 all/a.txt >mine
spvox convert --voxel-size 1 --points --features intensity,height \
    --map 1=low,2=high,3=other --out one a.txt
members 1 one 'eval.members=["B", "C"]' 'data.val="one-*.h5"'
evaluations one | sed 's/.*"merged".*"point_confusion":\[\[\(.*\)\]\]}}$/\1/; s/\],\[/,/g' >matrix
paste -d ' ' truth mine | awk 'NR > 1 { n[$1, $2]++ } END {
    for (i = 1; i < 4; i++) for (j = 1; j < 4; j++)
        printf("%s%d", (i + j > 2 ? "," : ""), n[i, j])
    print "" }' >matrix.want
same matrix matrix.want "label and eval.members"
exit 0
