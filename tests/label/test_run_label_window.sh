#!/bin/sh
# sptrain label --window: the points of a window have the classes that they have in the whole
# scan, in LAS, LAZ, COPC and EPT, on several ranks; of COPC only chunks near the window are
# read, of EPT only files. spvox convert --bounds reads them so too.
. "$SP_SRCDIR/tests/fixtures/program.sh"
SCANS=$SP_BUILDDIR/tests/tools/make_scans
COPY=$SP_BUILDDIR/tests/tools/laz_copy
COPC=$SP_BUILDDIR/tests/tools/make_copc

"$SCANS" train.las 24 1 1 && "$SCANS" a.las 40 1 2 || fail "make_scans"
"$COPC" a.las a.copc.laz && "$COPY" a.las b.laz || fail "make_copc"
mkdir -p ept/ept-data ept/ept-hierarchy
"$SP_BUILDDIR/tests/tools/make_ept" a.las ept || fail "make_ept"
classes='2=ground,5=tree,6=building'
spvox convert --out t --voxel-size 1 --block 4 --overlap 1 --points --map "$classes" \
    --features number_of_returns,height train.las
deck 'family = "dummy";' 'train = "t-*.h5"; val = []; voxel_size = 1.0;' \
    'size = 4;' 'steps = 20; warmup_steps = 1;' 'dir = "r"; eval_every = 0; threads = 1;'
run 1 0 base.deck

label() {
    n=$1
    shift
    run "$n" 0 label r "$@" --confidence run.threads=1 run.watchdog_s=0
}
low=$(od -A n -t f8 -j 187 -N 8 a.las | tr -d ' ')
low_y=$(od -A n -t f8 -j 203 -N 8 a.las | tr -d ' ')
window=$(awk -v x="$low" -v y="$low_y" 'BEGIN {
    printf "%.2f,%.2f,%.2f,%.2f", x, y, x + 19.985, y + 19.985 }')
for f in a.las b.laz a.copc.laz ept.laz; do
    test $f = ept.laz && scan=ept/ept.json || scan=$f
    label 1 $scan --out whole
    label 3 $scan --out whole3
    for n in 1 2 3; do
        label $n $scan --out w$n --window "$window"
    done
    label 2 $scan --out area --buffer 6
    label 2 $scan --out areaw --buffer 6 --window "$window" --summary $f
done
same_files whole whole3 "whole scans on 3 ranks"
same_files w1 w2 "of 2 ranks"
same_files w1 w3 "of 3 ranks"
# The records of the window, bit by bit, in the order of the whole file. laz_copy unpacks.
for d in whole w1 area areaw; do
    for f in a.las b.laz a.copc.laz ept.laz; do
        "$COPY" $d/$f $d.$f.las || fail "laz_copy $d/$f"
    done
done
# cut_window FILE [WINDOW]: the records of a LAS file (37 bytes with the added field) there.
cut_window() {
    at=$(od -A n -t u4 -j 96 -N 4 "$1" | tr -d ' ')
    bytes=$(od -A n -t u2 -j 105 -N 2 "$1" | tr -d ' ')
    n=$(od -A n -t u8 -j 247 -N 8 "$1" | tr -d ' ')
    od -A n -v -t u1 -w"$bytes" -j "$at" -N $((n * bytes)) "$1" |
        awk -v w="${2:-$window}" '
        function i32(k) { v = $k + 256 * ($(k + 1) + 256 * ($(k + 2) + 256 * $(k + 3)))
            return v >= 2147483648 ? v - 4294967296 : v }
        BEGIN { split(w, b, ",") }
        { x = i32(1) / 100 + 700000; y = i32(5) / 100 + 6270000
          if (x >= b[1] && x < b[3] && y >= b[2] && y < b[4]) print }'
}
for f in a.las b.laz a.copc.laz ept.laz; do
    for d in whole area; do
        test $d = whole && w=w1 || w=areaw
        cut_window $d.$f.las >want
        cut_window $w.$f.las >found
        same found want "$f: window and whole, $d"
        n=$(od -A n -t u8 -j 247 -N 8 $w.$f.las | tr -d ' ')
        test "$n" = "$(wc -l <found)" || fail "$f: the header counts $n points"
        grep -q "^\(ept/ept.json\|$f\),$n," $f.csv || fail "$f: --summary counts others: $(cat $f.csv)"
    done
done
# The header has the window's counts and extent.
test "$(od -A n -t u8 -j 255 -N 8 w1.a.las.las | tr -d ' ')" = "$n" || fail "returns"
high=$(od -A n -t f8 -j 179 -N 8 w1.a.las.las | tr -d ' ')
awk -v h="$high" -v w="$window" 'BEGIN { split(w, b, ","); exit !(h < b[3] && h > b[3] - 2) }' ||
    fail "extent: $high"
# The copy of a COPC file is plain LAZ.
grep -q copc w1/a.copc.laz && fail "a window of COPC is no COPC"
grep -q copc whole/a.copc.laz || fail "a whole copy of COPC is COPC"

# A scan beside the window, which has none of its points, is context all the same.
"$SCANS" c.las 20 1 3 && "$COPC" c.las c.copc.laz || fail "make_copc"
beside=$(awk -v x="$low" -v y="$low_y" 'BEGIN {
    printf "%.2f,%.2f,%.2f,%.2f", x + 22, y + 22, x + 36, y + 36 }')
label 1 a.copc.laz c.copc.laz --out two --buffer 6
label 2 a.copc.laz c.copc.laz --out twow --buffer 6 --window "$beside"
for d in two twow; do
    "$COPY" $d/a.copc.laz $d.las || fail "laz_copy $d"
done
cut_window two.las "$beside" >want
cut_window twow.las "$beside" >found
cut_window two.las >with && cut_window area.a.copc.laz.las >without
cmp -s with without && fail "the other scan changes nothing"
same found want "a window beside another scan"
test "$(od -A n -t u8 -j 247 -N 8 twow/c.copc.laz | tr -d ' ')" = 0 || fail "c has points"

# Bytes that are read: of chunks that the window needs.
spvox convert --out all --voxel-size 1 --map "$classes" --features height a.copc.laz
spvox convert --out part --voxel-size 1 --map "$classes" --features height \
    --bounds "$window" a.copc.laz
spvox convert --out las --voxel-size 1 --map "$classes" --features height \
    --bounds "$window" b.laz
"$SP_BUILDDIR/spvox" info part-*.h5 >a.info && "$SP_BUILDDIR/spvox" info las-*.h5 >b.info
sed "s|part-|las-|g" a.info >a.line
same a.line b.info "voxels of COPC and LAZ"
# bytes BOUNDS: that convert reads of COPC for them.
bytes() {
    strace -f -e trace=pread64,read -o trace -P a.copc.laz "$SP_BUILDDIR/spvox" convert --out part \
        --voxel-size 1 --map "$classes" --features height --bounds "$1" a.copc.laz \
        >/dev/null 2>&1 || fail "strace"
    sed -n 's/.* = \([0-9]*\)$/\1/p' trace | awk '{ s += $1 } END { print s }'
}
if command -v strace >/dev/null 2>&1; then
    some=$(bytes "$window") all=$(bytes 0,0,1e9,1e9)
    echo "read $some bytes for the window, $all for the whole scan"
    test $((some * 5)) -lt $((all * 2)) || fail "too much is read"
    # label reads the surroundings of at most 6 m to predict the window, and no chunk twice.
    wide=$(echo "$window" | awk -F, '{ printf "%.2f,%.2f,%.2f,%.2f", $1 - 6, $2 - 6, $3 + 6, $4 + 6 }')
    once=$(bytes "$wide")
    rm -rf again
    strace -f -e trace=pread64,read -o trace -P "$PWD/a.copc.laz" "$SPTRAIN" label r \
        "$PWD/a.copc.laz" --out again --window "$window" run.threads=1 run.watchdog_s=0 \
        >/dev/null 2>&1 || fail "strace of label"
    read_all=$(sed -n 's/.* = \([0-9]*\)$/\1/p' trace | awk '{ s += $1 } END { print s }')
    echo "label read $read_all bytes; the window needs $once with its surroundings, $some without"
    test $((read_all * 10)) -lt $((once * 12)) || fail "chunks are read twice"
fi

# ---- refused ----
for bounds in 1,2,3 1,2,3,4,5 inf,0,1,1 -inf,-inf,inf,inf 0,0,nan,1 9,0,1,1 0,9,1,1 0,0,0,1; do
    run 1 2 label r a.las --out x --window $bounds
    says err "window $bounds: expected finite x0,y0,x1,y1 with x0 < x1, y0 < y1"
    "$SP_BUILDDIR/spvox" convert --out x --bounds $bounds a.las 2>err && fail "--bounds $bounds"
    says err "bounds $bounds: expected finite x0,y0,x1,y1 with x0 < x1, y0 < y1"
done
run 1 2 label r a.las --out x --window "$window" --block 0
says err 'a whole scan is one sample; give --block'
printf 'x y z number_of_returns\n1 2 3 1\n' >t.txt
run 2 3 label r t.txt --out x --window 0,0,5,5 --any-format
says err 'is text, but --window writes LAS and LAZ only'
run 1 3 label r a.copc.laz --out x --window 0,0,1,1
says err 'has no points'
# A damaged index: a page that leads to itself, and an entry without a chunk.
damage() {
    cp a.copc.laz bad.copc.laz
    # shellcheck disable=SC2059 # a byte
    printf "$2" | dd of=bad.copc.laz bs=1 seek=$1 conv=notrunc 2>/dev/null
    run 1 3 label r bad.copc.laz --out x --window "$window"
    says err "$3"
}
root=$(od -A n -t u8 -j 469 -N 8 a.copc.laz | tr -d ' ')
damage $((root + 16)) '\001' 'where no LAZ chunk of that size begins'
damage 477 '\001' 'expected entries of 32 bytes within the file'
exit 0
