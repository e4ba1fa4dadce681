#!/bin/sh
# A child process tries wgmma ahead of the ranks: where it dies, hangs or finds other results,
# all ranks compute without wgmma, with the bits of run.wgmma=false, and say why.
. "$SP_SRCDIR/tests/device/devices.sh"
[ -x "$CUDA" ] || skip "no emulator in this build"

SP_TRIAL_S=600 # of a trial that passes, or ends by itself
export SP_TRIAL_S
scene tiny 3 5
cat >deck <<'END'
data : { train = ["tiny*.h5"]; val = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 2; eval_size = 2; };
train : { steps = 1; warmup_steps = 0; lr = 0.01; precision = "bf16"; };
run : { log_every = 1; threads = 1; eval_every = 0; device = "cuda"; oversubscribe = true; };
END
wide_net >>deck
train() { # train DIR RANKS KEYS...: leaves what it says in out
    run_dir=$1
    ranks=$2
    shift 2
    timeout 300 "$MPIEXEC" -n "$ranks" "$CUDA" train deck run.dir="$run_dir" "$@" \
        >out 2>&1 || fail "training in $run_dir"
}
loss() {
    grep -o '"loss":[^,]*' "$1/metrics.jsonl"
}
same() { # same DIR RANKS: no rank used wgmma
    grep -q 'bf16 by wgmma' out && fail "$1: wgmma is used"
    [ -n "$(loss "$1")" ] && [ "$(loss "$1")" = "$(loss "off$2")" ] || fail "$1: other losses"
}
why() {
    [ "$(grep -c "do without wgmma: rank 0 on .* try it: $1" out)" = 1 ] || fail "no $1"
    grep -q 'run.wgmma=false leaves the trial out' out || fail "no way around"
}

for n in 1 2; do
    train on$n $n
    grep -q 'bf16 by wgmma' out || fail "no wgmma after a trial that passed"
    grep -q 'do without wgmma' out && fail "a trial that passed is reported"
    # Without wgmma there is no trial, whatever the kernels would do.
    HC_CRASH=wgmma_kernel train off$n $n run.wgmma=false
    grep -q 'wgmma' out && fail "a trial with run.wgmma=false"
    HC_CRASH=wgmma_kernel train crash$n $n
    why 'it ended by signal 6'
    same crash$n $n
    HC_HANG=wgmma_kernel SP_TRIAL_S=1 train hang$n $n
    why 'it did not end in 1 s (SP_TRIAL_S) and was killed'
    same hang$n $n
    HC_SKIP=wgmma_kernel train wrong$n $n
    why 'run.wgmma: values of a small'
    same wrong$n $n
done
# The watchdog waits for a trial that takes longer than its limit.
HC_HANG=wgmma_kernel SP_TRIAL_S=20 train long2 2 run.watchdog_s=15
why 'it did not end in 20 s (SP_TRIAL_S) and was killed'
same long2 2
# Who asks for wgmma has it without a trial, and its faults.
HC_CRASH=wgmma_kernel timeout 300 "$CUDA" train deck run.dir=asked run.wgmma=true >out 2>&1 &&
    fail "run.wgmma=true was not done as asked"
grep -q 'do without wgmma' out && fail "run.wgmma=true falls back"
echo "trials end as they should"
