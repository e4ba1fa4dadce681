#!/bin/sh
# gpu_first.sh [RESULTS [PART...]]: the first hour on a GPU, in parts that take under ten
# minutes each, in the order in which they are worth most. Runs in a bundle (`make bundle`),
# or with any other `run` that puts the programs on the PATH (SP_RUN):
#
#     bundle/tests/gpu_first.sh results right
#
# Without PART all parts run. Each command has a limit of its own, and so has each part
# (580 s, SP_FIRST_PART_S); a command that has no time left is left out and said so. None
# that fails or takes too long keeps the next from running.
#     right     the kernels' tests; convolutions of 50,000 voxels against double precision
#     sanitize  compute-sanitizer on the tests of convolutions and weight gradients
#     rates     ceilings of the device and every operation, in bf16, by channels; wgmma
#     step      a whole step of MinkUNet34 in bf16; the same without early launches, and
#               without wgmma; its plan
#     profile   the kernels of a step in Nsight Compute (gpu_profile.sh)
# RESULTS (gpu-first) gets first.jsonl, a line for each command and each number that has a
# prediction:
#     {"part":"right","command":"test_cuda_conv","status":0,"seconds":12}
#     {"part":"sanitize","command":"initcheck-test_cuda_wgrad","status":null,"seconds":0}
#     {"part":"rates","number":"gather_512","value":5600,"predicted":"5500","unit":"GB/s"}
# Predictions are made from the machine code and from counted bytes, for an H100. What the
# commands said is in RESULTS/logs. Ends with 1 where a command failed, 77 without a GPU.
measure=$(cd "$(dirname "$0")" && pwd) || exit 1
run=${SP_RUN:-$(dirname "$measure")/run}
results=${1:-gpu-first}
[ $# = 0 ] || shift
parts=${*:-right sanitize rates step profile}
voxels=${SP_FIRST_VOXELS:-94444}
net=${SP_FIRST_NET:-minkunet34}
part_s=${SP_FIRST_PART_S:-580}
failed=0

for part in $parts; do
    case $part in
    right | sanitize | rates | step | profile) ;;
    *)
        echo "gpu_first.sh: no part $part: right, sanitize, rates, step, profile" >&2
        exit 2
        ;;
    esac
done

# try NAME SECONDS COMMAND...: what it says is in logs/PART-NAME. 77 is a skip.
try() {
    name=$1
    limit=$2
    shift 2
    begin=$(date +%s)
    left=$((part_begin + part_s - begin))
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -le 0 ]; then
        echo "{\"part\":\"$part\",\"command\":\"$name\",\"status\":null,\"seconds\":0}" \
            >>"$results/first.jsonl"
        echo "left out $part: $name: $part_s s are over"
        return 124
    fi
    timeout -k 5 "$limit" "$@" >"$results/logs/$part-$name" 2>&1
    status=$?
    seconds=$(($(date +%s) - begin))
    echo "{\"part\":\"$part\",\"command\":\"$name\",\"status\":$status,\"seconds\":$seconds}" \
        >>"$results/first.jsonl"
    case $status in
    0) echo "ok      $part: $name ($seconds s)" ;;
    77) echo "skipped $part: $name: $(tail -n 1 "$results/logs/$part-$name")" ;;
    *)
        failed=$((failed + 1))
        echo "FAILED  $part: $name, status $status, limit $limit s"
        tail -n 5 "$results/logs/$part-$name"
        ;;
    esac
    return $status
}

# field FILE PATTERN FIELD: of the last JSON line of FILE that has PATTERN
field() {
    grep "$2" "$1" 2>/dev/null | tail -n 1 | sed -n "s/.*\"$3\":\([-0-9.e+]*\).*/\1/p"
}

# number NAME VALUE PREDICTED UNIT
number() {
    echo "{\"part\":\"$part\",\"number\":\"$1\",\"value\":${2:-null},\"predicted\":\"$3\",\"unit\":\"$4\"}" \
        >>"$results/first.jsonl"
    printf '        %-36s %12s   predicted %s %s\n' "$1" "${2:--}" "$3" "$4"
}

right() {
    for test in $tests; do
        try "$test" 60 "$run" gpu_tests "$test"
    done
    try large 120 "$run" gpu_tests gpu_large 50000 32 96 128 256
}

sanitize() {
    if [ -z "$sanitizer" ]; then
        echo "skipped $part: no compute-sanitizer on the PATH or under /usr/local/cuda"
        return
    fi
    for tool in memcheck racecheck synccheck initcheck; do
        for test in test_cuda_conv test_cuda_wgmma test_cuda_wgrad; do
            try "$tool-$test" 90 "$run" "$sanitizer" --tool "$tool" --error-exitcode 1 \
                gpu_tests "$test"
        done
    done
}

rates() {
    log=$results/logs/$part
    try ops 300 "$run" spbench ops --device cuda --precision bf16 \
        --channels 32,96,128,256 --json
    try wgmma 120 "$run" spbench ops --device cuda --precision bf16 --channels 256 \
        --wgmma --json
    number gather_512 "$(field "$log-ops" '"name":"gather_512"' gbytes_s)" 5500 GB/s
    number products "$(field "$log-ops" '"name":"multiply_add"' gflops)" 788000 GFLOP/s
    for c in 32 96 128 256; do
        number "conv3_forward $c" "$(field "$log-ops" \
            "\"name\":\"conv3_forward\".*\"c_in\":$c," ratio)" "0.3-0.4" "of its ceiling"
    done
    plain=$(field "$log-ops" '"name":"conv3_forward".*"c_in":256,' ms)
    wide=$(field "$log-wgmma" '"name":"conv3_forward".*"c_in":256,' ms)
    number "wgmma, 256 channels" "$(awk -v a="$plain" -v b="$wide" \
        'BEGIN { print (a > 0 && b > 0 ? a / b : "null") }')" "1.3-1.5" "times mma.sync"
}

step() {
    log=$results/logs/$part
    try voxels 60 "$run" spbench voxels --shape lidar --voxels "$voxels" --samples 2 \
        --out voxels.h5
    cat >deck <<DECK
data : { train = ["voxels.h5"]; val = ["voxels.h5"]; voxel_size = 0.05; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = 2; };
net : { family = "$net"; stem_kernel = 3; };
train : { warmup_steps = 0; lr = 0.01; precision = "bf16"; };
run : { device = "cuda"; dir = "trained"; };
DECK
    try step 180 "$run" spbench step deck --json
    try late 180 env SP_EARLY_LAUNCH=0 "$run" spbench step deck --json
    try plain 180 "$run" spbench step deck run.wgmma=false --json
    try plan 60 "$run" spbench plan --device cuda --json
    early=$(field "$log-step" '"name":"step"' ms)
    late=$(field "$log-late" '"name":"step"' ms)
    plain=$(field "$log-plain" '"name":"step"' ms)
    number "step of two scans" "$early" "11-16" ms
    number "early launches save" "$(awk -v a="$early" -v b="$late" \
        'BEGIN { print (a > 0 && b > 0 ? 100 * (b - a) / b : "null") }')" "under 4" percent
    number "wgmma saves" "$(awk -v a="$early" -v b="$plain" \
        'BEGIN { print (a > 0 && b > 0 ? 100 * (b - a) / b : "null") }')" 7 percent
    number "plan of minkunet34" "$(field "$log-plan" '"name":"plan_minkunet34' ms)" \
        "0.5-1" ms
    number "operations of that plan" \
        "$(field "$log-plan" '"name":"plan_minkunet34' operations)" 94 ""
    number "waits of that plan" \
        "$(field "$log-plan" '"name":"plan_minkunet34' waits)" 3 ""
}

profile() {
    try ncu 570 env SP_RUN="$run" SP_PROFILE_VOXELS="$voxels" sh "$measure/gpu_profile.sh" \
        "$net" 2 bf16 "$results"
    # The longest of each family comes first there.
    for kernel in wgmma_kernel:50-65 conv_kernel:24-32 wgrad_kernel:28-35; do
        grep "\"kernel\":\"${kernel%:*}" "$results/profile.jsonl" 2>/dev/null |
            head -n 1 >longest
        number "${kernel%:*}, tensor pipe" "$(field longest . tensor_percent)" \
            "${kernel#*:}" percent
    done
}

. "$measure/gpu_here.sh"
mkdir -p "$results/logs" || exit 1
tests=$(grep '^test_' names)
for part in $parts; do
    part_begin=$(date +%s)
    "$part"
done
echo "results in $results; $failed commands failed"
[ "$failed" = 0 ]
