#!/bin/sh
# A best score whose weights could not be written does not count: the next evaluation that
# can be written is the best, on disk and in the metrics, lower than the lost one though it
# is.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 2;' 'epochs = 8; warmup_steps = 5;' 'dir = "r";'

# scores FIRST LAST: prints "score step" of the best evaluation of these steps.
scores() {
    evals r | sed 's/^"step":\([0-9]*\).*"point_miou":\([^,]*\),.*/\2 \1/' |
        awk -v a="$1" -v b="$2" '$2 >= a && $2 <= b' | sort -g | tail -n 1
}

# A folder of its temporary file's name is in the way of best.h5 until the fifth evaluation.
mkdir -p r/checkpoints/best.h5.tmp
SP_TEST_FAULT=stop@0:eval:40 begin 2 base.deck
await_stopped r 0
rmdir r/checkpoints/best.h5.tmp
kill -CONT "$pid"
finishes 0 "after best.h5 could not be written"
says err 'no checkpoint of step 32 was written; the run goes on'
lost=$(scores 1 32) best=$(scores 40 64)
test "$(printf '%s\n' "$lost" "$best" | sort -g | tail -n 1)" = "$lost" ||
    fail "the scores rise: $lost, $best"
"$SHARDS" sums r/checkpoints/best.h5 >a || fail "no best.h5"
run 2 0 base.deck run.dir=want run.keep=9
yields a "best.h5 is not that of step ${best#* }" sums want "${best#* }"
says r/metrics.jsonl "\"event\":\"end\".*\"best_miou\":${best% *},"
