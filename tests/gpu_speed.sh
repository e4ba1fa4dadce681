#!/bin/sh
# gpu_speed.sh [--tiny] [--shard FILE] [RESULTS]: how fast the programs are on the GPU that
# is there, beside what it does at best. Builds nothing: it runs in a bundle (`make bundle`),
# or with any other `run` that puts the programs on the PATH (SP_RUN).
#
# Ceilings; every operation by channels; plans; whole steps of the networks at several batch
# sizes and precisions, by spbench (parts, memory) and by sptrain itself (waiting for data
# and for other ranks). On the samples of FILE, or of a scene made here. RESULTS
# (gpu-speed-results) gets JSON lines, each with what was run, and steps.txt, the table that
# is shown. --tiny: minutes on an emulator instead. 77 where there is no GPU; 1 where
# something failed, with its last words.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
run=${SP_RUN:-$here/run}
tiny=
shard=
while :; do
    case ${1-} in
    --tiny) tiny=yes ;;
    --shard)
        shard=$(cd "$(dirname "$2")" && pwd)/$(basename "$2") || exit 1
        shift
        ;;
    -*)
        echo "usage: gpu_speed.sh [--tiny] [--shard FILE] [RESULTS]" >&2
        exit 2
        ;;
    *) break ;;
    esac
    shift
done
results=${1:-$PWD/gpu-speed-results}
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

precisions="fp32 tf32 bf16"
quick=
channels="--channels 16,32,64,96,128,256"
steps=20
warm=5
repeats=15
scene="--samples 16 --extent 64 --voxel-size 0.25"
# network, batch, precision
combinations="
minkunet34 1 fp32   minkunet34 1 tf32   minkunet34 1 bf16
minkunet34 2 fp32   minkunet34 2 tf32   minkunet34 2 bf16
minkunet34 8 fp32   minkunet34 8 tf32   minkunet34 8 bf16
minkunet14 2 bf16   minkunet18 2 bf16   minkunet50 2 bf16   dummy 2 bf16   dummy 2 fp32"
if [ -n "$tiny" ]; then
    precisions="fp32 bf16"
    quick="--quick --voxels 100"
    channels="--channels 8"
    steps=3
    warm=1
    repeats=2
    scene="--samples 3 --extent 8 --voxel-size 0.8"
    combinations="dummy 1 fp32   dummy 2 bf16"
fi

# measured FILE LABEL COMMAND...: its JSON lines, each with the label, are added to FILE.
measured() {
    file=$1
    label=$2
    shift 2
    if timeout 900 "$run" "$@" >out 2>log; then
        sed "s/^{/{$label,/" out >>"$results/$file"
    else
        failed=$((failed + 1))
        echo "FAILED  $*"
        tail -n 5 log
        return 1
    fi
}

rm -f "$results"/*.jsonl
if [ -z "$shard" ]; then
    "$run" spvox scene --out scene --seed 5 $scene >log 2>&1 || {
        tail log
        exit 1
    }
    shard=$work/$(ls scene*.h5 | head -n 1)
fi
nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,clocks.sm,power.limit \
    --format=csv,noheader >"$results/device" 2>/dev/null && cat "$results/device"

# One operation tells whether there is a device; status 7 says that there is none.
"$run" spbench plan --device cuda --json --quick --voxels 100 --repeats 1 >out 2>log
status=$?
if [ $status = 7 ]; then
    echo "SKIPPED: no usable CUDA device on this machine"
    sed 's/^/    /' log
    exit 77
fi

# ---- ceilings, operations, plans ----
for p in $precisions; do
    measured ops.jsonl "\"run\":\"ops\"" spbench ops --device cuda --precision "$p" \
        --json $quick $channels ${quick:---shard "$shard"} --repeats $repeats
done
measured plan.jsonl "\"run\":\"plan\"" spbench plan --device cuda --json $quick \
    ${quick:---shard "$shard"} --repeats $repeats

# ---- steps ----
# deck NETWORK BATCH PRECISION
deck() {
    cat >deck <<END_OF_DECK
data : { train = ["$shard"]; val = ["$shard"]; voxel_size = $edge; };
batch : { size = $2; };
net : { family = "$1"; };
train : { steps = $((warm + steps)); warmup_steps = 0; lr = 0.01; precision = "$3"; };
run : { device = "cuda"; log_every = 1; eval_every = 0; dir = "trained"; };
END_OF_DECK
}

# value KEY: of the step lines of the training, its median after the warm-up
value() {
    sed -n "s/.*\"event\":\"step\".*\"$1\":\([-+.0-9e]*\).*/\1/p" trained/metrics.jsonl |
        tail -n +$((warm + 1)) | sort -g | awk '{ v[NR] = $1 }
            END { if (NR) printf "%.9g", v[int((NR + 1) / 2)]; else printf "null" }'
}

edge=$("$run" spvox info "$shard" 2>/dev/null | sed -n 's/.*voxel_size[ =:]*\([0-9.]*\).*/\1/p' |
    head -n 1)
[ -n "$edge" ] || { echo "spvox info does not tell the voxel size of $shard"; exit 1; }
set -- $combinations
while [ $# -ge 3 ]; do
    label="\"run\":\"step\",\"net\":\"$1\",\"batch\":$2"
    deck "$1" "$2" "$3"
    measured step.jsonl "$label" spbench step --json ${tiny:+--quick} --repeats $repeats deck
    rm -rf trained
    if timeout 900 "$run" sptrain train deck >log 2>&1; then
        printf '{%s,"precision":"%s","step_s":%s,"data_wait_s":%s,"comm_exposed_s":%s}\n' \
            "\"run\":\"train\",\"net\":\"$1\",\"batch\":$2" "$3" "$(value step_s)" \
            "$(value data_wait_s)" "$(value comm_exposed_s)" >>"$results/train.jsonl"
    else
        failed=$((failed + 1))
        echo "FAILED  sptrain train, $1 batch $2 $3"
        tail -n 5 log
    fi
    shift 3
done

# ---- the table ----
cat "$results/step.jsonl" "$results/train.jsonl" 2>/dev/null | awk '
function text(key) {
    if (!match($0, "\"" key "\": *\"[^\"]*\"")) return ""
    split(substr($0, RSTART, RLENGTH), part, "\"")
    return part[4]
}
function number(key) {
    if (!match($0, "\"" key "\": *[-+.0-9e]+")) return ""
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
{
    key = sprintf("%-12s %5d  %-5s", text("net"), number("batch"), text("precision"))
    if (!(key in seen)) { seen[key] = 1; order[++n] = key }
    name = text("name")
    if (name == "step") {
        ms[key] = number("ms"); spread[key] = 100 * number("spread")
        ratio[key] = 100 * number("ratio"); floor[key] = number("floor_ms")
        memory[key] = number("memory_bytes") / 1048576
    }
    if (text("run") == "train") {
        train[key] = 1e3 * number("step_s"); wait[key] = 1e3 * number("data_wait_s")
        comm[key] = 1e3 * number("comm_exposed_s")
    }
}
END {
    printf "%-12s %5s  %-5s %9s %6s %9s %6s %9s %9s %9s %8s\n", "network", "batch", "prec",
        "step ms", "+-%", "floor ms", "% peak", "train ms", "data wait", "comm", "MiB"
    for (i = 1; i <= n; i++) {
        k = order[i]
        printf "%s %9.3f %6.1f %9.3f %6.1f %9.3f %9.3f %9.3f %8.0f\n", k, ms[k], spread[k],
            floor[k], ratio[k], train[k], wait[k], comm[k], memory[k]
    }
}' | tee "$results/steps.txt"
echo "results in $results; $failed failed"
[ $failed = 0 ]
