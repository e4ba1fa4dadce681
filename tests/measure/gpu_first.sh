#!/bin/sh
# gpu_first.sh [RESULTS [PART...]]: the first hour on a GPU, in parts that take under ten
# minutes each, in the order in which they are worth most. Runs in a bundle (`make bundle`),
# or with any other `run` that puts the programs on the PATH (SP_RUN):
#
#     bundle/tests/gpu_first.sh results right
#
# Without PART all parts run. Each command has a limit of its own, and so has each part
# (540 s, SP_FIRST_PART_S); a command that has no time left is left out and said so. None
# that fails or takes too long keeps the next from running.
#     right     the kernels' tests; convolutions of 50,000 voxels against double precision
#     rates     ceilings of the device and every operation, in bf16, by channels; wgmma
#     step      a whole step of MinkUNet34 in bf16; the same without early launches, without
#               wgmma, and with NCCL for one rank; its plan, its memory, an evaluation
#     sanitize  compute-sanitizer on the tests of convolutions and weight gradients
#     profile   the kernels of a step in Nsight Compute (gpu_profile.sh)
# RESULTS (gpu-first) gets
#     first.jsonl   a line for each command and each number that has a prediction:
#         {"part":"right","command":"test_cuda_conv","status":0,"seconds":12}
#         {"part":"sanitize","command":"initcheck-test_cuda_wgrad","status":null,"seconds":0}
#         {"part":"rates","number":"gather_512","value":5600,"predicted":"4500-6500","unit":"GB/s"}
#     PART.tgz      for each part: what its commands said (logs), its lines of first.jsonl
#                   and what else it measured. It is written anew after each command, so
#                   that a part that is ended has what it got to
#     device        name, UUID, driver and memory of the GPU
# Predictions are made from the machine code and from counted bytes, for an H100, or an
# H200 where the device's name says so. Ends with 1 where a command failed, 77 without a GPU.
measure=$(cd "$(dirname "$0")" && pwd) || exit 1
run=${SP_RUN:-$(dirname "$measure")/run}
results=${1:-gpu-first}
[ $# = 0 ] || shift
parts=${*:-right rates step sanitize profile}
voxels=${SP_FIRST_VOXELS:-94444}
net=${SP_FIRST_NET:-minkunet34}
part_s=${SP_FIRST_PART_S:-540}
failed=0

for part in $parts; do
    case $part in
    right | sanitize | rates | step | profile) ;;
    *)
        echo "gpu_first.sh: no part $part: right, rates, step, sanitize, profile" >&2
        exit 2
        ;;
    esac
done

# line TEXT: one of first.jsonl, there and in the part's archive
line() {
    echo "{\"part\":\"$part\",$1}" | tee -a "$results/first.jsonl" >>"part/first.jsonl"
}

pack() {
    cp "$results/device" part/ 2>/dev/null
    tar -C part -czf pack.tgz . && mv pack.tgz "$results/$part.tgz"
}

# try NAME SECONDS COMMAND...: what it says is in part/logs/NAME. 77 is a skip.
try() {
    name=$1
    limit=$2
    shift 2
    begin=$(date +%s)
    left=$((part_begin + part_s - begin))
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -le 0 ]; then
        line "\"command\":\"$name\",\"status\":null,\"seconds\":0"
        echo "left out $part: $name: $part_s s are over"
        pack
        return 124
    fi
    timeout -k 5 "$limit" "$@" >"part/logs/$name" 2>&1
    status=$?
    seconds=$(($(date +%s) - begin))
    line "\"command\":\"$name\",\"status\":$status,\"seconds\":$seconds"
    case $status in
    0) echo "ok      $part: $name ($seconds s)" ;;
    77) echo "skipped $part: $name: $(tail -n 1 "part/logs/$name")" ;;
    *)
        failed=$((failed + 1))
        echo "FAILED  $part: $name, status $status, limit $limit s"
        tail -n 5 "part/logs/$name"
        ;;
    esac
    pack
    return $status
}

# field FILE PATTERN FIELD: of the last JSON line of FILE that has PATTERN
field() {
    grep "$2" "$1" 2>/dev/null | tail -n 1 | sed -n "s/.*\"$3\":\([-0-9.e+]*\).*/\1/p"
}

# number NAME VALUE H100 H200 UNIT: a measured value beside its prediction
number() {
    predicted=$3
    [ -z "$is_h200" ] || predicted=$4
    line "\"number\":\"$1\",\"value\":${2:-null},\"predicted\":\"$predicted\",\"unit\":\"$5\""
    printf '        %-36s %12s   predicted %s %s\n' "$1" "${2:--}" "$predicted" "$5"
}

# less SLOW FAST: how much less the second takes, in percent
less() {
    awk -v slow="$1" -v fast="$2" \
        'BEGIN { print (slow > 0 && fast > 0 ? 100 * (slow - fast) / slow : "null") }'
}

right() {
    for test in $tests; do
        try "$test" 60 "$run" gpu_tests "$test"
    done
    try large 120 "$run" gpu_tests gpu_large 50000 32 96 128 256
}

# Tiles are those of the formula: times taken under the sanitizer say nothing.
sanitize() {
    if [ -z "$sanitizer" ]; then
        echo "skipped $part: no compute-sanitizer on the PATH or under /usr/local/cuda"
        return
    fi
    for tool in memcheck racecheck synccheck initcheck; do
        for test in test_cuda_conv test_cuda_wgmma test_cuda_wgrad; do
            try "$tool-$test" 90 env SP_TILES=formula "$run" "$sanitizer" --tool "$tool" \
                --error-exitcode 1 gpu_tests "$test"
        done
    done
}

rates() {
    try ops 300 "$run" spbench ops --device cuda --precision bf16 \
        --channels 32,96,128,256 --json
    try wgmma 120 "$run" spbench ops --device cuda --precision bf16 --channels 256 \
        --wgmma --json
    ops=part/logs/ops
    number gather_512 "$(field $ops '"name":"gather_512"' gbytes_s)" 4500-6500 4500-6500 GB/s
    number gather_128 "$(field $ops '"name":"gather_128"' gbytes_s)" 3500-5500 3500-5500 GB/s
    number stream "$(field $ops '"name":"stream"' gbytes_s)" 2600-3000 3700-4300 GB/s
    number "copy of rows, 128 channels" "$(field $ops '"name":"copy".*"c_in":128,' gbytes_s)" \
        2600-4500 3700-5500 GB/s
    number products "$(field $ops '"name":"multiply_add"' gflops)" 600000-800000 \
        600000-800000 GFLOP/s
    number launch "$(field $ops '"name":"launch"' ms)" 0.0012-0.0025 0.0012-0.0025 ms
    for c in 32 96 128 256; do
        number "conv3_forward $c" "$(field $ops \
            "\"name\":\"conv3_forward\".*\"c_in\":$c," ratio)" 0.3-0.4 0.3-0.4 \
            "of its ceiling"
    done
    plain=$(field $ops '"name":"conv3_forward".*"c_in":256,' ms)
    wide=$(field part/logs/wgmma '"name":"conv3_forward".*"c_in":256,' ms)
    number "wgmma, 256 channels" "$(awk -v a="$plain" -v b="$wide" \
        'BEGIN { print (a > 0 && b > 0 ? a / b : "null") }')" 1.3-1.5 1.3-1.5 \
        "times mma.sync"
}

step() {
    try voxels 60 "$run" spbench voxels --shape lidar --voxels "$voxels" --samples 2 \
        --out voxels.h5
    cat >deck <<DECK
data : { train = ["voxels.h5"]; val = ["voxels.h5"]; voxel_size = 0.05; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = 2; eval_size = 2; };
net : { family = "$net"; stem_kernel = 3; };
train : { warmup_steps = 0; lr = 0.01; precision = "bf16"; };
run : { device = "cuda"; dir = "trained"; };
DECK
    try step 120 "$run" spbench step deck --json
    try late 90 env SP_EARLY_LAUNCH=0 "$run" spbench step deck --json
    try plain 90 "$run" spbench step deck run.wgmma=false --json
    try plan 60 "$run" spbench plan --device cuda --json
    try eval 90 "$run" spbench eval deck --json
    try memory 60 "$run" sptrain train deck train.steps=3 run.log_every=1 run.dir=memory \
        run.eval_every=0
    cat >nccl <<'END'
"$1" spbench step deck run.transport=nccl --json 2>said && exit
status=$?
cat said
! grep -q 'NCCL: no libnccl' said || exit 77
exit $status
END
    try nccl 90 sh nccl "$run"
    logs=part/logs
    early=$(field $logs/step '"name":"step"' ms)
    late=$(field $logs/late '"name":"step"' ms)
    plain=$(field $logs/plain '"name":"step"' ms)
    number "step of two scans" "$early" 11.3-13.0 10.5-12.1 ms
    number "early launches save" "$(less "$late" "$early")" 1-4 1-4 percent
    number "wgmma saves" "$(less "$plain" "$early")" 12-16 12-16 percent
    number "one rank over NCCL adds" "$(less "$(field $logs/nccl '"name":"step"' ms)" "$early")" \
        0-3 0-3 percent
    number "evaluation of two scans" "$(field $logs/eval '"name":"eval"' ms)" 4-5.5 3.5-5 ms
    number "plan of minkunet34" "$(field $logs/plan '"name":"plan_minkunet34' ms)" \
        0.5-1 0.5-1 ms
    number "operations of that plan" \
        "$(field $logs/plan '"name":"plan_minkunet34' operations)" 94 94 ""
    number "waits of that plan" \
        "$(field $logs/plan '"name":"plan_minkunet34' waits)" 3 3 ""
    foreseen=$(sed -n 's/.*largest step needs about \([0-9.]* [MG]iB\).*/\1/p' $logs/memory)
    number "memory in use" "$(field memory/metrics.jsonl '"memory_bytes"' memory_bytes)" \
        "at most ${foreseen:-what was foreseen} and 0.6 GiB of CUDA" \
        "at most ${foreseen:-what was foreseen} and 0.6 GiB of CUDA" bytes
}

# of_family KERNEL: time of a family's kernels in a step
of_family() {
    awk -v family="$1" 'match($0, /"kernel":"[a-z_]*/) {
        name = substr($0, RSTART + 10, RLENGTH - 10)
        if (name == "wgrad_wgmma_kernel") name = "wgrad_kernel"
        if (name !~ /^(conv|wgmma|wgrad)_kernel$/) name = "others"
        if (name != family || !match($0, /"ms":[0-9.]*/)) next
        ms += substr($0, RSTART + 5, RLENGTH - 5)
        any = 1
    } END { if (any) print ms }' part/profile.jsonl 2>/dev/null
}

profile() {
    try ncu 570 env SP_RUN="$run" SP_PROFILE_VOXELS="$voxels" sh "$measure/gpu_profile.sh" \
        "$net" 2 bf16 "$PWD/part"
    # The longest of each family comes first there.
    for kernel in wgmma_kernel:50-65:3.9-5.1:3.9-5.1 conv_kernel:2-10:0.9-1.3:0.9-1.3 \
        wgrad_kernel:28-35:2.5-3.2:2.4-3.1; do
        name=${kernel%%:*}
        kernel=${kernel#*:}
        grep "\"kernel\":\"$name" part/profile.jsonl 2>/dev/null | head -n 1 >longest
        number "$name, tensor pipe" "$(field longest . tensor_percent)" "${kernel%%:*}" \
            "${kernel%%:*}" percent
        kernel=${kernel#*:}
        number "$name" "$(of_family "$name")" "${kernel%:*}" "${kernel#*:}" "ms a step"
    done
    number "other kernels" "$(of_family others)" 2.5-3.4 1.9-2.8 "ms a step"
    # More than a step's time: weight gradients run beside norm passes.
    number "all, one after the other" \
        "$(awk '/^[0-9]* kernels, / { print $3 }' part/logs/ncu 2>/dev/null)" 10.4-13.1 9.5-12.2 ms
    pack
}

. "$measure/gpu_here.sh"
is_h200=$(grep -o H200 "$results/device" 2>/dev/null)
tests=$(grep '^test_' names)
for part in $parts; do
    part_begin=$(date +%s)
    rm -rf part
    mkdir -p part/logs || exit 1
    "$part"
    pack
done
echo "results in $results; $failed commands failed"
[ "$failed" = 0 ]
