#!/bin/sh
# sptrain on an emulated CUDA device has the losses of the CPU, the same bits whatever runs
# first, checkpoints that either continues, equal evaluations and predictions, also on two
# ranks.
. "$SP_SRCDIR/tests/device/devices.sh"
[ -x "$CUDA" ] || skip "no emulator in this build"

run() { # run PROGRAM ARGUMENTS...
    timeout -k 5 "$limit_s" "$@" >out 2>&1 || fail "$*"
}

confusions() {
    sed -n 's/.*"event":"eval".*\("confusion".*\)/\1/p' "$1/evaluations.jsonl"
}

# first_step DIR: the metrics of first-DIR are those of its first step alone.
first_step() {
    mkdir "first-$1"
    grep '"step":1,' "$1/metrics.jsonl" >"first-$1/metrics.jsonl"
}

refused() { # refused STATUS TEXT ENVIRONMENT ARGUMENTS...
    text=$2
    wanted=$1
    shift 2
    alone "$wanted" env "$@"
    says err "$text"
}

scene tiny 3 8
cat >dummy.deck <<'END'
data : { train = ["tiny*.h5"]; val = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 2; eval_size = 2; };
net : { family = "dummy"; width = 0.25; };
train : { steps = 5; warmup_steps = 0; lr = 0.01; };
run : { log_every = 1; threads = 1; };
END
{
    grep -v '^net' dummy.deck
    smooth_net
} >smooth.deck

# Five steps without ReLU agree to 1e-5; with ReLU the first step agrees to 1e-6.
for net in smooth dummy; do
    run "$CPU" train $net.deck run.dir=cpu-$net run.device=cpu
    HC_LAZY=1 run "$CUDA" train $net.deck run.dir=cuda-$net run.device=cuda
done
close_to cuda-smooth cpu-smooth 1e-5
first_step cuda-dummy
first_step cpu-dummy
close_to first-cuda-dummy first-cpu-dummy 1e-6

# Another order of threads, blocks and streams gives the same bits.
HC_SEED=9 run "$CUDA" train dummy.deck run.dir=other run.device=cuda
same_steps cuda-dummy other

# Convolutions form the norms' sums in both directions, also those of norms behind a concat
# or on a shortcut: one more step sums rows for the bias alone.
launches() { # launches STEPS KERNEL FAMILY: of a training that is run once
    counted=counted-$3-$1$SP_EARLY_LAUNCH
    if [ ! -e $counted ]; then
        HC_COUNT=1 run "$CUDA" train dummy.deck run.dir=$counted run.device=cuda \
            run.eval_every=0 "train.steps=$1" "net.family=$3" net.stem_kernel=3
        cp out $counted/launches
    fi
    awk -v k="$2" 'index($0, k) && $1 + 0 == $1 { n += $1 } END { print n + 0 }' \
        $counted/launches
}
for want in dummy:row_sums_kernel=1 dummy:add_samples_kernel=1 \
    minkunet14A:row_sums_kernel=1; do
    family=${want%:*}
    kernel=${want%=*}
    kernel=${kernel#*:}
    more=$(($(launches 2 $kernel $family) - $(launches 1 $kernel $family)))
    [ "$more" = "${want#*=}" ] || fail "$family: $more launches of $kernel in a step"
done

# Kernels behind kernels are launched early, unless that is switched off.
early=$(launches 1 'launched early' dummy)
all=$(awk '/kernel/ && !/plan_|pairs|scan_sums|let the next/ { n += $1 } END { print n }' \
    counted-dummy-1/launches)
[ "$early" -gt $((all / 2)) ] || fail "$early launches of $all are early"
export SP_EARLY_LAUNCH=0
[ "$(launches 1 'launched early' dummy)" = 0 ] || fail "early launches nevertheless"
unset SP_EARLY_LAUNCH

# Stopped and continued equals uninterrupted, and the CPU continues it too.
run "$CUDA" train dummy.deck run.dir=half run.device=cuda train.schedule=constant
run "$CUDA" train dummy.deck run.dir=cut run.device=cuda train.schedule=constant \
    train.steps=3
cp -r cut cut-cpu
run "$CUDA" train dummy.deck run.dir=cut run.device=cuda train.schedule=constant
same_steps half cut
run "$CPU" train dummy.deck run.dir=cut-cpu run.device=cpu train.schedule=constant
close_to cut-cpu half 1e-2

# One checkpoint evaluates to the same counts on both.
for p in CPU CUDA; do
    eval "prog=\$$p"
    run "$prog" eval dummy.deck run.dir=eval-$p run.logits=true \
        run.checkpoint=cuda-dummy/checkpoints/best.h5
    run "$prog" predict dummy.deck run.dir=eval-$p run.logits=true \
        run.checkpoint=cuda-dummy/checkpoints/best.h5
    confusions eval-$p >confusion-$p
    [ -s confusion-$p ] || fail "$p: no evaluation"
    ls eval-$p/predictions/*.h5 >/dev/null || fail "$p: no predictions"
done
cmp -s confusion-CPU confusion-CUDA || fail "evaluations differ"

# Two ranks of the device have the same first loss.
run "$MPIEXEC" -n 2 "$CUDA" train dummy.deck run.dir=two run.device=cuda \
    run.oversubscribe=true 'run.devices=[0, 0]' train.steps=2
first_step two
close_to first-two first-cuda-dummy 1e-6
for exact in one two; do
    [ $exact = one ] && ranks=1 || ranks=2
    run "$MPIEXEC" -n $ranks "$CUDA" train dummy.deck run.dir=exact-$exact \
        run.device=cuda run.oversubscribe=true 'run.devices=[0, 0]' train.steps=3 train.deterministic=world
done
same_steps exact-one exact-two

# The first steps of a small MinkUNet in tf32 and bf16 follow those in fp32, and are the
# same bits in another order.
sed 's/"dummy"; width = 0.25/"minkunet14A"; width = 0.25; stem_kernel = 3/; s/{ size = 2/{ size = 3/' \
    dummy.deck >mink.deck
sed -i 's/^run : {/& wgmma = false;/' mink.deck # no layer is wide enough: spares its trial
for p in fp32 tf32 bf16; do
    run "$CUDA" train mink.deck run.dir=mink-$p run.device=cuda train.precision=$p train.steps=2 \
        run.eval_every=0
    grep -q "\"precision\":\"$p\"" mink-$p/metrics.jsonl || fail "$p is not in the start event"
done
close_to mink-tf32 mink-fp32 3e-3
close_to mink-bf16 mink-fp32 3e-2
losses mink-bf16 >a
losses mink-fp32 >b
differ a b "bf16 gave the losses of fp32"
HC_SEED=7 HC_LAZY=1 run "$CUDA" train mink.deck run.dir=mink-other run.device=cuda \
    train.precision=bf16 train.steps=2 run.eval_every=0
same_steps mink-bf16 mink-other
run "$CUDA" predict mink.deck run.dir=mink-bf16 run.device=cuda train.precision=bf16 \
    run.logits=true

# A device that computes wrongly is found out before it trains, both when the update is left
# out and when a sum is left as it was. It ends the run, or all ranks use the CPU where the
# deck leaves it open.
for broken in update_kernel row_sums_kernel; do
    refused 7 'self-test: .* deviates by' HC_SKIP=$broken "$CUDA" train dummy.deck \
        run.dir=broken run.device=cuda
done
HC_SKIP=update_kernel run "$MPIEXEC" -n 2 "$CUDA" train dummy.deck run.dir=auto-broken \
    run.oversubscribe=true run.device=auto train.steps=1
grep -q 'ALL RANKS COMPUTE ON THE CPU.*self-test: .* deviates by' out || fail "no warning"
grep -q '"device":"cpu' auto-broken/metrics.jsonl || fail "auto did not take the CPU"
run "$CUDA" train dummy.deck run.dir=auto run.device=auto train.steps=1
grep -q '"device":"cuda' auto/metrics.jsonl || fail "auto did not take the device"

# wgmma multiplies where channels are wide enough; its results are compared before training.
# Where the deck leaves it open, devices without it, or where it fails, do without it; where
# it is asked for, other devices and precisions refuse it.
wide='train.precision=bf16 train.steps=1 run.eval_every=0'
{
    grep -v '^net' dummy.deck
    wide_net
} >wide.deck
HC_COUNT=1 run "$CUDA" train wide.deck run.dir=wide run.device=cuda $wide
grep -q 'bf16 by wgmma' out || fail "wgmma is not in the log"
grep -q '^ *[1-9][0-9]* (\?wgmma_kernel' out || fail "no wgmma was launched"
run "$CUDA" train wide.deck run.dir=wide-mma run.device=cuda $wide run.wgmma=false
close_to wide wide-mma 1e-3
without() { # without DIR ENVIRONMENT: trains as with run.wgmma=false
    HC_COUNT=1 env "$2" "$CUDA" train wide.deck run.dir="$1" run.device=cuda $wide \
        >out 2>&1 || { fail "with $2"; cat out; }
    grep -q 'bf16 by wgmma' out && fail "wgmma with $2"
    close_to "$1" wide-mma 0
}
without wide-skip HC_SKIP=wgmma_kernel
grep -q 'do without wgmma: rank 0 on .*: run.wgmma: values of a small' out || fail "no word of wgmma"
without wide-80 HC_CAPABILITY=80
refused 7 'run.wgmma: values of a small convolution deviate' HC_SKIP=wgmma_kernel \
    "$CUDA" train wide.deck run.dir=no run.device=cuda $wide run.wgmma=true
refused 7 'run.wgmma: values of a small weight gradient deviate' \
    HC_SKIP=wgrad_wgmma_kernel "$CUDA" train wide.deck run.dir=no run.device=cuda $wide \
    run.wgmma=true
refused 7 'emulated device has compute capability 8.0' HC_CAPABILITY=80 \
    "$CUDA" train wide.deck run.dir=no run.device=cuda $wide run.wgmma=true
refused 2 'run.wgmma = true with train.precision = "tf32"' "$CUDA" train wide.deck \
    run.dir=no run.device=cuda $wide run.wgmma=true train.precision=tf32

# Precision is not widened in silence.
refused 2 'the CPU computes in fp32 and bf16 only' "$CUDA" train dummy.deck run.dir=no \
    run.device=cpu train.precision=tf32
echo "all as on the CPU"
