#!/bin/sh
# HUP ends every program: UCX, which MPI loads with them, has a handler of its own for it.
# What answers requests to stop ends with 75, and nohup keeps it from all.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" plain p.h5 || fail "make_shards"
dummy_deck p.h5 'size = 4;' 'steps = 2;' 'dir = "r";'
OMP_WAIT_POLICY=passive # spbench starts itself again without it
export OMP_WAIT_POLICY

# hung STATUS POINT PROGRAM ARGUMENTS...: a program that gets HUP there.
hung() {
    want=$1 point=$2
    shift 2
    SP_TEST_FAULT=hup@0:$point:0 timeout -k 5 "$limit_s" "$@" >out 2>err </dev/null
    got=$?
    says err '^fault: hup'
    test $got = "$want" || fail "status $got, expected $want: $*"
}
hung 129 peak "$SP_BUILDDIR/spbench" ops --quick
hung 129 together "$SP_BUILDDIR/spbench" reduce --quick base.deck
hung 129 together "$SPTRAIN" check base.deck
hung 129 together "$SPTRAIN" preflight base.deck
hung 129 together "$SP_BUILDDIR/spvox" info p.h5
hung 75 read "$SPTRAIN" base.deck
hung 75 read "$SPTRAIN" eval base.deck

printf '#!/bin/sh\ntrap "" HUP\nexec "$@"\n' >ignoring # as nohup, behind timeout
chmod +x ignoring
hung 0 together ./ignoring "$SPTRAIN" check base.deck
hung 0 together ./ignoring "$SP_BUILDDIR/spvox" info p.h5
hung 0 read ./ignoring "$SPTRAIN" base.deck
exit 0
