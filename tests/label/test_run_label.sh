#!/bin/sh
# sptrain label: scans of every format with the classes of a model. The bytes are the same on
# 1, 2 and 3 ranks and after a kill, all but class and added fields stays, and what does not
# fit is refused before anything is written.
. "$SP_SRCDIR/tests/fixtures/program.sh"
SCANS=$SP_BUILDDIR/tests/tools/make_scans
COPY=$SP_BUILDDIR/tests/tools/laz_copy

# ---- scans and models ----
mkdir in
"$SCANS" train.las 24 1 1 && "$SCANS" in/a.las 30 1 2 && "$SCANS" in/b.las 25 1 3 &&
    "$SCANS" in/k.bin 20 1 4 && "$SCANS" in/t.txt 15 1 5 || fail "make_scans"
"$COPY" in/b.las in/b.laz && "$COPY" in/k.bin in/p.ply || fail "laz_copy"
mv in/b.las b.las
plants="végétation moyenne été très haute" # byte 32 of its field's name divides a letter
classes="2=ground,5=$plants,6=building"
spvox convert --out t --voxel-size 1 --block 8 --overlap 3 --points --map "$classes" \
    --features number_of_returns,height,intensity/10000 train.las
cat >base.deck <<'DECK'
data : { train = "t-*.h5"; val = "t-*.h5"; voxel_size = 1.0;
         features = ["height", "number_of_returns"]; };
net : { family = "dummy"; };
batch : { size = 4; };
train : { steps = 30; warmup_steps = 1; };
run : { dir = "r"; eval_every = 0; threads = 1; };
DECK
run 2 0 base.deck

# ---- the same bytes on any number of ranks ----
all="in/a.las in/b.laz in/k.bin in/p.ply in/t.txt"
fields="--confidence --entropy --probabilities all"
for n in 1 2 3; do
    run $n 0 label r in/a.las in/b.laz --out las$n run.threads=1
    # shellcheck disable=SC2086
    run $n 0 label r in/a.las in/b.laz --out fields$n $fields --views 3 run.threads=1
    run $n 0 label r/checkpoints/step-000000030.h5 in/a.las --out whole$n --block 0 \
        run.threads=1
done
# shellcheck disable=SC2086
run 1 0 label r in/a.las --out fields_key $fields eval.views=3 run.threads=1
same fields1/a.las fields_key/a.las "eval.views=3, which is --views 3"
! grep 'eval.views' err || fail "a warning of 3 views"
run 1 2 label r in/a.las --out fewer --views 25 run.threads=1
says err '--views 25: expected a whole number in 1 .. 24'
run 1 0 label r in/a.las --out fewer --views 24 augment.rotate_z=false run.threads=1
says err '24 views asked for: the model.s augmentation allows 12 (flip = true, rotate_z = false'
for n in 2 3; do
    for file in las1/a.las las1/b.laz fields1/a.las fields1/b.laz whole1/a.las; do
        same $file ${file%%1/*}$n/${file#*/} "$file on $n ranks"
    done
done

# ---- all but the class stays ----
# classes_only A B: A and B differ, but nowhere else than in the class of points; prints what
# the classes were and are, in octal.
points_at=780 # of make_scans; records of 33 bytes have the class at 16
classes_only() {
    test "$(wc -c <"$1")" = "$(wc -c <"$2")" || fail "$1 and $2 differ in length"
    cmp -l "$1" "$2" >differences && fail "$2 has the classes of $1"
    awk -v at=$points_at '($1 - 1 - at) % 33 != 16 || $1 <= at { exit 1 } { print $2, $3 }' \
        differences >codes || fail "$2 differs from $1 beside the classes"
}
classes_only in/a.las las1/a.las
awk '$2 != 2 && $2 != 5 && $2 != 6 { exit 1 }' codes || fail "codes: $(sort -u codes)"
"$COPY" las1/b.laz b2.las || fail "laz_copy las1/b.laz"
classes_only b.las b2.las

# Without blocks and without views label does what convert, predict and apply do.
spvox convert --out w --voxel-size 1 --points --map "$classes" \
    --features number_of_returns,height in/a.las
run 2 0 predict base.deck data.val=w-00000-of-00001.h5
spvox apply r/predictions/w-00000-of-00001.h5 in/a.las --out w.las
same w.las whole1/a.las "predict and apply"
cp in/a.las keep.las
alone 2 "$SP_BUILDDIR/spvox" apply r/predictions/w-00000-of-00001.h5 in/a.las --out ./in/a.las
says err 'the output would replace the scan'
same keep.las in/a.las "apply onto the scan itself"

# In blocks it does what convert, predict with eval.merge and apply do.
spvox convert --out m --voxel-size 1 --block 8 --overlap 3 --points --map "$classes" \
    --features number_of_returns,height in/a.las
run 2 0 predict base.deck data.val=m-00000-of-00001.h5 eval.merge=true
spvox apply r/predictions/m-00000-of-00001.h5 in/a.las --out m.las
same m.las las1/a.las "merged predict and apply"

# ---- fields, keep, doubt ----
spvox convert --out f --features confidence,entropy,p_building,p_ground,deviation fields1/a.las
spvox info f-00000-of-00001.h5
says out 'p_ground'
tr '\0' '\n' <fields1/a.las | grep -aq "p_${plants%ès haute}$" || fail "a cut letter"
run 1 0 label r fields1/a.las --out again --confidence --entropy run.threads=1
test "$(wc -c <again/a.las)" = "$(wc -c <fields1/a.las)" || fail "fields came twice"
run 2 0 label r fields1/a.las --out other --confidence --entropy --field-type float32
same again/a.las other/a.las "fields that keep their type"
run 2 0 label r in/a.las --out keep --keep 2,64 run.threads=1
classes_only in/a.las keep/a.las
! grep -q '^2 \|^100 ' codes || fail "--keep 2,64 changes such points"
run 2 2 label r in/a.las --out x --keep 2,300
one_diagnosis 'keep 300: these scans hold codes from 0 to 255'
run 1 2 label r in/a.las --out x --min-confidence 1.5
says err 'min-confidence 1.5: expected a number from 0 to 1'
run 3 0 label r in/a.las --out doubt --min-confidence 1 --doubtful 31 run.threads=1
classes_only in/a.las doubt/a.las
test "$(grep -c ' 37$' codes)" -gt 1000 || fail "no doubt"

# ---- damage that is met by a thread ----
at=$(($(wc -c <in/b.laz) / 2))
cp in/b.laz bad.laz
printf '\377\0\377\0\377' | dd of=bad.laz bs=1 seek=$at conv=notrunc 2>/dev/null
for n in 1 2 3; do
    block=$((n == 2 ? 0 : 8))
    rm -rf damaged
    run $n 3 label r in/a.las bad.laz in/b.laz --out damaged --block $block run.threads=1
    one_diagnosis '1 of 3 scans was not labelled; the first: bad.laz: '
    says err 'skipped: bad.laz: '
    test "$(ls damaged | tr '\n' ' ')" = "a.las b.laz " || fail "outputs: $(ls damaged)"
    test ! -e damaged/.sptrain/tmp || fail "unfinished files stay"
    run $n 3 label r in/a.las bad.laz in/b.laz --out damaged --block $block run.threads=1
    one_diagnosis 'bad.laz: '
done
# It is context of no other scan, on any number of ranks: nothing of it, read or not.
run 1 0 label r in/a.las --out beside --block 8 --buffer 16 run.threads=1
for n in 1 2 3; do
    run $n 3 label r in/a.las bad.laz --out near$n --block 8 --buffer 16 run.threads=1
    says err 'bad.laz is damaged: no other scan has its points'
    same beside/a.las near$n/a.las "beside a damaged scan, of $n ranks"
done
run 1 0 label r in/a.las in/b.laz --out near --block 8 --buffer 16 run.threads=1
cmp -s beside/a.las near/a.las && fail "no block has points of both: a test of nothing"
run 1 3 label r bad.laz --out lone run.threads=1
one_diagnosis 'error: .*bad.laz: '
rm damaged/b.laz
run 3 0 label r in/a.las in/b.laz --out damaged run.threads=1
same damaged/b.laz las1/b.laz "after a damaged scan"
test ! -e damaged/.sptrain/tmp || fail "unfinished files stay"
says out 'network_share=[0-9.]* read_s='

# ---- other formats ----
# shellcheck disable=SC2086
run 2 3 label r $all --out mixed run.threads=1
one_diagnosis '3 of 5 scans were not labelled; the first: in/k.bin: is SemanticKITTI, but the model'
says err 'skipped: in/k.bin: .* has seen \["LAS"\]; --any-format takes it$'
test "$(ls mixed | tr '\n' ' ')" = "a.las b.laz " || fail "mixed has $(ls mixed)"
run 2 3 label r in/k.bin in/p.ply --out none
one_diagnosis 'in/k.bin: is SemanticKITTI, but the model has seen \["LAS"\]; --any-format'
test ! -e none || fail "a refused run leaves none"
run 2 3 label r in/t.txt in/k.bin --out mixed2 --any-format run.threads=1
one_diagnosis 'in/k.bin: no attribute number_of_returns; .* (column number_of_returns'
# Coordinates that were rounded to two metres, twice a voxel.
awk 'NR > 1 { for (i = 1; i < 3; i++) $i = 451000 + 2 * int($i / 2) } { print }' in/t.txt >round.txt
run 2 0 label r round.txt --out round --any-format
says err "round.txt.* has coordinates coarser than the model's voxels of 1: x in steps of 2 (50 %"
run 2 0 label r in/t.txt --out round --any-format
says_not err coarser

# A value that is missing is refused, or replaced by the option.
awk 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "number_of_returns") c = i }
    NR == 9 { $c = "nan" } { print }' in/t.txt >gap.txt
run 2 3 label r gap.txt --out gap --any-format
one_diagnosis 'gap.txt: point 7: number_of_returns is nan, .*--missing 0'
run 2 0 label r gap.txt --out gap --any-format --missing 1
awk 'NR == 9 { $c = 1 } { print }' c="$(head -n 1 in/t.txt | tr ' ' '\n' | grep -n '^number_of_returns$' |
    cut -d : -f 1)" in/t.txt >filled.txt
run 2 0 label r filled.txt --out gap --any-format
test "$(awk '{ print $NF }' gap/gap.txt)" = "$(awk '{ print $NF }' gap/filled.txt)" ||
    fail "--missing 1 is not 1"
"$SCANS" foot.las 10 1 6 foot
run 2 3 label r in/a.las foot.las --out mixed
one_diagnosis "foot.las: its coordinates are in US survey foot, but the model's are in metre"
sed 's/\["height", "number_of_returns"\]/["height"]/; s/dir = "r"/dir = "h"/' base.deck >h.deck
run 2 0 h.deck
for n in 1 3; do
    # shellcheck disable=SC2086
    run $n 0 label h $all --out all$n --any-format run.threads=1
    test "$(ls all$n | tr '\n' ' ')" = "a.las b.laz k.label p.ply t.txt " ||
        fail "all$n has $(ls all$n)"
done
same_files all1 all3 "on 3 ranks"
test "$(wc -c <all1/k.label)" = "$(wc -c <in/k.label)" || fail "k.label is not whole"
od -An -v -tu4 -w4 all1/k.label | tr -d ' ' >k.codes
tail -n +2 all1/t.txt | awk 'NF != 6 { exit 1 }' || fail "t.txt: not 6 columns"
cut -d' ' -f1-5 in/t.txt | tail -n +2 | awk '{ print $1+0, $2+0, $3+0, $4+0, $5+0 }' >columns
cut -d' ' -f1-5 all1/t.txt | tail -n +2 | awk '{ print $1+0, $2+0, $3+0, $4+0, $5+0 }' >found
same columns found "columns of t.txt"
test "$(sort -u k.codes | tr '\n' ' ')" != "0 " || fail "k.label has no class"

# Rows without a point, as depth cameras have them, keep their place and get no class; the
# points have the classes that they have without such rows.
awk 'NR > 1 && NR % 7 == 0 { print "nan nan nan nan nan nan" } { print }
     END { print "1 1 nan 1 1 1" }' in/t.txt >v.txt
grep -c nan v.txt >n_missing
for block in 8 0; do
    run 2 0 label h in/t.txt v.txt --out void$block --any-format --block $block run.threads=1
    says err "are NaN: $(cat n_missing), the first ones in v.txt; they have no class"
    grep -v nan void$block/v.txt >points
    same points void$block/t.txt "points among rows without, --block $block"
    test "$(grep nan void$block/v.txt | grep -c ' -1$')" = "$(cat n_missing)" ||
        fail "rows without a point, --block $block"
    test "$(wc -l <void$block/v.txt)" = "$(wc -l <v.txt)" || fail "v.txt has other rows"
done
run 1 0 label h in/k.bin --out kept --any-format --keep 2 run.threads=1
od -An -v -tu4 -w4 kept/k.label | tr -d ' ' | sort -u >k.codes
says k.codes "^$((9 * 65536 + 2))\$" # with the instance
run 1 3 label h in/k.bin --out conf --any-format --confidence
one_diagnosis 'in/k.bin: a .label file holds a class a point and no other field'

# ---- killed and continued ----
mkdir many
for i in 1 2 3 4 5; do cp in/a.las many/$i.las; done
cp in/b.laz many/6.laz
run 2 0 label r many/* --out want run.threads=1
rm -f killed/1.las
begin 2 label r many/* --out killed run.threads=1
await "no output" test -e killed/1.las
for at in /proc/[0-9]*; do
    if test "$(readlink "$at/cwd" 2>/dev/null)" = "$dir" &&
        grep -q '^sptrain' "$at/comm" 2>/dev/null; then
        kill -9 "${at#/proc/}" 2>/dev/null
    fi
done
finish
before=$(ls -i killed/1.las)
same_files killed want "after a kill"
# The kill may have come behind the last output.
rm -f killed/6.laz
run 3 0 label r many/* --out killed run.threads=1
test "$(ls killed)" = "$(ls want)" || fail "killed has $(ls killed)"
same_files want killed "after a kill and three ranks"
test "$before" = "$(ls -i killed/1.las)" || fail "a finished output was made again"
test ! -e killed/.sptrain/tmp || fail "unfinished files stay: $(ls killed/.sptrain/tmp)"
run 2 0 label r many/* --out killed
says out 'killed: 6 outputs were made by the same model and options before'
# Other options, another scan: made again; somebody else's file: refused.
run 1 0 label r in/a.las --out keep --keep 2 run.threads=1
says out 'finished_before=0'
run 1 0 label r in/a.las --out keep --keep 2 run.threads=1 data.normalize=false
says out 'finished_before=0'
run 1 0 label r in/a.las --out keep --keep 2 data.normalize=false
says out 'keep: 1 output was made by the same model and options before'
"$SPTRAIN" status keep/.sptrain >out || fail "status of a label"
says out 'keep/.sptrain: label done, exit code 0'
echo x >>keep/a.las
run 2 2 label r in/a.las --out keep
one_diagnosis 'keep/a.las exists and was not made by this command'
run 1 0 label r in/a.las --out keep --overwrite run.threads=1
same keep/a.las las1/a.las "--overwrite"
# A scan of the same name in another folder is another scan, unless it was moved there.
mkdir "in 2"
cp b.las "in 2/a.las"
run 2 2 label r "in 2/a.las" --out keep
one_diagnosis 'keep/a.las was made of .*/in/a.las, not of in 2/a.las; choose another --out'
same keep/a.las las1/a.las "the output of another scan"
run 2 0 label r "in 2/a.las" --out keep --overwrite run.threads=1
run 2 2 label r in/a.las --out keep
one_diagnosis 'keep/a.las was made of .*/in 2/a.las, not of in/a.las'
mkdir here there
cp in/a.las here/s.las
cp -p here/s.las there/s.las
cd here
run 2 0 label ../r s.las --out ../one run.threads=1 'data.val="of a scan /too"'
cd ../there
run 2 2 label ../r s.las --out ../one
one_diagnosis '../one/s.las was made of .*/here/s.las, not of s.las; choose another --out'
cd ..
mv "in 2/a.las" b2.las
run 2 0 label r b2.las --out other run.threads=1
mkdir moved
mv b2.las moved
run 2 0 label r moved/b2.las --out other run.threads=1

# ---- refusals ----
run 2 2 label r in/a.las many/../in/a.las --out two
one_diagnosis 'in/a.las and many/../in/a.las would both become two/a.las'
run 2 2 label r in/a.las --out in
one_diagnosis 'in/a.las: the output in/a.las would replace this scan'
refused 1 2 'no scan is named after the model r' label r --out d
refused 1 2 'label: --out DIR is missing' label r in/a.las
refused 1 3 'nothing: No such file' label nothing in/a.las --out d
run 2 2 label r in/a.las --out d --probabilities roof
one_diagnosis 'no class "roof" among \["ground", "végé.*", "building"\]'
refused 1 2 'leave out --voxel-size' label r in/a.las --out d --voxel-size 1
head -c $points_at in/a.las >none.las
printf '\0\0\0\0\0\0\0\0\0\0\0\0' >zeros
dd if=zeros of=none.las bs=1 seek=247 count=8 conv=notrunc 2>/dev/null
dd if=zeros of=none.las bs=1 seek=235 count=12 conv=notrunc 2>/dev/null
refused 2 3 'none.las: has no points' label r none.las --out d
head -c 5000 in/a.las >cut.las
refused 2 3 'none.las: has no points' label r none.las cut.las --out d
says err 'skipped: cut.las: truncated'
test ! -e d || fail "a refused run leaves d"

# ---- a model that does not tell how its samples were made ----
"$SHARDS" uneven u.h5 || fail "make_shards"
sed 's/t-\*/u/g; s/features = .*;/features = []; voxel_size = 0.5; };/; s/voxel_size = 1.0;//; s/dir = "r"/dir = "u"/' \
    base.deck >u.deck
run 2 0 u.deck
run 2 2 label u in/a.las --out d
one_diagnosis 'does not tell how scans became its samples: give --voxel-size'
awk 'NR == 1 { $4 = "feature0"; $5 = "feature1"; $6 = "feature2" } { print }' in/t.txt >s.txt
for n in 1 3; do
    run $n 0 label u s.txt --out s$n --voxel-size 0.5 --block 5 --overlap 1 \
        --features feature0,feature1,feature2 --map 7=class0,8:9=class1,1=class2,2=class3 \
        run.threads=1
    same s1/s.txt s$n/s.txt "s.txt on $n ranks"
done
awk 'NR > 1 { print $7 }' s1/s.txt | sort -u >k.codes
! grep -v '^[1278]$' k.codes || fail "s.txt has other codes"
# Its columns are found by name among those that the shards were given.
run 2 0 label u s.txt --out order --voxel-size 0.5 --block 5 --overlap 1 \
    --features feature2,one,feature0,feature1 --map 7=class0,8:9=class1,1=class2,2=class3
same s1/s.txt order/s.txt "columns are in another order"
run 2 2 label u s.txt --out d --voxel-size 0.5 --features feature1,one,feature2
one_diagnosis '\-\-features: the columns of .* are \["feature0", .*expected all of them'
exit 0
