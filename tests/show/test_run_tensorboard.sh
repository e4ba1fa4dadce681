#!/bin/sh
# TensorBoard's event files of a run say what its metrics.jsonl says, value for value:
# after a run, after kill -9 and going on, and after going back. A reader of the test's own
# compares them; test_tensorboard_reader.sh does it with TensorBoard's.
. "$SP_SRCDIR/tests/fixtures/program.sh"
CHECK=$SP_BUILDDIR/tests/tools/events_check
"$SHARDS" uneven p.h5 && "$SHARDS" box u.h5 15 200 1 3 4 0 || fail "make_shards"
dummy_deck u.h5 'size = 4;' 'epochs = 3; warmup_steps = 1;' \
    'log_every = 1; checkpoint_every = 3; dir = "r"; tensorboard = true;'
# 15 samples in steps of 4: 4 steps an epoch, 12 in all.

# agree DIR WORDS: the files agree, and the counts are these.
agree() {
    "$CHECK" "$1" >found || fail "$1: $(cat found)"
    says found "$2"
}

# A build without libpng draws no matrices.
grep -q '^#define SP_WITH_PNG 1' "$SP_BUILDDIR/config.h" && draws=1 || draws=0

# Any number of ranks; without the key there is no folder.
for n in 1 2 3; do
    run $n 0 base.deck run.dir=r$n
    agree r$n "files=1 starts=1 steps=12 evals=3 scalars=.* pictures=$((3 * draws)) texts=1 torn=0"
done
run 1 0 base.deck run.dir=none run.tensorboard=false
test ! -e none/tensorboard || fail "a folder without the key"

# Steps that are not logged have no values; points have curves and a matrix of their own.
run 2 0 base.deck run.dir=few run.log_every=5
agree few 'steps=3 evals=3 '
run 2 0 base.deck run.dir=p data.train=p.h5 data.val=p.h5 train.steps=2
agree p "steps=2 evals=.* pictures=$((2 * draws)) "
says p/metrics.jsonl '"point_iou"'
run 2 0 base.deck run.dir=views data.train=p.h5 data.val=p.h5 train.steps=2 \
    eval.views=4 augment.rotate_z=true
agree views "steps=2 evals=.* pictures=2 "
says views/metrics.jsonl '"merged":{"views":4'
run 1 0 base.deck run.dir=noval data.val='[]' train.steps=2
agree noval 'steps=2 evals=0 '
says found ' scalars=26 '
# A momentum that moves is one number more for each step.
run 1 0 base.deck run.dir=cycle data.val='[]' train.steps=2 train.schedule=onecycle \
    'train.cycle_momentum=[0.85, 0.95]'
agree cycle 'steps=2 evals=0 scalars=28 '

# Killed at any instant and continued, with the number of ranks changed: no step is missing,
# none is there twice. A record that was torn is cut off.
for at in 1 2 4 7 8 11; do
    rm -rf r
    SP_TEST_FAULT=kill@0:forward:$at launch 2 base.deck
    steps r | cut -d ' ' -f 1 >killed
    test -e r/tensorboard || fail "no events before step $at"
    printf 'torn' | tee -a r/tensorboard/* >/dev/null
    run 1 0 base.deck
    agree r 'steps=12 evals=3 .*torn=0'
    SP_TEST_FAULT=kill@0:forward:13 launch 1 base.deck train.epochs=4
    run 2 0 base.deck train.epochs=4
    agree r 'steps=16 evals=4 .*torn=0'
done

# Events that are left out for a while leave a gap, and what was repeated meanwhile is gone.
rm -rf r
SP_TEST_FAULT=kill@0:forward:8 launch 1 base.deck run.checkpoint_every=5
run 1 0 base.deck run.tensorboard=false train.steps=7
run 1 0 base.deck
"$CHECK" r >found && fail "steps 6 and 7 cannot be there"
says found 'no value: train/loss, step 6'

# An earlier checkpoint, and a run that begins anew in a used folder.
run 2 0 base.deck run.dir=back run.keep=100
run 2 0 base.deck run.dir=back run.resume=back/checkpoints/step-000000006.h5
agree back 'files=2 starts=2 steps=12 evals=3 '
run 1 0 base.deck run.dir=back run.resume=never train.steps=2
agree back 'files=1 starts=1 steps=2 '
"$CHECK" back/old-001 >found || fail "old-001: $(cat found)"

# A link in the place of the folder is refused like the others.
mkdir l && ln -s ../back l/tensorboard
refused 1 4 'l/tensorboard: a symbolic link' base.deck run.dir=l

# Names of classes from outside are text.
"$SHARDS" hostile h.h5 || fail "make_shards hostile"
run 1 0 base.deck run.dir=h data.train=h.h5 data.val=h.h5 train.steps=1
agree h 'steps=1 evals=1 '

# Deleted files are told, once, and cost no training.
begin 2 base.deck run.dir=d train.epochs=100000
await_step 2 d
rm -r d/tensorboard
await "no warning" grep -q 'd/tensorboard/.*: deleted or replaced' err
last=$(steps d | tail -n 1 | cut -d ' ' -f 1)
await_step $((last + 2)) d
kill -TERM "$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' d/status.json)"
finishes 75 "without its event files"
test "$(grep -c 'deleted or replaced' err)" = 1 || fail "$(cat err)"
echo "event files agree with metrics.jsonl"
