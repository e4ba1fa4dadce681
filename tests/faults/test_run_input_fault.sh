#!/bin/sh
# A shard that shrinks while it is in use is read again for a moment, then it is named and
# ends the run with 3; one that comes back in time costs a warning.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
cp u.h5 t.h5
deck 'family = "dummy";' 'train = "t.h5"; val = []; readers = 1;' 'size = 2;' \
    'epochs = 100000; warmup_steps = 5;' \
    'log_every = 1; checkpoint_every = 50; dir = "r"; watchdog_s = 20;'
# begin_to_read: a run of two ranks, until it has made some steps
begin_to_read() {
    rm -rf r
    begin 2 base.deck
    await_step 6 r
}
begin_to_read
truncate -s 2000 t.h5
finishes 3 "after the shard shrank"
grep -q 'error: t.h5:/.*: sample .*shrank while in use' err || fail "no diagnosis"
status r failed 3

# A shard that is whole again in time costs a warning, and the run goes on. That time is
# 1.75 s; where this script itself stands still for longer, it tries again.
# has_gone_on: to steps that need samples which were not read before the shard came back, or
# to its end.
has_gone_on() {
    is_told r || grep -q "\"step\":$((last + 21))," r/metrics.jsonl
}
for try in 1 2 3 4 5; do
    cp u.h5 t.h5
    begin_to_read
    truncate -s 2000 t.h5
    await "no second try" grep -q 'trying again: t.h5' err
    cat u.h5 >t.h5
    last=$(steps r | tail -n 1 | cut -d ' ' -f 1)
    await "no steps since the shard came back" has_gone_on
    is_told r || break
    finish
done
kill -TERM "$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' r/status.json)"
finishes 75 "although the shard came back"
status r stopped 75
