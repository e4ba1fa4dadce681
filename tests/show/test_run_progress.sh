#!/bin/sh
# On a terminal one line renews itself: never wider than the terminal, with messages above
# it on lines of their own. Where no terminal is there, or run.progress says so, the output
# is lines and nothing else.
. "$SP_SRCDIR/tests/fixtures/program.sh"
TERMINAL=$SP_BUILDDIR/tests/tools/in_terminal
SPVOX=$SP_BUILDDIR/spvox
"$SHARDS" uneven u.h5 && "$SHARDS" hostile h.h5 || fail "make_shards"
dummy_deck u.h5 'size = 4;' 'epochs = 2; warmup_steps = 1;' 'log_every = 1;'
# 4 steps an epoch, 8 in all. Lines are drawn five times a second at most, so that a run is
# slowed down for some of them to be seen.

# seen COLUMNS STATUS COMMAND...: what somebody sees of a command is in `out`.
seen() {
    columns=$1 want=$2
    shift 2
    alone "$want" "$TERMINAL" "$columns" "$@"
}
# whole: no line that stays has a part of a line that renews itself.
whole() {
    ! grep '^line ' out | grep 'epoch [0-9]*/[0-9]\|\[[#.]*\]' >odd || fail "mixed: $(head -1 odd)"
}

# At 80 columns the fields that count are there, and the lines of steps are not.
SP_TEST_FAULT=slow@0:forward:0 seen 80 0 "$SPTRAIN" base.deck run.dir=r80
says out '^live epoch 1/2 .*step [0-9]*/8 loss [0-9.]* [0-9.]*/s left [0-9:]* [0-9]* MiB'
says out '^live epoch 2/2 .*step [0-9]*/8 loss [0-9.]* mIoU [0-9.]* '
says out '^live evaluating \[[#.]*\] *[0-9]* % [0-9]*/15 samples'
says out '^line epoch=2 step=8 .* time=20[-0-9]*T[:0-9]*Z$'
says out '^line done: step=8'
says_not out '^line step='
whole

# 200 columns have a bar and more fields.
SP_TEST_FAULT=slow@0:forward:0 seen 200 0 "$SPTRAIN" base.deck run.dir=r200
says out '^live epoch 2/2 \[[#.]*\] step [0-9]*/8 loss .* left [0-9:]* .* lr [0-9.e-]* step [0-9.]* s data [0-9.]* s ranks [0-9.]* s'

# The launcher's terminal is the ranks'.
SP_TEST_FAULT=slow@0:forward:0 seen 80 0 "$MPIEXEC" -n 2 "$SPTRAIN" base.deck run.dir=m
says out '^live epoch 1/2 .*step [0-9]*/8 loss'
says_not out '^line step='
whole

# Messages of any rank stand on lines of their own.
SP_TEST_FAULT=slow@0:forward:0 seen 80 0 "$MPIEXEC" -n 2 "$SPTRAIN" base.deck run.dir=w run.after_save=false
says out '^line sptrain: rank 0/2 .* warning: false w/metrics.jsonl: exit status 1$'
cp u.h5 bad.h5 && "$SHARDS" bad-feature bad.h5 0 || fail "make_shards bad-feature"
for n in 1 2; do
    SP_TEST_FAULT=slow@0:forward:0 seen 80 0 "$MPIEXEC" -n $n "$SPTRAIN" base.deck run.dir=b$n \
        data.train=bad.h5 data.on_error=skip
    says out "^line sptrain: rank [01]/$n .* warning: .*bad.h5"
    whole
done
SP_TEST_FAULT=slow@0:forward:0 seen 80 3 "$SPTRAIN" base.deck run.dir=e data.val=nothing.h5
says out '^line sptrain: rank 0/1 .*nothing.h5'

# No terminal, a simple one, or run.progress = never: lines.
run 2 0 base.deck run.dir=f
test "$(grep -c '^step=[0-9]* .* left=[0-9:]* time=20[-0-9]*T[:0-9]*Z$' out)" = 8 || fail "8 lines of steps"
! LC_ALL=C grep -q "$(printf '[\r\033]')" out || fail "control characters in a file"
for more in "env TERM=dumb" "env"; do
    never=
    test "$more" = env && never=run.progress=never
    # shellcheck disable=SC2086
    seen 80 0 $more "$SPTRAIN" base.deck run.dir=n run.resume=never $never
    test "$(grep -c '^line step=' out)" = 8 || fail "8 lines of steps: $more $never"
    says_not out '^live'
done
# run.progress = always: into a file too.
SP_TEST_FAULT=slow@0:forward:0 run 1 0 base.deck run.dir=a run.progress=always
LC_ALL=C grep -q "$(printf '\r')epoch 1/2 " out || fail "no live line in a file"
refused 1 2 'run.progress.*auto|always|never' base.deck run.progress=sometimes

# A rank's own log has the steps in any case.
seen 80 0 "$SPTRAIN" base.deck run.dir=l run.rank_logs=true
test "$(grep -c '^step=' l/logs/rank-00000.log)" = 8 || fail "the rank's log lacks steps"

# metrics.jsonl tells when, and how long the rest takes.
test "$(grep -c '"event":"step".*"left_s":[0-9.e-]*,"time":"20[-0-9]*T[:0-9]*Z"}$' f/metrics.jsonl)" = 8 ||
    fail "time and left_s of 8 steps"
says f/metrics.jsonl '"event":"start".*"steps":8,"epochs":2,"epoch_samples":15,"time":"20'
says f/metrics.jsonl '"event":"eval".*"time":"20'
says f/metrics.jsonl '"event":"end".*"time":"20'
says f/metrics.jsonl '"forward_s":[0-9.e-]*,"backward_s":[0-9.e-]*,"update_s":[0-9.e-]*,"plan_s":[0-9.e-]*,"memory_bytes":[0-9]*,'
run 1 0 base.deck run.dir=g run.eval_every=0
says g/metrics.jsonl '"step":8,.*"left_s":0,'
says out '^step=8 .*done=100% left=0:00 '

# Interrupted, the last line is whole.
SP_TEST_FAULT=term@0:forward:5 seen 80 75 "$SPTRAIN" base.deck run.dir=t
says out '^line stopped by signal 15 after step [0-9]*: run the same command'

# eval, predict and convert; names from outside are text.
SP_TEST_FAULT=slow@0:eval:0 seen 80 0 "$SPTRAIN" eval base.deck run.dir=r80 batch.eval_size=1
says out '^live evaluating .* left [0-9]*:'
whole
SP_TEST_FAULT=slow@0:eval:0 seen 80 0 "$SPTRAIN" predict base.deck run.dir=r80 batch.eval_size=1
says out '^live predicting .* [0-9]*/15 samples'
seen 80 0 "$SPTRAIN" base.deck run.dir=h data.train=h.h5 data.val=h.h5 train.steps=2
says out '^line <script>alert("1")</script>'
says out '^line .x1b\[2J'
awk 'BEGIN { for (i = 0; i < 2000; i++) print i % 40, i % 37, i % 5, i % 3 }' >tile.txt
seen 80 0 "$SPVOX" convert --out v --block 10 --columns x,y,z,label --features one tile.txt
says out '^live cutting 0 points'
says out '^live voxelizing .*0/'
says out '^live writing .*0/1 shards'
says out '^line samples='
echo "live lines are as wide as the terminal, and messages stand above them"
