#!/bin/sh
# check_speed.sh compares two builds and finds out that they did other work; its verdict
# follows from known ratios.
. "$SP_SRCDIR/tests/fixtures/program.sh"
measure=$SP_SRCDIR/tests/measure
ROUNDS=6 LIMIT=1000 alone 0 sh "$measure/check_speed.sh" --tiny "$SP_BUILDDIR" "$SP_BUILDDIR"
test "$(grep -c '^dummy-300,[fb][pf][0-9]*,[se][a-z]* *[0-9.]*  \[.*\]' out)" = 4 || fail "not four cases"
alone 2 sh "$measure/check_speed.sh" no-such-build

# known BASE-MS NEW-MS...: lines of six rounds of a case
known() {
    base=$1
    shift
    round=0
    for ms in "$@"; do
        round=$((round + 1))
        echo "$round base a {\"samples\":1,\"voxels\":10,\"gflop\":2.5,\"cpu_ms\":$base}"
        echo "$round new a {\"samples\":1,\"voxels\":10,\"gflop\":2.5,\"cpu_ms\":$ms}"
    done
}
# judged STATUS WORDS < lines
judged() {
    awk -v limit=0.02 -v rounds=6 -f "$measure/check_speed.awk" >out
    [ $? = "$1" ] || fail "not exit $1: $2"
    grep -qF "$2" out || fail "not said: $2"
}
known 100 80 90 85 95 82 81 | judged 0 '0.835  [0.800, 0.950]  faster'
known 100 110 120 105 103 108 130 | judged 1 '1.090  [1.030, 1.300]  slower'
known 100 101 101.5 101 101 101 101 | judged 0 '1.010  [1.010, 1.015]  slower'
known 100 101 99 100 100 100 100 | judged 0 '1.000  [0.990, 1.010]  same'
known 100 90 99 100 100 100 110 | judged 0 '1.000  [0.900, 1.100]  unclear'
known 100 1 1 1 1 1 1 | sed '3s/"voxels":10/"voxels":9/' | judged 1 'a: other work: 1 9 2.5, expected 1 10 2.5'
known 100 1 1 1 1 1 1 | sed 's/"gflop":2.5/"gflop":0/' | judged 1 'no work is counted'
known 100 1 1 1 1 1 | judged 1 'round 6 is not whole'
