#!/bin/sh
# A checkpoint that the system cannot read ends a start with 4 and is named. It is not taken
# for a damaged one: nothing older takes its place, and nothing is renamed.
. "$SP_SRCDIR/tests/run/story.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
cat >base.deck <<'DECK'
data : { train = "u.h5"; val = "u.h5"; };
net : { family = "dummy"; };
batch : { size = 2; };
train : { epochs = 1; warmup_steps = 5; };
run : { checkpoint_every = 3; dir = "r"; };
DECK
SPTRAIN=$SP_BUILDDIR/tests/run/sptrain_unreadable

# unreadable NAME RANKS ARGUMENTS...: a start that cannot read the file of checkpoints/.
unreadable() {
    name=$1 n=$2
    shift 2
    FAIL_READS=$name
    export FAIL_READS
    run "$n" 4 "$@"
    unset FAIL_READS
    one_diagnosis "r/checkpoints/$name: cannot read: Input/output error"
    ! grep 'damaged' err || fail "$name was taken for damaged: $*"
    ls r/checkpoints >after
    same before after "$name: the checkpoints of: $*"
    cmp -s r/metrics.jsonl metrics || fail "$name: metrics.jsonl was changed: $*"
    test ! -e r/old-001 || fail "$name: the run was set aside: $*"
}

# A checkpoint that cannot be read back is not kept, and the run goes on without it.
FAIL_READS=step-000000006.h5.tmp
export FAIL_READS
run 1 0 base.deck
unset FAIL_READS
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

# The same start goes on where nothing was wrong with the file.
run 1 0 base.deck train.epochs=2
says out 'continuing from r/checkpoints/step-000000008.h5'
