#!/bin/sh
# sptrain calibrate: the temperature of a model and the places of its classes' features,
# stored in its checkpoint and in packed models, the same on any number of ranks. No class
# changes; probabilities become p^(1/T). Points of an object that no training has seen are
# found by their features.
. "$SP_SRCDIR/tests/fixtures/program.sh"

# scan FILE SEED: ground with noise in its labels, boxes, and towers without a class.
scan() {
    awk -v s="$2" 'BEGIN {
        srand(s); print "x y z intensity label"
        for (i = 0; i < 6000; i++) {
            x = 48 * rand(); y = 24 * rand()
            c = int(x / 6) % 2 && int(y / 6) % 2 ? 2 : 1
            z = c == 2 ? 3 + rand() : rand()
            if (x > 40 && y > 12) { c = 7; z = 25 + 10 * rand() }
            l = c < 7 && rand() < 0.15 ? 3 - c : c
            printf "%.3f %.3f %.3f %d %d\n", 1000 + x, 2000 + y, z, c == 7 ? 4000 : 40 * c, l
        }
    }' >"$1"
}
scan a.txt 1
scan b.txt 2
scan c.txt 3
convert() {
    spvox convert --voxel-size 1 --points --features intensity,height \
        --map 1=low,2=high "$@"
}
convert --shards 2 --out s a.txt b.txt
convert --out v c.txt
deck 'family = "dummy";' 'train = "s-*.h5"; val = "v-*.h5"; voxel_size = 1.0;' \
    'size = 2; eval_size = 2;' 'steps = 80; warmup_steps = 2;'
run 1 0 base.deck run.dir=r 'data.val="v-*.h5"'
cp -r r before
for n in 1 2 3; do
    cp -r before r$n
    run $n 0 calibrate r$n run.threads=1
    says out 'temperature=[0-9.]* voxels=[0-9]* accuracy=[0-9.]* nll=[0-9.]* -> [0-9.]* ece=[0-9.]* -> [0-9.]*$'
    cmp -s r1/checkpoints/best.h5 r$n/checkpoints/best.h5 || fail "$n ranks differ"
done
cmp -s before/checkpoints/best.h5 r1/checkpoints/best.h5 && fail "nothing was stored"
sed -n 's/.*temperature=\([0-9.]*\) .*ece=\([0-9.]*\) -> \([0-9.]*\)$/\1 \2 \3/p' out >figures
read -r temperature ece_before ece_after <figures
echo "temperature $temperature ece $ece_before -> $ece_after"
awk "BEGIN { exit !($ece_after < 0.7 * $ece_before) }" || fail "ece $ece_before -> $ece_after"
# Again the same: the old calibration is replaced.
cp r1/checkpoints/best.h5 once.h5
run 2 0 calibrate r1/checkpoints/best.h5 run.threads=1
cmp -s once.h5 r1/checkpoints/best.h5 || fail "a second calibration is another"
run 1 0 check r1/checkpoints/best.h5

# A model whose least ece is that of T = 0.1, which would make its few errors certain.
run 1 0 base.deck run.dir=short 'data.val="v-*.h5"' train.steps=40
run 1 0 calibrate short
sed -n 's/.*nll=\([0-9.]*\) -> \([0-9.]*\) ece=\([0-9.]*\) -> \([0-9.]*\)$/\1 \2 \3 \4/p' out |
    awk '{ exit !($2 <= $1 && $4 <= $3) }' || fail "nll or ece rose"

# ---- label: the same classes, other confidences ----
label() {
    model=$1 to=$2
    shift 2
    run 1 0 label "$model" c.txt --out "$to" --field-type float32 --confidence \
        --probabilities all --entropy run.threads=1 "$@"
}
label before plain
label r1 hot
paste -d ' ' plain/c.txt hot/c.txt | awk -v T="$temperature" '
NR == 1 { if ($5 != "confidence" || $7 != "p_low") { print; exit 9 } next }
{
    if ($9 != $18) { print NR, "class", $9, $18; exit 1 }
    a = $7 > 0 ? exp(log($7) / T) : 0; b = $8 > 0 ? exp(log($8) / T) : 0
    d = a / (a + b) - $16
    if (d > 2e-4 || d < -2e-4) { print NR, $7, $16, a / (a + b); exit 2 }
    m = $16 > $17 ? $16 : $17
    if (m - $14 > 1e-6 || $14 - m > 1e-6) { print NR, m, $14; exit 3 }
}' || fail "p^(1/T): $?"

# ---- packed ----
run 1 0 weights export r1 --packed -o m.spm
label m.spm packed
same_files hot packed "of the packed model"
run 1 2 calibrate m.spm
says err 'm.spm'

# ---- predict: the logits are divided, the labels stay ----
run 1 0 predict base.deck run.dir=p0 run.checkpoint=before/checkpoints/best.h5 \
    'data.val="v-*.h5"' run.logits=true
run 1 0 predict base.deck run.dir=p1 run.checkpoint=r1/checkpoints/best.h5 \
    'data.val="v-*.h5"' run.logits=true
run 1 0 eval base.deck run.dir=e0 run.checkpoint=before/checkpoints/best.h5 'data.val="v-*.h5"'
run 1 0 eval base.deck run.dir=e1 run.checkpoint=r1/checkpoints/best.h5 'data.val="v-*.h5"'
evaluations e0 >want
evaluations e1 >found
same found want "evaluations of a calibrated model"

# ---- features ----
label r1 far --doubtful-features 0.95 --doubtful 9
awk 'NR == FNR { seen[FNR] = $5; next }
FNR > 1 { if (seen[FNR] == 7) { t++; far += $9 == 9 } else { n++; near += $9 == 9 } }
END {
    printf "unseen %d of %d, seen %d of %d\n", far, t, near, n
    exit !(far > 0.6 * t && near < 0.1 * n)
}' c.txt far/c.txt || fail "unseen objects"
for n in 2 3; do
    run $n 0 label r1 c.txt --out far$n --field-type float32 --confidence --probabilities all \
        --entropy --doubtful-features 0.95 --doubtful 9 run.threads=1 --block 12 --overlap 3
done
same_files far2 far3 "of 2 and 3 ranks, in blocks"
run 1 2 label before c.txt --out x --doubtful-features 0.95
says err 'does not have its classes. features: `sptrain calibrate` finds them'
run 1 2 label r1+r2 c.txt --out x --doubtful-features 0.95
says err 'name one model'
run 1 2 label r1 c.txt --out x --doubtful-features 1
says err 'expected a number above 0 and below 1'

# ---- refused ----
run 2 2 calibrate
says err 'expected RUN'
run 1 2 calibrate r1 --fast
says err 'expected SECTION.KEY=VALUE'
run 2 3 calibrate nowhere
says err 'nowhere'
spvox convert --voxel-size 1 --features intensity,height --map 5=low,6=high --out empty c.txt
run 2 3 calibrate r2 'data.val="empty-*.h5"'
says err 'no voxel of data.val has a label'
# A training goes on from a calibrated checkpoint, and from there without a calibration.
run 1 0 base.deck run.dir=r3 'data.val="v-*.h5"' train.steps=84
exit 0
