#!/bin/sh
# Evaluation and prediction of shards with only the required parts, and with decks that use
# less than there is, are the same on any number of ranks and as in training.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" bare b.h5 && "$SHARDS" plain p.h5 || fail "make_shards"
dummy_deck none.h5 'size = 2; eval_size = 4;' 'steps = 6; warmup_steps = 2;'

# everywhere NAME RANKS ARGUMENTS...: trained on two ranks, then used on one and on RANKS.
everywhere() {
    name=$1 others=$2
    shift 2
    run 2 0 base.deck run.dir=$name "$@"
    evals $name | tail -1 >want
    for n in 1 $others; do
        run $n 0 eval base.deck run.dir=$name "$@"
        yields want "$name: evaluation on $n ranks" last evaluations $name
        run $n 0 predict base.deck run.dir=$name run.logits=true "$@"
        mv $name/predictions $name/on$n
    done
    for n in $others; do
        same_files $name/on1 "$name/on$n" "$name: predictions on $n ranks"
    done
    grep -q '"loss":null' want && fail "$name: no loss"
}
everywhere bare '2 3 8' data.train=b.h5 data.val=b.h5
everywhere plain 3 data.train=p.h5 data.val=p.h5
everywhere as-they-are 3 data.train=p.h5 data.val=p.h5 data.normalize=false
everywhere weighted 3 data.train=b.h5 data.val=b.h5 'train.class_weights="inverse"'

# With weights alone the statistics, names and weights of classes are the data's.
for name in bare plain; do
    "$SHARDS" weights $name/checkpoints/best.h5 w-$name.h5 || fail "make_shards weights"
    shard=$(printf %.1s $name).h5
    run 3 0 eval base.deck run.dir=w-$name run.checkpoint=w-$name.h5 data.val=$shard
    evaluations w-$name | tail -1 | sed 's/.*"samples"/"samples"/' >got
    evals $name | tail -1 | sed 's/.*"samples"/"samples"/' >want
    same want got "weights of $name on 3 ranks"
done
