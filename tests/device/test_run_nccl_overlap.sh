#!/bin/sh
# A slow all-reduce hides behind the backward pass: the tests' NCCL takes longer for the
# large bucket, and a step waits for it less than a tenth of that; without overlap it waits
# for all of it.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
SP_PEER_MEMORY=0 # all sums are NCCL's here
export SP_PEER_MEMORY

scene tiny 1 14
cp tiny*.h5 twin.h5
# The two ranks have the same work; nearly all weights are in the layers that come last,
# most of the work in those that come first.
cat >d.deck <<'END_DECK'
data : { train = ["t*.h5"]; val = ["t*.h5"]; voxel_size = 0.7; };
augment : { drop = 0.0; };
batch : { size = 2; };
net : { layers = (
    { name = "c1"; op = "conv"; out = 8; kernel = 3; }, { name = "r1"; op = "relu"; },
    { name = "c2"; op = "conv"; out = 8; kernel = 5; }, { name = "r2"; op = "relu"; },
    { name = "c3"; op = "conv"; out = 100; kernel = 1; },
    { name = "c4"; op = "conv"; out = 200; kernel = 1; },
    { name = "f"; op = "conv"; out = 5; kernel = 1; bias = true; } ); };
train : { steps = 5; warmup_steps = 0; lr = 0.01; };
run : { device = "cuda"; log_every = 1; threads = 1; eval_every = 0; bucket_mb = 0.07; };
END_DECK

# least DIR KEY: the least value of the steps after the first.
least() {
    sed -n "s/.*\"event\":\"step\",\"step\":[2-9].*\"$2\":\([^,]*\),.*/\1/p" \
        "$1/metrics.jsonl" | sort -g | head -1
}

# held PREFIX: how long the slow sum held up the sums behind it: the longest of the four sums
# of a step, and the median over steps and ranks, since another program may take the processor
# from one step, in us.
held() {
    for log in "$1".*; do
        sed -n 's/^sum [0-9]*: stood \([0-9]*\) us/\1/p' "$log" |
            awk '$1 > most { most = $1 } NR % 4 == 0 { print most + 0; most = 0 }'
    done | sort -n >held
    test "$(wc -l <held)" = 10 || fail "sums of $(wc -l <held) steps in $1.*, expected 10"
    sed -n 5p held
}

# Other programs may make a step longer or shorter than the one before, or hold up a sum. They
# do not hide one where nothing overlaps, so that one try that shows it all is enough.
hides() {
    rm -rf plain beside* after*
    run 2 0 train d.deck run.dir=plain
    step=$(least plain step_s)
    ms=$(awk -v s="$step" 'BEGIN { printf "%d", 1000 * s / 10 }')
    [ "$ms" -ge 5 ] || fail "a step takes $step s: too short to hide anything"
    NCCL_DOUBLE_SLOW=40:$ms NCCL_DOUBLE_LOG=beside run 2 0 train d.deck run.dir=beside
    NCCL_DOUBLE_SLOW=40:$ms NCCL_DOUBLE_LOG=after run 2 0 train d.deck run.dir=after \
        run.overlap=false
    same_steps beside after
    exposed_s=$(least after comm_exposed_s)
    echo "step $step s, all-reduce slower by $ms ms: beside the backward pass it held up the" \
        "rest for $(held beside) us, after it for $(held after); waited $exposed_s s"
    [ "$(held beside)" -le $((100 * ms)) ] && [ "$(held after)" -ge $((900 * ms)) ] &&
        awk -v s="$exposed_s" -v ms="$ms" 'BEGIN { exit !(s >= ms / 1e3) }'
}
hides || hides || hides || hides || hides ||
    fail "not hidden beside the backward pass, or hidden behind it, or no wait is told"
