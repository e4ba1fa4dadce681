#!/bin/sh
# A loss is the weighted sum of its terms, in evaluations as in training. With
# deterministic = "world" its steps are the same on any number of ranks. train.loss is
# refused with the name that it does not know, and a joint Lovasz-softmax where a rank
# does not have all voxels of a step.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 6; eval_size = 4;' \
    'steps = 4; warmup_steps = 2; lr = 0.02; deterministic = "world";' 'log_every = 1; eval_every = 1;'
all='({name="cross_entropy";weight=1.0;},{name="lovasz";weight=0.5;},"dice",{name="focal";weight=2;})'

# The same steps and evaluations on any number of ranks.
numbers() { grep -o '"event":"\(step\|eval\)".*"loss":[^,]*' "$1/metrics.jsonl" | sed 's/"epoch.*"loss"//'; }
for n in 1 2 3; do
    run $n 0 base.deck run.dir=r$n "train.loss=$all" train.focal_gamma=1.5 train.label_smoothing=0.1 \
        train.class_weights=median_frequency batch.accumulate=2
    numbers r$n >numbers$n
    sums r$n 4 >sums$n
    same numbers1 numbers$n "steps on $n ranks"
    same sums1 sums$n "weights on $n ranks"
done
test "$(grep -c event numbers1)" -ge 5 || fail "no losses were compared"
says r1/deck.resolved 'loss = ( { name = "cross_entropy"; weight = 1.0; }, { name = "lovasz"; weight = 0.5; }, { name = "focal"; weight = 2.0; }, { name = "dice"; weight = 1.0; } );'

# eval takes the loss from the checkpoint; given others, the sum is that of its terms.
loss_of() {
    run "$1" 0 eval base.deck run.dir=r1 "train.loss=$2" train.label_smoothing=0
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' r1/evaluations.jsonl | tail -n 1
}
run 2 0 eval base.deck run.dir=r1
eval_loss=$(sed -n 's/.*"loss":\([^,]*\),.*/\1/p' r1/evaluations.jsonl | tail -n 1)
grep '"event":"eval"' r1/metrics.jsonl | grep -q "\"loss\":$eval_loss," || fail "eval: another loss than in training"
for term in cross_entropy lovasz focal dice; do loss_of 1 $term; done >terms
loss_of 2 "$all" >whole
awk 'NR == FNR { x[NR] = $1; next }
    { want = x[1] + 0.5 * x[2] + 2 * x[3] + x[4]; d = $1 - want; exit !(want > 1 && d * d < 1e-12 * want * want) }' \
    terms whole || fail "a sum of terms: $(cat terms whole)"
awk '$1 <= 0 { exit 1 }' terms || fail "terms that are not above 0: $(cat terms)"

# Sorted over the whole step it is another loss, on one rank; evaluations stay per sample.
run 1 0 base.deck run.dir=joint train.loss=lovasz train.lovasz_per=step
run 1 0 base.deck run.dir=own train.loss=lovasz
numbers joint >joint.n
numbers own >own.n
cmp -s joint.n own.n && fail "train.lovasz_per has no effect"
refused 2 2 'train.lovasz_per = "step" sorts all voxels of a step: found 2 ranks' \
    base.deck run.dir=x train.loss=lovasz train.lovasz_per=step
refused 1 2 'batch.accumulate = 2, expected one rank and 1' \
    check base.deck run.dir=x train.loss=lovasz train.lovasz_per=step batch.accumulate=2
refused 1 2 'found 1 rank and [2-9] micro-batches' \
    base.deck run.dir=x train.loss=lovasz train.lovasz_per=step batch.voxel_budget=100

refused 1 2 'train.loss: "lovas" is not one of cross_entropy|lovasz|focal|dice; nearest is "lovasz"' \
    check base.deck train.loss=lovas
refused 1 2 'train.loss has the term "dice" twice' check base.deck 'train.loss=["dice","dice"]'
refused 1 2 'train.loss is an empty list' check base.deck 'train.loss=[]'
refused 1 2 'train.loss: weight = 0 is out of range' check base.deck 'train.loss=({name="dice";weight=0;})'
refused 1 2 'train.loss: a term has no name' check base.deck 'train.loss=({weight=1;})'
refused 1 2 'a term takes name = "..." and weight = a number, found wieght = ' \
    check base.deck 'train.loss=({name="dice";wieght=1;})'
refused 1 2 'train.loss takes one of' check base.deck 'train.loss=[3]'
