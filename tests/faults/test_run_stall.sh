#!/bin/sh
# A file system that stands still for longer than run.watchdog_s ends no run, as long as the
# process is alive and run.file_wait_s has not passed: in reading and in saving.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 4;' 'steps = 8; warmup_steps = 2;' 'checkpoint_every = 3; watchdog_s = 3;'
host=$(hostname)
run 2 0 base.deck run.dir=want
sums want 8 >want.sums

# survives RANK POINT STEP PHASE
survives() {
    rm -rf r
    SP_TEST_FAULT=stall@$1:$2:$3 run 2 0 base.deck run.dir=r
    says err '^fault: stall'
    test "$(grep -c 'has waited for the file system' err)" = 1 || fail "no word of the wait, or several"
    says err "warning: .*rank $1/2 host $host has waited for the file system for [2-6] s, in phase $4; the run goes on"
    yields want.sums "weights after a stall" sums r 8
}
survives 1 file 3 read
survives 0 saving 3 '[a-z]*'

# A wait that never ends does end the run, later; so does a hang that is no wait for files.
rm -rf r
SP_TEST_FAULT=hang@1:file:3 launch 2 base.deck run.dir=r run.file_wait_s=4
got=$?
ended 6 "a wait for files that never ends"
one_diagnosis "rank 1/2 host $host hangs: no progress for .* phase read"
says err 'has waited for the file system'
rm -rf r
SP_TEST_FAULT=hang@1:pread:3 launch 2 base.deck run.dir=r
got=$?
ended 6 "a thread that hangs"
says_not err 'has waited for the file system'
exit 0
