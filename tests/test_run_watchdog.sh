#!/bin/sh
# A rank that hangs, is stopped or leaves without a word is named once, with host, phase
# and step, and the others do not wait for it: status 6 everywhere.
. "$SP_SRCDIR/tests/story.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
cat >base.deck <<'DECK'
data : { train = "u.h5"; val = "u.h5"; };
net : { family = "dummy"; };
batch : { size = 3; };
train : { epochs = 3; warmup_steps = 5; };
run : { log_every = 1; checkpoint_every = 3; dir = "r"; watchdog_s = 3; };
DECK

# lost FAULT TEXT: one diagnosis with TEXT, status 6, all gone within 3 + 15 s.
lost() {
    rm -rf r
    begin_s=$(date +%s)
    SP_TEST_FAULT=$1 launch 3 base.deck
    got=$?
    test $got = 6 || fail "status $got after $1"
    test $(($(date +%s) - begin_s)) -le 20 || fail "$1: not gone after 20 s"
    one_diagnosis "$2"
    status r failed 6
    says r/status.json "$2"
    "$SPTRAIN" status r >who || fail "no status"
    # what nobody has waited for yet is a zombie
    for pid in $(awk '$1 ~ /^[0-9]+$/ { print $3 }' who); do
        grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null && fail "$1: $pid stays"
    done
}
host=$(hostname)
lost stop@1:forward:4 "rank 1/3 host $host is silent: .* phase forward, epoch 0, step 4"
lost stop@0:backward:4 "rank 0/3 host $host is silent: .* phase backward, epoch 0, step 4"
lost hang@2:read:4 "rank 2/3 host $host hangs: no progress for .* phase read, epoch 0, step 4"
lost hang@0:saving:3 "rank 0/3 host $host hangs: no progress for .* phase save"

# What dies is named at once, unless the launcher is faster; 0 never means done.
rm -rf r
SP_TEST_FAULT=leave@1:update:4 launch 3 base.deck
grep -q '"state":"done"' r/status.json && fail "done, although a rank left"
run 3 0 base.deck
status r done 0

# Continued after all that; nobody is blamed in a run that is well, with or without it.
run 3 0 base.deck run.dir=w run.watchdog_s=2
run 3 0 base.deck run.dir=w0 run.watchdog_s=0
test -s err && fail "a word about a run that is well"
exit 0
