#!/bin/sh
# spvox with scans of all sorts: what it warns of, what it refuses and with which status;
# damaged scans end at once, and nothing that a file says reaches the terminal as a command.
. "$SP_SRCDIR/tests/fixtures/program.sh"

SPTRAIN=$SP_BUILDDIR/spvox # what run starts

cat >a.txt <<'TEXT'
x y z label
1 1 1 2
9 1 1 3
9 9 1 3
TEXT

# --map: codes that no point has, labels that nothing names. Cut into blocks too, by two ranks.
for options in "" "--block 5 --overlap 5"; do
    # shellcheck disable=SC2086
    run 2 0 convert --out w $options --map 2=road,40:41=car a.txt
    says err 'warning: --map: no point is car (40:41); codes of the points: 2 3$'
    says_not err 'no voxel has a label'
    # shellcheck disable=SC2086
    run 2 0 convert --out w $options --map 40=car,50=road a.txt
    says err 'no point is car (40), road (50); codes of the points: 2 3$'
    says err 'no voxel has a label'
done
run 1 0 convert --out w --map 2=road,3:4=car a.txt
says_not err warning
says out 'labels=yes'

# Rows without a point are left out and counted, over all ranks, in one line.
awk '{ print } NR > 1 { print "nan nan nan 7" }' a.txt >void.txt
for options in "" "--block 5 --overlap 1"; do
    # shellcheck disable=SC2086
    run 2 0 convert --out v --points $options void.txt a.txt void.txt
    test "$(grep -c 'are NaN: 6, the first ones in void.txt; they are left out' err)" = 1 ||
        fail "rows without a point: $options"
    says out 'points_mapped=9 classes=4'
done

# One scan is cut by all ranks, into blocks of the same bytes: LAS; LAZ of four chunks, and of
# one; several, of which one is large, one cannot be divided and one has no point.
SCANS=$SP_BUILDDIR/tests/tools/make_scans COPY=$SP_BUILDDIR/tests/tools/laz_copy
"$SCANS" big.las 60 2 3 && "$SCANS" small.las 30 1 4 && "$SCANS" b.txt 30 1 5 || fail "make_scans"
"$COPY" big.las big.laz && "$COPY" small.las one.laz || fail "laz_copy"
cp small.las none.las
head -c 8 /dev/zero | dd of=none.las bs=1 seek=247 conv=notrunc 2>/dev/null # number of points
cut="--block 25 --overlap 8 --points --shards 2 --map 2=ground,5:6=high --features intensity,height"
for scans in big.las big.laz one.laz "b.txt none.las one.laz big.las small.las"; do
    for n in 1 2 3 4; do
        # shellcheck disable=SC2086
        run $n 0 convert --out cut$n $cut $scans
        for s in 0 1; do
            same cut$n-0000$s-of-00002.h5 cut1-0000$s-of-00002.h5 "$scans: $n ranks"
        done
    done
done

# A damaged chunk, the last one, which is the last rank's.
at=$(($(wc -c <big.laz) - 9000))
cp big.laz bad.laz
printf '\377\0\377\0\377' | dd of=bad.laz bs=1 seek=$at conv=notrunc 2>/dev/null
for n in 1 2 3; do
    # shellcheck disable=SC2086
    run $n 3 convert --out bad $cut bad.laz
    test "$(grep -c 'error: ' err)" = 1 || fail "a damaged chunk: several errors"
    says err 'bad.laz: '
    test "$(ls bad*)" = bad.laz || fail "a damaged chunk: $(ls bad*) stay"
done

# Scans without labels need no map.
run 1 0 convert --out u --columns x,y,z,- a.txt
says_not err warning
says out 'labels=none'

# info finds the deviation of a column far from zero, on any number of ranks.
awk 'BEGIN { print "x y z time"; for (i = 0; i < 40; i++) print i, 0, 0, 4e8 + i % 2 * 32 }' >far.txt
run 1 0 convert --out far --features time,one far.txt
for n in 1 3; do
    run $n 0 info far-00000-of-00001.h5
    says out '^  time  *4e+08  *4e+08  *4e+08  *16$'
    says out '^  one  *1  *1  *1  *0$'
done

# A shard whose name is a pattern, as a shell hands it over, is this file and no other.
cp u-00000-of-00001.h5 't[1].h5'
run 1 0 info 't[1].h5'
cp far-00000-of-00001.h5 t1.h5
run 1 0 info 't[1].h5'
says out '^  height '
run 1 0 info 't[1]?h5'
says out '^  time '
rm t1.h5

# A file that two paths name is read once.
run 1 0 info u-00000-of-00001.h5 ./u-00000-of-00001.h5 "$dir/u-00000-of-00001.h5"
says out '^shards 1 '
says err 'u-00000-of-00001.h5 are one file, which counts once (.*: 2 of 3)'
ln -s u-00000-of-00001.h5 v.h5
run 2 0 info u-00000-of-00001.h5 v.h5
says out '^shards 1 '
test "$(grep -c 'h5 and v.h5 are one file, which counts once (.*: 1 of 2)' err)" = 1 || fail "a link"
cp u-00000-of-00001.h5 v2.h5
run 2 0 info u-00000-of-00001.h5 v2.h5
says out '^shards 2 '
says_not err 'one file'
rm v2.h5
rm v.h5

# Options that do not fit.
run 1 2 convert --out w --block 5 --overlap 5.5 a.txt
says err '--overlap 5.5: expected at most --block, which is 5'
printf '0 0 0\n9e4 2e5 0\n' >far.txt
run 1 2 convert --out w --block 5 far.txt
says err 'far.txt: --block 5 makes more than 1048576 blocks .* over 90000 x 200000 m; do a few'
mkdir folder
for command in "convert a.txt" "scene --samples 1 --extent 8 --seed 1"; do
    for out in folder/ new/; do
        # shellcheck disable=SC2086
        run 2 2 $command --out "$out"
        says err "error: --out $out: expected PREFIX, the beginning of the shards' names"
    done
done
rmdir folder || fail "shards without a name"
run 1 2 convert --out w --voxel 5 a.txt
says err 'unknown option --voxel; nearest: --voxel-size'
run 1 2 convert --out w --column x,y,z a.txt
says err 'nearest: --columns'

# Labels of one voxel that are all different, as of a column that is no label.
seq 1 200000 | sed 's/^/0 0 0 /' >ids.txt
run 1 3 convert --out w --columns x,y,z,label ids.txt
says err 'ids.txt: label code 200000, at most 254 without --map'

# A value beyond float32 is told with its place, and without a remedy that is none.
printf '1 2 3 4\n8 6 7 -1e39\n' >huge.txt
run 1 3 convert --out w --columns x,y,z,intensity huge.txt
says err 'huge.txt: feature intensity of the voxel at 8, 6, 7 m does not fit float32; give it a /DIVISOR$'

# Control characters in a name from a file are shown, not obeyed.
escape=$(printf '\033[2J')
cp a.txt "b$escape.txt"
run 1 0 convert --out e --map "2=gr$escape,3=b" "b$escape.txt"
run 1 0 info --samples e-00000-of-00001.h5
says out 'gr.x1b\[2J'
says out 'b.x1b\[2J.txt'
! grep -qF "$escape" out || fail "info writes an escape code"

# The first file decides about the default features; what another one has more is told.
printf 'x y z label\n1 1 1 3\n9 1 1 2\n' >without.txt
printf 'x y z label intensity\n1 1 1 3 7\n9 1 1 2 8\n' >with.txt
for n in 1 2; do
    for block in "" "--block 4"; do
        run $n 0 convert --out d $block without.txt with.txt
        says err 'with.txt has the attribute intensity, which is left out since without.txt'
        test "$(grep -c intensity err)" = 1 || fail "$n ranks $block: $(cat err)"
    done
done
run 1 0 convert --out d with.txt
says_not err intensity
run 1 0 convert --out d --features one without.txt with.txt
says_not err intensity

# apply writes the codes of the predictions; --map, where it is given, has the last word. A
# shard stands for predictions here, of which a warning tells.
run 1 0 convert --out p --points --map 3:1=car,2=road a.txt
run 1 0 apply p-00000-of-00001.h5 a.txt --out a.label
says err "warning: p-00000-of-00001.h5 is a shard: its labels are the scan's own"
test "$(od -An -tu4 a.label | tr -s ' \n' ' ')" = " 2 3 3 " || fail "a.label: $(od -An -tu4 a.label)"
run 1 2 apply p-00000-of-00001.h5 a.txt --out a.label --map 7=car,8=bus
says err '\--map has no class "road"'
run 1 0 apply p-00000-of-00001.h5 a.txt --out a.label --map 7=car,8=road
test "$(od -An -tu4 a.label | tr -s ' \n' ' ')" = " 8 7 7 " || fail "a.label with --map"

# Two scans of one name: the folder tells them apart, and where it does not, in another working
# folder, no class of one gets onto the other.
mkdir one two
cp a.txt one/a.txt
printf 'x y z label\n1 1 1 3\n9 1 1 2\n9 9 1 2\n' >two/a.txt
cd one
run 1 0 convert --out ../both --points ../two/a.txt a.txt
run 1 0 apply ../both-00000-of-00001.h5 a.txt --out a.label
test "$(od -An -tu4 a.label | tr -s ' \n' ' ')" = " 2 3 3 " || fail "one/a.label: $(od -An -tu4 a.label)"
cd ../two
run 1 3 apply ../both-00000-of-00001.h5 a.txt --out a.label
says err 'both ../two/a.txt and a.txt may be a.txt'
cd ..
run 1 0 apply p-00000-of-00001.h5 two/a.txt --out b.label
says err 'warning: two/a.txt gets the classes predicted for a.txt: only their names agree'
run 1 0 apply p-00000-of-00001.h5 a.txt --out b.label
says_not err 'only their names agree'

# Names of attributes become one word of a PLY header, whatever is in them.
header="{'descr': [('x', '<f4'), ('y', '<f4'), ('z', '<f4'), ('a
element b 9', '|u1'), ('class', '|u1')], 'fortran_order': False, 'shape': (1,)}"
printf "\223NUMPY\001\000$(printf '\\%03o' ${#header})\000%s" "$header" >n.npy
printf '\000\000\200\077\000\000\200\077\000\000\200\077\007\001' >>n.npy
run 1 0 convert --out n --points n.npy
run 1 0 apply n-00000-of-00001.h5 n.npy --out n.ply
says n.ply 'property uchar a_element_b_9'
says_not n.ply '^element b'
run 1 0 convert --out m --features a_element_b_9 n.ply

# Scans that claim more than they hold, after they were converted as honest ones.
printf 'ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\nproperty float z\nproperty int label\nend_header\n1 2 3 4\n' >big.ply
run 1 0 convert --out big --points big.ply
sed -i 's/vertex 1/vertex 4611686018427387904/' big.ply
for output in big.label big.ply.ply; do
    run 1 3 apply big-00000-of-00001.h5 big.ply --out $output
    says err 'truncated: 4611686018427387904 points'
    test ! -e $output.tmp || fail "$output.tmp is left"
done

# LAZ: from LAS and back, byte for byte but the class, which is the same here; a scan is found
# by its name with either ending.
# las_file: 100 points of format 0 in a LAS 1.2, of classes 0 to 31.
las_file() {
    printf 'LASF%20s\001\002%68s\343\000\343\000\000\000\000\000\000\000' '' '' | tr ' ' '\000'
    printf '\000\024\000\144\000\000\000%20s' '' | tr ' ' '\000'
    for _ in 1 2 3; do printf '\173\024\256\107\341\172\204\077'; done # 0.01
    printf '%72s' '' | tr ' ' '\000'
    for i in $(seq 100 199); do
        printf "\\$(printf %o "$i")\001\000\000\000\001\000\000\000\002\000\000\007\000\011\\$(printf %o $((i % 32)))\000\000\000\000"
    done
}
las_file >t.las
classes=$(seq -s, 0 31 | sed 's/[0-9]*/&=c&/g')
run 1 0 convert --out t --block 0.3 --voxel-size 0.001 --points --map "$classes" t.las
run 1 0 apply t-00000-of-00001.h5 t.las --out t.laz
[ "$(wc -c <t.laz)" -lt "$(wc -c <t.las)" ] || fail "t.laz is not smaller"
run 2 0 apply t-00000-of-00001.h5 t.laz --out u.las
says_not err 'only their names agree'
cmp t.las u.las || fail "LAS differs after LAZ"
run 1 0 apply t-00000-of-00001.h5 t.laz --out v.laz
cmp t.laz v.laz || fail "LAZ differs after LAZ"
cp t-00000-of-00001.h5 las.h5
run 2 0 convert --out t --block 0.3 --voxel-size 0.001 --points --map "$classes" t.laz
run 1 0 apply t-00000-of-00001.h5 t.las --out u.las
cmp t.las u.las || fail "LAZ gives other points than LAS"
head -c $(($(wc -c <t.laz) - 60)) t.laz >cut.laz
run 1 3 convert --out w cut.laz
says err 'cut.laz: truncated or damaged: LAZ chunk table at byte'

# No regular file is waited for.
mkfifo f.las l.label
head -c 16 /dev/zero >l.bin
for file in f.las l.bin; do
    run 1 3 convert --out w $file
    says err 'expected a scan, found no regular file'
done
run 1 3 apply p-00000-of-00001.h5 f.las --out f.label
# ---- the shards of a set get their names together ----
# The last of four cannot be made: a folder has its place.
for ranks in 1 2 3; do
    rm -rf set
    mkdir -p set/s-00003-of-00004.h5.part
    run $ranks 4 scene --seed 1 --out set/s --samples 4 --shards 4 --extent 8 --voxel-size 0.5
    says err 'error: .*set/s-00003-of-00004.h5'
    test "$(ls set)" = s-00003-of-00004.h5.part || fail "scene, $ranks ranks: $(ls set)"
    mkdir set/c-00003-of-00004.h5.part
    run $ranks 4 convert --out set/c --shards 4 a.txt a.txt a.txt a.txt
    says err 'error: .*set/c-00003-of-00004.h5'
    test "$(ls set | tr '\n' ' ')" = 'c-00003-of-00004.h5.part s-00003-of-00004.h5.part ' ||
        fail "convert, $ranks ranks: $(ls set)"
done
rm -r set
run 3 0 convert --out set/c --shards 4 a.txt a.txt a.txt a.txt
test "$(ls set | wc -l)" = 4 || fail "convert: $(ls set)"

# A file that is named twice counts twice, which is said, and so is one without points, cut
# into blocks or whole.
printf '%s\n' 'x y z label' '99 99 1 2' >far.txt
for options in "" "--block 5"; do
    # shellcheck disable=SC2086
    run 2 0 convert --out w $options --bounds 0,0,20,20 a.txt far.txt
    says out 'files without a point within --bounds: 1 of 2'
    says_not err 'count twice'
done
run 2 0 convert --out w a.txt ./a.txt
says err 'inputs that name a file which another one names, as .*a.txt and .*a.txt: 1 of 2; its points'

# What float32 rounds coarsely is said, and its mean subtracted; whole numbers that it holds
# are not.
awk 'BEGIN { for (i = 0; i < 500; i++)
    printf "%g %g 1 %.2f %d %d\n", i % 25, i / 25, 306235306 + i / 100, 16777000 + i % 3, i % 2
}' >t.txt
run 2 0 convert --out t --columns x,y,z,gps_time,count,label --features gps_time,count t.txt
says err 'warning: column gps_time has values around 3.06.*e+08, and float32 keeps multiples of 32'
test "$(grep -c 'warning: column' err)" = 1 || fail "not one column is coarse"

# Degrees are no length: refused before anything is read, unless they are asked for.
"$SP_BUILDDIR/tests/tools/make_scans" d.las 5 1 1 >out || fail "make_scans"
printf '\002' | dd of=d.las bs=1 seek=517 conv=notrunc 2>/dev/null # a geographic system
for options in "" "--block 5"; do
    # shellcheck disable=SC2086
    run 2 3 convert --out deg $options d.las
    says err 'd.las: its records say that x and y are in degree, expected a length'
    test -z "$(ls deg* 2>/dev/null)" || fail "left: $(ls deg*)"
    # shellcheck disable=SC2086
    run 2 0 convert --out deg --degrees $options d.las
    says err 'warning: the coordinates are in degree: --voxel-size'
    rm deg-*.h5
done

# No command replaces what it reads.
cp t-00000-of-00001.h5 t.h5
ln -s none.png link
for out in t.h5 ./t.h5 link; do
    run 1 2 view t.h5 -o "$out"
done
cmp -s t.h5 t-00000-of-00001.h5 && test -h link || fail "view replaced something"
exit 0
