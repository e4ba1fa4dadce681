#!/bin/sh
# sptrain label --buffer: the classes of tiles are those of one file with all points,
# whichever tiles the area has, on any number of ranks and in shares of several processes;
# without it they differ. Fields beside the scan's own classes.
. "$SP_SRCDIR/tests/fixtures/program.sh"

# An area of 60 x 60 m: a slope, and boxes of 6 m that stand across the tiles' borders.
awk 'BEGIN {
    print "x y z label"
    for (i = 0; i < 24000; i++) {
        seed = (seed * 1103 + 12347) % 65521; x = 1000 + 60 * seed / 65521
        seed = (seed * 1103 + 12347) % 65521; y = 500 + 60 * seed / 65521
        is_box = (int(x / 3) % 5 < 2) && (int(y / 3) % 5 < 2)
        printf "%.3f %.3f %.3f %d\n", x, y, 10 + 0.05 * x + 4 * is_box, is_box ? 6 : 2
    }
}' >all.txt
spvox convert --out t --voxel-size 1 --block 12 --overlap 3 --points --map 2=ground,6=box \
    --features height all.txt
deck 'family = "dummy";' 'train = "t-*.h5"; val = []; voxel_size = 1.0;' \
    'size = 8;' 'steps = 8; warmup_steps = 1;' 'dir = "r"; eval_every = 0; threads = 1;'
run 1 0 base.deck

# cut NAME CONDITION: the points of a tile.
cut_tile() {
    awk "NR == 1 || ($2)" all.txt >"$1"
}
mkdir one four three
cp all.txt one/
cut_tile four/a.txt '$1 < 1031.7 && $2 < 528'
cut_tile four/b.txt '$1 >= 1031.7 && $2 < 528'
cut_tile four/c.txt '$1 < 1031.7 && $2 >= 528'
cut_tile four/d.txt '$1 >= 1031.7 && $2 >= 528'
cut_tile three/a.txt '$1 < 1010'
cut_tile three/b.txt '$1 >= 1010 && $1 < 1034'
cut_tile three/c.txt '$1 >= 1034'

label() {
    n=$1 from=$2 to=$3
    shift 3
    run "$n" 0 label r "$from"/*.txt --out "$to" --confidence --field-type float32 \
        run.threads=1 run.watchdog_s=0 "$@"
    cat "$to"/*.txt | grep -v x | LC_ALL=C sort >"$to.sorted"
}
# same_points A B: the points of both have the same classes and confidences.
same_points() {
    cmp -s "$1.sorted" "$2.sorted" ||
        fail "$1 and $2 differ in $(diff "$1.sorted" "$2.sorted" | grep -c '^<') points"
}
label 1 one whole --buffer 18
test "$(wc -l <whole.sorted)" = 24000 || fail "points are missing"
label 1 four tiles --buffer 18
same_points whole tiles
# A block of several tiles is predicted once; there are six each way.
says out ' blocks=36 reused=[1-9]'
for n in 2 3; do
    label $n four tiles$n --buffer 18
    says out ' blocks=36 reused=[1-9]'
    same_files tiles tiles$n "of $n ranks"
done
label 2 three stripes --buffer 18
same_points whole stripes
# Of three stripes the outer ones are no neighbours.
label 1 three near --buffer 6
touch -d '2022-01-01' three/c.txt
label 1 three near --buffer 6
says out 'labelled scans=2 finished_before=1'
label 1 four alone
cmp -s whole.sorted alone.sorted && fail "without --buffer nothing differs: a test of nothing"

# What an output was made of includes its neighbours and the buffer.
label 1 four tiles --buffer 18
says out 'nothing is left to do'
touch -d '2020-01-01' four/a.txt
label 1 four tiles --buffer 18
says out 'finished_before=0'
run 1 0 label r four/*.txt --out tiles --confidence --field-type float32 --buffer 6 \
    run.threads=1
says out 'finished_before=0'

# Two processes share the list. Each scan is made once.
for i in 0 1; do
    run 1 0 label r four/*.txt --out shared --confidence --field-type float32 --buffer 18 \
        --task $i/2 run.threads=1
    says out 'labelled scans=2 finished_before=0'
done
same_files tiles2 shared "of two tasks"
for bad in 2/2 -1/2 1 a/b 0/9999999999; do
    run 1 2 label r four/*.txt --out x --task $bad
    says err "task $bad: expected I/N with 0 <= I < N"
done

# Extents are kept, unless a file has changed.
label 1 four indexed --buffer 18 --index index.txt
same_files tiles2 indexed "with an index"
test "$(wc -l <index.txt)" = 5 || fail "the index has $(wc -l <index.txt) lines"
sed 's/ 1031.69[0-9]* / 1e9 /' index.txt >changed.txt
cmp -s index.txt changed.txt && fail "the index lacks the extent"
rm -rf indexed
label 1 four indexed --buffer 18 --index index.txt
same_files tiles2 indexed "with the index of before"
# Lines of earlier states of the scans are found by none, and dropped by the next writer.
sed -n '2,$s/^[0-9]* /1 /p' index.txt >stale.txt
cat stale.txt >>index.txt
touch -d '2021-01-01' four/b.txt
label 1 four indexed --buffer 18 --index index.txt
same_files tiles2 indexed "with stale lines in the index"
test "$(wc -l <index.txt)" = 5 || fail "stale lines: the index has $(wc -l <index.txt)"
grep -q '^1 ' index.txt && fail "stale lines are kept"
echo junk >index.txt
run 1 3 label r four/*.txt --out x --buffer 18 --index index.txt
says err 'index.txt: is no index of scans'
run 1 2 label r four/*.txt --out x --index index.txt
says err '\-\-index keeps extents for --buffer, which is missing'
run 1 2 label r four/*.txt --out x --buffer 5 --block 0
says err 'whole scans have no neighbours; give --block'

# Tables of the area, the same of two ranks, and of two processes that share the list.
label 2 four tiles2 --buffer 18 --summary both
for i in 0 1; do
    run 1 0 label r four/*.txt --out shared --confidence --field-type float32 --buffer 18 \
        --task $i/2 --summary shared-table
done
cut -d, -f1-4,6- both.csv >both.cut
cut -d, -f1-4,6- shared-table.csv >shared.cut
cmp -s both.cut shared.cut || fail "two tasks have another table"
test "$(wc -l <both.csv)" = 5 || fail "$(wc -l <both.csv) lines in both.csv"
says both.csv '^file,points,mean_confidence,doubtful_share,seconds,share_ground,share_box$'
for t in a b c d; do
    want=$(awk -v n="$(wc -l <four/$t.txt)" 'NR > 1 && $NF == 6 { k++ }
        END { printf "%d,%.6f", n - 1, k / (n - 1) }' tiles2/$t.txt)
    found=$(awk -F, -v t=$t.txt '$1 == t { print $2 "," $7 }' both.csv)
    test "$want" = "$found" || fail "$t: $found, expected $want"
done
says both.geojson '^{"type":"FeatureCollection","features":\[{"type":"Feature"'

# --class-field leaves the scan's classes; --margin is at most the confidence.
run 1 0 label r four/a.txt --out fields --class-field found --confidence --margin \
    --field-type float32 run.threads=1
run 1 0 label r four/a.txt --out plain run.threads=1
head -1 fields/a.txt | grep -qx 'x y z found confidence margin label' ||
    fail "columns: $(head -1 fields/a.txt)"
paste -d ' ' fields/a.txt plain/a.txt four/a.txt | awk 'NR > 1 {
    if ($4 != $11) exit 1      # found: the class that plain has
    if ($7 != $15) exit 2      # label: that of the scan
    if ($6 < 0 || $6 > $5 + 1e-6 || $5 > 1) exit 3
}' || fail "--class-field or --margin: $?"
run 1 2 label r four/a.txt --out x --class-field found --keep 2
says err 'leave out --keep'
exit 0
