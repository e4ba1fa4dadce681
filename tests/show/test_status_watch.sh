#!/bin/sh
# sptrain status DIR --watch shows a run by its folder alone, until the run has ended or its
# processes are gone.
. "$SP_SRCDIR/tests/fixtures/program.sh"
TERMINAL=$SP_BUILDDIR/tests/tools/in_terminal
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 2;' 'epochs = 3; warmup_steps = 1;' 'log_every = 1; dir = "r";'
# 8 steps an epoch, 24 in all.

# watch COLUMNS STATUS ARGUMENTS...: what somebody sees; without columns, in a file.
watch() {
    columns=$1 want=$2
    shift 2
    set -- "$SPTRAIN" status "$@"
    test "$columns" = 0 || set -- "$TERMINAL" "$columns" "$@"
    alone "$want" "$@"
    mv out seen
}
# attend: two watch it beside this script, on a terminal into seen, and in a file, lines.
attend() {
    : >seen
    : >lines
    timeout -k 5 "$limit_s" "$TERMINAL" 100 "$SPTRAIN" status r --watch >seen 2>seen.err &
    one=$!
    timeout -k 5 "$limit_s" "$SPTRAIN" status r --watch >lines 2>lines.err </dev/null &
    other=$!
}
# over STATUS: they end, and the run does, with this status.
over() {
    wait $one && wait $other || fail "a watch failed"
    finish
    test "$1" = any || ended "$1" "the run that was watched"
}

# A run that goes on to its end: one line on a terminal, a line for each step in a file.
SP_TEST_FAULT=stop@0:forward:9 begin 2 base.deck
await_stopped r 0
attend
await "no live line" grep -q \
    '^live epoch [12]/3 .*step [0-9]*/24 .*loss [0-9.]* .*left [0-9]*:[0-9]*' seen
await "no line" grep -q '^step=[0-9]* epoch=[12] loss=[0-9.]* left=[0-9]*:' lines
kill -CONT "$pid"
over 0
says seen '^line r: done'
says lines '^r: done'
! LC_ALL=C grep -q "$(printf '[\r\033]')" lines || fail "control characters in a file"
"$SPTRAIN" status r >out
! grep -q 'samples' out || fail "an evaluation that is over"
watch 80 0 r --watch
says seen '^line r: done'

# A prediction tells how far it is and how long it takes. It takes more time than anything
# that this test waits for.
"$SHARDS" box many.h5 1000 3 1 3 4 0 || fail "make_shards"
# is_within NAME: samples of this pass are done.
is_within() {
    "$SPTRAIN" status r | grep -q "  $1[^a-z]* [0-9]* of 1000 samples\$"
}
SP_TEST_FAULT=slow@0:eval:0 begin 1 predict base.deck batch.eval_size=1 data.val=many.h5
await "no prediction" is_within ''
attend
await "no live line" grep -q '^live .*predict [0-9]*/1000 .*in [0-9]*:[0-9]* ' seen
kill -TERM "$(record r 0 | cut -d ' ' -f 1)"
over 75

# So does an evaluation, under its own name.
rm -rf r
SP_TEST_FAULT=slow@0:eval:0 begin 1 base.deck train.epochs=1 batch.eval_size=1 data.val=many.h5
await "no evaluation" is_within 'eval .*'
attend
await "no live line" grep -q '^live epoch 1/1 .*step 8/8 .*eval [0-9]*/1000 .*in [0-9]*:[0-9]* ' seen
await "no line" grep -q '^eval samples=[0-9]*/1000 left=[0-9]*:[0-9]*' lines
kill -9 "$(record r 0 | cut -d ' ' -f 1)"
over any

# A run whose processes are gone, no run, and a wrong word.
rm -rf r
SP_TEST_FAULT=kill@1:forward:6 begin 2 base.deck
finish
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
