#!/bin/sh
# TensorBoard, pictures and a report at each evaluation change no bit of a training and cost
# little of its time. SP_PAIRS pairs of runs (1), of which one does without them. With
# SP_TIMED (make check-report-cost, on a machine that does nothing else) runs are longer,
# and the test fails where an evaluation a minute would make the training longer by more
# than 0.5 % with 95 % certainty (the lower end of the interval of the median). The
# processor time, which other load of the machine hardly disturbs, stands beside it.
. "$SP_SRCDIR/tests/fixtures/program.sh"
n_pairs=${SP_PAIRS-1}
epochs=2 extent=12
test -z "$SP_TIMED" || epochs=20 extent=40
for set in train val; do
    spvox scene --out $set --samples 8 --extent $extent --voxel-size 0.25 --seed ${#set}
done
deck 'family = "dummy";' \
    'train = ["train*.h5"]; val = ["val*.h5"]; voxel_size = 0.25;' 'size = 4;' \
    "epochs = $epochs; warmup_steps = 2;" 'log_every = 1; dir = "r";'
last=$((2 * epochs))

# children: prints the processor time of this shell's children so far.
children() {
    times >spent
    tail -n 1 spent | tr 'ms' '  ' | awk '{ print 60 * $1 + $2 + 60 * $3 + $4 }'
}
# timed NAME OVERRIDES...: adds the times of a run to NAME.wall and NAME.cpu.
timed() {
    name=$1
    shift
    rm -rf r
    children >before
    run 1 0 base.deck "$@"
    children >after
    paste after before | awk '{ print $1 - $2 }' >>"$name.cpu"
    sed -n 's/.*"event":"end".*"train_s":\([^,]*\),"eval_s":\([^,]*\),.*/\1 \2/p' \
        r/metrics.jsonl | awk '{ print $1 + $2 }' >>"$name.wall"
    sums r $last >"$name.sums"
    steps r >"$name.steps"
}
looking="run.tensorboard=true run.pictures=true run.report_every=1"
pair=0
while test $pair -lt "$n_pairs"; do
    test $((pair % 2)) = 1 || timed without
    # shellcheck disable=SC2086
    timed with $looking
    sed -n 's/.*"pictures_s":\([^,]*\),"children_cpu_s":\([^,]*\),.*/\1 \2/p' \
        r/metrics.jsonl >>parts
    test -e r/report.html && test -e r/tensorboard || fail "no report"
    test $((pair % 2)) = 0 || timed without
    same without.sums with.sums "other weights with a report"
    same without.steps with.steps "other steps with a report"
    pair=$((pair + 1))
done
test "$(wc -l <parts)" = "$n_pairs" || fail "no pictures_s in the end event"

# of_evaluation FILE FILE: the interval of the seconds that an evaluation takes longer.
of_evaluation() {
    paste "$1" "$2" | awk -v n=$epochs '{ print ($1 - $2) / n }' | interval
}
wall=$(of_evaluation with.wall without.wall)
cpu=$(of_evaluation with.cpu without.cpu)
echo "$n_pairs pairs of runs with $epochs evaluations, $(awk -v n=$epochs \
    '{ s += $1 / n } END { printf "%.2f", s / NR }' without.wall) s apart; medians, and the
intervals that hold the true median with 90 % certainty:"
printf 'time with / without     %s (%s to %s)\n' $(ratios with.wall without.wall)
printf 's an evaluation, wall   %s (%s to %s)\n' $wall
printf 's an evaluation, cores  %s (%s to %s), reports included\n' $cpu
awk -v n=$epochs '{ print $1 / n }' parts | interval |
    awk '{ print "of them pictures        " $1 " (" $2 " to " $3 ")" }'
echo "$wall" | awk '{ printf "one a minute            %+.2f %% (%+.2f to %+.2f)\n",
    $1 / 0.6, $2 / 0.6, $3 / 0.6 }'
test -z "$SP_TIMED" || echo "$wall" | awk '{ exit $2 / 60 > 0.005 }' ||
    fail "an evaluation a minute takes more than 0.5 % of the time"
