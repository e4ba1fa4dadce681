#!/bin/sh
# A device of 132 multiprocessors gets other tiles by the formula than one that has a single
# one, narrow and low ones for few rows, and the same bits.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
scene s 2 7
cat >d.deck <<'DECK'
data : { train = ["s-*.h5"]; val = []; voxel_size = 0.7; };
batch : { size = 2; };
net : { family = "dummy"; width = 4.0; };
train : { steps = 2; warmup_steps = 0; lr = 0.01; precision = "bf16"; };
run : { device = "cuda"; log_every = 1; threads = 1; eval_every = 0; };
DECK
for sms in 1 132; do
    HC_SMS=$sms HC_COUNT=1 SP_TILES=formula run 1 0 train d.deck run.dir="r$sms" run.wgmma=false
    grep 'blocks of all launches' err >"blocks$sms" || fail "no blocks are counted"
    sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "r$sms/metrics.jsonl" >"loss$sms"
done
cmp -s blocks1 blocks132 && fail "the same tiles: $(cat blocks1)"
[ "$(wc -l <loss1)" = 2 ] && cmp loss1 loss132 || fail "losses differ: $(cat loss1 loss132)"
for array in 1 132; do
    "$SHARDS" sums "r$array/checkpoints/step-000000002.h5" >"sums$array" || fail "sums"
done
cmp sums1 sums132 || fail "weights differ"
