#!/bin/sh
# cpu_speed.sh [--tiny] [--small FILE] [--large FILE] [RESULTS]: how fast the CPU backend is
# on this machine, beside what the machine does at best. From the build folder, or with
# SP_BUILDDIR. FILE: shards of one sample that are measured, small for minkunet18, large
# for plans and both networks; else lidar scans that are made here. RESULTS
# (cpu-speed-results) gets JSON lines and table.txt, which is shown.
#
# Ranks are measured in rounds, since other programs disturb: in each a rank alone on a core,
# two runs of one rank at once that know nothing of each other (what the machine gives
# to two), and two ranks. Each rank has a sample of its own in every step: a copy of FILE
# under another name, since a path that is given twice counts once. cpu_speed.awk fails
# where samples, voxels or operations of a step are not those; a round in which two ranks
# are more than 2.05 times as fast as one is measured again. --tiny: seconds, to see that
# all of it works; nobody judges its rates.
build=$(cd "${SP_BUILDDIR:-.}" && pwd) || exit 1
tiny=
small=
large=
file_of() { echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"; }
while :; do
    case ${1-} in
    --tiny) tiny=yes ;;
    --small) small=$(file_of "$2") && shift ;;
    --large) large=$(file_of "$2") && shift ;;
    -*)
        echo "usage: cpu_speed.sh [--tiny] [--small FILE] [--large FILE] [RESULTS]" >&2
        exit 2
        ;;
    *) break ;;
    esac
    shift
done
results=${1:-$PWD/cpu-speed-results}
mkdir -p "$results" && results=$(cd "$results" && pwd) || exit 1
measure=$(cd "$(dirname "$0")" && pwd) || exit 1
mpiexec=${MPIEXEC:-mpirun}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
rm -f "$results"/*.jsonl

sizes="14023 94444"
voxels=100000
channels=32,64,96,128,256
repeats=9
rounds=5
steps=12
steps_large=4
quick=
most=2.05 # two ranks over one
many="32 48 64" # metres
each=22
width=1.0
if [ -n "$tiny" ]; then
    sizes="150 300"
    voxels=300
    channels=8
    repeats=2
    rounds=1
    steps=6 # six sixths of a sample are one only where they are divided once
    quick=--quick
    most=1e9
    many="6 8 10"
    each=10
    width=0.125
fi

die() {
    echo "FAILED  $*" >&2
    tail -n 5 log >&2
    exit 1
}

# measured NAME COMMAND...: its JSON lines make NAME.jsonl
measured() {
    name=$1
    shift
    "$@" >"$results/$name.jsonl" 2>log || die "$@"
}

# number KEY FILE-OF-LINES
number() { sed -n "s/.*\"$1\": *\([-+.0-9e]*\).*/\1/p" "$2"; }

for n in $sizes; do
    "$build/spbench" voxels --out "lidar-$n.h5" --shape lidar --voxels "$n" >log 2>&1 ||
        die spbench voxels
done
[ -n "$small" ] || small=$work/lidar-${sizes% *}.h5
[ -n "$large" ] || large=$work/lidar-${sizes#* }.h5
for extent in $many; do
    "$build/spvox" scene --out "many-$extent" --samples $each --extent "$extent" --seed 7 \
        --voxel-size 0.8 >log 2>&1 || die spvox scene
done
edge_of() {
    "$build/spvox" info "$1" 2>log | sed -n 's/.*voxel_size[ =:]*\([0-9.]*\).*/\1/p' |
        head -n 1
}

# deck FILE NET KERNEL_DOWN: NET.deck; no augmentation, so that every step is the same work
deck() {
    edge=$(edge_of "$1")
    [ -n "$edge" ] || die "voxel size of $1"
    cat >"$2.deck" <<END_OF_DECK
data : { train = ["$1"]; val = []; voxel_size = $edge; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0;
            jitter = 0.0; };
batch : { size = 1; };
net : { family = "$2"; stem_kernel = 3; width = $width; kernel_down = $3; };
train : { steps = $steps; warmup_steps = 0; lr = 0.01; };
run : { device = "cpu"; threads = 1; };
END_OF_DECK
}
# voxels_of FILE: which has one sample, the work of every step
voxels_of() {
    n=$("$build/spvox" info "$1" 2>log | sed -n 's/.*samples 1  voxels \([0-9]*\).*/\1/p')
    [ -n "$n" ] || die "$1: not one sample"
    echo "$n"
}
cp "$small" small-a.h5 && cp "$small" small-b.h5 && cp "$large" large-a.h5 &&
    cp "$large" large-b.h5 || exit 1
n_small=$(voxels_of "$small") && n_large=$(voxels_of "$large") || exit 1
deck "$large" minkunet18 2
mv minkunet18.deck minkunet18-large.deck
deck "$small" minkunet18 2
deck "$large" dummy 3

measured ops "$build/spbench" ops --json --voxels $voxels --channels $channels --repeats $repeats
measured step "$build/spbench" step --json --repeats $repeats minkunet18.deck
measured dummy "$build/spbench" step --json --repeats $repeats dummy.deck
measured large "$build/spbench" step --json --repeats 2 minkunet18-large.deck
measured plan "$build/spbench" plan --json --shard "$large" --repeats $repeats

# ---- ranks ----
# cores 0 and 1 of those that this may run on
cores=$(taskset -cp $$ | sed 's/.*: *//' | tr ',' '\n' | awk -F- '
    { for (i = $1; i <= (NF > 1 ? $2 : $1); i++) print i }' | head -n 2 | paste -s -d ' ')
first=${cores% *}
second=${cores#* }

# steps_on CORES RANKS RUN: of this deck steps of as many samples as ranks, each rank its
# own; RUN.line is their line of ranks.jsonl
steps_on() {
    # shellcheck disable=SC2086
    taskset -c "$1" "$mpiexec" -n "$2" "$build/spbench" step --json $quick --repeats "$n_steps" \
        "$deck" batch.size="$2" data.train="[\"$file-a.h5\", \"$file-b.h5\"]" \
        >"$3.out" 2>"$3.log" || { cat "$3.log" >&2; return 1; }
    sed -n "s/^{\(\"name\":\"step\"\)/{\"net\":\"$net\",\"file\":\"$file\",\
\"intended_voxels\":$voxels_each,\"round\":$round,\"run\":\"$3\",\1/p" "$3.out" >"$3.line"
}
# measure_round: its four lines in round.jsonl
measure_round() {
    steps_on "$first" 1 one || die "spbench step, a rank alone"
    steps_on "$first" 1 left &
    other=$!
    steps_on "$second" 1 right || die "spbench step, two programs"
    wait $other || die "spbench step, two programs"
    steps_on "$first,$second" 2 two || die "spbench step, two ranks"
    cat one.line left.line right.line two.line >round.jsonl
}
# measure_ranks DECK NET FILE VOXELS STEPS: alternating rounds
measure_ranks() {
    deck=$1 net=$2 file=$3 voxels_each=$4 n_steps=$5 round=1 again=0
    while [ $round -le $rounds ]; do
        measure_round
        awk -v most=$most -f "$measure/cpu_speed.awk" round.jsonl >log
        case $? in
        0) cat round.jsonl >>"$results/ranks.jsonl" && round=$((round + 1)) ;;
        8) again=$((again + 1)) && [ $again -le $rounds ] || { cat log >&2; exit 8; } ;;
        *) die "the work of a step is not the intended one" ;;
        esac
    done
}
if [ "$first" != "$second" ]; then
    measure_ranks minkunet18.deck minkunet18 small "$n_small" $steps
    measure_ranks minkunet18-large.deck minkunet18 large "$n_large" $steps_large
    measure_ranks dummy.deck dummy large "$n_large" $((2 * steps))
fi

# ---- balance ----
full_steps=$((each * $(echo "$many" | wc -w) / 8))
# mean over the steps of 8 samples: an epoch's last has fewer. A step's samples are those
# so far less those before it.
imbalance() {
    grep '"event":"step"' "$1/metrics.jsonl" | sed '$d' >full
    number samples full | awk -v n=$full_steps '
        $1 != 8 * NR { bad = 1 }
        END { exit bad || NR != n }' || die "$1: not steps of 8 samples"
    number imbalance full | awk '{ s += $1 } END { printf "%.4g", NR ? s / NR : 0 }'
}
edge=$(edge_of "$(ls many-*-0*.h5 | head -n 1)")
cat >balance.deck <<END_OF_DECK
data : { train = ["many-*.h5"]; val = []; voxel_size = $edge; };
batch : { size = 8; };
net : { family = "minkunet18"; width = 0.125; stem_kernel = 3; };
train : { epochs = 1; };
run : { device = "cpu"; threads = 1; log_every = 1; eval_every = 0; };
END_OF_DECK
for is in true false; do
    "$mpiexec" -n 2 "$build/sptrain" balance.deck batch.balance=$is run.dir="balance-$is" \
        >log 2>&1 || die "sptrain, balance"
done
balanced=$(imbalance balance-true) && dealt=$(imbalance balance-false) || exit 1
printf '{"name":"imbalance","balanced":%s,"as_dealt":%s,"steps":%d,"samples":8}\n' \
    "$balanced" "$dealt" $full_steps >"$results/balance.jsonl"

# ---- the table ----
row() { printf '%-58s %s\n' "$1" "$2"; }
of_row() { # of_row FILE NAME KEY [FACTOR]
    grep "\"name\":\"$2\"" "$results/$1.jsonl" >rows
    number "$3" rows | awk -v f="${4:-1}" '
        { printf "%s%.*g", (NR > 1 ? " " : ""), ($1 * f > 9999 ? 9 : 4), f * $1 }'
}
{
    grep -m 1 '^model name' /proc/cpuinfo | sed 's/.*: //'
    date -u +%Y-%m-%d
    for op in forward grad_input grad_weight; do
        row "conv3_$op, $voxels voxels, channels $channels, % of peak" \
            "$(of_row ops conv3_$op ratio 100)"
    done
    row "minkunet18, $(of_row step step n) voxels, $(of_row step step gflop) GFLOP, ms a step" \
        "$(of_row step step ms)"
    row "    % of the core's multiply-add peak" "$(of_row step step ratio 100)"
    row "    most memory, MiB" "$(of_row step step memory_bytes 9.5367e-7)"
    row "    on $(of_row large step n) voxels, most memory, MiB" \
        "$(of_row large step memory_bytes 9.5367e-7)"
    row "dummy, $(of_row dummy step n) voxels, $(of_row dummy step gflop) GFLOP, ms a step" \
        "$(of_row dummy step ms)"
    for net in minkunet18 dummy; do
        row "plan of $net on the same, ms" "$(of_row plan plan_$net ms)"
    done
    row "imbalance of 2 ranks, batch 8, balanced; as dealt" \
        "$(of_row balance imbalance balanced); $(of_row balance imbalance as_dealt)"
    [ ! -e "$results/ranks.jsonl" ] ||
        awk -v most=$most -f "$measure/cpu_speed.awk" "$results/ranks.jsonl"
} | tee "$results/table.txt"
