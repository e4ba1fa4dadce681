#!/bin/sh
# Programs and LAS files that say that something is not in metres, or has another range than
# the other files: refused on all ranks with a way to take them, converted by --z-unit, which
# a model keeps, or warned of. Needs python3, which writes the files.
. "$SP_SRCDIR/tests/fixtures/program.sh"
find_python struct
"$python" - <<'PYTHON' || fail "cannot write the scans"
import struct

METRE, FOOT = 'UNIT["metre",1]', 'UNIT["US survey foot",0.304800609601219]'
PLANE = 'PROJCS["P",GEOGCS["G",UNIT["degree",0.017]],%s]'
BOTH = 'COMPD_CS["c",' + PLANE % METRE + ',VERT_CS["v",%s]]'


def las(name, wkt=None, colour=0, z=0, extra=b"", field=None):
    """200 points of format 7; the text in an extended record."""
    vlr = struct.pack("<H16sHH32s", 0, b"LASF_Spec", 4, 192, b"") + field if field else b""
    b = bytearray(375) + vlr
    for i in range(200):
        b += struct.pack("<iiiHBBBBhHd", 100 * (i % 20), 100 * (i // 20), 100 * (i % 3) + z, i,
                         17, 0, 2 + i % 2, 0, 0, 0, i)
        b += struct.pack("<HHH", colour, colour // 2, 0) + extra
    struct.pack_into("<4s20xBB", b, 0, b"LASF", 1, 4)
    struct.pack_into("<HIIBH", b, 94, 375, 375 + len(vlr), len(vlr) > 0, 7, 36 + len(extra))
    struct.pack_into("<3d", b, 131, .01, .01, .01)
    struct.pack_into("<6d", b, 179, 19, 0, 9, 0, 2, 0)
    struct.pack_into("<Q", b, 247, 200)
    if wkt:
        struct.pack_into("<QI", b, 235, len(b), 1)
        b += struct.pack("<H16sHQ32s", 0, b"LASF_Projection", 2112, len(wkt), b"") + wkt.encode()
    open(name, "wb").write(b)


las("metre.las", PLANE % METRE)
las("foot.las", PLANE % FOOT)
las("degree.las", 'GEOGCS["G",UNIT["degree",0.017]]')
las("height.las", BOTH % FOOT, z=300)
las("centre.las", 'GEODCRS["W",CS[Cartesian,3],LENGTHUNIT["metre",1]]')
las("rgb8.las", colour=200)
las("rgb16.las", colour=200 * 256)
las("dark.las")
las("field.las", field=struct.pack("<2xBB32s156x", 9, 0, b"confidence"), extra=bytes(4))
PYTHON
tallest() { # prints the greatest height of the shard
    spvox info "$1"-00000-of-00001.h5
    sed -n 's/^  height  *[^ ]*  *\([^ ]*\) .*/\1/p' out
}

# ---- units in extended records ----
SPTRAIN=$SP_BUILDDIR/spvox
# spvox_refuses TEXT ARGUMENTS...: convert ends with 3 and one message on one and two ranks.
spvox_refuses() {
    text=$1
    shift
    for n in 1 2; do
        run $n 3 convert --out w "$@"
        test "$(grep -c 'error: ' err)" = 1 || fail "several errors: $*"
        says err "$text"
    done
}
spvox_refuses 'degree.las: .*--degrees' metre.las degree.las
spvox_refuses 'coordinates in metre, but in US survey foot' metre.las foot.las
heights='z is in US survey foot, but x and y in metre: --z-unit us-foot'
spvox_refuses "height.las: .*$heights" metre.las height.las
spvox_refuses "height.las: .*$heights" --block 10 height.las
run 1 0 convert --out w --degrees degree.las
run 2 0 convert --out w centre.las
says err 'warning: centre.las: .* from the centre of the Earth'
run 1 2 convert --out w --z-unit feet height.las
says err '--z-unit feet: expected records|same|metre|foot|us-foot'

# ---- heights that are converted, also in blocks and on ranks ----
for n in 1 2; do
    run $n 0 convert --out same --features height --z-unit same height.las
    run $n 0 convert --out feet --features height --z-unit us-foot height.las
    run $n 0 convert --out cut$n --block 10 --features height --z-unit us-foot height.las
done
same cut1-00000-of-00001.h5 cut2-00000-of-00001.h5 "blocks of converted heights"
test "$(tallest same) $(tallest feet)" = "2 0.609601" || fail "heights are not converted"
says out 'with --z-unit us-foot'

# ---- colours ----
run 2 0 convert --out c --features red/65535,green rgb8.las dark.las rgb16.las rgb16.las
says err '200 at most in rgb8.las (one of 1), 51200 at most in rgb16.las (one of 2)'
run 1 0 convert --out c --features red rgb8.las dark.las rgb8.las
says_not err 'several ranges'
run 1 0 convert --out c --features intensity rgb8.las rgb16.las
says_not err 'several ranges'

# ---- a model's units ----
spvox convert --out m --features one,height metre.las
spvox convert --out z --features one,height --z-unit us-foot height.las
spvox convert --out u --features one,height dark.las
SPTRAIN=$SP_BUILDDIR/sptrain
for name in m z u; do
    dummy_deck "$name-*.h5" "size = 1;" "steps = 2; warmup_steps = 1;" \
        "dir = \"$name\"; eval_every = 0; threads = 1;"
    run 1 0 base.deck
done
refused "1 2" 3 "foot.las: its coordinates are in US survey foot, but the model's are in metre" \
    label m foot.las --out o run.threads=1
refused 1 3 "height.las: .*$heights" label m height.las --out o run.threads=1
run 1 0 label m height.las --out same --z-unit us-foot run.threads=1
run 1 0 label m height.las --out any --any-format run.threads=1
run 1 0 label z height.las --out kept run.threads=1
refused 1 3 'degree.las: .*has not seen degrees' label u degree.las --out o run.threads=1
run 1 0 label u foot.las --out said run.threads=1
says err 'foot.las: its coordinates are in US survey foot, but the model does not state'
"$SPTRAIN" check z >out && says out 'with --z-unit us-foot'

# ---- a field that is there already ----
run 1 0 label m field.las --out field --confidence run.threads=1
test "$(wc -c <field/field.las)" = "$(wc -c <field.las)" || fail "a field is there twice"
