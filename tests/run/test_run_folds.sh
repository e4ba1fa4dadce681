#!/bin/sh
# Folds deal the files of data.train: each is evaluated in one fold and trained on in the
# others, whatever the number of ranks, and the report adds up their confusions. data.test
# is evaluated once, after the training, with the best weights, and moves none of them.
. "$SP_SRCDIR/tests/fixtures/program.sh"
for i in 0 1 2 3; do
    alone 0 "$SP_BUILDDIR/spvox" scene --out s$i --samples $((i + 1)) --extent 12 --seed $i --points
done
alone 0 "$SP_BUILDDIR/spvox" scene --out t --samples 3 --extent 12 --seed 9 --points
cat >base.deck <<'DECK'
data : { train = "s*.h5"; val = "t-*.h5"; };
batch : { size = 3; eval_size = 2; };
net : { family = "dummy"; };
train : { epochs = 2; warmup_steps = 0; lr = 0.05; deterministic = "world"; };
run : { eval_every = 1; };
DECK
sed 's/ val = [^;]*;//' base.deck >folds.deck
value() { sed -n "s/.*\"$2\":\([^,}]*\)[,}].*/\1/p" "$1" | tail -n 1; }
evals() { grep '"event":"eval"' "$1/metrics.jsonl" | sed 's/,"time.*//'; }
for k in 0 1 2; do
    run 2 0 folds.deck run.dir=f$k data.folds=3 data.fold=$k
    evals f$k | tail -n 1 >last$k
done
grep 'data.val' err && fail "data.val is named though no deck has it"
# By name s0, s1, s2, s3: folds s0 and s3, s1, s2.
test "$(value last0 samples) $(value last1 samples) $(value last2 samples)" = "5 2 3" || fail "samples of the folds"
run 3 0 folds.deck run.dir=f1.3 data.folds=3 data.fold=1
evals f1 >one
evals f1.3 >three
same one three "a fold on 2 and 3 ranks"
run 1 0 eval folds.deck run.dir=f1 data.folds=3 data.fold=1
says f1/evaluations.jsonl '"data":\["s\*.h5"\],"folds":3,"fold":1,'
test "$(value f1/evaluations.jsonl samples)" = 2 || fail "eval of a fold has other samples"

alone 0 "$SPTRAIN" report --folds f2 f0 f1
cat last0 last1 last2 | sed 's/.*"confusion":\[\[//; s/\]\].*//; s/\],\[/,/g' | awk -F, '
    { for (i = 1; i <= NF; i++) sum[i] += $i; n = NF }
    END {
        c = sqrt(n)
        for (i = 0; i < c; i++) {
            all = 0
            for (j = 0; j < c; j++) all += sum[i * c + j + 1] + sum[j * c + i + 1]
            all -= sum[i * c + i + 1]
            if (all) { iou += sum[i * c + i + 1] / all; present++ }
        }
        for (i = 1; i <= n; i++) voxels += sum[i]
        printf "folds=3 miou=%.4f voxels=%d\n", iou / present, voxels
    }' >want
grep '^folds=' out | sed 's/ accuracy=[^ ]*//; s/ point.*//' >got
same want got "the pooled confusion"
says out 'point_miou='
alone 2 "$SPTRAIN" report --folds f0 f1
one_diagnosis 'the run of data.fold = 2 is missing'
alone 2 "$SPTRAIN" report --folds f0 f1 f1.3
one_diagnosis 'data.fold = 1, as in f1'

refused "1 2" 2 'data.fold = 3 is not a fold of data.folds = 3, expected 0 to 2' \
    check folds.deck data.folds=3 data.fold=3
refused "1 2" 3 'data.folds = 5: data.train has 4 files, expected one at least for each fold' \
    check folds.deck data.folds=5
run 2 2 folds.deck run.dir=f1 data.folds=3 data.fold=2 train.epochs=3

# The test set.
run 1 0 base.deck run.dir=without
says_not without/metrics.jsonl '"event":"test"'
alone 2 "$SPTRAIN" report --folds without
one_diagnosis 'no run of a cross-validation'
for n in 1 2; do
    run $n 0 base.deck run.dir=with$n 'data.test=["t-*.h5", "s0*.h5"]'
    evals with$n >with
    evals without | cmp -s - with || fail "data.test changes the training"
    test "$(grep -c '"event":"test"' with$n/metrics.jsonl)" = 1 || fail "not one line of the test set"
    grep '"event":"test"' with$n/metrics.jsonl >test$n
    "$SHARDS" sums with$n/checkpoints/best.h5 | grep '^/[pb]' >with.sums
    "$SHARDS" sums without/checkpoints/best.h5 | grep '^/[pb]' | same with.sums /dev/stdin "best.h5 with data.test"
done
sed 's/,"time.*//' test1 >test1.n
sed 's/,"time.*//' test2 | same test1.n /dev/stdin "the test set on 1 and 2 ranks"
run 2 0 eval base.deck run.dir=without 'data.val=["t-*.h5", "s0*.h5"]'
for key in samples voxels loss miou step; do
    test "$(value test1 $key)" = "$(value without/evaluations.jsonl $key)" || fail "the test set: another $key than eval"
done
run 1 0 base.deck run.dir=with1 'data.test=["t-*.h5", "s0*.h5"]'
test "$(grep -c '"event":"test"' with1/metrics.jsonl)" = 1 || fail "a finished run tests again"
run 2 0 base.deck run.dir=ema 'data.test="t-*.h5"' train.ema=0.5 run.weights=ema run.eval_every=0
says ema/metrics.jsonl '"event":"test".*"weights":"last"'
refused 2 3 'no_such.h5' check base.deck data.test=no_such.h5
