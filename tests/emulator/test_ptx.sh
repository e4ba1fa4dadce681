#!/bin/sh
# The tests of the CUDA kernels with what nvcc made of these.
bad=0
for test in conv wgmma wgrad rows loss net plan peer; do
    prog=$SP_BUILDDIR/tests/emulator/ptx_$test
    [ -x "$prog" ] || {
        echo "SKIPPED: $prog is built by make check-ptx only"
        exit 77
    }
    start=
    [ $test = peer ] && start="$MPIEXEC -n 3"
    $start "$prog" >"ptx_$test.out" 2>&1 || {
        tail -20 "ptx_$test.out"
        bad=1
    }
    rm -f "ptx_$test.out"
done
exit $bad
