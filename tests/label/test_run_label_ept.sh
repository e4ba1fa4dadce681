#!/bin/sh
# sptrain label and spvox convert of Entwine Point Tiles: the points and classes are those of
# the LAS file that the nodes were made of, on several ranks; only nodes near a window are
# opened; missing, damaged and hostile pieces are refused with their file.
. "$SP_SRCDIR/tests/fixtures/program.sh"
TOOLS=$SP_BUILDDIR/tests/tools

"$TOOLS/make_scans" train.las 24 1 1 && "$TOOLS/make_scans" a.las 40 1 2 || fail "make_scans"
mkdir -p good/ept-data good/ept-hierarchy && "$TOOLS/make_ept" a.las good || fail "make_ept"
classes='2=ground,5=tree,6=building'
spvox convert --out t --voxel-size 1 --block 4 --overlap 1 --points --map "$classes" \
    --features number_of_returns,height train.las
deck 'family = "dummy";' 'train = "t-*.h5"; val = []; voxel_size = 1.0;' \
    'size = 4;' 'steps = 20; warmup_steps = 1;' 'dir = "r"; eval_every = 0; threads = 1;'
run 1 0 base.deck

# With --buffer the classes do not depend on the order of points.
label() {
    n=$1
    shift
    run "$n" 0 label r "$@" --buffer 6 run.threads=2 run.watchdog_s=0
}
# records FILE: those of a LAS file, sorted.
records() {
    "$TOOLS/laz_copy" "$1" unpacked.las >/dev/null || fail "laz_copy $1"
    at=$(od -A n -t u4 -j 96 -N 4 unpacked.las | tr -d ' ')
    bytes=$(od -A n -t u2 -j 105 -N 2 unpacked.las | tr -d ' ')
    n=$(od -A n -t u8 -j 247 -N 8 unpacked.las | tr -d ' ')
    od -A n -v -t x1 -w"$bytes" -j "$at" -N $((n * bytes)) unpacked.las | LC_ALL=C sort
}
label 1 a.las --out las
records las/a.las >want
for n in 1 2 3; do
    label $n good/ept.json --out ept$n
    records ept$n/ept.laz >found
    same found want "the classes of EPT and of LAS, on $n ranks"
done
same_files ept1 ept3 "of 3 ranks"
# The header has the counts and the extent of all nodes.
for at in '247 -N 16 -t u8' '179 -N 48 -t f8'; do
    # shellcheck disable=SC2086 # words of an option
    od -A n -j $at unpacked.las | awk '{ for (i = 1; i <= NF; i++) printf "%.2f\n", $i }' >found
    # shellcheck disable=SC2086
    od -A n -j $at a.las | awk '{ for (i = 1; i <= NF; i++) printf "%.2f\n", $i }' >want
    paste found want | awk '$1 - $2 > 0.011 || $2 - $1 > 0.011 { exit 1 }' || fail "header $at"
done

# Nodes far from the window are not opened.
window=700000,6270000,700008,6270008
label 1 good/ept.json --out window --window $window
cp -r good far
rm far/ept-data/2-3-3-*.laz
label 1 far/ept.json --out far-window --window $window
same_files window far-window "without the files of far nodes"
run 1 3 label r far/ept.json --out x
says err 'far/ept-data/2-3-3-0.laz: no such file, expected '
for place in good far; do
    spvox convert --out $place.vox --voxel-size 1 --map "$classes" --features height \
        --bounds $window $place/ept.json
    "$SP_BUILDDIR/spvox" info $place.vox-*.h5 | sed s/$place// >$place.info
done
same far.info good.info "spvox convert --bounds"

# ---- the coordinate system is in ept.json ----
# edited FILE SCRIPT: makes the folder bad, with one file changed by sed.
edited() {
    rm -rf bad
    cp -r good bad
    sed "$2" "good/$1" >"bad/$1"
    cmp -s "good/$1" "bad/$1" && fail "$2 changes nothing"
}
edited ept.json 's/"metre\\",1/"foot\\",0.3048/'
run 1 3 label r bad/ept.json --out x
says err 'bad/ept.json: its coordinates are in foot'

# Without the extent, which is then found by reading.
edited ept.json /boundsConforming/d
label 2 bad/ept.json --out ept4
same_files ept1 ept4 "without boundsConforming"
run 1 3 label r bad/ept.json --out x --window $window
says err 'bad/ept.json: --window needs the extent of the scan'

# ---- refused ----
# damaged TEXT FILE SCRIPT: reading ends with one message.
damaged() {
    text=$1
    shift
    edited "$@"
    run 2 3 label r bad/ept.json --out x
    one_diagnosis "$text"
}
page=ept-hierarchy/0-0-0-0.json
damaged 'bad/ept.json: no JSON: line 1: ' ept.json '1d'
damaged 'bad/ept.json: expected a JSON object' ept.json '1s|.*|[1]|;2,$d'
damaged '"dataType" is "zstandard", expected "laszip"' ept.json s/laszip/zstandard/
damaged '"dataType" is "binary", expected "laszip"' ept.json s/laszip/binary/
damaged '"hierarchyType" is "gzip", expected "json"' ept.json 's/Type": "json"/Type": "gzip"/'
damaged 'expected "bounds" \[xmin' ept.json 's/"bounds": \[/&1e300,/'
damaged 'expected "bounds" \[xmin' ept.json 's/"bounds": \[/&"a",7,7,/;s/, [0-9.]*, [0-9.]*, [0-9.]*\],$/],/'
damaged 'expected "bounds" \[xmin' ept.json \
    's/"bounds": \[[^,]*,\([^,]*,[^,]*\),[^,]*/"bounds": [-1.7e308,\1, 1.7e308/'
damaged 'bad/ept.json: no JSON' ept.json 's/"bounds": \[/&1e999,/'
damaged 'expected the number of "points"' ept.json 's/"points": /&"many", "n": /'
total=$(sed -n 's/.*"points": \([0-9]*\).*/\1/p' good/ept.json)
damaged "counts ${total}000 points, but its hierarchy $total" ept.json "s/\"points\": $total/&000/"
damaged '0-0-0-0.json: no JSON: line 4: ' $page '3s/,//'
damaged 'node 1-0-0-0: expected its number of points, up to 4294967295, or -1' $page \
    's/\("1-0-0-0": \).*,/\12.5,/'
damaged 'node 1-0-0-0: expected its number of points' $page 's/\("1-0-0-0": \)/\1-2/'
damaged 'node 1-0-0-0: expected its number of points' $page 's/\("1-0-0-0": \)/\1999999999/'
damaged 'duplicate object key' $page 's/"1-0-0-0"\(.*\)/"1-0-0-0"\1"1-0-0-0": 1,/'
for key in ../a 1-0-0 1-0-0-0-0 1-0-0-2 1--1-0-0 01-0-0-0 32-0-0-0 ' 1-0-0-0' 1-0-0-0/../x \
    99999999999-0-0-0; do
    damaged "\"$key\" is no node: expected D-X-Y-Z with D from 0 to 31" $page \
        "s|\"1-0-0-0\"|\"$key\"|"
done
damaged 'leads to ept-hierarchy/0-0-0-0.json, which was read before' $page \
    's/"1-0-0-0": .*,/"0-0-0-0": -1,/;s/"0-0-0-0": [0-9]*,//'
damaged 'leads to ept-hierarchy/1-1-1-0.json, which was read before' \
    ept-hierarchy/1-1-1-0.json 's/"1-1-1-0": [0-9]*/"1-1-1-0": -1/'
damaged 'bad/ept-hierarchy/1-0-0-0.json: ' $page 's/\("1-0-0-0": \).*,/\1-1,/'
damaged 'its hierarchy has the node 1-0-0-0 twice' ept-hierarchy/1-1-1-0.json \
    's/"1-1-1-0"/"1-0-0-0": 5, &/'
# A node's file has other points than the hierarchy says.
edited $page 's/\("1-0-0-0": [0-9]*\)/\10/'
points=$(sed -n 's/.*"1-0-0-0": \([0-9]*\).*/\1/p' good/$page)
sed "s/\"points\": $total/\"points\": $((total + 9 * points))/" good/ept.json >bad/ept.json
run 2 3 label r bad/ept.json --out x
one_diagnosis "bad/ept-data/1-0-0-0.laz: LAZ with $points points, expected LAZ with ${points}0"
# Another resolution than the first node's; no LAZ.
edited ept.json 's/1.1.0/1.0.0/'
printf '\001' | dd of=bad/ept-data/1-0-0-0.laz bs=1 seek=131 conv=notrunc 2>/dev/null
run 2 3 label r bad/ept.json --out x
one_diagnosis 'bad/ept-data/1-0-0-0.laz: expected the point format, record length, scale and'
printf 'x y z\n1 2 3\n' >bad/ept-data/0-0-0-0.laz
run 2 3 label r bad/ept.json --out x
one_diagnosis 'bad/ept-data/0-0-0-0.laz: '
