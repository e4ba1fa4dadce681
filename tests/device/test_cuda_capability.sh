#!/bin/sh
# The kernels for any device from capability 8.0 on fit into the least shared memory among
# them, the 99 KB a block of 8.6, 8.9 and 12.0: static and of the launch together, as the
# emulator counts them.
cd "$SP_BUILDDIR" || exit 1
[ -x tests/gpu/kernels ] || { echo "SKIPPED: no emulator in this build"; exit 77; }
bad=0
HC_CAPABILITY=86
export HC_CAPABILITY
# The program runs the test that it is named after. Its names beside it are made while
# other tests run already, so this test has names of its own.
dir=$(mktemp -d "$PWD/capability.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
for test in test_cuda_conv test_cuda_wgrad; do
    ln -s "$PWD/tests/gpu/kernels" "$dir/$test"
    "$dir/$test" >"$dir/out" 2>&1 || { tail -n 5 "$dir/out"; bad=1; }
    grep -q 'PASSED' "$dir/out" || { echo "$test ran no test"; bad=1; }
done
exit $bad
