#!/bin/sh
# gpu_profile.sh [--csv FILE] [NETWORK BATCH PRECISION [RESULTS]]: what the kernels of one
# warm training step reach of the GPU's peaks, by Nsight Compute (ncu). Runs where
# gpu_speed.sh does. Counts the launches of two and of three steps first, so that only the
# third step's are profiled. RESULTS (tests/results) gets profile.csv as ncu wrote it,
# profile.jsonl, a line for each kernel, and profile.txt, the five longest, which is shown.
# --csv only makes the table, of a file that `ncu --csv --page raw --print-units base`
# wrote elsewhere. Tiles are those of the formula, since times taken under ncu say nothing,
# and so is the use of wgmma: no child process tries it. 77 where ncu or the GPU is missing, or may not be profiled.
measure=$(cd "$(dirname "$0")" && pwd) || exit 1
here=$(dirname "$measure") # the bundle
run=${SP_RUN:-$here/run}
csv=
if [ "${1-}" = --csv ]; then
    csv=$(cd "$(dirname "$2")" && pwd)/$(basename "$2") || exit 1
    shift 2
fi
net=${1:-minkunet34}
batch=${2:-2}
precision=${3:-bf16}
results=${4:-$measure/results}
voxels=${SP_PROFILE_VOXELS:-94444}
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

skip() {
    echo "SKIPPED: $*"
    exit 77
}

# profiled FILE STEPS OPTION...: what ncu says of that many training steps is in FILE.
# Clocks stay as they are in gpu_speed.sh; not every machine lets ncu set them. Caches keep
# what the kernels before have left there, as in a step. In the
# foreground ncu stays in the script's process group, so that it ends with the script where
# gpu_first.sh ends that.
profiled() {
    file=$1
    n=$2
    shift 2
    rm -rf trained
    timeout --foreground -k 5 1800 "$run" "$ncu" --csv --page raw --print-units base \
        --clock-control none --cache-control none --log-file "$file" "$@" \
        sptrain train deck train.steps="$n" run.wgmma="$wgmma" >out 2>log && ! grep -q '^==ERROR==' "$file" &&
        return
    grep -q ERR_NVGPUCTRPERM "$file" out log 2>/dev/null &&
        skip "ncu may not read the GPU's counters here (ERR_NVGPUCTRPERM): run as root, or
    load the driver with NVreg_RestrictProfilingToAdminUsers=0"
    echo "FAILED: $ncu $*"
    tail -n 5 "$file" out log
    exit 1
}

launches() {
    grep -c '^"[0-9]' "$1"
}

measure() {
    ncu=$(command -v ncu || ls /usr/local/cuda*/bin/ncu 2>/dev/null | tail -n 1)
    [ -n "$ncu" ] || skip "no ncu (Nsight Compute) on the PATH or under /usr/local/cuda"
    "$run" spbench voxels --shape lidar --voxels "$voxels" --samples "$batch" \
        --out voxels.h5 >log 2>&1 || { cat log; exit 1; }
    cat >deck <<END
data : { train = ["voxels.h5"]; val = ["voxels.h5"]; voxel_size = 0.05; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = $batch; };
net : { family = "$net"; stem_kernel = 3; };
train : { warmup_steps = 0; lr = 0.01; precision = "$precision"; };
run : { device = "cuda"; eval_every = 0; checkpoint_every = 1000000; watchdog_s = 0;
        resume = "never"; dir = "trained"; };
END
    SP_TILES=formula
    export SP_TILES
    for wgmma in true false; do # true ends with 7 on a device that has none
        "$run" sptrain train deck train.steps=1 run.wgmma=$wgmma >log 2>&1
        status=$?
        [ $status = 7 ] || [ $status = 2 ] || break
    done
    [ "$status" = 7 ] && { cat log; skip "no usable CUDA device on this machine"; }
    echo "run.wgmma = $wgmma"

    # Chips name their tensor pipe differently.
    "$run" "$ncu" --query-metrics >metrics 2>&1
    for tensor in sm__pipe_tensor_cycles_active sm__pipe_tensor_op_hmma_cycles_active \
        sm__inst_executed_pipe_tensor none; do
        grep -q "^$tensor " metrics && break
    done
    all=gpu__time_duration.sum
    for unit in sm__throughput lts__throughput dram__throughput $tensor; do
        [ $unit = none ] || all=$all,$unit.avg.pct_of_peak_sustained_elapsed
    done

    profiled two 2 --metrics gpu__time_duration.sum
    profiled three 3 --metrics gpu__time_duration.sum
    skipped=$(launches two)
    count=$(($(launches three) - skipped))
    [ "$count" -gt 0 ] || { echo "FAILED: no launches in a step"; exit 1; }
    profiled "$results/profile.csv" 3 --metrics "$all" --launch-skip "$skipped" \
        --launch-count "$count"
    csv=$results/profile.csv
}

[ -n "$csv" ] || measure
awk -v json="$results/profile.jsonl" \
    -v label="\"net\":\"$net\",\"batch\":$batch,\"precision\":\"$precision\"" '
# Fields of a line of CSV into field[1 ..]; their number.
function split_line(line, n, i, c, quoted) {
    n = 1
    field[1] = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "\"") quoted = !quoted
        else if (c == "," && !quoted) field[++n] = ""
        else if (c != "\r") field[n] = field[n] c
    }
    return n
}
# The name is printed without its result, namespaces that have no name, casts, and the list
# of its arguments.
function short(name, i, c, depth) {
    sub(/^void /, "", name)
    gsub(/\(anonymous namespace\)::|<unnamed>::|\((int|bool)\)/, "", name)
    gsub(/, /, ",", name)
    for (i = 1; i <= length(name); i++) {
        c = substr(name, i, 1)
        if (c == "<") depth++
        else if (c == ">") depth--
        else if (c == "(" && depth == 0) return substr(name, 1, i - 1)
    }
    return name
}
function value(column) {
    if (!column) return 0
    gsub(/,/, "", field[column])
    return field[column] + 0
}
/^"ID",/ {
    for (n = split_line($0); n > 0; n--) {
        if (field[n] == "Kernel Name") at["name"] = n
        else if (field[n] ~ /^gpu__time_duration/) at["time"] = n
        else if (field[n] ~ /^sm__throughput/) at["sm"] = n
        else if (field[n] ~ /^sm__.*tensor/) at["tensor"] = n
        else if (field[n] ~ /^lts__throughput/) at["l2"] = n
        else if (field[n] ~ /^dram__throughput/) at["dram"] = n
    }
    next
}
/^"",/ && at["name"] { # units, behind the names
    split_line($0)
    unit = field[at["time"]]
    to_ms = unit ~ /^(s|second)/ ? 1e3 : unit ~ /^(ms|msecond)/ ? 1 : \
        unit ~ /^(us|usecond)/ ? 1e-3 : 1e-6
    next
}
/^"[0-9]/ && at["name"] && at["time"] {
    split_line($0)
    k = short(field[at["name"]])
    t = value(at["time"]) * (to_ms ? to_ms : 1e-6)
    if (!(k in ms)) order[++kernels] = k
    ms[k] += t
    calls[k]++
    total += t
    for (u in at) # means over the time
        if (u != "name" && u != "time") use[u, k] += t * value(at[u])
}
END {
    if (!total) { print "no profile in this file" > "/dev/stderr"; exit 1 }
    for (i = 2; i <= kernels; i++)
        for (j = i; j > 1 && ms[order[j]] > ms[order[j - 1]]; j--) {
            k = order[j]; order[j] = order[j - 1]; order[j - 1] = k
        }
    printf "%-52s %6s %9s %6s %6s %7s %6s %6s\n", "kernel, % of peaks", "calls", "ms",
        "share", "SM", "tensor", "L2", "DRAM"
    for (i = 1; i <= kernels; i++) {
        k = order[i]
        if (i <= 5)
            printf "%-52s %6d %9.3f %6.1f %6.1f %7s %6.1f %6.1f\n", substr(k, 1, 52),
                calls[k], ms[k], 100 * ms[k] / total, use["sm", k] / ms[k],
                (at["tensor"] ? sprintf("%.1f", use["tensor", k] / ms[k]) : "-"),
                use["l2", k] / ms[k], use["dram", k] / ms[k]
        printf "{%s,\"name\":\"profile\",\"kernel\":\"%s\",\"calls\":%d,\"ms\":%.6f,\"share\":%.6f", \
            label, k, calls[k], ms[k], ms[k] / total >json
        for (u in at)
            if (u != "name" && u != "time")
                printf ",\"%s_percent\":%.3f", u, use[u, k] / ms[k] >json
        print "}" >json
    }
    printf "%d kernels, %.3f ms one after the other\n", kernels, total
}' "$csv" >"$results/profile.txt"
status=$?
cat "$results/profile.txt"
exit $status
