#!/bin/sh
# The weights are the same bit for bit in two runs of a deck on the same ranks, with any
# number of threads, and on any number of ranks with deterministic = "world".
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
cat >base.deck <<'DECK'
data : { train = "u.h5"; val = "u.h5"; };
batch : { size = 6; eval_size = 4; };
train : { steps = 8; warmup_steps = 2; };
run : { log_every = 1; bucket_mb = 0.01; };
DECK
sed '/^batch/d; /^train/d' base.deck >all.deck
cat >>all.deck <<'DECK'
batch : { size = 6; eval_size = 4; accumulate = 2; };
augment : { drop = 0.2; jitter = 0.05; };
train : { steps = 8; warmup_steps = 2; optimizer = "adamw"; lr = 0.01; grad_clip = 0.5; class_weights = "inverse";
  label_smoothing = 0.1; deterministic = "world"; };
net : { layers = ( { name = "a"; op = "conv"; out = 8; kernel = 3; }, { name = "bn"; op = "batchnorm"; }, { name = "r"; op = "relu"; },
  { name = "b"; op = "conv"; out = 12; kernel = 3; stride = 2; coordinates = "dilated"; }, { name = "bn2"; op = "batchnorm"; }, { name = "l"; op = "leaky_relu"; },
  { name = "drop"; op = "dropout"; p = 0.3; },
  { name = "c"; op = "conv_transpose"; out = 8; kernel = 3; stride = 2; },
  { name = "d"; op = "concat"; from = ["c", "r"]; }, { name = "e"; op = "linear"; out = 4; bias = true; } ); };
DECK

# run_twice NAME RANKS ARGUMENTS...
run_twice() {
    name=$1 ranks=$2
    shift 2
    run "$ranks" 0 "$@" run.dir=$name.a
    run "$ranks" 0 "$@" run.dir=$name.b
    sums $name.a 8 >a
    sums $name.b 8 >b
    grep -q '^/optim/m/' a || fail "no optimizer state in the sums"
    same a b "$name: two runs on $ranks ranks"
}
run_twice family 2 base.deck net.family=minkunet14A net.width=0.1
run_twice three 3 base.deck net.family=dummy batch.per=rank batch.size=2 train.bn_scope=rank

for n in 1 2 3; do
    run 1 0 base.deck net.family=minkunet14A net.width=0.5 run.threads=$n run.dir=threads$n
    test $n != 1 || sums threads$n 8 >a
    yields a "$n threads" sums threads$n 8
done

for n in 1 2 3 4 8; do
    run $n 0 all.deck run.dir=world$n
    test $n != 1 || sums world$n 8 >a
    yields a "deterministic = world on $n ranks" sums world$n 8
    test $n != 1 || steps world$n >lines.a
    yields lines.a "losses of deterministic = world on $n ranks" steps world$n
done

# So do all moves of augmentation, and a continued run; without one of them other weights
# result, so each acts.
moves="rotate_p=0.7 rotate_max=30 tilt=5 tilt_p=0.5 shift=0.3 elastic=[2,1,4,2] elastic_p=0.8
    noise=0.2 noise_clip=0.5 drop_p=0.5"
all=
for move in $moves; do all="$all augment.$move"; done
for n in 1 2 3; do
    # shellcheck disable=SC2086
    run $n 0 all.deck run.dir=moves$n $all
    test $n != 1 || sums moves$n 8 >a
    yields a "all moves, deterministic = world on $n ranks" sums moves$n 8
done
# shellcheck disable=SC2086
run 3 0 all.deck run.dir=moves4 train.schedule=constant train.steps=5 $all
# shellcheck disable=SC2086
run 2 0 all.deck run.dir=moves4 train.schedule=constant $all
# shellcheck disable=SC2086
run 1 0 all.deck run.dir=moves5 train.schedule=constant $all
sums moves5 8 >c
yields c "all moves, continued on other ranks" sums moves4 8
for move in rotate_p=1 rotate_max=31 tilt=0 tilt_p=1 shift=0 'elastic=[]' elastic_p=0 noise=0 \
    noise_clip=0 drop_p=1; do
    # shellcheck disable=SC2086
    run 1 0 all.deck run.dir=other-$move $all "augment.$move"
    sums "other-$move" 8 >b
    differ a b "augment.$move changes nothing"
done
