#!/bin/sh
# Steps over run.memory_mb are cut into micro-batches: the bits of a deck that asks for as
# many, on one rank and on two; with deterministic = "world" the same on both.
. "$SP_SRCDIR/tests/run/story.sh"
"$SP_BUILDDIR/spvox" scene --out s --samples 1 --extent 17 --seed 3 --voxel-size 0.7 \
    >out 2>err || fail "no data"
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

# cut RANKS DIR MIB PARTS OVERRIDES...: with so much memory so many micro-batches a step,
# which the program says, and the weights of a deck with as many.
cut() {
    ranks=$1 name=$2 mib=$3 parts=$4
    shift 4
    run "$ranks" 0 train d.deck run.dir="$name" run.memory_mb="$mib" "$@"
    test "$(micro "$name")" = "$parts $parts $parts " || fail "$name: cut into $(micro "$name")"
    says err "memory: a rank may use $mib.0 MiB, the dearest step needs about .* cut into micro-batches, that one into $parts; batch statistics are those of a micro-batch"
    run "$ranks" 0 train d.deck run.dir="$name-asked" batch.accumulate="$parts" "$@"
    sums "$name" 3 >got
    sums "$name-asked" 3 >want
    same got want "$name: other weights than with batch.accumulate=$parts"
}

# foreseen OVERRIDES...: the MiB of a whole step.
foreseen() {
    run 1 0 check d.deck "$@"
    sed -n 's/.*memory: about \([0-9]*\) MiB a rank.*/\1/p' out
}

need=$(foreseen)
test "$need" -gt 60 || fail "a step of $need MiB: too small to be cut"
run 1 0 check d.deck run.memory_mb=$((need + 20))
says out 'memory: a rank may use .* the dearest step needs about'
run 1 0 check d.deck run.memory_mb=$((need - 3))
says err 'cut into micro-batches, that one into 2'
cut 1 one $((need - 3)) 2
cut 1 six $((need - 8)) 6
cut 2 two $((need - 8)) 3
run 1 0 train d.deck run.dir=alone run.memory_mb=1 train.steps=1
says err 'the largest sample needs about .* runs alone'
run 1 0 train d.deck run.dir=whole run.memory_mb=$((need + 20))
says out 'memory: a rank may use'
test "$(micro whole)" = "1 1 1 " || fail "cut without need: $(micro whole)"

# The same micro-batches on any number of ranks where their bits are to be the same. Sums
# that are exact take memory of their own.
exact=$(foreseen train.deterministic=world)
cut 1 world1 $((exact - 3)) 2 train.deterministic=world
cut 2 world2 $((exact - 3)) 2 train.deterministic=world
sums world1 3 >got
sums world2 3 >want
same got want "deterministic = world: other weights on two ranks"

# A continued run: cut as the deck says, bit by bit the uninterrupted one.
run 1 0 train d.deck run.dir=half run.memory_mb=$((need - 3)) train.steps=2 train.schedule=constant
run 1 0 train d.deck run.dir=half run.memory_mb=$((need - 3)) train.schedule=constant
run 1 0 train d.deck run.dir=through run.memory_mb=$((need - 3)) train.schedule=constant
sums half 3 >got
sums through 3 >want
same got want "a continued run has other weights"

# Evaluations are cut too, and count the same.
run 1 0 eval d.deck run.dir=one data.val='["t*.h5"]' run.memory_mb=1
run 1 0 eval d.deck run.dir=one data.val='["t*.h5"]'
evaluations one | tail -2 | sed 's/.*"confusion"/"confusion"/' | sort -u >got
test "$(wc -l <got)" = 1 || fail "an evaluation that is cut counts otherwise"
echo "a step of $need MiB"
