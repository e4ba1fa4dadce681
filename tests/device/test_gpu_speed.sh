#!/bin/sh
# gpu_speed.sh measures and tabulates, with the programs on an emulated device; without one
# it skips.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
stand_in
ln -s "$SPTRAIN" bin/sptrain
ln -s "$SP_BUILDDIR/tests/device/spbench_hostcuda" bin/spbench
ln -s "$SP_BUILDDIR/spvox" bin/spvox
speed() {
    sh "$SP_SRCDIR/tests/measure/gpu_speed.sh" --tiny "$@" >"$dir/out" 2>&1
}

speed --wgmma results || fail "gpu_speed.sh"
cd results || exit 1
for row in '"name":"gather_256"' '"name":"conv3_forward".*"precision":"bf16"' \
    '"voxels":"random","name":"down2_rebuilt"'; do
    says ops.jsonl "$row"
done
grep -q '"voxels":"lidar","name":"plan_minkunet18"' plan.jsonl || fail "plan"
grep -q '"net":"dummy-5","voxels":"lidar","batch":2,"name":"step".*"memory_bytes":[1-9]' \
    step.jsonl || fail "step"
[ "$(grep -c 'dummy-5 lidar 2 bf16, .* ms$' ../out)" = 4 ] || fail "switches"
grep -q '"layer"' step.jsonl && fail "layers among the steps"
grep -q '"voxels":"surface","batch":2,"name":"conv_grad_weight","layer":"conv2"' \
    layers.jsonl || fail "layers"
[ "$(grep -c '"step_s":[0-9.e-]*,"data_wait_s":[0-9.e-]*,"comm_exposed_s":[0-9.e-]*}' \
    train.jsonl)" = 3 ] || fail "train"
# A row has network, voxels, batch, precision and eleven numbers: times, floor, idle,
# memory; there is no peer.
[ "$(awk '$1 == "dummy-5" && NF == 15 && $5 > 0 && $7 > 0 && $8 > 0 && $9 < 100 &&
    $10 > 0 && $12 > 0 && $13 == "-"' tables.txt | wc -l)" = 3 ] || fail "table of steps"
# The operations of a step sum to about the part of the step that is not idle.
awk '/^network/ { part = 1 } /^operations/ { part = 2 } /^single/ { part = 3 }
    $1 == "dummy-5" && part == 1 { busy[$2 $3] = $5 * (100 - $9) / 100 }
    $1 == "dummy-5" && part == 2 {
        gsub(/[()]/, " "); n++; sum = $5 + $7 + $9 + $11 + $13 + $15
        if (sum < 0.98 * busy[$2 $3] || sum > 1.02 * busy[$2 $3]) bad = 1 }
    END { exit bad || n != 3 }' tables.txt || fail "table of operations"
grep -q '^down2_rebuilt *surface .* bf16 ' tables.txt || fail "table of single operations"
grep -q '^conv3_forward *surface .* wgmma ' tables.txt || fail "table without wgmma"
grep -q '^ *plan_dummy *lidar .* voxels' tables.txt || fail "table of plans"

sed '1,/where most is lost/d' tables.txt | grep -q '^[0-9.]* dummy-5 .*conv' ||
    fail "table of what is lost"

# ---- one part again: of networks that are not among them nothing is added; a peer's rows
# stand beside sptrain's ----
wc -l <step.jsonl >before
cat >peer.jsonl <<'END'
{"voxels":"lidar","name": "step", "net":"dummy-5", "batch": 2, "n": 300, "ms": 1000000.0, "precision": "fp16", "run": "peer", "memory_bytes": 1048576}
END
speed --only ranks,steps --nets none "$dir/results" || fail "gpu_speed.sh --only: $(cat ../out)"
wc -l <step.jsonl | diff before - || fail "--nets"
[ "$(awk '$1 == "dummy-5" && $3 == 2 && $4 == "bf16" && NF == 15 { print $13, $15;
    if ($14 < 0.99 * 1e6 / $5 || $14 > 1.01 * 1e6 / $5) print "off" }' tables.txt)" = \
    "1000000.000 1" ] || fail "table with a peer"

HC_DEVICES=0 speed "$dir/none"
[ $? = 77 ] || fail "no device: not skipped"
