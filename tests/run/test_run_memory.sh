#!/bin/sh
# Steps over run.memory_mb are cut into micro-batches and have the bits of a deck that asks
# for as many, on one rank and on two; with deterministic = "world" both have the same bits.
# A run uses the memory that was foreseen; a bound is kept, or a sample that cannot fit is
# refused. Limits of addresses are kept.
. "$SP_SRCDIR/tests/fixtures/program.sh"
spvox scene --out s --samples 1 --extent 18 --seed 15 --voxel-size 0.7
for i in 1 2 3 4 5 6; do cp s-00000-of-00001.h5 t$i.h5; done
cat >d.deck <<'DECK'
data : { train = ["t*.h5"]; val = ["s-*.h5"]; voxel_size = 0.7; };
batch : { size = 6; eval_size = 6; };
net : { family = "minkunet14A"; width = 0.25; stem_kernel = 3; };
train : { steps = 3; warmup_steps = 0; lr = 0.01; };
run : { device = "cpu"; threads = 1; log_every = 1; };
DECK

# micro DIR: into how many micro-batches each step was cut.
micro() {
    sed -n 's/.*"event":"step".*"micro_batches":\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '
}

# cut RANKS DIR MIB PARTS OVERRIDES...: with MIB of memory a step is cut into PARTS micro-
# batches; the program says so, and the weights are those of a deck with as many.
cut() {
    ranks=$1 name=$2 mib=$3 parts=$4
    shift 4
    run "$ranks" 0 train d.deck run.dir="$name" run.memory_mb="$mib" "$@"
    test "$(micro "$name")" = "$parts $parts $parts " || fail "$name: cut into $(micro "$name")"
    says err "memory: a rank may use $mib.0 MiB, and the largest step needs about .* cut into micro-batches, the largest into $parts; batch statistics are computed for each micro-batch"
    run "$ranks" 0 train d.deck run.dir="$name-asked" batch.accumulate="$parts" "$@"
    sums "$name" 3 >got
    sums "$name-asked" 3 >want
    same got want "$name: other weights than with batch.accumulate=$parts"
}

# foreseen RANKS OVERRIDES...: the MiB of a whole step.
foreseen() {
    ranks=$1
    shift
    run "$ranks" 0 check d.deck "$@"
    sed -n 's/.*memory: about \([0-9]*\) MiB a rank.*/\1/p' out
}

# The activations are those of the rank that needs most, whichever it is.
"$SHARDS" box few.h5 1 2000 1 3 4 0 && "$SHARDS" box many.h5 1 60000 1 3 4 0 || fail "no data"
for order in '"few.h5","many.h5"' '"many.h5","few.h5"'; do
    run 2 0 check d.deck data.train=few.h5 data.val="[$order]" data.voxel_size=0.5 batch.balance=false
    sed -n 's/.*included: \(.*\) of activations.*/\1/p' out >>orders
done
test "$(wc -l <orders) $(uniq orders | wc -l)" = "2 1" || fail "activations: $(cat orders)"

need=$(foreseen 1)
test "$need" -gt 60 || fail "a step of $need MiB: too small to be cut"
run 1 0 check d.deck run.memory_mb=$((need + 20))
says out 'memory: a rank may use .* the largest step needs about'
run 1 0 check d.deck run.memory_mb=100000000 # more than any machine has
run 1 0 check d.deck run.memory_mb=$((need - 2))
says err 'cut into micro-batches, the largest into 2'
cut 1 one $((need - 2)) 2
cut 1 six $((need - 5)) 6
cut 2 two $(($(foreseen 2) - 2)) 3
run 1 0 train d.deck run.dir=whole run.memory_mb=$((need + 20))
says out 'memory: a rank may use'
test "$(micro whole)" = "1 1 1 " || fail "cut without need: $(micro whole)"

# Micro-batches are the same on any number of ranks where their bits are to be the same.
# Sums that are exact need memory of their own.
run 2 0 check d.deck train.deterministic=world run.memory_mb=1000
exact=$(sed -n 's/.*the largest step needs about \([0-9]*\).*/\1/p' out)
cut 1 world1 $((exact - 3)) 2 train.deterministic=world
cut 2 world2 $((exact - 3)) 2 train.deterministic=world
sums world1 3 >got
yields got "deterministic = world: other weights on two ranks" sums world2 3

# A continued run is cut as the deck says and has the bits of the uninterrupted one.
run 1 0 train d.deck run.dir=half run.memory_mb=$((need - 2)) train.steps=2 train.schedule=constant
run 1 0 train d.deck run.dir=half run.memory_mb=$((need - 2)) train.schedule=constant
run 1 0 train d.deck run.dir=through run.memory_mb=$((need - 2)) train.schedule=constant
sums half 3 >got
yields got "a continued run has other weights" sums through 3

# Evaluations are cut too, and count the same.
run 1 0 eval d.deck run.dir=one data.val='["t*.h5"]' run.memory_mb=54
run 1 0 eval d.deck run.dir=one data.val='["t*.h5"]'
evaluations one | tail -2 | sed 's/.*"confusion"/"confusion"/' | sort -u >got
test "$(wc -l <got)" = 1 || fail "an evaluation that is cut counts otherwise"

# A run uses the memory that was foreseen, to 10 %, and keeps a bound, to 5 %, with voxels
# that touch no other (a pyramid that does not shrink), with one large sample among small
# ones, in evaluation, and where the batches of an evaluation's loader take most.
"$SHARDS" isolated isolated.h5 || fail "no data"
"$SHARDS" large large.h5 || fail "no data"
cat >m.deck <<'DECK'
data : { val = []; voxel_size = 0.5; };
batch : { size = 4; eval_size = 4; };
net : { family = "minkunet14A"; width = 0.375; stem_kernel = 3; };
train : { steps = 0; epochs = 2; warmup_steps = 0; lr = 0.01; };
run : { device = "cpu"; threads = 1; log_every = 1; };
DECK
# takes NAME OVERRIDES...: what was foreseen, in $whole.
takes() {
    name=$1
    shift
    foresees m.deck "$@"
    peak 1 0 train m.deck run.dir="$name" "$@"
    whole=$taken
    test $((taken * 110)) -ge $((foreseen * 100)) || fail "$name: $foreseen MiB foreseen, $taken taken"
    test $((taken * 100)) -le $((foreseen * 110)) || fail "$name: $foreseen MiB foreseen, $taken taken"
}
# keeps NAME BOUND OVERRIDES...: takes what was foreseen, and keeps to BOUND percent of that.
keeps() {
    name=$1 percent=$2
    shift 2
    takes "$name" "$@"
    bound=$((foreseen * percent / 100))
    peak 1 0 train m.deck run.dir="$name-bound" run.memory_mb=$bound "$@"
    test $((taken * 100)) -le $((bound * 105)) || fail "$name: $taken MiB taken, $bound allowed"
    micro "$name-bound" | grep -q '[2-9]' || fail "$name: no step is cut"
    echo "$name: $foreseen MiB foreseen, $whole taken; $taken taken of $bound"
}
keeps isolated 70 data.train='["isolated.h5"]'
keeps large 106 data.train='["large.h5"]'
keeps eval 75 net.width=0.5 train.epochs=1 data.train='["isolated.h5"]' data.val='["isolated.h5"]'
"$SHARDS" box wide.h5 12 20000 1 24 4 1 || fail "no data"
keeps slots 55 net.width=0.125 batch.size=2 train.epochs=1 data.train='["wide.h5"]' data.val='["wide.h5"]'
# Each view of an evaluation's only step is a batch of its own in the loader.
takes views net.width=0.125 batch.size=2 train.epochs=1 data.train='["wide.h5"]' \
    data.val='["wide.h5"]' batch.eval_size=12 eval.views=4 augment.flip=true

# A sample that does not fit by itself is refused before it is read, on all ranks alike,
# in training, evaluation and prediction, and by the check.
for ranks in 1 2; do
    peak $ranks 5 train m.deck data.train='["large.h5"]' run.dir=refused$ranks run.memory_mb=120
    one_diagnosis 'error: sample 2 of large.h5 (60000 voxels) needs about [0-9.]* MiB by itself, more than the 120.0 MiB that run.memory_mb gives a rank'
    test "$taken" -le 126 || fail "$taken MiB taken to refuse a sample"
    says refused$ranks/status.json '"exit_code":5'
done
run 1 5 check m.deck data.train='["large.h5"]' run.memory_mb=120
run 1 5 eval m.deck data.val='["large.h5"]' run.dir=isolated run.memory_mb=75
one_diagnosis 'sample 2 of large.h5 (60000 voxels)'
run 1 5 predict m.deck data.val='["large.h5"]' run.dir=isolated run.memory_mb=75
# So is a network that does not fit, before its weights are made.
for command in check train; do
    peak 1 5 $command m.deck data.train='["large.h5"]' run.dir=wide run.memory_mb=100 net.width=3
    one_diagnosis 'error: a rank needs about [0-9.]* MiB for the weights, gradients and optimizer state of the network and [0-9.]* MiB for the program, expected at most the 100.0 MiB of run.memory_mb: give it more, or take a smaller network'
    test "$taken" -le 100 || fail "$taken MiB taken to refuse a network"
done
echo "a step of $need MiB"

# Limits of addresses, as batch systems set them, are shared among the arenas.
run 1 0 train d.deck run.dir=unlimited
sums unlimited 3 >want
for limit in v d; do
    (ulimit -$limit 1500000 && run 1 0 train d.deck run.dir=limit-$limit) || exit 1
    yields want "weights under ulimit -$limit" sums limit-$limit 3
done
