#!/bin/sh
# A checkpoint that the system cannot read ends a start with 4 and is named. It is not taken
# for a damaged one: nothing older takes its place, and nothing is renamed.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 2;' 'epochs = 1; warmup_steps = 5;' 'checkpoint_every = 3; dir = "r";'
SPTRAIN=$SP_BUILDDIR/tests/run/sptrain_unreadable

# unreadable NAME RANKS ARGUMENTS...: a start that cannot read the file of checkpoints/.
unreadable() {
    name=$1 n=$2
    shift 2
    FAIL_READS=$name refused "$n" 4 "r/checkpoints/$name: cannot read: Input/output error" "$@"
    ! grep 'damaged' err || fail "$name was taken for damaged: $*"
    ls r/checkpoints >after
    same before after "$name: the checkpoints of: $*"
    cmp -s r/metrics.jsonl metrics || fail "$name: metrics.jsonl was changed: $*"
    test ! -e r/old-001 || fail "$name: the run was set aside: $*"
}

# A checkpoint that cannot be read back is not kept, and the run goes on without it.
FAIL_READS=step-000000006.h5.tmp run 1 0 base.deck
says err 'reading it back failed: .*step-000000006.h5.tmp: cannot read: Input/output error'
ls r/checkpoints >before
printf '%s\n' best.h5 step-000000003.h5 step-000000008.h5 >want
same want before "checkpoints"

cp r/metrics.jsonl metrics
unreadable step-000000008.h5 2 base.deck train.epochs=2
says err '(start again when r/checkpoints/step-000000008.h5 can be read, or rename it'
status r failed 4
unreadable step-000000008.h5 1 base.deck train.epochs=2 \
    run.resume=r/checkpoints/step-000000008.h5
unreadable best.h5 1 base.deck train.epochs=2
unreadable best.h5 1 eval base.deck

# Nor does it tell of the file where its reader is killed from outside.
for name in step-000000008.h5 best.h5; do
    SP_H5_CHILD_KILL=$name run 2 5 base.deck train.epochs=2
    SP_H5_CHILD_KILL=$name run 1 5 eval base.deck run.checkpoint=r/checkpoints/$name
    says err 'killed from outside'
    ls r/checkpoints >after
    same before after "the reader of $name was killed: the checkpoints"
done

# Whoever starts the program may ignore the ends of children.
if env --ignore-signal=CHLD true 2>err; then # since coreutils 8.31
    SP_H5_CHILD_KILL=best.h5 alone 5 env --ignore-signal=CHLD "$SP_BUILDDIR/spvox" info \
        r/checkpoints/best.h5
    says err 'killed from outside'
fi

# The same start goes on where nothing was wrong with the file.
run 1 0 base.deck train.epochs=2
says out 'continuing from r/checkpoints/step-000000008.h5'

# One that is damaged is set aside: it does not take the place of those that come.
"$SP_BUILDDIR/sptrain" status r >out || fail "sptrain status"
printf 'x' | dd of=r/checkpoints/step-000000016.h5 bs=1 seek=300000 conv=notrunc 2>dd.err ||
    fail "no step 16: $(ls r/checkpoints)"
run 2 0 base.deck train.epochs=2 run.keep=1
says err 'damaged checkpoint skipped: .*step-000000016.h5'
test -f r/checkpoints/step-000000016.h5.old || fail "it was not set aside: $(ls r/checkpoints)"

# A damaged status of another task hides neither the training's nor the ranks.
echo '{' >r/status-eval.json
alone 3 "$SP_BUILDDIR/sptrain" status r
says out 'r: done'
says out 'status-eval.json: '
says out '^ *rank  host'
