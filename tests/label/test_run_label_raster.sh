#!/bin/sh
# sptrain label --raster: maps of class shares and of doubt, against the classes of the points,
# the same on any number of ranks, in blocks and of whole scans. A build without libtiff says
# so.
. "$SP_SRCDIR/tests/fixtures/program.sh"
SCANS=$SP_BUILDDIR/tests/tools/make_scans
COPY=$SP_BUILDDIR/tests/tools/laz_copy
"$SCANS" train.las 24 1 1 && "$SCANS" a.las 30 1 2 && "$COPY" a.las b.laz || fail "make_scans"
classes='2=ground & more,5=tree,6=building'
spvox convert --out t --voxel-size 1 --block 8 --overlap 2 --points --map "$classes" \
    --features number_of_returns,height train.las
deck 'family = "dummy";' 'train = "t-*.h5"; val = []; voxel_size = 1.0;' \
    'size = 4;' 'steps = 20; warmup_steps = 1;' 'dir = "r"; eval_every = 0; threads = 1;'
run 1 0 base.deck
if ! grep -q '^#define SP_WITH_TIFF 1' "$SP_BUILDDIR/config.h"; then
    run 2 2 label r a.las --out x --raster 1
    says err 'this build has no libtiff'
    exit 0
fi
label() {
    n=$1 to=$2
    shift 2
    run "$n" 0 label r a.las b.laz --out "$to" --raster 2.5 --min-confidence 0.6 \
        run.threads=1 run.watchdog_s=0 "$@"
}
for n in 1 2 3; do
    label $n m$n --doubtful 30
    label $n w$n --doubtful 30 --block 0
done
same_files m1 m2 "of 2 ranks"
same_files m1 m3 "of 3 ranks"
same_files w1 w2 "of 2 ranks, whole scans"
same_files w1 w3 "of 3 ranks, whole scans"
# A map that is gone is made again; the other scan is left as it is.
cp m1/b.laz.tif gone.tif
rm m1/b.laz.tif
label 2 m1 --doubtful 30
says out 'labelled scans=1 finished_before=1'
cmp -s gone.tif m1/b.laz.tif || fail "the map that was made again differs"
label 2 m1 --doubtful 30
says out 'nothing is left to do'
cmp -s m1/a.las.tif m1/b.laz.tif || fail "LAS and LAZ have other maps"
run 1 2 label r a.las --out x --raster 0
run 1 3 label r a.las --out x --raster 0.00001
says err 'choose a wider cell'
printf 'x y z number_of_returns\n1 2 3 1\n' >t.txt
run 1 3 label r t.txt --out x --raster 1 --any-format
says err 'needs the extent of the scan'

find_python struct
# The points of an output, by cells. Classes of doubtful points come from a run without doubt.
run 1 0 label r a.las --out plain run.threads=1
od_points() {
    at=$(od -A n -t u4 -j 96 -N 4 "$1" | tr -d ' ')
    bytes=$(od -A n -t u2 -j 105 -N 2 "$1" | tr -d ' ')
    n=$(od -A n -t u8 -j 247 -N 8 "$1" | tr -d ' ')
    od -A n -v -t u1 -w"$bytes" -j "$at" -N $((n * bytes)) "$1"
}
od_points plain/a.las >plain.txt
od_points m1/a.las | awk '{ print $17 }' >doubt.txt
"$python" "$SP_SRCDIR/tests/label/read_tiff.py" m1/a.las.tif >map.txt || fail "read_tiff.py"
sed 5q map.txt
paste -d ' ' plain.txt doubt.txt | awk '
function i32(k) { v = $k + 256 * ($(k + 1) + 256 * ($(k + 2) + 256 * $(k + 3)))
    return v >= 2147483648 ? v - 4294967296 : v }
FNR == NR && /^size/ { w = $2; h = $3; bands = $5; s = $7; next }
FNR == NR && /^tie/ { x0 = $5; y1 = $6; next }
FNR == NR { if ($1 ~ /^[0-9]/) map[$1 " " $2 " " $3] = $4; next }
{
    x = i32(1) / 100 + 700000; y = i32(5) / 100 + 6270000
    column = int((x - x0) / s); row = int((y1 - y) / s)
    if (y1 - y == s * row && row > 0) row--      # cells hold their lower edges
    band = $17 == 2 ? 0 : $17 == 5 ? 1 : 2
    all[row " " column]++; n[band " " row " " column]++
    if ($NF == 30) { n["3 " row " " column]++; doubtful++ }
}
END {
    for (cell in all) for (b = 0; b < 4; b++) {
        d = n[b " " cell] / all[cell] - map[b " " cell]; cells++
        if (d > 1e-5 || d < -1e-5) { print b, cell, n[b " " cell], all[cell], map[b " " cell]; exit 1 }
        delete map[b " " cell]
    }
    for (k in map) { print "no point in", k; exit 2 }
    print cells, "shares,", doubtful, "doubtful points"
    if (cells < 100 || doubtful < 10 || bands != 4) exit 3
}' map.txt - || fail "the map and the points"
grep -q '^keys 1 1 0 3 1024 0 1 1 1025 0 1 1 3072 0 1 [1-9]' map.txt ||
    grep -q '^keys 1 1 0 1 1025 0 1 1$' map.txt || fail "keys"
says map.txt 'ground &amp; more.*sample="3" role="description">doubtful.*nodata nan'
exit 0
