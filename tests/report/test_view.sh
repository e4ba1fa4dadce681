#!/bin/sh
# spvox view draws shards, predictions and scans; the same call gives the same bytes; what
# cannot be drawn is said in one line.
. "$SP_SRCDIR/tests/fixtures/program.sh"
grep -q '^#define SP_WITH_PNG 1' "$SP_BUILDDIR/config.h" || skip "no libpng in this build"
# view STATUS ARGUMENTS...
view() {
    want=$1
    shift
    alone "$want" "$SP_BUILDDIR/spvox" view "$@"
}
# refuses STATUS TEXT ARGUMENTS...: and leaves no picture behind.
refuses() {
    text=$2
    want=$1
    shift 2
    rm -f x.png
    view "$want" "$@" -o x.png
    says err "$text"
    test ! -e x.png || fail "a picture in spite of: $text"
}
# is_png FILE
is_png() {
    test "$(head -c 4 "$1" | tail -c 3)" = PNG || fail "$1 is no PNG"
}

spvox scene --out s --samples 3 --extent 12 --seed 5 --voxel-size 1
s=s-00000-of-00001.h5
for from in top oblique; do
    for by in labels feature; do
        view 0 $s --by $by --from $from -o $from-$by.png
        is_png $from-$by.png
    done
done
view 0 $s --out again.png
cmp -s again.png top-labels.png || fail "top and labels are not the default, or change"
view 0 $s --sample 2 -o third.png
differ third.png again.png "the third sample is the first"
view 0 $s --feature height -o height.png
is_png height.png
timeout -k 5 "$limit_s" "$MPIEXEC" -n 2 "$SP_BUILDDIR/spvox" view $s -o two.png >out 2>err || fail "ranks"
cmp -s two.png again.png || fail "two ranks draw something else"

# Predictions and errors.
deck 'family = "minkunet14A"; width = 0.1; stem_kernel = 3;' \
    "train = \"$s\"; val = \"$s\"; voxel_size = 1.0;" 'size = 2;' 'steps = 2;'
run 1 0 base.deck run.dir=r
run 1 0 predict base.deck run.dir=r
view 0 $s r/predictions/$s --sample 1 -o prediction.png
view 0 $s r/predictions/$s --sample 1 --by error -o error.png
differ prediction.png error.png "the error is the prediction"
"$SHARDS" bare-nameless n.h5 && "$SHARDS" bare b.h5 || fail "make_shards"
run 1 0 base.deck run.dir=b data.train=b.h5 data.val=n.h5 data.voxel_size=0.5 train.steps=1
run 1 0 predict base.deck run.dir=b data.val=n.h5 data.voxel_size=0.5
view 0 n.h5 b/predictions/n.h5 -o unlabelled.png
is_png unlabelled.png
refuses 2 'need the predictions too' $s --by error
refuses 3 'no predictions: expected /offsets and /labels' $s r/checkpoints/best.h5
refuses 3 'and no /coords, which a shard has' $s $s
"$SHARDS" uneven u.h5 || fail "make_shards"
refuses 3 'are these predictions of another shard' u.h5 r/predictions/$s --sample 1
refuses 2 'sample 3: the file has 3 samples' $s --sample 3
refuses 3 'there is no point to draw' u.h5 --sample 2
refuses 2 'has .*"height".*, and z' $s --feature nothing
refuses 2 '--by colour: expected labels' $s --by colour
refuses 2 'feature height: expected --by feature' $s --by labels --feature height
for option in --map=0=a --columns=x,y,z --label-field=label; do
    refuses 2 "leave out ${option%%=*}" $s $option
done
refuses 3 'No such file' nothing.h5
refuses 2 'expected FILE' $s r/predictions/$s $s
cp $s keep
view 2 n.h5 -o $s
says err 'expected a name that ends in .png'
cmp -s $s keep || fail "a picture replaced a shard"
view 2 $s
says err '-o PICTURE.png is missing'

# A room is looked into: its ceiling is hidden, or what is above a height.
awk 'BEGIN { print "x y z intensity label"
    for (x = -2.5; x < 2.5; x += 0.1) {
        for (y = -2; y < 2; y += 0.1) { print x, y, -1.5, x, 0; print x, y, 1, y, 2 }
        for (z = -1.5; z < 1; z += 0.1) print x, 2, z, z, 1
    } }' >room.txt
spvox convert --out room --voxel-size 0.1 --map 0=floor,1=wall,2=ceiling room.txt
room=room-00000-of-00001.h5
view 0 $room -o room.png
view 0 $room --below 100 -o whole.png
cmp -s room.png whole.png || fail "nothing is above 100 m"
view 0 $room --by feature -o closed.png
view 0 $room --by feature --below 0.7 -o open.png
differ closed.png open.png "the height hides nothing"
view 0 $room --from sensor -o none.png || fail "sensor"

# Scans: classes by code, by map, values, the sensor's view.
awk 'BEGIN { print "x y z intensity label"
    for (i = 0; i < 720; i++) for (k = -3; k < 4; k++)
        print 10 * cos(i / 114.6), 10 * sin(i / 114.6), k / 2, i % 100, (k > 0) * 5 }' >a.txt
view 0 a.txt -o codes.png
view 0 a.txt --map 0=low,5=high -o map.png
differ codes.png map.png "the map changes nothing"
view 0 a.txt --feature intensity -o intensity.png
view 0 a.txt --from sensor -o sensor.png
is_png sensor.png
refuses 2 'a scan has no predictions' a.txt --by error
refuses 2 'a scan is drawn whole' a.txt --sample 1
printf 'x y z\n1 2 3\n' >one.txt
view 0 one.txt -o one.png
refuses 2 'no labels' one.txt --by labels
head -1 a.txt >none.txt
refuses 3 'none.txt' none.txt
