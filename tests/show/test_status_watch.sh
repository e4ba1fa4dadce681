#!/bin/sh
# sptrain status DIR --watch shows a run by its folder alone, until the run has ended or its
# processes are gone.
. "$SP_SRCDIR/tests/run/story.sh"
TERMINAL=$SP_BUILDDIR/tests/tools/in_terminal
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 2;' 'epochs = 3; warmup_steps = 1;' 'log_every = 1; dir = "r";'
# 8 steps an epoch, 24 in all.

# watch COLUMNS STATUS ARGUMENTS...: what somebody sees; without columns, in a file.
watch() {
    columns=$1 want=$2
    shift 2
    if test "$columns" = 0; then
        timeout -k 5 "$limit_s" "$SPTRAIN" status "$@" >seen 2>err </dev/null
    else
        timeout -k 5 "$limit_s" "$TERMINAL" "$columns" "$SPTRAIN" status "$@" >seen 2>err </dev/null
    fi
    got=$?
    test $got = "$want" || fail "status $got, expected $want: status $*"
}
begin() {
    SP_TEST_FAULT=$1 timeout -k 5 "$limit_s" "$MPIEXEC" -n 2 "$SPTRAIN" base.deck >out 2>err.run </dev/null &
    job=$!
    await_step 2 r
}

# A run that goes on to its end: one line on a terminal, a line for each step in a file.
begin slow@0:forward:0
watch 80 0 r --watch
wait $job
got=$?
ended 0 "the run that was watched"
job=
says seen '^live epoch [123]/3 .*step [0-9]*/24 loss [0-9.]* .*left 0:[0-9]*'
says seen '^line r: done'
rm -rf r
begin slow@0:forward:0
watch 0 0 r --watch
wait $job
got=$?
ended 0 "the run that was watched"
job=
says seen '^step=[0-9]* epoch=[123] loss=[0-9.]* left=0:'
says seen '^r: done'
! LC_ALL=C grep -q "$(printf '[\r\033]')" seen || fail "control characters in a file"

# An evaluation tells how far it is and how long it takes, on a terminal and in a file.
cp u.h5 v.h5 # 30 samples
rm -rf r
SP_TEST_FAULT=slow@0:eval:0 timeout -k 5 "$limit_s" "$MPIEXEC" -n 1 "$SPTRAIN" base.deck \
    train.epochs=1 batch.eval_size=1 'data.val=["u.h5", "v.h5"]' >out 2>err.run </dev/null &
job=$!
is_evaluating() {
    "$SPTRAIN" status r | grep -q '  eval .*  [0-9]* of 30 samples$'
}
await "no evaluation" is_evaluating
timeout -k 5 "$limit_s" "$SPTRAIN" status r --watch >lines 2>err.watch </dev/null &
other=$!
watch 100 0 r --watch
wait $other || fail "the second watch failed"
wait $job
got=$?
ended 0 "the run that was watched"
job=
says seen '^live epoch 1/1 .*step 8/8 .*eval [0-9]*/30 .*in 0:0[0-9] '
says lines '^eval samples=[0-9]*/30 left=0:0[0-9]'
"$SPTRAIN" status r >out
! grep -q 'samples' out || fail "an evaluation that is over"

# So does a prediction, under its own name.
SP_TEST_FAULT=slow@0:eval:0 timeout -k 5 "$limit_s" "$MPIEXEC" -n 1 "$SPTRAIN" predict base.deck \
    batch.eval_size=1 'data.val=["u.h5", "v.h5"]' >out 2>err.run </dev/null &
job=$!
is_predicting() {
    "$SPTRAIN" status r | grep -q '  [0-9]* of 30 samples$'
}
await "no prediction" is_predicting
watch 100 0 r --watch
wait $job
got=$?
ended 0 "the prediction that was watched"
job=
says seen '^live .*predict [0-9]*/30 .*in 0:0[0-9] '

# A finished run, a run whose processes are gone, no run, and a wrong word.
watch 80 0 r --watch
says seen '^line r: done'
rm -rf r
begin kill@1:forward:6
wait $job
job=
await "a rank is left" is_gone # it may write its status behind the launcher's end
sed -i 's/"state":"failed"/"state":"running"/' r/status.json
watch 0 0 r --watch
says seen '^r: running'
watch 0 4 nowhere --watch
one_diagnosis 'nowhere: no run here'
watch 0 2 r --wach
one_diagnosis 'at most --watch'
watch 0 2 r --watch more

# Damaged lines are passed over.
printf '{"event":"step","step":"\n{"event":"eval"\n\n\0\0{"event":"step"' >>r/metrics.jsonl
watch 0 0 r --watch
echo "a run is watched by its folder"
