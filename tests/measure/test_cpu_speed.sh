#!/bin/sh
# cpu_speed.sh measures and tabulates; the results of this little work mean nothing.
. "$SP_SRCDIR/tests/fixtures/program.sh"
measure=$SP_SRCDIR/tests/measure
alone 0 sh "$measure/cpu_speed.sh" --tiny results
cmp -s out results/table.txt || fail "the table is not what was shown"
# Every line but processor, date and the header of the ranks ends with a number.
sed 1,2d out | grep -v '^ranks, on' | grep -v ' [0-9][0-9.]*$' && fail "no number"
grep -q '^conv3_grad_weight.* 8, % of peak' out || fail "conv3_grad_weight"
grep -q '"name":"imbalance","balanced":[0-9.]*,"as_dealt":[0-9.]*,"steps":3,"samples":8}' \
    results/balance.jsonl || fail "imbalance"
ranks=results/ranks.jsonl
if [ -e "$ranks" ]; then
    for net in "minkunet18 small *1" "minkunet18 large *1" "dummy large *1"; do
        grep -q "^$net  2 ranks  *2  *[36]00 " out || fail "no two ranks of $net"
    done
    grep -c '"run":"two".*"rank_samples":\[1,1\]' "$ranks" | grep -qx 3 ||
        fail "two ranks without two samples"
fi

# ---- the table of known lines, and each damage to them that must be found ----
judge() { awk -v most=2.05 -f "$measure/cpu_speed.awk" known >out 2>&1; }
# known RUN RANKS LIST-OF-SAMPLES LIST-OF-VOXELS MS
known() {
    printf '{"net":"dummy","file":"large","intended_voxels":100,"round":1,"run":"%s",' "$1"
    printf '"name":"step","wall_ms":%s,"ranks":%d,"samples":%d,"voxels":%d,' "$5" "$2" \
        "$2" $((100 * $2))
    printf '"gflop":%s,"samples_of_rank":[1,1],"voxels_of_rank":[100,100],' "$2.5"
    printf '"gflop_of_rank":[1.5,1.5],"rank_samples":[%s],"rank_voxels":[%s]}\n' "$3" "$4"
}
lines() { # lines MS-OF-TWO
    known one 1 1 100 10
    known left 1 1 100 11
    known right 1 1 100 10
    known two 2 1,1 100,100 "$1"
}
lines 12.5 | sed 's/"gflop":2.5/"gflop":3/' >right
cp right known
judge || fail "the known lines are refused"
for row in 'dummy large 1 2 programs 2 200 3 10.4762 286.4 1.909' \
    'dummy large 1 2 ranks 2 200 3 12.5 240 1.600' \
    'dummy large, 2 ranks, times the rate of 1, each round 1.6 median 1.600'; do
    tr -s ' ' <out | grep -qxF "$row" || fail "not in the table: $row"
done
# damaged STATUS SCRIPT WORDS: the awk program ends with STATUS and says WORDS about lines
# that sed has changed by SCRIPT.
damaged() {
    sed "$2" right >known
    judge
    [ $? = "$1" ] || fail "$2: not exit $1"
    grep -q "$3" out || fail "$2: not '$3'"
}
# The same path twice is one sample, and leaves a rank without any.
damaged 1 '/"two"/s/"rank_samples":\[1,1\]/"rank_samples":[1,0]/' "not 2 ranks of a sample"
damaged 1 '/"two"/s/"samples":2,"voxels":200/"samples":1,"voxels":100/' "1 samples, 100 voxels"
damaged 1 '/"two"/s/"voxels_of_rank":\[100,/"voxels_of_rank":[0,/' "other work than one sample"
damaged 1 '/"two"/s/"gflop_of_rank":\[1.5,1.5/"gflop_of_rank":[1.5,1.6/' "other work than 1.5 GFLOP"
damaged 1 '/"right"/d' "not one, left, right and two, but one left two"
damaged 1 d "no rounds"
damaged 8 '/"two"/s/12.5/9.7/' "2.062 times as fast as one: a failed measurement"
