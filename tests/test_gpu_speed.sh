#!/bin/sh
# gpu_speed.sh measures and tabulates, with the programs on an emulated device; without one
# it skips.
bench=$SP_BUILDDIR/tests/spbench_hostcuda
[ -x "$bench" ] || { echo "SKIPPED: no emulator in this build"; exit 77; }
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin"
ln -s "$bench" "$dir/bin/spbench"
ln -s "$SP_BUILDDIR/tests/sptrain_hostcuda" "$dir/bin/sptrain"
ln -s "$SP_BUILDDIR/spvox" "$dir/bin/spvox"
printf '#!/bin/sh\nPATH=%s/bin:$PATH exec "$@"\n' "$dir" >"$dir/run"
chmod +x "$dir/run"
export SP_RUN="$dir/run"

fail() {
    echo "FAILED: $*"
    cat "$dir/log"
    exit 1
}

sh "$SP_SRCDIR/tests/gpu_speed.sh" --tiny "$dir/results" >"$dir/log" 2>&1 || fail "gpu_speed.sh"
cd "$dir/results" || exit 1
for row in '"name":"gather_256"' '"name":"conv3_forward".*"precision":"bf16"'; do
    grep -q "$row" ops.jsonl || fail "no $row"
done
grep -q '"name":"plan_minkunet18"' plan.jsonl || fail "plan"
grep -q '"net":"dummy","batch":2,"name":"step".*"memory_bytes":[1-9]' step.jsonl || fail "step"
[ "$(grep -c '"step_s":[0-9.e-]*,"data_wait_s":[0-9.e-]*,"comm_exposed_s":[0-9.e-]*}' \
    train.jsonl)" = 2 ] || fail "train"
# network batch precision and eight numbers, of which step, floor and train are times
[ "$(awk '$1 == "dummy" && NF == 11 && $4 > 0 && $6 > 0 && $8 > 0 && $11 > 0' steps.txt |
    wc -l)" = 2 ] || fail "table"

HC_DEVICES=0 sh "$SP_SRCDIR/tests/gpu_speed.sh" --tiny "$dir/none" >"$dir/log" 2>&1
[ $? = 77 ] || fail "no device: not skipped"
