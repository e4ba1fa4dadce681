#!/bin/sh
# gpu_speed.sh [--tiny] [--wgmma] [--only PARTS] [--nets NETS] [--shard FILE] [RESULTS]:
# how fast the programs are on the GPU that is there, beside what it does at best and
# beside spconv.
# Builds nothing: it runs in a bundle (`make bundle`), or with any other `run` that puts
# the programs on the PATH (SP_RUN).
#
# PARTS, of ops,plan,steps,switches,ranks,peer (all):
#     ops    ceilings (products, stream, gathers, launches); every operation by channels on
#            a lidar's voxels; those of 256 channels on 50,000 random and surface voxels
#     plan   coordinate pyramid and kernel maps for several networks
#     steps  whole steps by network, batch, precision and voxels: parts, memory, every
#            operation of every layer with its floor, the share of the step in which the
#            device idles; and training itself (waiting for data)
#     switches   a step of minkunet34 in bf16 as it is, without early launches of kernels
#            (SP_EARLY_LAUNCH=0) and with the tiles of the formula (SP_TILES=formula)
#     ranks  training on all GPUs: what of the all-reduce is not hidden
#     peer   the same steps on spconv, where python3 has it with torch: peer_spconv.py
# NETS, as minkunet34-3,dummy-5, takes those networks only (with the kernel of their stem),
# and adds to the results that are there: a GPU may be had for minutes at a time.
# The voxels are made here, or of the first sample of FILE, a shard with 4 features.
# --wgmma: the operations of 256 channels by wgmma too (run.wgmma), as one more precision.
# RESULTS (tests/results) gets JSON lines, each with what was run, and tables.txt, which is
# shown. --tiny: a minute on an emulator instead. 77 where there is no GPU; 1 where
# something failed, with its last words.
measure=$(cd "$(dirname "$0")" && pwd) || exit 1
here=$(dirname "$measure") # the bundle
run=${SP_RUN:-$here/run}
tiny=
wgmma=
shard=
parts=ops,plan,steps,switches,ranks,peer
nets=
while :; do
    case ${1-} in
    --tiny) tiny=yes ;;
    --wgmma) wgmma=--wgmma ;;
    --only)
        parts=$2
        shift
        ;;
    --nets)
        nets=$2
        shift
        ;;
    --shard)
        shard=$(cd "$(dirname "$2")" && pwd)/$(basename "$2") || exit 1
        shift
        ;;
    -*)
        echo "usage: gpu_speed.sh [--tiny] [--wgmma] [--only PARTS] [--nets NETS] [--shard FILE]" \
            "[RESULTS]" >&2
        exit 2
        ;;
    *) break ;;
    esac
    shift
done
results=${1:-$measure/results}
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

precisions="fp32 tf32 bf16"
quick=
channels=16,32,64,96,128,256
most=256
lidar=94444
surface=50000
samples=8
steps=20
warm=5
repeats=15
width=1.0
# network with the kernel of its stem, voxels, batches, precisions
combinations="
minkunet34-3 lidar   1,2,8 fp32,tf32,bf16
minkunet18-3 lidar   1,2,8 fp32,tf32,bf16
minkunet34-3 surface 2     fp32,tf32,bf16
minkunet18-3 surface 2     fp32,tf32,bf16
minkunet14-3 lidar   2     bf16
minkunet34-5 lidar   2     bf16
dummy-5      lidar   1,2,8 fp32,bf16"
switched="minkunet34-3 lidar 2 bf16"
peer_options="--warm 5 --repeats 15"
wgmma_key=
if [ -n "$tiny" ]; then
    precisions=bf16
    quick=--quick
    channels=8
    most=8
    lidar=150
    surface=100
    samples=2
    steps=3
    warm=1
    repeats=2
    width=0.25
    combinations="dummy-5 lidar 1,2 bf16   dummy-5 surface 2 fp32"
    switched="dummy-5 lidar 2 bf16"
    wgmma_key="wgmma = false;" # whose trial takes most of such a step's time
    peer_options="--warm 1 --repeats 2"
fi

# wanted PART: is it to be run? What an earlier run left of it goes.
wanted() {
    case ,$parts, in *",$1,"*) ;; *) return 1 ;; esac
    shift
    echo "$(date +%T) $1 ..." >&2
    [ -n "$nets" ] || for file; do rm -f "$results/$file.jsonl"; done
}

# measured FILE LABEL COMMAND...: its JSON lines, each with the label, are added to FILE;
# those of layers to layers.
measured() {
    file=$1
    label=$2
    shift 2
    if timeout 900 "$run" "$@" >out 2>log; then
        sed "s/^{/{$label,/" out >rows
        grep -v '"layer":' rows >>"$results/$file.jsonl"
        if grep '"layer":' rows >layers; then cat layers >>"$results/layers.jsonl"; fi
    else
        failed=$((failed + 1))
        echo "FAILED  $*"
        tail -n 5 log
        return 1
    fi
}

# One operation tells whether there is a device; status 7 says that there is none.
"$run" spbench plan --device cuda --json --quick --voxels 100 --repeats 1 >out 2>log
if [ $? = 7 ]; then
    echo "SKIPPED: no usable CUDA device on this machine"
    sed 's/^/    /' log
    exit 77
fi
nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,clocks.sm,power.limit \
    --format=csv,noheader >"$results/device" 2>/dev/null && cat "$results/device"

# ---- voxels: lidar.h5, surface.h5 ----
for shape in lidar surface; do
    eval n=\$$shape
    "$run" spbench voxels --shape $shape --voxels "$n" --samples $samples \
        --out "$work/$shape.h5" >log 2>&1 || { cat log; exit 1; }
done
[ -z "$shard" ] || ln -sf "$shard" lidar.h5
edge=$("$run" spvox info "$work/lidar.h5" 2>/dev/null |
    sed -n 's/.*voxel_size[ =:]*\([0-9.]*\).*/\1/p' | head -n 1)
[ -n "$edge" ] || { echo "spvox info does not tell the voxel size of $shard"; exit 1; }

# ---- ceilings, operations, plans ----
if wanted ops ops; then
    for p in $precisions; do
        measured ops '"voxels":"lidar"' spbench ops --device cuda --precision "$p" --json \
            $quick --channels $channels --shard "$work/lidar.h5" --repeats $repeats
        for shape in random surface; do
            measured ops "\"voxels\":\"$shape\"" spbench ops --device cuda \
                --precision "$p" --json $quick --channels $most --shape $shape \
                --voxels $surface --repeats $repeats
        done
    done
    for shape in ${wgmma:+random surface}; do
        measured ops "\"voxels\":\"$shape\"" spbench ops --device cuda --precision bf16 \
            $wgmma --json $quick --channels $most --shape $shape --voxels $surface \
            --repeats $repeats
    done
fi
if wanted plan plan; then
    for shape in lidar surface; do
        measured plan "\"voxels\":\"$shape\"" spbench plan --device cuda --json $quick \
            --shard "$work/$shape.h5" --repeats $repeats
    done
fi

# ---- steps ----
# deck NETWORK-STEM VOXELS BATCH PRECISION
deck() {
    cat >deck <<END_OF_DECK
data : { train = ["$work/$2.h5"]; val = ["$work/$2.h5"];
         voxel_size = $([ "$2" = lidar ] && echo "$edge" || echo 0.05); };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = $3; };
net : { family = "${1%-*}"; stem_kernel = ${1#*-}; width = $width; };
train : { steps = $((warm + steps)); warmup_steps = 0; lr = 0.01; precision = "$4"; };
run : { device = "cuda"; log_every = 1; eval_every = 0; checkpoint_every = 1000000;
        dir = "trained"; $wgmma_key };
END_OF_DECK
}

# value KEY: of the step lines of the training, its median after the warm-up
value() {
    sed -n "s/.*\"event\":\"step\".*\"$1\":\([-+.0-9e]*\).*/\1/p" trained/metrics.jsonl |
        tail -n +$((warm + 1)) | sort -g | awk '{ v[NR] = $1 }
            END { if (NR) printf "%.9g", v[int((NR + 1) / 2)]; else printf "null" }'
}

# train FILE RANKS LABEL PRECISION [LAUNCHER...]
train() {
    file=$1
    ranks=$2
    label=$3
    precision=$4
    shift 4
    rm -rf trained
    if timeout 900 "$run" "$@" sptrain train deck >log 2>&1; then
        printf '{%s,"run":"train","ranks":%d,"precision":"%s","step_s":%s,%s:%s,%s:%s}\n' \
            "$label" "$ranks" "$precision" "$(value step_s)" \
            '"data_wait_s"' "$(value data_wait_s)" \
            '"comm_exposed_s"' "$(value comm_exposed_s)" >>"$results/$file.jsonl"
    else
        failed=$((failed + 1))
        echo "FAILED  sptrain train, $label, $precision, $ranks ranks"
        tail -n 5 log
    fi
}

# rows FUNCTION: calls it with NETWORK VOXELS BATCHES PRECISIONS of each row wanted.
rows() {
    function=$1
    set -- $combinations
    while [ $# -ge 4 ]; do
        case ,${nets:-$1}, in *",$1,"*) $function "$1" "$2" "$3" "$4" ;; esac
        shift 4
    done
}

# cases: of a row; calls $one with NETWORK VOXELS BATCH PRECISION.
cases() {
    for batch in $(echo "$3" | tr , ' '); do
        for precision in $(echo "$4" | tr , ' '); do
            $one "$1" "$2" "$batch" "$precision"
        done
    done
}

step() {
    deck "$@"
    label="\"net\":\"$1\",\"voxels\":\"$2\",\"batch\":$3"
    measured step "$label" spbench step --layers --json $quick --repeats $repeats deck
    train train 1 "$label" "$4"
}
if wanted steps step train layers; then
    one=step
    rows cases
fi

# The program as it is comes first and last, since the device's clock drifts.
if wanted switches switches; then
    deck $switched
    for switch in as_is= SP_EARLY_LAUNCH=0 SP_TILES=formula as_is=; do
        measured switches "\"switch\":\"$switch\"" env "$switch" spbench step --json \
            $quick --repeats $repeats deck
    done
    sed -n 's/^{"switch":"\([^"]*\)".*"name":"step".*"ms":\([0-9.e-]*\).*/\1 \2/p' \
        "$results/switches.jsonl" | awk -v of="$switched" '
            { printf "step of %s, %-17s %10.3f ms\n", of, $1, $2 }'
fi

# Every GPU has as many samples as the batch says.
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
on_all() {
    deck "$@"
    sed -i 's/^batch : {/& per = "rank";/' deck
    train ranks "$gpus" "\"net\":\"$1\",\"voxels\":\"$2\",\"batch\":$3" "$4" \
        mpirun -n "$gpus"
}
if [ "$gpus" -gt 1 ] && wanted ranks ranks sums; then
    one=on_all
    rows cases
    echo 'net : { family = "dummy"; };' >sums.deck
    measured sums '"run":"sums"' mpirun -n "$gpus" spbench reduce --device cuda --json \
        sums.deck
    sed -n 's/.*"name":"\(sum_[a-z]*\)","n":\([0-9]*\),.*"ms":\([0-9.e-]*\),.*/\1 \2 \3/p' \
        "$results/sums.jsonl" | awk '{ printf "%s of %d doubles: %.1f us\n", $1, $2, 1000 * $3 }'
fi

# ---- the peer; its fp16 stands beside bf16 ----
# peer LABELS OPTION...: its JSON lines, edited by sed, are added to the results.
peer() {
    labels=$1
    shift
    python3 "$measure/peer_spconv.py" "$@" $peer_options >out 2>log || {
        failed=$((failed + 1))
        echo "FAILED  peer_spconv.py $*"
        tail -n 3 log
    }
    grep '^{' out | sed "$labels" >>"$results/peer.jsonl"
}

on_peer() {
    case $1 in minkunet*) ;; *) return ;; esac
    peer "s/^{/{\"voxels\":\"$2\",/; s/\"net\": *\"[^\"]*\"/\"net\":\"$1\"/" --raw "$2.raw" \
        --net "${1%-*}" --stem "${1#*-}" --batch "$3" \
        --precision "$(echo "$4" | sed s/bf16/fp16/)"
}
if wanted peer peer; then
    for shape in lidar surface random; do
        [ -e $shape.h5 ] || "$run" spbench voxels --shape $shape --voxels $surface \
            --out $shape.h5 >log 2>&1 || cat log
        "$run" spbench voxels --shard $shape.h5 --out $shape.raw >log 2>&1 || cat log
    done
    python3 "$measure/peer_spconv.py" --raw random.raw --net "" >out 2>&1
    status=$?
    if [ $status = 77 ] || [ $status = 127 ]; then
        echo "no peer: $(cat out)"
    else
        rows on_peer
        for shape in random surface; do
            peer "s/^{/{\"voxels\":\"$shape\",/" --raw $shape.raw --net "" --channels $most
        done
    fi
fi

cd "$results" || exit 1
cat ops.jsonl plan.jsonl step.jsonl layers.jsonl train.jsonl ranks.jsonl peer.jsonl \
    2>/dev/null | awk -v worst="$work/worst" -f "$measure/gpu_speed.awk" | tee tables.txt
echo "results in $results; $failed failed"
[ $failed = 0 ]
