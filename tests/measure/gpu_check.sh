#!/bin/sh
# gpu_check.sh [RESULTS]: everything that needs a GPU, on whatever GPU is there. Builds
# nothing: it runs in a bundle (`make bundle`), which is copied to the machine as a folder:
#
#     bundle/tests/gpu_check.sh
#
# The tests of the kernels that elsewhere run on the emulator; convolutions of 200,000
# voxels against double precision; compute-sanitizer, where it is installed, on the kernels'
# tests and on training; training that follows the CPU's and repeats in bits; two ranks on
# one GPU; timings. What it measures is written to RESULTS (gpu-results) as JSON lines. Ends
# with "N passed, N failed"; 77 where there is no GPU.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
results=${1:-$PWD/gpu-results}
run=$here/run
passed=0
failed=0

. "$here/tests/gpu_here.sh"

# step NAME COMMAND...: what it says is shown if it fails.
step() {
    name=$1
    shift
    if "$@" >log 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name"
    elif [ $? = 77 ]; then
        echo "skipped $name: $(tail -n 1 log)"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
        tail -n 30 log
    fi
}

# ---- kernels ----
for test in $(grep '^test_' names); do
    step "$test" timeout 300 "$run" gpu_tests "$test"
done

large() {
    timeout 900 "$run" gpu_tests gpu_large "$@" >"$results/large.json"
    status=$?
    grep '"passed":false' "$results/large.json"
    return $status
}
step "200,000 voxels against double precision" large

# ---- the sanitizer: kernels on the tensor cores, then a small network ----
for tool in memcheck synccheck initcheck racecheck; do
    for test in test_cuda_conv test_cuda_wgmma test_cuda_wgrad test_cuda_net; do
        if [ -n "$sanitizer" ]; then
            step "compute-sanitizer $tool, $test" timeout 300 "$run" "$sanitizer" \
                --tool $tool --error-exitcode 1 gpu_tests $test
        else
            echo "skipped compute-sanitizer $tool, $test: not installed"
        fi
    done
done

"$run" spvox scene --out scene --samples 8 --extent 24 --seed 5 --voxel-size 0.5 >none
cat >small.deck <<'END'
data : { train = ["scene*.h5"]; val = ["scene*.h5"]; voxel_size = 0.5; };
batch : { size = 4; eval_size = 4; };
net : { family = "minkunet14"; width = 0.25; };
train : { steps = 4; warmup_steps = 0; lr = 0.01; };
run : { log_every = 1; device = "cuda"; };
END
for tool in memcheck racecheck; do
    if [ -n "$sanitizer" ]; then
        step "compute-sanitizer $tool" timeout 600 "$run" "$sanitizer" --tool $tool \
            --error-exitcode 1 sptrain train small.deck run.dir=$tool \
            train.steps=2
    else
        echo "skipped compute-sanitizer $tool: not installed"
    fi
done

# ---- training ----
train() { # train RANKS ARGUMENTS...
    ranks=$1
    shift
    timeout 600 "$run" mpirun -n "$ranks" sptrain train small.deck "$@"
}

losses() { # losses DIR: of the steps
    sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"
}

# follows DIR DIR TOLERANCE [STEPS]: as many losses, each of the first STEPS (all) this
# close.
follows() {
    losses "$1" | head -n "${4-$steps}" >a
    losses "$2" | head -n "${4-$steps}" >b
    paste a b
    [ -s a ] && [ "$(wc -l <a)" = "$(wc -l <b)" ] && paste a b | awk -v t="$3" '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d }
        END { print "largest difference: " most; exit most > t }'
}

equal() { # equal DIR DIR: losses in every digit, and all arrays of the last checkpoint
    for run_dir in "$1" "$2"; do
        losses "$run_dir"
        "$run" make_shards sums "$run_dir/checkpoints/step-$(printf %09d $steps).h5" ||
            return 1
    done >all
    half=$(($(wc -l <all) / 2))
    head -n $half all >a
    tail -n +$((half + 1)) all >b
    [ -s a ] && diff a b
}

steps=20
step "train on the CPU" train 1 run.dir=cpu run.device=cpu train.steps=$steps
step "train on the CPU, bf16" train 1 run.dir=cpu-bf16 run.device=cpu train.steps=$steps \
    train.precision=bf16
for precision in fp32 tf32 bf16; do
    step "train, $precision" train 1 run.dir=$precision train.steps=$steps \
        train.precision=$precision
    step "train again, $precision" train 1 run.dir=$precision-2 train.steps=$steps \
        train.precision=$precision
    step "$precision repeats in bits" equal $precision $precision-2
done
cap=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>none | head -n 1)
if [ "$cap" = 9.0 ]; then
    wide="net.width=1.0 train.precision=bf16 train.steps=$steps"
    step "train, bf16, wide" train 1 run.dir=wide $wide run.wgmma=false
    step "train, by wgmma" train 1 run.dir=wgmma $wide run.wgmma=true
    step "train again, by wgmma" train 1 run.dir=wgmma-2 $wide run.wgmma=true
    step "wgmma repeats in bits" equal wgmma wgmma-2
    step "wgmma follows mma.sync" follows wgmma wide 2e-2
fi
step "fp32 follows the CPU" follows fp32 cpu 1e-2
step "tf32 follows the CPU" follows tf32 cpu 3e-2
# Both round to bf16 alike. What differs is the order of sums, and that tensor cores cut off
# what the CPU rounds: by count on this deck 1.4e-4 of the loss of the first step, from
# equal weights, and 1.7e-3 of the second one, whose weights differ already.
step "bf16 has the CPU's loss at first" follows bf16 cpu-bf16 1e-3 1
step "bf16 has the CPU's second loss" follows bf16 cpu-bf16 5e-3 2
grep "largest difference" log
step "bf16 follows the CPU's bf16" follows bf16 cpu-bf16 5e-2

# ---- ranks ----
# NCCL may be one of Python's packages, anywhere.
if [ -z "${SP_NCCL_LIB-}" ]; then
    SP_NCCL_LIB=$(python3 -c 'import nvidia.nccl
print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2>none)
    [ -f "$SP_NCCL_LIB" ] && export SP_NCCL_LIB || unset SP_NCCL_LIB
fi
train_by_nccl() {
    train "$@" && return
    status=$?
    grep -q 'NCCL: no libnccl' log && return 77
    return $status
}
step "NCCL, one rank" train_by_nccl 1 run.dir=nccl run.transport=nccl train.steps=$steps
[ -e nccl/metrics.jsonl ] && step "one rank over NCCL: the same losses" equal nccl fp32
gpus=$(nvidia-smi -L 2>none | wc -l)
if [ "$gpus" -gt 1 ]; then
    step "NCCL, $gpus ranks" train "$gpus" run.dir=all run.transport=nccl \
        train.steps=$steps
    grep -o "batch statistics.*" log
    step "$gpus ranks follow one" follows all fp32 1e-2
    step "statistics without the devices' memory" env SP_PEER_MEMORY=0 timeout 600 "$run" \
        mpirun -n "$gpus" sptrain train small.deck run.dir=all-nccl run.transport=nccl \
        train.steps=$steps
    step "they follow those through it" follows all-nccl all 1e-2
    step "small sums" timeout 300 "$run" mpirun -n "$gpus" spbench reduce --device cuda \
        small.deck
    grep doubles log
fi
step "two ranks on one GPU, through the host" train 2 run.dir=shared \
    run.oversubscribe=true run.transport=mpi run.devices='[0, 0]' train.steps=$steps
step "they follow one rank" follows shared fp32 1e-2
step "preflight" timeout 120 "$run" sptrain preflight small.deck
cat log

# ---- timings ----
for what in ops plan; do
    step "spbench $what" sh -c \
        "timeout 600 '$run' spbench $what --device cuda --json >'$results/$what.json'"
done
step "spbench step" sh -c "timeout 300 '$run' spbench step small.deck --json \
    >'$results/step.json'"

echo "results in $results"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
