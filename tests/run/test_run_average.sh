#!/bin/sh
# Averaged weights are kept in checkpoints and evaluated beside the plain ones, which they
# do not change. They are the same on any number of ranks and after a restart. With
# run.weights = "ema" the best of them is kept, and eval and run.init_from take them.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 6; eval_size = 4;' \
    'epochs = 4; warmup_steps = 2; lr = 0.05; schedule = "constant"; deterministic = "world";' \
    'log_every = 1; eval_every = 1; keep = 99;'
run 1 0 base.deck run.dir=plain
last=12
says_not plain/metrics.jsonl ema_
sums plain "$last" >plain.sums
grep -q /ema plain.sums && fail "averages without train.ema"
for n in 1 2 3; do
    run $n 0 base.deck run.dir=r$n train.ema=0.8 run.weights=ema
    sums r$n "$last" >sums$n
    same sums1 sums$n "averages on $n ranks"
done
says sums1 '^/ema/conv1/weight'
says sums1 '^/ema_buffers/bn1/running_var'
grep -v /ema sums1 | same plain.sums /dev/stdin "the plain weights"

# An average differs from the weights. Its evaluation is that of eval, which takes it by
# itself, as the training's deck says so.
value() { sed -n "s/.*\"$2\":\([^,]*\),.*/\1/p" "$1" | tail -n 1; }
grep '"event":"eval"' r1/metrics.jsonl >evals
test "$(value evals ema_loss)" != "$(value evals loss)" || fail "the average is evaluated as the weights"
newest=r1/checkpoints/step-$(printf %09d "$last").h5
run 2 0 eval base.deck run.dir=r1 run.checkpoint="$newest"
for key in loss miou accuracy; do
    test "$(value r1/evaluations.jsonl $key)" = "$(value evals ema_$key)" || fail "eval of the average: another $key"
done
run 1 0 eval base.deck run.dir=r1 run.checkpoint="$newest" run.weights=plain
for key in loss miou accuracy; do
    test "$(value r1/evaluations.jsonl $key)" = "$(value evals $key)" || fail "eval of the weights: another $key"
done

# The best is that of the averages, and eval of best.h5 has its number.
best=$(sed -n 's/.*"ema_point_miou":\([^,]*\),.*/\1/p' evals | sort -g | tail -n 1)
run 1 0 eval base.deck run.dir=r1
test "$(value r1/evaluations.jsonl point_miou)" = "$best" || fail "best.h5 is not the best of the averages"

# A restart goes on with the average.
run 1 0 base.deck run.dir=again train.ema=0.8 run.weights=ema train.epochs=2
run 2 0 base.deck run.dir=again train.ema=0.8 run.weights=ema
sums again "$last" >again.sums
same sums1 again.sums "averages after a restart"

# The tail of a training, by the mean: the same on other ranks and after a restart within it.
# Before it the average is the weights.
for n in 1 2; do
    run $n 0 base.deck run.dir=t$n train.average_tail=0.5 run.weights=ema
    sums t$n "$last" >tail$n
    same tail1 tail$n "tails on $n ranks"
done
grep -v /ema tail1 | same plain.sums /dev/stdin "the plain weights beside a tail"
sums t1 6 | sed -n 's/^.ema\/\(.*\)/\1/p' >early
sums t1 6 | sed -n 's/^.params\/\(.*\)/\1/p' | same early /dev/stdin "the average before the tail"
grep '^/ema/' tail1 >got
grep '^/ema/' sums1 | cmp -s got - && fail "the tail is the average of train.ema"
run 2 0 base.deck run.dir=t3 train.average_tail=0.5 run.weights=ema run.checkpoint_every=8
rm t3/checkpoints/step-000000012.h5
run 1 0 base.deck run.dir=t3 train.average_tail=0.5 run.weights=ema run.checkpoint_every=8
says out 'step-000000008'
sums t3 "$last" >tail3
same tail1 tail3 "a tail after a restart within it"
refused 2 2 'train.average_tail = 0.5 and train.ema = 0.8' base.deck run.dir=both train.average_tail=0.5 train.ema=0.8

# Switched on in a continued run, the average begins as the weights.
run 1 0 base.deck run.dir=later train.epochs=2
run 2 0 base.deck run.dir=later train.ema=0.8
says out 'has no averaged weights: the average begins here'
sums later "$last" | grep -v /ema | same plain.sums /dev/stdin "weights with an average from epoch 2 on"
says later/metrics.jsonl ema_miou

# A training that begins with the file of r1 begins with its averages.
run 2 0 base.deck run.dir=from run.init_from="$newest" train.lr=0 train.epochs=1
sums from 3 | grep '^/params' >from.sums
grep '^/ema/' sums1 | sed 's/^.ema/\/params/' | same from.sums /dev/stdin "weights of run.init_from"

refused "1 2" 2 'run.weights = "ema" needs averages of the weights' base.deck run.dir=x run.weights=ema
refused 2 2 'run.weights = "ema" needs averages' check base.deck run.weights=ema
refused 2 3 'no averaged weights (/ema), which run.weights = "ema" asks for' \
    eval base.deck run.dir=plain run.weights=ema
refused 2 2 'run.weights' base.deck run.dir=r1 train.ema=0.8 train.epochs=5
