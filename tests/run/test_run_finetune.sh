#!/bin/sh
# Fine-tuning: layers of run.init_skip begin afresh and all others with the bits of the
# source; without it other classes are refused with the key that is missing; frozen layers
# keep their bits, statistics of batch norms too; the bits are those of 1, 2 and 3 ranks,
# and of a run that was killed; features are normalized as in the source where asked for.
. "$SP_SRCDIR/tests/fixtures/program.sh"
folders plain classes coded rotated far
deck 'family = "dummy";' 'train = "plain/s.h5"; val = [];' 'size = 2;' \
    'steps = 4; warmup_steps = 2; deterministic = "world";' \
    'checkpoint_every = 1; keep = 99; log_every = 1;'
run 2 0 base.deck run.dir=src
from=src/checkpoints/step-000000004.h5
sed 's/plain/classes/' base.deck >tune.deck

# weights DIR STEP PATTERN: the parameters and statistics of layers, with checksums
weights() {
    sums "$1" "$2" | grep '^/*params\|^/*buffers' | grep "$3"
}
weights src 4 . | grep -q params/conv || fail "no weights are printed"

# Other classes without the key.
refused '1 3' 3 \
    'step-000000004.h5: the model has 4 classes, the data 5; everything else fits: add run.init_skip=\["conv4"\]' \
    tune.deck run.dir=t run.init_from=$from
run 2 3 tune.deck run.dir=t run.init_from="${from%/*}"
one_diagnosis "${from%/*}: a folder, expected a checkpoint; a run folder has checkpoints/best.h5"
run 2 3 check tune.deck run.dir=t run.init_from=$from
one_diagnosis 'the model has 4 classes, the data 5'
run 2 3 tune.deck run.dir=t run.init_from=$from run.init_skip='["bn1"]'
one_diagnosis 'add run.init_skip=\["bn1", "conv4"\]'
# The layer is named if more than the classes differ.
run 2 3 tune.deck run.dir=t run.init_from=$from net.family=minkunet14
one_diagnosis '/params/conv0p1s1/weight is missing'

# Other columns.
run 2 3 base.deck run.dir=t run.init_from=$from data.features='["feature2","feature0"]'
one_diagnosis 'the model has the feature columns \["feature0", "feature1", "feature2"\], the data \["feature2", "feature0"\]: .* "conv1" to run.init_skip'
run 2 0 base.deck run.dir=two run.init_from=$from data.features=feature0 run.init_skip=conv1

# The first step: with a learning rate of 0 nothing but statistics moves.
run 2 0 tune.deck run.dir=first run.init_from=$from run.init_skip=conv4 train.lr=0 \
    train.steps=1 train.freeze='["bn"]'
says out 'weights from src/checkpoints/step-000000004.h5 (step 4): .* parameters of 6 layers; afresh begin conv4'
says out 'classes: \["class0", .*"class3"\] of src/.*, now \[.*"class4"\]'
says out 'train.freeze: 256 of 113605 parameters, in 3 layers, stay as they are'
weights src 4 'conv[^4]\|bn' >want
yields want "weights and statistics that were taken over" weights first 1 'conv[^4]\|bn'
run 2 0 tune.deck run.dir=scratch train.lr=0 train.steps=1
weights scratch 1 conv4 >want
yields want "the last layer, which begins as without a source" weights first 1 conv4

# Some steps: frozen layers stay, the others learn, on any ranks and after a kill.
set -- tune.deck run.init_from=$from run.init_skip='["conv4"]' \
    train.freeze='["conv1","bn1","bn2"]' train.lr_layers='["conv=0.5","conv4=2"]'
for n in 1 2 3; do
    run $n 0 "$@" run.dir=t$n
    sums t$n 4 >sums.$n
done
says out 'train.lr_layers: "conv=0.5" holds for 2 layers'
same sums.1 sums.2 "fine-tuning on 1 and 2 ranks"
same sums.1 sums.3 "fine-tuning on 1 and 3 ranks"
frozen='conv1/\|bn1/\|bn2/'
weights src 4 $frozen >frozen
yields frozen "frozen layers" weights t2 4 $frozen
# moved LAYER DIR STEP: DIR has other weights of the layer than the source.
moved() {
    weights src 4 "$1" >want
    weights "$2" "$3" "$1" >got
    differ want got "$1 has not moved"
}
for layer in conv2/weight convtr3/weight bn3/weight bn3/running_mean; do
    moved $layer t2 4
done
SP_TEST_FAULT=kill@1:backward:3 launch 2 "$@" run.dir=k
test -e k/checkpoints/step-000000004.h5 && fail "nothing was killed"
run 3 0 "$@" run.dir=k
says err 'the run before this one was lost'
yields sums.1 "fine-tuning after a kill" sums k 4
# The deck of the checkpoint has the keys; a run may continue with others.
run 2 0 "$@" run.dir=t1 train.steps=5 train.freeze='["conv1"]'
says out 'continuing with train.freeze = .*conv1.* (was .*bn2'
moved bn2/running t1 5
# Gradients of frozen layers are none: adamw and weight decay do not move them either.
run 2 0 "$@" run.dir=a train.optimizer=adamw train.weight_decay=0.5 train.deterministic=run
yields frozen "frozen layers under weight decay" weights a 4 $frozen
run 2 0 "$@" run.dir=m train.bn_scope=rank train.deterministic=run batch.accumulate=2
yields frozen "frozen layers with statistics of each rank" weights m 4 $frozen
"$SPTRAIN" check "$@" run.dir=t1 >printed 2>err || fail "check"
says printed '^conv1 .*; frozen$'
says printed 'train.freeze: .*in 3 layers'

# Classes in another order are refused, unless the last layer begins afresh.
run 2 0 base.deck run.dir=c data.train=coded/s.h5
run 2 3 base.deck run.dir=d data.train=rotated/s.h5 run.init_from=c/checkpoints/step-000000004.h5
run 2 0 base.deck run.dir=d data.train=rotated/s.h5 run.init_from=c/checkpoints/step-000000004.h5 \
    run.init_skip=conv4

# Features as the source normalized them, after a start and after a continuation.
normalized() {
    "$SPTRAIN" check $1 >printed 2>err || fail "check $1"
    says printed "^inputs: feature0 (mean $2,"
}
set -- base.deck data.train=far/s.h5 run.init_from=$from
run 2 0 "$@" run.dir=n1
normalized n1 500
run 3 0 "$@" run.dir=n2 run.init_norm=source
normalized n2 5
run 2 0 "$@" run.dir=n2 run.init_norm=source train.steps=6
normalized n2 5
"$SHARDS" weights $from w.h5 || fail "make_shards weights"
for command in train check; do
    refused 2 3 'w.h5: has no statistics of feature column feature0' $command base.deck \
        run.dir=n3 run.init_from=w.h5 run.init_norm=source
done
run 2 0 base.deck run.dir=n3 run.init_from=w.h5

# Keys that fit nothing.
refused '1 3' 2 \
    'train.freeze: no layer with parameters has a name that begins with "conv9"; there are conv1, bn1, conv2, bn2, convtr3, bn3, conv4' \
    tune.deck run.dir=e train.freeze='["conv9"]'
set -- tune.deck run.dir=e
refused 2 2 'run.init_skip: no layer with parameters has a name that begins with "relu1"' \
    "$@" run.init_from=$from run.init_skip='["relu1"]'
for rule in conv=fast conv; do
    refused 2 2 "train.lr_layers: \"$rule\", expected PREFIX=FACTOR" "$@" \
        train.lr_layers="[\"$rule\"]"
done
refused 1 2 'train.lr_layers: "conv=-1", expected PREFIX=FACTOR with a factor of 0 or more' \
    check "$@" train.lr_layers='["conv=-1"]'
refused 2 2 'train.freeze: all layers keep their weights' "$@" train.freeze='["conv","bn"]'
for command in train check; do
    refused 2 2 'run.init_norm = "source": run.init_from names no source' $command \
        tune.deck run.dir=e run.init_norm=source
done
run 2 0 tune.deck run.dir=e run.init_skip=conv4 train.steps=1
says err 'run.init_skip does nothing without run.init_from'
