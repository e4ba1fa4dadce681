#!/bin/sh
# A network whose output is not finite ends evaluation, prediction and the evaluations of a
# training with 8 on all ranks, names the sample, and leaves nothing that looks like a
# result.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" bare b.h5 && "$SHARDS" bare-huge h.h5 && "$SHARDS" bare-large l.h5 || fail "make_shards"
narrow_deck b.h5 'size = 2; eval_size = 4;' 'steps = 6; warmup_steps = 2;'
run 2 0 base.deck run.dir=r
"$SHARDS" craft r/checkpoints/best.h5 nan.h5 /params/final/bias nan || fail "make_shards craft"

# nothing_left DIR: neither an evaluation nor predictions, whole or begun.
nothing_left() {
    test -s "$1/evaluations.jsonl" && fail "$1: an evaluation was written"
    test -e "$1/predictions" && fail "$1: left $(ls "$1/predictions")"
    grep -q '^eval ' out && fail "an evaluation was printed"
}
for n in 1 3; do
    for command in eval predict; do
        run $n 8 $command base.deck run.dir=n$n run.checkpoint=nan.h5
        one_diagnosis 'b.h5: sample [0-9]: voxel [0-9]*: the output of layer `final` is not finite: the checkpoint.s /params/final/bias: element 3 is nan'
        nothing_left n$n
        says n$n/status-$command.json '"state":"failed","exit_code":8'
    done
done
# A request to stop that comes while a batch is prepared is answered before the network
# computes it.
for command in eval predict; do
    SP_TEST_FAULT=term@0:plan:0 run 1 75 $command base.deck run.dir=n1 run.checkpoint=nan.h5
done
# Wherever in the network the number stands: a ReLU makes a zero of -inf, and a variance of
# inf one of any number; the output then looks like that of a good model.
for number in /params/conv0p1s1/weight=nan /params/bn0/bias=-inf /buffers/bn0/running_var=inf; do
    name=${number%=*} value=${number#*=}
    "$SHARDS" craft r/checkpoints/best.h5 x.h5 "$name" "$value" || fail "make_shards craft"
    for command in eval predict; do
        run 2 8 $command base.deck run.dir=x run.checkpoint=x.h5
        one_diagnosis "b.h5: sample .* the checkpoint's $name: element [0-9]* is $value"
        nothing_left x
    done
done
# A training does not begin with such weights, and check says so beforehand.
diverged='nan.h5:/params/final/bias: element 3 is nan, expected a finite number'
for n in 1 3; do
    for key in init_from resume; do
        refused $n 3 "$diverged" check base.deck run.$key=nan.h5
        refused $n 3 "$diverged" base.deck run.dir=none run.$key=nan.h5
        test ! -e none/checkpoints || fail "a checkpoint was written"
    done
done
refused 1 3 "$diverged" check base.deck run.checkpoint=nan.h5
run 1 0 check base.deck run.init_from=r/checkpoints/best.h5
"$SHARDS" craft r/checkpoints/best.h5 var.h5 /buffers/bn0/running_var -1 || fail "make_shards craft"
run 2 3 base.deck run.dir=none run.init_from=var.h5
one_diagnosis 'var.h5:/buffers/bn0/running_var: element [0-9]* is -1, expected a finite number'
# A run that looks for its newest checkpoint goes on from the last good one.
run 2 0 base.deck run.dir=c run.checkpoint_every=2
sums c 6 >want
cp nan.h5 c/checkpoints/step-000000006.h5
run 2 0 base.deck run.dir=c run.checkpoint_every=2
says err "damaged checkpoint skipped: c/checkpoints/step-000000006.h5:/params/final/bias: element 3 is nan"
yields want "weights after a checkpoint that is not finite" sums c 6

# Weights that an update has made infinite are not saved, and push out no good ones.
run 2 0 base.deck run.dir=d train.steps=4 run.keep=1 run.eval_every=0
cp d/checkpoints/step-000000004.h5 good.h5
run 2 8 base.deck run.dir=d train.steps=30 run.keep=1 run.eval_every=0 run.checkpoint_every=1 \
    train.lr=3e38 train.schedule=constant train.warmup_steps=0
says err 'step-000000005.h5: /params/.*: element [0-9]* is -\{0,1\}\(inf\|nan\): the training has diverged'
test "$(ls d/checkpoints)" = step-000000004.h5 || fail "checkpoints: $(ls d/checkpoints)"
same good.h5 d/checkpoints/step-000000004.h5 "the last good checkpoint"
run 1 8 base.deck run.dir=l1 train.steps=1 run.eval_every=0 train.lr=3e38 train.warmup_steps=0
one_diagnosis 'step-000000001.h5: /params/.*the training has diverged'
status l1 failed 8

# One sample is at fault: the rank that has it fails while the others do not.
for n in 1 2 3; do
    for command in eval predict; do
        run $n 8 $command base.deck run.dir=h$n run.checkpoint=r/checkpoints/best.h5 data.val=h.h5
        one_diagnosis 'h.h5: sample 2: voxel [0-9]*: the output of layer `final` is not finite'
        # The reason may be that the training had so few steps; the message then says what
        # helps.
        says err 'after [0-9]* steps the running statistics of the batch norms are still close to'
        nothing_left h$n
    done
done
# Finite logits are a result, however large their loss: the same one on any number of ranks,
# and in a training too. The largest summands are above 2^36, 7e10.
for n in 1 3; do
    run $n 0 eval base.deck run.dir=l$n run.checkpoint=r/checkpoints/best.h5 data.val=l.h5
    grep -o '"loss":[^,]*' l$n/evaluations.jsonl >loss$n
done
cmp -s loss1 loss3 || fail "loss: $(cat loss1), on three ranks $(cat loss3)"
awk -F: '!($2 > 1e11 && $2 < 1e38) { exit 1 }' loss1 || fail "large loss: $(cat loss1)"
run 3 0 predict base.deck run.dir=l3 run.checkpoint=r/checkpoints/best.h5 data.val=l.h5
for world in run world; do
    run 2 0 base.deck run.dir=m$world train.steps=1 data.val=l.h5 train.deterministic=$world
    status m$world done 0
    grep '"event":"eval"' m$world/metrics.jsonl | grep -q '"loss":[1-9]' ||
        fail "no loss of a training's evaluation"
done
# Earlier predictions stay; predictions that were begun are removed.
run 2 0 predict base.deck run.dir=r
cp r/predictions/b.h5 whole.h5
run 2 8 predict base.deck run.dir=r 'data.val=["b.h5","h.h5"]'
test "$(ls r/predictions)" = b.h5 || fail "left: $(ls r/predictions)"
same whole.h5 r/predictions/b.h5 "earlier predictions"

# A batch norm spreads it over the step's samples; their features tell which is at fault.
# Each epoch has such a step; only steps in a row count against train.nonfinite_limit.
run 2 0 base.deck run.dir=v data.train=h.h5 data.val='[]' train.steps=12 augment.drop=0.0 \
    train.nonfinite_limit=3 run.log_every=1
test "$(steps v | grep -c null)" = 4 || fail "$(steps v | grep -c null) steps without a loss"
says err 'non-finite loss of sample 2 of h.h5; its features reach 3e+38 (a)'
says err 'non-finite loss of sample [013-5] of h.h5; its features reach -\{0,1\}[0-9.]* ([ab])'
# In training the failure comes before best.h5 is replaced.
run 2 0 base.deck run.dir=t train.steps=3
sums t 3 >want
cp t/checkpoints/best.h5 best.h5
for n in 1 3; do
    run $n 8 base.deck run.dir=t data.val=h.h5
    one_diagnosis 'h.h5: sample 2: voxel [0-9]*: the output of layer `final` is not finite'
    same best.h5 t/checkpoints/best.h5 "best.h5"
    status t failed 8
    test "$(evals t | wc -l)" = 1 || fail "an evaluation was written"
done
run 2 0 base.deck run.dir=t
