#!/bin/sh
# train.recompute changes no bit: of weights, running statistics, averages and optimizer, on
# 1 to 4 ranks, in micro-batches, in bf16, with frozen layers and dropout, and when it is set
# or left out in a run that continues. It takes less memory, and a sample that would fit with
# it is refused with what it would need.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
cat >base.deck <<'DECK'
data : { train = "u.h5"; val = "u.h5"; };
batch : { size = 6; eval_size = 4; accumulate = 2; };
net : { family = "minkunet18"; width = 0.125; };
train : { steps = 4; warmup_steps = 2; ema = 0.9; schedule = "constant"; };
run : { device = "cpu"; log_every = 1; };
DECK
sed '/^net/d' base.deck >layers.deck
cat >>layers.deck <<'DECK'
net : { layers = ( { name = "a"; op = "conv"; out = 8; kernel = 3; }, { name = "n1"; op = "batchnorm"; }, { name = "r1"; op = "relu"; },
  { name = "b"; op = "conv"; out = 8; kernel = 3; }, { name = "n2"; op = "batchnorm"; }, { name = "r2"; op = "relu"; },
  { name = "drop"; op = "dropout"; p = 0.3; },
  { name = "c"; op = "conv"; out = 12; kernel = 3; stride = 2; }, { name = "n3"; op = "batchnorm"; }, { name = "l"; op = "leaky_relu"; },
  { name = "d"; op = "conv"; out = 12; kernel = 3; }, { name = "n4"; op = "batchnorm"; }, { name = "r4"; op = "relu"; },
  { name = "up"; op = "conv_transpose"; out = 8; kernel = 2; stride = 2; }, { name = "n5"; op = "batchnorm"; }, { name = "r5"; op = "relu"; },
  { name = "k"; op = "concat"; from = ["r5", "r1"]; },
  { name = "e"; op = "conv"; out = 8; kernel = 3; }, { name = "n6"; op = "batchnorm"; }, { name = "r6"; op = "relu"; },
  { name = "f"; op = "conv"; out = 8; kernel = 3; }, { name = "n7"; op = "batchnorm"; }, { name = "r7"; op = "relu"; },
  { name = "z"; op = "linear"; out = 4; bias = true; } ); };
DECK

# equal NAME RANKS DECK OVERRIDES...: the bits with and without.
equal() {
    name=$1 ranks=$2
    shift 2
    run "$ranks" 0 "$@" run.dir="$name.kept"
    run "$ranks" 0 "$@" run.dir="$name" train.recompute=true
    sums "$name.kept" 4 >want
    yields want "$name: other bits with train.recompute" sums "$name" 4
}
for n in 1 2 3 4; do
    equal family$n $n base.deck
    equal layers$n $n layers.deck train.deterministic=world
    test $n != 1 || cp want first
done
same want first "deterministic = world: other bits on 4 ranks"
equal bf16 2 base.deck train.precision=bf16 train.optimizer=adamw
equal frozen 1 layers.deck 'train.freeze=["a","n1","d","n6"]'
equal scope 3 base.deck train.bn_scope=rank

for way in false true; do
    run 2 0 base.deck run.dir=half$way train.steps=2 train.recompute=$way
    run 2 0 base.deck run.dir=half$way train.recompute=$(test $way = true && echo false || echo true)
    sums half$way 4 >got
    sums family2.kept 4 >want
    same got want "begun with train.recompute=$way and continued without it: other bits"
done

# activations WAY: foreseen, in tenths of a MiB.
"$SHARDS" box one.h5 1 60000 1 40 4 0 || fail "no data"
cat >one.deck <<'DECK'
data : { train = "one.h5"; val = []; voxel_size = 0.5; };
batch : { size = 1; };
net : { family = "minkunet18"; width = 0.5; };
run : { device = "cpu"; threads = 1; };
DECK
activations() {
    run 1 0 check one.deck train.recompute="$1"
    sed -n 's/.*included: \([0-9]*\)\.\([0-9]\) MiB of activations.*/\1\2/p' out
}
kept=$(activations false) again=$(activations true)
test $((again * 100)) -le $((kept * 65)) || fail "activations: $again with train.recompute, $kept without"

run 1 5 check one.deck run.memory_mb=300
says_not err 'train.recompute'
run 1 5 check one.deck run.memory_mb=370
says err 'more than the 370.0 MiB .* or set train.recompute = true: it then needs about 35[0-9.]* MiB'
run 1 0 check one.deck run.memory_mb=370 train.recompute=true

# passes OPERATION WAY: how many of them a step has, counted for a GPU. What several layers
# need is computed again once, if memory has room for it.
passes() {
    "$SP_BUILDDIR/spbench" roofline --json --precision bf16 \
        --code "$SP_SRCDIR/tests/results/code-sm_90.txt" one.deck \
        'net.family="minkunet34"' net.width=0.125 train.recompute="$2" >out ||
        fail "spbench roofline"
    grep -c "\"name\":\"$1\"" out
}
for operation in conv_forward norm_apply; do
    kept=$(passes $operation false) again=$(passes $operation true)
    test $((again * 10)) -le $((kept * 21)) ||
        fail "$operation: $again with train.recompute, $kept without"
done
