#!/bin/sh
# Commands without a run folder name a rank that is stopped and for which the others wait,
# once, and go on when it is continued. In those of sptrain the watchdog ends the ranks
# where one hangs.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
printf '%s\n' '1 2 3 4' '5 6 7 8' >scan.txt
deck 'family = "dummy";' 'train = "u.h5"; val = [];' '' '' 'device = "cpu";'

# named PROGRAM ARGUMENTS...: rank 1 of 2 is stopped when all have started.
named() {
    program=$1
    SPTRAIN=$SP_BUILDDIR/$program
    shift
    SP_START_S=60 SP_TEST_FAULT=stop@1:together:0 begin 2 "$@"
    await "$program $1: nobody names the rank" grep -q 'which is stopped' err
    says err "^$program: rank 0/2 .*warning: the ranks wait for rank 1, pid [0-9]* of this"
    pid=$(sed -n 's/.*which is stopped (kill -CONT \([0-9]*\)).*/\1/p' err)
    sleep "$more_s"
    kill -CONT "$pid"
    finishes 0 "$program $1 after it was continued"
    test "$(grep -c 'which is stopped' err)" = 1 || fail "$program $1: not named once"
}
more_s=6.2 # two more looks at the same wait
named sptrain check base.deck
more_s=0
named sptrain preflight base.deck
named spbench step --quick base.deck
named spvox convert --out s --voxel-size 1 --columns x,y,z,intensity scan.txt

# lost RANK ACTION POINT: preflight says which rank and host it was, and ends. Where the
# machine lets another rank stand still for longer than the limit, that one is named.
SPTRAIN=$SP_BUILDDIR/sptrain
lost() {
    for watch_s in 1 4 16 64; do
        SP_TEST_FAULT=$2@$1:$3:0 run 3 6 preflight base.deck run.watchdog_s=$watch_s
        ! grep -q "error: rank $1/3" err || break
    done
    one_diagnosis "error: rank $1/3 host "
}
lost 1 hang read
lost 2 stop reduce
