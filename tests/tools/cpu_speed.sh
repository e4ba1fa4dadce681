#!/bin/sh
# cpu_speed.sh [--tiny] [--small FILE] [--large FILE] [RESULTS]: how fast the CPU backend is
# on this machine, beside what the machine does at best. From the build folder, or with
# SP_BUILDDIR. FILE: shards whose first sample is measured, small for minkunet18, large for
# plans and the dummy network; else lidar scans that are made here. RESULTS
# (cpu-speed-results) gets JSON lines and table.txt, which is shown.
#
# Ranks are measured in rounds, since other programs disturb: in each a rank alone on a core,
# two runs of one rank at once that know nothing of each other (what the machine gives
# to two), and two ranks. --tiny: seconds, to see that all of it works.
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
many="32 48 64" # metres
each=22
width=1.0
if [ -n "$tiny" ]; then
    sizes="150 300"
    voxels=300
    channels=8
    repeats=2
    rounds=1
    steps=4
    many="6 8"
    each=10
    width=0.125
fi

die() {
    echo "FAILED  $*"
    tail -n 5 log
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
median() {
    sort -g | awk '{ v[NR] = $1 }
        END { printf "%.6g", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

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

# deck FILE NET: no augmentation, so that every step is the same work
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
run : { device = "cpu"; threads = 1; log_every = 1; eval_every = 0;
        checkpoint_every = 1000000; }; # none meanwhile: its writer takes a core
END_OF_DECK
}
deck "$large" minkunet18 2
mv minkunet18.deck large.deck
deck "$small" minkunet18 2
deck "$large" dummy 3

measured ops "$build/spbench" ops --json --voxels $voxels --channels $channels --repeats $repeats
measured step "$build/spbench" step --json --repeats $repeats minkunet18.deck
measured dummy "$build/spbench" step --json --repeats $repeats dummy.deck
measured large "$build/spbench" step --json --repeats 2 large.deck
measured plan "$build/spbench" plan --json --shard "$large" --repeats $repeats

# ---- ranks ----
# cores 0 and 1 of those that this may run on
cores=$(taskset -cp $$ | sed 's/.*: *//' | tr ',' '\n' | awk -F- '
    { for (i = $1; i <= (NF > 1 ? $2 : $1); i++) print i }' | head -n 2 | paste -s -d ' ')
first=${cores% *}
second=${cores#* }

# train DIR CORES RANKS [KEY=VALUE ...]: as many samples a step as ranks
train() {
    dir=$1
    on=$2
    ranks=$3
    shift 3
    taskset -c "$on" mpirun -np "$ranks" "$build/sptrain" minkunet18.deck run.dir="$dir" \
        run.resume=never batch.size="$ranks" data.train="[\"$small\", \"$small\"]" "$@" \
        >"$dir.log" 2>&1 || { cp "$dir.log" log; die "sptrain, $ranks ranks"; }
}
# step_ms DIR: of a step, without the first two
step_ms() {
    number step_s "$1/metrics.jsonl" | sed 1,2d | awk '{ print 1e3 * $1 }' | median
}
round=1
while [ "$first" != "$second" ] && [ $round -le $rounds ]; do
    train alone "$first" 1
    train left "$first" 1 &
    train right "$second" 1
    wait
    train both "$first,$second" 2
    set -- "$(step_ms alone)" "$(step_ms left)" "$(step_ms right)" "$(step_ms both)"
    echo "$*" | awk '{ printf "{\"name\":\"ranks\",\"one_ms\":%s,\"two_apart_ms\":[%s,%s]," \
        "\"two_ranks_ms\":%s,\"rate\":%.4g,\"machine_rate\":%.4g}\n",
        $1, $2, $3, $4, 2 * $1 / $4, $1 / $2 + $1 / $3 }' >>"$results/ranks.jsonl"
    round=$((round + 1))
done

# ---- balance ----
# mean over the steps of 8 samples: an epoch's last has fewer
imbalance() {
    grep '"event":"step"' "$1/metrics.jsonl" | sed '$d' >full
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
    mpirun -np 2 "$build/sptrain" balance.deck batch.balance=$is run.dir="balance-$is" \
        >log 2>&1 || die "sptrain, balance"
done
printf '{"name":"imbalance","balanced":%s,"as_dealt":%s}\n' "$(imbalance balance-true)" \
    "$(imbalance balance-false)" >"$results/balance.jsonl"

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
    row "minkunet18, $(of_row step step n) voxels, ms a step" "$(of_row step step ms)"
    row "    % of the core's multiply-add peak" "$(of_row step step ratio 100)"
    row "    most memory, MiB" "$(of_row step step memory_bytes 9.5367e-7)"
    row "    on $(of_row large step n) voxels, most memory, MiB" \
        "$(of_row large step memory_bytes 9.5367e-7)"
    row "dummy, $(of_row dummy step n) voxels, ms a step" "$(of_row dummy step ms)"
    for net in minkunet18 dummy; do
        row "plan of $net on the same, ms" "$(of_row plan plan_$net ms)"
    done
    if [ -e "$results/ranks.jsonl" ]; then
        row "2 ranks on 2 cores, times the rate of 1, each round" "$(of_row ranks ranks rate)"
        row "    what two runs apart from each other reach" \
            "$(of_row ranks ranks machine_rate)"
    fi
    row "imbalance of 2 ranks, batch 8, balanced; as dealt" \
        "$(of_row balance imbalance balanced); $(of_row balance imbalance as_dealt)"
} | tee "$results/table.txt"
