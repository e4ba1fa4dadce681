#!/bin/sh
# check_speed.sh [--tiny] BASE-BUILD [NEW-BUILD]: is the second build as fast as the first? Both
# are folders with an spbench of their own; NEW-BUILD is $SP_BUILDDIR or the working folder.
# They measure the same steps and evaluations in turn, ROUNDS times (9), each round in the
# other order, by processor time. A line a case:
#
#     CASE  median of new/base  [low, high]  verdict
#
# The interval holds the median ratio with 95 % (a sign test: no assumption on the noise).
# faster, slower: the interval leaves out 1; same: it lies within 1 +- LIMIT (0.02); unclear: it
# does not, take more ROUNDS. Ends with 1 if a case is slower by more than LIMIT with that
# certainty, or if the two did not do the same work (samples, voxels, multiply-adds).
tiny=
[ "$1" != --tiny ] || { tiny=yes && shift; }
[ -x "$1/spbench" ] || { echo "usage: check_speed.sh [--tiny] BASE-BUILD [NEW-BUILD]" >&2 && exit 2; }
base=$(cd "$1" && pwd) || exit 1
new=$(cd "${2:-${SP_BUILDDIR:-.}}" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
rounds=${ROUNDS:-9}
sizes="2000 14000"
networks="dummy minkunet18"
repeats=3
[ -z "$tiny" ] || { sizes=300 && networks=dummy && repeats=1; }

for n in $sizes; do
    "$base/spbench" voxels --out "lidar-$n.h5" --shape lidar --voxels "$n" >log 2>&1 ||
        { cat log && exit 1; }
    for net in $networks; do
        cat >"$net-$n.deck" <<END_OF_DECK
data : { train = ["lidar-$n.h5"]; val = ["lidar-$n.h5"]; voxel_size = 0.05; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = 1; };
net : { family = "$net"; };
train : { steps = 4; warmup_steps = 0; lr = 0.01; };
run : { device = "cpu"; threads = 1; };
END_OF_DECK
    done
done

# measure ROUND WHICH BUILD DECK PRECISION: its JSON lines, each with what they belong to
measure() {
    for what in step eval; do
        "$3/spbench" $what --json --repeats $repeats --precision "$5" "$4.deck" >out 2>log ||
            { cat log >&2 && return 1; }
        sed -n "s/^{\"name\":\"$what\"/$1 $2 $4,$5,$what &/p" out >>lines
    done
}
round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    for deck in *.deck; do
        for precision in fp32 bf16; do
            first="base $base" second="new $new"
            [ $((round % 2)) = 1 ] || { first="new $new" && second="base $base"; }
            # shellcheck disable=SC2086
            measure $round $first "${deck%.deck}" $precision &&
                measure $round $second "${deck%.deck}" $precision || exit 1
        done
    done
done
awk -v limit="${LIMIT:-0.02}" -v rounds="$rounds" -f "$here/check_speed.awk" lines
