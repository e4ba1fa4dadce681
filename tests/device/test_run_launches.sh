#!/bin/sh
# A training step launches a known number of kernels, and no more: with two samples, in
# bf16, on one rank, 506 of MinkUNet34, then 502. Of these 124 are small: they compute the
# coefficients of a batch norm while the kernel before the pass ends. Sums of losses and of
# squares end in the kernel that begins them. The norms of seven shortcuts have no pass of
# their own.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_waits
scene s 2 5
cat >d.deck <<'DECK'
data : { train = ["s-*.h5"]; val = []; voxel_size = 0.7; };
batch : { size = 2; };
train : { steps = 2; warmup_steps = 0; lr = 0.01; };
run : { device = "cuda"; log_every = 0; threads = 1; eval_every = 0; };
DECK

# launches NET MOST ARGUMENTS...: each step launches from MOST - 5 to MOST kernels.
launches() {
    net=$1 most=$2
    shift 2
    rm -rf r
    run 1 0 train d.deck run.dir=r net.family="$net" "$@"
    sed -n 's/^stops .* launches //p' err >got
    test "$(wc -l <got)" = 2 || fail "$net: no two steps"
    awk -v most="$most" '$1 > most || $1 < most - 5 { bad = 1 } END { exit bad }' got ||
        fail "$net: $(tr '\n' ' ' <got)launches, at most $most and few less expected"
    echo "$net: $(tail -n 1 got) launches of a step"
}

launches minkunet34 506 net.width=0.1 train.precision=bf16

# lets RANKS STEPS: how many kernels of rank 0 or of each let the next one begin early.
lets() {
    rm -rf r
    HC_COUNT=1 run "$1" 0 train d.deck run.dir=r net.family=dummy net.width=0.1 \
        train.steps="$2"
    sed -n 's/^ *\([0-9]*\) let the next kernel begin$/\1/p' err | sort -u
}

# On one rank the convolutions and passes of a forward pass do; beside sums over ranks
# through the devices' memory those of the self-test alone do, which comes before.
one=$(lets 1 1) three=$(lets 1 3)
[ $((three - one)) -ge 14 ] || fail "$one, $three kernels let the next one begin"
[ "$(lets 2 1)" = "$(lets 2 3)" ] || fail "kernels let the next one begin beside sums"

# An SM that holds fewer blocks than the tiles are made for is worth a line, one for all.
rm -rf r
HC_BLOCKS=1 run 1 0 train d.deck run.dir=r net.family=dummy net.width=0.1
[ "$(cat out err | grep -c "1 blocks of .* fit a multiprocessor, [234] are expected")" = 1 ] ||
    fail "no line, or several: $(cat out err | grep multiprocessor)"

# A device for which the build has no kernels: what to do is said, the call with SP_TRACE=1 alone.
rm -rf r
HC_IMAGE=0 run 1 7 train d.deck run.dir=r net.family=dummy
one_diagnosis 'error: .*CUDA: no kernel image .* on the device; .*: configure --with-cuda-arch'
grep 'cudaFunc\|sp_kernels_load' err && fail "source code in a message"
rm -rf r
HC_IMAGE=0 SP_TRACE=1 run 1 7 train d.deck run.dir=r net.family=dummy
says err '^  SP_EDEVICE at cuda/device/cuda_device.cu:[0-9]* sp_kernels_load('

# A device that is newer than the build is served, and the log says what that costs.
rm -rf r
HC_CAPABILITY=120 run 1 0 train d.deck run.dir=r net.family=dummy net.width=0.1 train.steps=1
grep -q 'compiled the kernels for capability 12.0 .*with-cuda-arch=".* 120" saves that' out ||
    fail "nothing of PTX"
