#!/bin/sh
# spvox says what it found in a scan that looks right and is not: coordinates rounded coarser
# than voxels, two labels, a wrong count; and it has an option for each attribute: missing
# values, names with slashes and commas, maps in a file.
. "$SP_SRCDIR/tests/fixtures/program.sh"

SPTRAIN=$SP_BUILDDIR/spvox # what run starts

# Coordinates of a map: with three decimals; with six digits, as "%g" writes them; whole metres.
# points FORMAT N: x and y over 20 m, z over 3 m.
points() {
    awk -v f="$1" -v n="$2" 'BEGIN { srand(7); for (i = 0; i < n; i++)
        printf f " %.2f\n", 450000 + 20 * rand(), 5400000 + 20 * rand(), 3 * rand() }'
}
points "%.3f %.3f" 600 >fine.txt
points "%.6g %.6g" 600 >six.txt
points "%.0f %.0f" 600 >whole.txt
for n in 1 2; do
    for options in "" "--block 8 --overlap 1"; do
        # shellcheck disable=SC2086
        run $n 0 convert --out p $options fine.txt
        says_not err warning
        # shellcheck disable=SC2086
        run $n 0 convert --out p $options fine.txt six.txt
        says err 'six.txt has coordinates coarser than the voxels of 0.5: x in steps of 1 (50 %'
        test "$(grep -c 'coarser than the voxels' err)" = 1 || fail "told twice"
    done
done
run 1 0 convert --out p six.txt fine.txt
says err 'y in steps of 10 (95 % of the rows of voxels stay empty); samples with such steps: 1 of 2'
says err 'choose --voxel-size 10 or more$'
run 1 0 convert --out p whole.txt
says err 'x in steps of 1 (50 %.*y in steps of 1'
run 1 0 convert --out p --voxel-size 1 whole.txt
says_not err coarser
# info sees it in the shards, on one rank and on two.
run 1 0 convert --out p six.txt
run 1 0 convert --out f fine.txt
for n in 1 2; do
    run $n 0 info p-00000-of-00001.h5
    says err 'in all samples x is in steps of 2 voxels or more: its scans seem .* rounded to 1 m'
    says err 'in all samples y is in steps of 20 voxels or more'
    says_not err 'samples z'
    run $n 0 info f-00000-of-00001.h5
    says_not err steps
done
# A few points on a lattice near zero prove nothing.
awk 'BEGIN { for (i = 0; i < 100; i++) print i % 10, i / 10, 0 }' | sed 's/\.[0-9]*//' >few.txt
run 1 0 convert --out p few.txt
says_not err coarser

# Two labels, and a count that is wrong: one line, however often the scan is read.
printf 'x y z label class\n1 2 3 120 2\n2 2 3 121 3\n' >two.txt
{ echo 1000 && cat few.txt; } >cut.pts
for options in "" "--block 5"; do
    # shellcheck disable=SC2086
    run 1 0 convert --out p $options two.txt two.txt
    test "$(grep -c 'two.txt has label and class: label is taken as the label' err)" = 1 ||
        fail "two labels: $options"
    # shellcheck disable=SC2086
    run 1 0 convert --out p $options --label-field class two.txt
    says_not err 'is taken as the label'
    # shellcheck disable=SC2086
    run 2 0 convert --out p $options cut.pts
    test "$(grep -c 'cut.pts: its first line counts 1000 points, but it has 100' err)" = 1 ||
        fail "a wrong count: $options"
done

# Values that are missing, and names that hold what divides features.
printf 'x;y;z;width/ns;a,b;rate/2\n1;2;3;4;5;6\n2;2;3;nan;7;8\n' >odd.csv
run 1 3 convert --out p --features width/ns odd.csv
says err 'point 1: width/ns is nan, expected a number; --missing 0 takes 0'
run 1 0 convert --out p --missing -1 --features 'width/ns,"a,b"/10,"rate/2"' odd.csv
run 1 0 info p-00000-of-00001.h5
says out 'width/ns.*-1'
says out 'a,b.*0\.7'
says out 'rate/2.*8'
run 1 0 convert --out p --missing=-1 --block 5 --features width/ns/2,one odd.csv
run 1 2 convert --out p --missing none --features one odd.csv
says err '\-\-missing none: expected a number'
run 1 2 convert --out p --features '"a,b"c' odd.csv
says err 'a name with commas in double quotes'
run 1 2 convert --out p --features 'rate/0' odd.csv
says err 'divisor'

# A map in a file: comments, blanks, names with blanks, codes in several lines.
printf '\357\273\277# classes\n\n 2 = ground  # bare earth\r\n3 4:5 = high vegetation,\n6=roof\n8 = ground\n' >m.map
printf '%s\n' '1 1 1 2' '3 1 1 4' '5 1 1 8' '7 1 1 9' '9 1 1 6' '11 1 1 5' >codes.txt
run 1 0 convert --out p --columns x,y,z,label --map @m.map codes.txt
cp p-00000-of-00001.h5 file.h5
run 1 0 convert --out p --columns x,y,z,label \
    --map '2:8=ground,3:4:5=high vegetation,6=roof' codes.txt
same file.h5 p-00000-of-00001.h5 "the map of a file and of the command line"
run 1 2 convert --out p --map @none.map codes.txt
says err '\-\-map @none.map: cannot open: No such file'
printf '2=a\n3 b\n' >bad.map
run 1 2 convert --out p --map @bad.map codes.txt
says err 'bad.map: line 2: .*expected CODE'
printf '# nothing\n' >bad.map
run 1 2 convert --out p --map @bad.map codes.txt
says err 'has no line CODE'

# The maps that come with the program: as many classes as their data sets have.
for map in ahn:6 dales:8 fractal:7 las:15 lidarhd:10 nuscenes16:16 s3dis:13 scannet20:20 semantickitti:19 toronto3d:8; do
    run 1 0 convert --out p --columns x,y,z,label \
        --map "@$SP_SRCDIR/input/maps/${map%:*}.map" codes.txt
    says out "classes=${map#*:} "
done
