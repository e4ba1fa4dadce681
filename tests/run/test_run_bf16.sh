#!/bin/sh
# train.precision = "bf16" on CPUs: the same weights bit for bit in two runs, with any number
# of threads, after a stop, and on any number of ranks with deterministic = "world";
# evaluation and prediction in it; half the memory of activations; losses near those of
# fp32; one order of sums for all ranks.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
deck 'family = "minkunet14A"; width = 0.25; stem_kernel = 3;' \
    'train = "u.h5"; val = "u.h5";' 'size = 6; eval_size = 4;' \
    'steps = 5; warmup_steps = 2; schedule = "constant"; precision = "bf16";' \
    'log_every = 1; threads = 1;'

# same_bits DIR WHAT: DIR has the weights of `a` and, at its last step, its loss.
same_bits() {
    yields a "$2: weights" sums "$1" 5
    yields line.a "$2: loss" last steps "$1"
}
run 2 0 base.deck run.dir=first
sums first 5 >a
steps first | tail -1 >line.a
run 2 0 base.deck run.dir=again run.overlap=false
same_bits again "a second run"
run 2 0 base.deck run.dir=threads run.threads=2
same_bits threads "2 threads"
run 2 0 base.deck run.dir=stopped train.steps=3
run 2 0 base.deck run.dir=stopped
same_bits stopped "a continued run"

run 2 0 base.deck run.dir=fp32 train.precision=fp32
steps fp32 | tail -1 >line.b
differ line.a line.b "bf16 gave the loss of fp32"
paste -d ' ' line.a line.b | awk '{ d = $4 / $8 - 1; exit d < -0.1 || d > 0.1 }' ||
    fail "bf16 is far from fp32: $(cat line.a line.b)"

for n in 1 2 3 4; do
    run $n 0 base.deck run.dir=world$n train.deterministic=world
    test $n = 1 && sums world1 5 >a && steps world1 | tail -1 >line.a
    same_bits world$n "deterministic = world on $n ranks"
done

# An evaluation equals that of the training; predictions have its confusion matrix.
for n in 1 3; do
    run $n 0 eval base.deck run.dir=e$n run.checkpoint=world1/checkpoints/step-000000005.h5
    evaluations e$n | sed 's/.*"samples"//' >eval.b
    test $n = 1 && cp eval.b eval.a
    same eval.a eval.b "evaluation on $n ranks"
    run $n 0 predict base.deck run.dir=p$n run.logits=true \
        run.checkpoint=world1/checkpoints/step-000000005.h5
    same p1/predictions/u.h5 p$n/predictions/u.h5 "prediction on $n ranks"
done
evals world1 | tail -1 | sed 's/.*"samples"//' >eval.b
same eval.a eval.b "evaluation while training"

# Ranks sum in pairs where the processor of one has no tiles, here as it is told so.
if grep -q avx2 /proc/cpuinfo; then
    timeout "$limit_s" "$MPIEXEC" -n 1 env SP_CPU_ISA=avx2 "$SPTRAIN" base.deck \
        run.dir=mixed train.steps=2 : -n 1 "$SPTRAIN" base.deck run.dir=mixed \
        train.steps=2 >out 2>err </dev/null || fail "a rank without tiles"
    says out 'bf16 summed in pairs'
    says mixed/metrics.jsonl '"bf16_sums":"pairs"'
fi

# The order may be chosen; both have bits of their own, and a run may change its order.
# Sums in tiles are slow on processors without them, so the network is small.
small="net.family=dummy train.deterministic=world"
for sums in pairs tiles; do
    for n in 1 3; do
        # shellcheck disable=SC2086
        run $n 0 base.deck run.dir=$sums$n $small train.steps=3 train.bf16_sums=$sums
        says out "bf16 summed in $sums"
        sums $sums$n 3 >$sums.$n
    done
    same $sums.1 $sums.3 "$sums on 3 ranks"
done
differ pairs.1 tiles.1 "the order of sums changes no bit"
# shellcheck disable=SC2086
run 2 0 base.deck run.dir=pairs1 $small train.steps=5 train.bf16_sums=tiles
says err 'summed in pairs in bf16 and continues in tiles'

# activations ARGUMENTS...: the MiB of them that are foreseen.
activations() {
    run 1 0 check base.deck "$@"
    sed -n 's/.* \([0-9.]*\) MiB of activations.*/\1/p' out
}
spvox scene --out s --samples 1 --extent 17 --seed 3 --voxel-size 0.7
large="data.train=s-00000-of-00001.h5 data.val=[] data.voxel_size=0.7 net.width=1.0"
# shellcheck disable=SC2086
half=$(activations $large)
# shellcheck disable=SC2086
whole=$(activations $large train.precision=fp32)
awk "BEGIN { exit !($half > 1 && $half < 0.55 * $whole) }" ||
    fail "activations of $half MiB, in fp32 $whole"
echo "activations of $half MiB, in fp32 $whole"
