#!/bin/sh
# The number of ranks changes no sample and hardly a digit, with unequal samples, an empty
# one, one voxel, one without labels, ranks without samples, a step without labels.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 && "$SHARDS" unlabelled n.h5 || fail "make_shards"
dummy_deck u.h5 'size = 4;' 'steps = 20; warmup_steps = 5;' 'log_every = 1; eval_every = 0;'
smooth_deck

# as_one DIR: near the run of one rank, without ReLU.
as_one() {
    near "$1" smooth1 20 1e-6 1e-5
}

for n in 1 2 3 4 8; do
    run $n 0 base.deck run.dir=relu$n
    run $n 0 smooth.deck run.dir=smooth$n
    # Some ranks get no sample in any step.
    test $n != 8 || says err '4 of the 8 ranks have nothing to do in a step of 4 samples'
    near relu$n relu1 20 1e-6 1e-2
    as_one smooth$n
done

# Samples that are dealt by count instead of cost go to other ranks and have the same sums.
run 3 0 smooth.deck run.dir=equal batch.balance=false
as_one equal

# batch.per: of each rank or node, so that the effective batch is the same product.
run 4 0 smooth.deck run.dir=rank batch.size=1 batch.per=rank
says out 'batch: 4 samples a step in the world, 4 a node, 1 a rank'
as_one rank
SP_RANKS_PER_NODE=2 run 4 0 smooth.deck run.dir=node batch.size=2 batch.per=node
says out 'batch: 4 samples a step in the world, 2 a node, 1 a rank'
says node/metrics.jsonl '"node_of_rank":\[0,0,1,1\]'
as_one node

# bn_scope: of one node or one rank alone the world's statistics; of several other ones.
SP_RANKS_PER_NODE=2 run 2 0 smooth.deck run.dir=bn1 train.bn_scope=node
as_one bn1
SP_RANKS_PER_NODE=2 run 4 0 base.deck run.dir=bn2 train.bn_scope=node
run 4 0 base.deck run.dir=bn3 train.bn_scope=rank
for d in bn2 bn3; do
    steps $d | cut -d ' ' -f 1-3 >a
    steps relu1 | cut -d ' ' -f 1-3 >b
    same a b "$d: another sequence"
    test "$(steps $d | head -1)" != "$(steps relu1 | head -1)" || fail "$d: statistics of the world"
done

# A step without a labelled voxel (samples 2, which is empty, 4 and 7): no loss, no update,
# counted. In the next one there is a loss again.
run 2 0 base.deck batch.size=1 run.dir=none train.steps=0 train.epochs=1 data.val='[]' run.checkpoint_every=1 run.keep=99
test "$(steps none | wc -l)" = 15 || fail "$(steps none | wc -l) steps"
test "$(steps none | grep -c null)" = 3 || fail "$(steps none | grep -c null) steps without labels"
step=$(steps none | grep 'null$' | head -1 | cut -d ' ' -f 1)
sums none $((step - 1)) | grep params >a
sums none $step | grep params >b
same a b "an update without labels"
# A set without any labelled voxel leaves nothing to train on.
for n in 1 3; do
    run $n 3 base.deck data.train=n.h5 run.dir=empty data.val='[]'
    one_diagnosis 'n.h5: no voxel of 4 samples has a label'
    grep -q '"event"' empty/metrics.jsonl && fail "a run began without labels"
done

# Rank 0 alone needs the deck.
mkdir here there
cp base.deck here/deck
here="exec \"$SPTRAIN\" deck train.steps=1 data.train=$dir/u.h5 data.val=[] run.dir=$dir/apart"
launch_apart() {
    timeout -k 5 "$limit_s" "$MPIEXEC" -n 1 sh -c "cd here && $here" : \
        -n 1 sh -c "cd there && $here" >out 2>err </dev/null
}
launched launch_apart
test $got = 0 || fail "status $got where rank 1 sees no deck"

# Some ranks get no sample in any micro-batch.
run 3 0 base.deck run.dir=idle train.steps=2 batch.accumulate=2
says err '1 of the 3 ranks has nothing to do in a micro-batch of 2 samples'
SP_BIND=off SP_TRACES=1 OMP_THREAD_LIMIT=1 run 2 0 base.deck run.dir=idle train.steps=3
says err 'SP_BIND=off: expected no:'
says err 'warning: SP_TRACES in the environment has no effect; did you mean SP_TRACE?$'
test "$(grep -c 'in the environment' err)" = 1 || fail "not one variable is unknown"
says out ', 1 thread a rank,'
grep -q 'nothing to do' err && fail "two ranks share four samples"
true

# Threads sleep while they wait for each other, unless the environment says otherwise. GNU's
# OpenMP says at the program's last start how often they look before they sleep.
spins() { # spins [NAME=VALUE]
    env -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=verbose "$@" "$SPTRAIN" check base.deck \
        >out 2>err || fail "check: $(cat err)"
    sed -n "s/.*GOMP_SPINCOUNT *= *'\(.*\)'/\1/p" err | tail -n 1
}
case $(spins),$(nproc) in
0,*) ;;
,* | *,1) echo "one core, or another OpenMP: how threads wait is not looked at" ;;
*) test "$(nproc)" -gt 16 || fail "threads spin: $(spins)" ;;
esac
test "$(spins OMP_WAIT_POLICY=active)" != 0 || fail "OMP_WAIT_POLICY has no effect"
# Under valgrind, which is in LD_PRELOAD, the program is not executed again.
test "$(spins LD_PRELOAD=/none/vgpreload_core.so)" != 0 || fail "it left valgrind"

# A rank whose weights differ is named before a checkpoint has them, and every hundred steps.
SPTRAIN=$SP_BUILDDIR/tests/run/sptrain_counted
for every in 2 1000; do
    FLIP_AT=1 run 3 8 base.deck run.dir=flip train.steps=101 run.checkpoint_every=$every
    one_diagnosis "step $((every < 100 ? every : 100)): the weights of rank 1 differ"
    test ! -e flip/checkpoints || fail "a checkpoint of weights that differ"
done
