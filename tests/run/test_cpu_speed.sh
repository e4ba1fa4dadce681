#!/bin/sh
# cpu_speed.sh measures and tabulates; what it measures of small work says nothing.
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED: $*"
    cat "$dir/log" "$dir/results/"*
    exit 1
}

sh "$SP_SRCDIR/tests/tools/cpu_speed.sh" --tiny "$dir/results" >"$dir/log" 2>&1 || fail "cpu_speed.sh"
cmp -s "$dir/log" "$dir/results/table.txt" || fail "the table is not what was shown"
# Every line but processor and date ends with a number.
sed 1,2d "$dir/log" | grep -v ' [0-9][0-9.]*$' && fail "no number"
grep -q '^conv3_grad_weight.* 8, % of peak' "$dir/log" || fail "conv3_grad_weight"
[ "$(wc -l <"$dir/results/ranks.jsonl" 2>/dev/null || echo 1)" = 1 ] || fail "rounds"
grep -q '"name":"imbalance","balanced":[0-9.]*,"as_dealt":[0-9.]*}' \
    "$dir/results/balance.jsonl" || fail "imbalance"
