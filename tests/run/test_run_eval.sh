#!/bin/sh
# Evaluation and prediction of one checkpoint give the same lines and bytes on any number of
# ranks.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 && "$SHARDS" plain p.h5 && "$SHARDS" classes c.h5 &&
    "$SHARDS" renamed n.h5 && "$SHARDS" bare b.h5 || fail "make_shards"
narrow_deck u.h5 'size = 4; eval_size = 5;' 'steps = 4; warmup_steps = 2;'
run 2 0 base.deck run.dir=r run.log_every=1
# The line of an epoch has the mean loss over its labelled voxels, of which every step has
# about the same share.
awk '{ for (i = 1; i <= NF; i++) { split($i, a, "="); x[a[1]] = a[2] } }
    /^step=/ { n += x["voxels"]; sum += x["loss"] * x["voxels"] }
    /^epoch=/ { is_mean = x["loss"] > 0.99 * sum / n && x["loss"] < 1.01 * sum / n }
    END { exit !is_mean }' out ||
    fail "the loss of an epoch is not the mean"
same r/checkpoints/best.h5 r/checkpoints/step-000000004.h5 "best.h5"
cp r/metrics.jsonl trained
after_save="sh -c 'echo \$0 >$dir/saved'"

for n in 1 2 3 8; do
    checkpoint=r/checkpoints/best.h5
    test $n != 3 || checkpoint=r # a run folder
    run $n 0 eval base.deck run.dir=e$n run.checkpoint=$checkpoint
    test $n != 1 || evaluations e$n >a
    yields a "evaluation on $n ranks" evaluations e$n
done
# Where nothing is labelled there is nothing to evaluate, which is said.
"$SHARDS" unlabelled l.h5 || fail "make_shards"
for n in 1 3; do
    run $n 0 eval base.deck run.dir=l run.checkpoint=r/checkpoints/best.h5 data.val=l.h5
    says err 'no voxel of data.val has a label: there is nothing to evaluate'
done
# Points without labels are no reason to have no best.h5: it is the best by voxels then.
"$SHARDS" points o.h5 || fail "make_shards"
run 2 0 base.deck run.dir=o data.val=o.h5
says o/metrics.jsonl '"miou":0.*"points":0,"point_miou":null'
test -e o/checkpoints/best.h5 || fail "no best.h5"
"$SPTRAIN" report o || fail "report"
says o/report.html 'labelled voxels, accuracy'
# The evaluation equals that of training, and its default is best.h5 of the run. Its results
# have a file of their own too, which tells what was asked for. A continued run leaves them
# alone in both files, and a report has them once.
run 2 0 eval base.deck run.dir=r batch.eval_size=1
yields a "evaluation of the run's own checkpoint" evaluations r
yields a "evaluation while training" last evals r
cat trained r/evaluations.jsonl >b
same b r/metrics.jsonl "metrics and the evaluation"
"$SPTRAIN" report r --quiet || fail "report"
says r/report.html 'data-p="4,[.0-9]*"'
says r/evaluations.jsonl '^{"event":"eval","time":"20[-0-9]*T[:0-9]*Z","arguments":\["eval","base.deck","run.dir=r","batch.eval_size=1"\],"ranks":2,"checkpoint":"r/checkpoints/best.h5","data":\["u.h5"\],"step":4,'
cp r/evaluations.jsonl evaluated
printf '{"event":"ev' >>r/evaluations.jsonl # as a killed program leaves it
run 2 0 base.deck run.dir=r train.steps=5
run 2 0 eval base.deck run.dir=r run.after_save="$after_save"
head -1 r/evaluations.jsonl | cmp -s - evaluated || fail "an earlier evaluation was changed"
test "$(evaluations r | wc -l)" = 2 || fail "the second evaluation is not in its file"
test "$(cat saved)" = r/metrics.jsonl || fail "after_save got: $(cat saved)"
for file in evaluations metrics; do grep '"arguments"' r/$file.jsonl >$file; done
same evaluations metrics "evaluations in the metrics of a continued run"
rm -r r
run 2 0 base.deck run.dir=r

# A command of after_save may evaluate: it is a program of its own, and no rank of this run.
run 2 0 base.deck run.dir=h run.after_save="sh -c 'case \$0 in */step-*.h5) $SPTRAIN eval base.deck run.dir=h2 run.checkpoint=\$0;; esac'"
evaluations h2 >b
yields b "evaluation by after_save" last evals h

# The loss too, where the deck of evaluation does not say how training weighed classes.
grep -v '^train' base.deck >plain.deck
run 2 0 base.deck run.dir=w 'train.class_weights="inverse"' train.label_smoothing=0.1
run 2 0 eval plain.deck run.dir=w
evaluations w >a2
yields a2 "evaluation with weights of classes" last evals w
run 1 0 eval plain.deck run.dir=w train.class_weights=none train.label_smoothing=0
evaluations w | tail -1 >b
differ a2 b "weights of classes on the command line do not count"
# inverse: all labelled voxels / (classes * voxels of the class); sqrt_inverse: its root.
for power in 1 0.5; do
    list=$("$SP_BUILDDIR/spvox" info u.h5 | awk -v to=$power '
        / class[0-3] / { n[k++] = $3; all += $3 }
        END { for (c = 0; c < k; c++) printf ",%.17g", (all / (k * n[c])) ^ to }')
    run 2 0 base.deck run.dir=w$power train.label_smoothing=0.1 "train.class_weights=[${list#,}]"
done
run 2 0 base.deck run.dir=s train.label_smoothing=0.1 train.class_weights=sqrt_inverse
for pair in w:w1 s:w0.5; do
    evals ${pair%:*} >a2
    yields a2 "weights of classes: $pair" evals ${pair#*:}
done
# The ratios of weights count, not their size: these are 2^29.
run 2 0 base.deck run.dir=large 'train.class_weights=[536870912,536870912,536870912,536870912]'
yields a "large weights of classes" evals large
run 2 0 eval base.deck run.dir=r 'train.class_weights=[536870912,536870912,536870912,536870912]'
yields a "large weights of classes on the command line" last evaluations r

# The confusion matrix holds every labelled voxel and point once.
total=$(sed 's/.*"confusion":\[\[\([^a-z]*\)\]\].*/\1/; s/[],[]\{1,\}/+/g' a | sed 's/"point.*//')
voxels=$(sed 's/.*"voxels":\([0-9]*\),.*/\1/' a)
labelled=$("$SP_BUILDDIR/spvox" info u.h5 | awk '/class[0-3]/ { n += $3 } END { print n }')
test $(($total)) = "$voxels" || fail "confusion sums to $(($total)), voxels $voxels"
test "$voxels" = "$labelled" || fail "$voxels voxels evaluated, the shard has $labelled labelled"
says a '"points":[1-9][0-9]*,"point_miou":0'
run 2 0 eval base.deck run.dir=p run.checkpoint=r/checkpoints/best.h5 data.val=p.h5
grep -q point_ p/evaluations.jsonl && fail "points where the shard has none"

# With coarser voxels there are as many as the coarse grid has, and points as before.
run 2 0 base.deck run.dir=coarse data.voxel_size=1.0
run 1 0 eval base.deck run.dir=coarse
run 3 0 eval base.deck run.dir=coarse
{ evaluations coarse; evals coarse | tail -1; } | sort -u >b
test "$(wc -l <b)" = 1 || fail "evaluations of coarse voxels differ"
test "$(sed 's/.*"voxels":\([0-9]*\),.*/\1/' b)" -lt "$voxels" || fail "no coarser voxels"
test "$(sed 's/.*"points":\([0-9]*\),.*/\1/' b)" = "$(sed 's/.*"points":\([0-9]*\),.*/\1/' a)" ||
    fail "points changed with the voxels"

for n in 1 2 3; do
    run $n 0 predict base.deck run.dir=q$n run.checkpoint=r/checkpoints/best.h5 run.logits=true
    same q1/predictions/u.h5 q$n/predictions/u.h5 "predictions on $n ranks"
done
# A prediction leaves a line in the metrics, by which a finished run is no less finished, and
# which a run that goes on keeps.
"$SP_BUILDDIR/spvox" info u.h5 >info || fail "spvox info"
rows=$(sed -n 's/^shards.* voxels \([0-9]*\) .*/\1/p' info)
points=$(sed -n 's/^points \([0-9]*\) .*/\1/p' info)
test "$points" -gt 0 || fail "no points are predicted"
run 3 0 predict base.deck run.dir=g run.checkpoint=r/checkpoints/best.h5
says g/metrics.jsonl '^{"event":"predict","time":"20[-0-9]*T[:0-9]*Z","arguments":\["predict","base.deck","run.dir=g","run.checkpoint=r/checkpoints/best.h5"\],"ranks":3,"checkpoint":"r/checkpoints/best.h5","data":\["u.h5"\],"step":4,"epoch":[0-9]*,"samples":[1-9][0-9]*,"left_out":0,"voxels":'$rows',"points":'$points'}$'
run 2 0 base.deck run.dir=g2
run 2 0 predict base.deck run.dir=g2 data.val=p.h5
tail -1 g2/metrics.jsonl >predicted
says predicted '"event":"predict".*"points":0}'
cp g2/metrics.jsonl finished
run 2 0 base.deck run.dir=g2
says out 'finished'
same finished g2/metrics.jsonl "metrics of a finished run"
run 2 0 base.deck run.dir=g2 train.steps=6
test "$(grep -c '"event":"predict"' g2/metrics.jsonl)" = 1 || fail "the prediction's line is lost"
"$SPTRAIN" report g2 --quiet || fail "a report after a prediction"

# Data that do not fit the checkpoint are named.
run 2 3 eval base.deck run.dir=f run.checkpoint=r/checkpoints/best.h5 data.val=c.h5
one_diagnosis 'c.h5: classes \["class0".*"class4"\], but r/checkpoints/best.h5 has \["class0", .*"class3"\];'
refused 2 2 'f/checkpoints: no checkpoint' eval base.deck run.dir=f
refused 2 3 'no.h5' eval base.deck run.dir=f run.checkpoint=no.h5
mkdir sub && cp u.h5 sub
run 2 2 predict base.deck run.dir=f run.checkpoint=r/checkpoints/best.h5 'data.val=["u.h5","sub/u.h5"]'
one_diagnosis 'f/predictions/u.h5'

# Without a deck data.val is that of the default deck, which this model's training had not.
for n in 1 3; do
    run $n 2 eval run.dir=r
    one_diagnosis 'r/checkpoints/best.h5 was trained with data.val = \["u.h5"\], .*default.deck has'
    test ! -e input || fail "sample data were made"
done
run 2 0 eval run.dir=r data.val=u.h5
run 2 0 eval r/deck.resolved run.dir=r

# Columns are found by the model's names, in whatever order the data have them. On the
# command line the model's names in another order are a mistake.
names='"feature2", "feature1", "feature0"'
other() {
    run 2 "$1" eval base.deck run.dir=f run.checkpoint=r/checkpoints/best.h5 data.val="$2" \
        "data.features=$3"
}
run 2 0 eval base.deck run.dir=f run.checkpoint=r/checkpoints/best.h5 data.val=n.h5
evaluations f | tail -n 1 >by-name
other 0 n.h5 '["feature0", "feature1", "feature2"]'
yields by-name "evaluation of columns in another order" last evaluations f
run 2 0 eval base.deck run.dir=f run.checkpoint=r/checkpoints/best.h5 data.val=p.h5
evaluations f | tail -n 1 >b
differ by-name b "the order of columns does not count"
# While training the data.val of another order are read likewise.
for features in '[]' '["feature0"]'; do
    run 2 0 base.deck run.dir=n data.val=n.h5 run.resume=never "data.features=$features"
    says out 'n.h5: feature columns are in another order than in u.h5'
    run 2 0 eval base.deck run.dir=n data.val=n.h5
    evaluations n | tail -n 1 >by-name
    yields by-name "evaluation while training of columns in another order" last evals n
done
run 2 0 base.deck run.dir=one train.steps=1 'data.features=["feature1"]'
run 2 3 eval base.deck run.dir=f run.checkpoint=one/checkpoints/best.h5 \
    data.val=b.h5
one_diagnosis 'one/checkpoints/best.h5:.*: data.features: b.h5 has no column "feature1"; did you mean'
for data in u.h5 n.h5; do
    other 3 $data "[$names]"
    one_diagnosis 'checkpoint \["feature0", "feature1", "feature2"\], '$data' \['"$names"
done
run 2 2 base.deck run.dir=r train.steps=5 data.features="[$names]"
one_diagnosis 'checkpoint \["feature0", "feature1", "feature2"\], u.h5 \['"$names"
run 2 0 base.deck run.dir=r

# eval and predict say how they ended in a status of their own: the training's stays.
cp r/status.json trained
run 2 3 eval base.deck run.dir=r data.val=c.h5
run 2 2 predict base.deck run.dir=r 'data.val=["u.h5","sub/u.h5"]'
same trained r/status.json "eval or predict changed the training's status"
says r/status-eval.json '"state":"failed","exit_code":3'
says r/status-predict.json '"state":"failed","exit_code":2'
"$SPTRAIN" status r >out || fail "sptrain status"
says out ' end .* process finished$'
for state in 'r: done' 'r: eval failed' 'r: predict failed'; do says out "$state, exit code"; done
run 2 0 eval base.deck run.dir=r
says r/status-eval.json '"state":"done","exit_code":0'
run 2 0 base.deck run.dir=r run.resume=never train.steps=1
test -f r/old-001/status-eval.json || fail "an old evaluation's status stays"
