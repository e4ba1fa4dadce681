#!/bin/sh
# Kernels that any device from 8.0 on is to run fit the least shared memory among them, the
# 99 KB a block of 8.6, 8.9 and 12.0: static memory and that of the launch together, as the
# emulator counts them.
cd "$SP_BUILDDIR" || exit 1
bad=0
HC_CAPABILITY=86
export HC_CAPABILITY
for test in tests/gpu/test_cuda_conv tests/gpu/test_cuda_wgrad; do
    [ -x $test ] || { echo "SKIPPED: no emulator in this build"; exit 77; }
    $test >capability.out 2>&1 || { tail -n 5 capability.out; bad=1; }
done
rm -f capability.out
exit $bad
