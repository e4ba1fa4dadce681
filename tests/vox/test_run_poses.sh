#!/bin/sh
# Scans joined by known poses are the world seen from the last one: voxels, columns, labels
# and ages as of a file with all points in its frame. Only its own points are evaluated, and
# predictions come back to its rows.
. "$SP_SRCDIR/tests/fixtures/program.sh"

SPTRAIN=$SP_BUILDDIR/spvox # what run starts

# A scanner drives and turns for four scans; the camera looks along its x. world.txt has the
# points with the scan that sees them; a scan has them in its own frame, all.K all points
# that the scans K-2 to K see, in the frame of scan K.
mkdir seq seq/velodyne
awk 'function turn(k) { return 0.1 * k } function px(k) { return 1.5 * k } function py(k) { return 0.25 * k * k }
function own(k, x, y, z,   c, s) { # world to scan k
    c = cos(turn(k)); s = sin(turn(k))
    X = c * (x - px(k)) + s * (y - py(k)); Y = -s * (x - px(k)) + c * (y - py(k)); Z = z - 0.1 * k
}
BEGIN {
    srand(5)
    for (k = 0; k < 4; k++)
        for (i = 0; i < 300; i++) {
            x = 16 * rand() - 6; y = 16 * rand() - 8; z = 3 * rand(); class = z < 1
            own(k, x, y, z)
            printf "%.9f %.9f %.9f %d\n", X, Y, Z, class >sprintf("seq/velodyne/%06d.txt", k)
            for (to = k; to < k + 3 && to < 4; to++) {
                own(to, x, y, z)
                printf "%.9f %.9f %.9f %d %d %d\n", X, Y, Z, class, to - k, i >"all." to
            }
        }
    # Tr: x right, y down, z forward, and the camera 0.3 before the scanner.
    print "P0: 1 0 0 0 0 1 0 0 0 0 1 0" >"seq/calib.txt"
    print "Tr: 0 -1 0 0.05 0 0 -1 -0.1 1 0 0 -0.3" >"seq/calib.txt"
    for (k = 0; k < 4; k++) {
        # V = scan to the frame of scan 0; pose = Tr V Tr^-1.
        c = cos(turn(k)); s = sin(turn(k)); tx = px(k); ty = py(k); tz = 0.1 * k
        # R of the camera: Tr R Tr^T with axes (-y, -z, x).
        r[0] = c; r[1] = 0; r[2] = -s; r[3] = 0; r[4] = 1; r[5] = 0; r[6] = s; r[7] = 0; r[8] = c
        # t: Tr (V (Tr^-1 0)); Tr^-1 0 is (0.3, 0.05, -0.1).
        x = c * 0.3 - s * 0.05 + tx; y = s * 0.3 + c * 0.05 + ty; z = -0.1 + tz
        printf "%.12f %.12f %.12f %.12f %.12f %.12f %.12f %.12f %.12f %.12f %.12f %.12f\n",
            r[0], r[1], r[2], -y + 0.05, r[3], r[4], r[5], -z - 0.1, r[6], r[7], r[8], x - 0.3 >"seq/poses.txt"
    }
}'
made="--columns x,y,z,label --voxel-size 0.4 --features one"
scan=seq/velodyne/000003.txt

# As of one file: the earlier points without label, x y z in the frame of scan 3.
awk '{ print $1, $2, $3, $5 ? -1 : $4, $5 }' all.3 >own.txt
awk '{ print $1, $2, $3, $4, $5 }' all.3 >labelled.txt
# The order of the points is the sum's: the scan itself, then those before it.
for each in own labelled; do
    sort -s -n -k 5,5 $each.txt >sorted && mv sorted $each.txt
done
sums() { "$SHARDS" rows "$1" >"$2" || fail "rows of $1"; }
for n in 1 2; do
    # shellcheck disable=SC2086
    run $n 0 convert --out p$n $made,age --poses auto --sweeps 3 $scan
    says_not err warning
done
same p1-00000-of-00001.h5 p2-00000-of-00001.h5 "the shards of one and two ranks"
# shellcheck disable=SC2086
run 1 0 convert --out o ${made%,label*},label,age${made#*,label},age own.txt
sums p1-00000-of-00001.h5 joined && sums o-00000-of-00001.h5 whole
test -s whole || fail "no sums"
same joined whole "voxels of joined scans and of one file"
# shellcheck disable=SC2086
run 1 0 convert --out q $made,age --poses seq/poses.txt --sweeps 3 --sweep-labels $scan
# shellcheck disable=SC2086
run 1 0 convert --out o ${made%,label*},label,age${made#*,label},age labelled.txt
sums q-00000-of-00001.h5 joined && sums o-00000-of-00001.h5 whole
same joined whole "voxels with --sweep-labels and of one file"
# Positions as columns are in the frame of the sample's scan too; text rounds them.
columns() { run 1 0 info "$1" && grep -E '^ *[xyz] ' out >"$2"; }
for each in 'p seq/velodyne/000003.txt --poses auto --sweeps 3' 'o own.txt'; do
    # shellcheck disable=SC2086
    run 1 0 convert --columns x,y,z,label --voxel-size 0.4 \
        --features x,y,z --out $each
done
columns p-00000-of-00001.h5 joined && columns o-00000-of-00001.h5 whole
test "$(wc -l <whole)" = 3 || fail "no columns x, y, z"
same joined whole "positions as columns"
# One sweep is the scan by itself; the first scans of a sequence have fewer before them.
# shellcheck disable=SC2086
run 1 0 convert --out a $made $scan && sums a-00000-of-00001.h5 whole
# shellcheck disable=SC2086
run 1 0 convert --out b $made --poses auto --sweeps 1 $scan && sums b-00000-of-00001.h5 joined
same joined whole "one sweep and the scan by itself"
# shellcheck disable=SC2086
run 2 0 convert --out b $made --poses auto --sweeps 3 --points seq/velodyne/*.txt
says out 'samples=4 .*points_mapped=1200 '
says_not err warning
run 1 0 info b-00000-of-00001.h5
says out 'samples join 3 scans by their poses'

# Predictions have the rows of the scan alone, and evaluation per point counts only these.
cat >base.deck <<'DECK'
data : { train = "b-*.h5"; val = "b-*.h5"; voxel_size = 0.4; };
net : { family = "dummy"; };
batch : { size = 2; };
train : { steps = 2; };
run : { dir = "r"; threads = 1; eval_every = 1; };
DECK
SPTRAIN=$SP_BUILDDIR/sptrain
run 2 0 base.deck
says r/metrics.jsonl '"points":1200,'
run 1 0 predict base.deck
run 1 3 label r $scan --columns x,y,z,label --out labelled
says err 'samples of 3 scans joined by their poses'
# shellcheck disable=SC2034 # program.sh starts it
SPTRAIN=$SP_BUILDDIR/spvox
run 1 0 apply r/predictions/*.h5 $scan --columns x,y,z,label --out back.txt
test "$(grep -c '^[-0-9]' back.txt)" = 300 || fail "rows of the scan: $(wc -l <back.txt)"
awk '/^[-0-9]/ && $NF < 0' back.txt | grep -q . && fail "points without a class"

# What is missing or damaged is said once.
refuses() {
    numbers=$1 want=$2 words=$3
    shift 3
    for n in $numbers; do
        run "$n" "$want" "$@"
        says err "$words"
        test "$(grep -c ': error: ' err)" = 1 || fail "not one diagnosis"
    done
}
mv seq/velodyne/000002.txt kept
# shellcheck disable=SC2086
run 2 0 convert --out p $made --poses auto --sweeps 3 $scan
says err 'earlier scans that are not there.*: 1, such as seq/velodyne/000002.txt'
mv kept seq/velodyne/000002.txt
cp $scan seq/velodyne/000007.txt
refuses "1 2" 3 'poses.txt: 4 poses, expected one in line 8 for seq/velodyne/000007.txt' \
    convert --out p --columns x,y,z,label --poses auto --sweeps 2 seq/velodyne/000007.txt
cp $scan seq/velodyne/scan.txt
refuses "1" 3 'scan.txt: its name does not end in a number' \
    convert --out p --columns x,y,z,label --poses auto --sweeps 2 seq/velodyne/scan.txt
refuses "1" 2 '\-\-sweeps: --poses is missing' convert --out p --sweeps 2 $scan
refuses "1" 2 '\-\-poses auto: --sweeps N is missing' convert --out p --poses auto $scan
refuses "1" 2 'samples are whole scans, without --block' \
    convert --out p --columns x,y,z,label --poses auto --sweeps 2 --block 8 $scan
cp $scan 000003.txt
refuses "1 2" 3 '000003.txt: no poses.txt in its folder' \
    convert --out p --columns x,y,z,label --poses auto --sweeps 2 000003.txt
bad() {
    printf '%s\n' "$1" >bad.poses
    refuses "1" 3 "$2" convert --out p --columns x,y,z,label --poses bad.poses --sweeps 2 \
        seq/velodyne/000000.txt
}
refuses "1 2" 3 'none.txt: No such file' convert --out p --columns x,y,z,label \
    --poses none.txt --sweeps 2 seq/velodyne/000000.txt
bad '1 0 0 0 0 1 0 0 0 0 1' 'bad.poses: line 1: number 12 is missing'
bad '1 0 0 0 0 1 0 0 0 0 1 0 5' 'line 1: more than the 12 numbers'
bad '1 0 0 0 0 1 0 0 0 0 -1 0' 'line 1: its 3 x 3 numbers are no rotation'
bad '1 0 0 0 0 1 0 nan 0 0 1 0' 'line 1: number 8 is missing'
# Without calib.txt the poses are the scanner's own.
printf '%s\n' '1 0 0 0 0 1 0 0 0 0 1 0' '0 -1 0 5 1 0 0 0 0 0 1 0' >own.poses
echo '1 2 3 0' >s000000.txt
echo '1 1 1 0' >s000001.txt
run 1 0 convert --out p --columns x,y,z,label --poses own.poses --sweeps 2 --features x,y,z,age s000001.txt
run 1 0 info --samples p-00000-of-00001.h5
says out '^ *x .* 1 .*2'
