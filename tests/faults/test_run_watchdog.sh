#!/bin/sh
# A rank that hangs, is stopped or leaves silently is named once, with host, phase and step,
# and the others do not wait for it: status 6 everywhere.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 3;' 'epochs = 3; warmup_steps = 5;' \
    'log_every = 1; checkpoint_every = 3; dir = "r";'
healthy 3 base.deck run.dir=pace
watch_s=$(patience pace)
sed -i "s/dir = \"r\";/& watchdog_s = $watch_s; file_wait_s = 1;/" base.deck

# lost FAULT TEXT: one diagnosis with TEXT, status 6, and all are gone.
lost() {
    rm -rf r
    SP_TEST_FAULT=$1 launch 3 base.deck
    got=$?
    ended 6 "after $1"
    gone_within $((watch_s + late_s)) err
    one_diagnosis "$2"
    status r failed 6
    says r/status.json "$2"
    "$SPTRAIN" status r >who || fail "no status"
    # the launcher may end before the last of them; what nobody waits for is a zombie
    for pid in $(awk '$1 ~ /^[0-9]+$/ { print $3 }' who); do
        await "process $pid is left" has_gone "$pid"
    done
}
host=$(hostname)
lost stop@1:forward:4 "rank 1/3 host $host is silent: .* phase forward, epoch 1, step 4"
lost stop@0:backward:4 "rank 0/3 host $host is silent: .* phase backward, epoch 1, step 4"
lost hang@1:pread:4 "rank 1/3 host $host hangs: no progress for .* phase read"
lost hang@2:read:4 "rank 2/3 host $host hangs: no progress for .* phase read, epoch 1, step 4"
lost hang@0:saving:3 "rank 0/3 host $host hangs: no progress for .* phase save"

# died RANKS FAULT RANK PHASE: however it ended, status.json says 6, no launcher says 0
# unless a rank left with 0, and the next start names the rank and goes on.
died() {
    rm -rf r
    SP_TEST_FAULT=$2 launch "$1" base.deck
    got=$?
    case $2 in leave*) ;; *) test $got != 0 || fail "status 0 after $2" ;; esac
    test "$(grep -c '^sptrain: .*SP_E' err)" -le 1 || fail "several diagnoses of $2"
    status r failed 6
    says r/status.json "rank $3/$1 host $host .*died.* phase $4, epoch 1, step 4"
    test "$1" = 1 && grep 'the others' r/status.json && fail "others of one rank"
    run "$1" 0 base.deck
    says err "lost with rank $3/$1 host $host pid [0-9]*, phase $4, epoch 1, step 4, which died"
    status r done 0
}
died 3 leave@1:update:4 1 update     # _exit(0)
died 3 leave@0:forward:4 0 forward
died 3 exit@2:backward:4 2 backward  # exit(0) from inside a library
died 3 quit@1:read:4 1 read          # _exit(3)
died 3 segv@0:reduce:4 0 reduce
died 3 abort@2:forward:4 2 forward
died 3 kill@1:backward:4 1 backward  # as the kernel does where memory is short
MPIEXEC_ALL=$MPIEXEC
MPIEXEC=$dir/alone # no launcher at all
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >alone && chmod +x alone
died 1 leave@0:update:4 0 update
died 1 kill@0:forward:4 0 forward
SP_TEST_FAULT=exit@0:update:4 run 1 6 base.deck run.dir=alone-exit
MPIEXEC=$MPIEXEC_ALL

# A rank that is stopped while MPI starts: the others wait no longer than SP_START_S and
# say for whom. Rank 0 starts once rank 1 has been stopped in its wait for rank 0.
cat >stopped <<'SH'
#!/bin/sh
if test "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" = 1; then
    (until test /proc/$$/exe -ef "$REAL"; do sleep 0.02; done
     sleep 0.3; kill -STOP $$; echo $$ >pid) &
    exec "$REAL" "$@"
fi
until test -s pid && grep -q '^State:.T' "/proc/$(cat pid)/status"; do sleep 0.1; done
exec "$REAL" "$@"
SH
chmod +x stopped
REAL=$SPTRAIN SPTRAIN=$dir/stopped
export REAL
SP_START_S=4 launch 2 base.deck run.dir=never
got=$?
test $got != 0 || fail "status 0 with a rank that is stopped in the start"
pid=$(cat pid)
await "the stopped rank is there" has_gone "$pid"
says err "^sptrain: rank 0 host $host: the ranks have not come .*: rank 1, pid $pid of this"
says err "^sptrain: rank 0 host $host: error: .* for 4 s; waited for: rank 1, pid $pid"

# A request to stop ends a start in which a rank is missing, with the status that has the
# run started again.
cat >missing <<'SH'
#!/bin/sh
test "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" = 0 || exec sleep 600
"$REAL" "$@" &
until grep -q 'the ranks have not come together' err; do sleep 0.1; done
kill $!
wait $!
echo $? >code
exit 75
SH
chmod +x missing
SPTRAIN=$dir/missing
SP_START_S=60 launch 2 base.deck run.dir=never
SPTRAIN=$REAL
test "$(cat code)" = 75 || fail "status $(cat code) after TERM in a start that hangs"

# All ranks meet a bad sample at the same instant, and one of them reports it.
cp u.h5 bad.h5
for sample in 0 1 2 4 5 6 8 9 11 12 13 14; do
    "$SHARDS" bad-feature bad.h5 $sample || fail "make_shards"
done
for i in 1 2 3 4; do
    rm -rf r
    refused 4 3 'bad.h5:/crc32c: sample' base.deck data.train=bad.h5 batch.size=15
    status r failed 3
done

# A rank that is slow for half of watchdog_s is named, with how slow and where.
rm -rf r
SP_TEST_FAULT=slow@1:forward:0 begin 3 base.deck run.watchdog_s=15 train.epochs=100000
await "no word about the slow rank" grep -q ' is slow: ' err
pid=$(record r 0 | cut -d ' ' -f 1)
# Nor does it stay unsaid that nobody is left to tell who died first.
for at in /proc/[0-9]*; do
    grep -q "^PPid:.$pid\$" "$at/status" && grep -q -e --crash-recorder "$at/cmdline" &&
        kill -KILL "${at#/proc/}"
done 2>/dev/null
await "no word about the crash recorder" grep -q 'no crash recorder any more' err
kill -TERM "$pid"
finishes 75 "after a slow rank was named"
test "$(grep -c "crash recorder" err)" = 1 || fail "the crash recorder is not told once"
says err "warning: rank 1/3 host $host is slow: [0-9.]* s of own work a step, [0-9.]* times the median of the ranks, mostly in phase forward"

# Continued after all that; nobody is blamed in a run that is well, with or without it.
run 3 0 base.deck run.dir=w
run 3 0 base.deck run.dir=w0 run.watchdog_s=0
grep -v 'are in data.train too' err && fail "a word about a run that is well"
exit 0
