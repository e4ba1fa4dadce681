#!/bin/sh
# eval.range evaluates as if the scans had been cut to the box: the same lines as of shards of
# the cut scans, on any number of ranks, while training and after it, with views, merged
# blocks and further models; predictions have all voxels; memory that is foreseen suffices.
. "$SP_SRCDIR/tests/fixtures/program.sh"
awk 'BEGIN { s = 7
    for (x = 0.1; x < 32; x += 0.4) for (y = 0.1; y < 24; y += 0.4) {
        s = (s * 1103515245 + 12345) % 2147483648
        z = (s % 1000) / 1000 * (x % 7 > 5 ? 4 : 0.4) + 0.1
        print x, y, z, (s % 89), (z > 1.2 ? 2 : x % 5 > 3) } }' >whole.txt
awk '$1 < 20' whole.txt >cut.txt
for scan in whole cut; do
    spvox convert --out $scan --voxel-size 0.5 --points --columns x,y,z,intensity,label \
        --map '0=low,1=strip,2=high' --features one,intensity $scan.txt
    spvox convert --out $scan-b --voxel-size 0.5 --points --columns x,y,z,intensity,label --block 8 --overlap 2 \
        --map '0=low,1=strip,2=high' --features one,intensity $scan.txt
done
range='eval.range=[-1e6,-1e6,-1e6,20,1e6,1e6]'
deck 'family = "minkunet14A"; width = 0.1; stem_kernel = 3;' 'train = "cut-0*.h5"; val = "cut-0*.h5";' \
    'size = 2;' 'steps = 8; warmup_steps = 2;' 'log_every = 4; eval_every = 4;'

run 2 0 base.deck run.dir=cut
evals cut >want
run 2 0 base.deck run.dir=whole "data.val=whole-0*.h5" "$range"
yields want "range while training" evals whole
run 1 0 base.deck run.dir=unlike "data.val=whole-0*.h5" 
evals unlike | cmp -s want - && fail "the range changes nothing"
for n in 1 2 3; do
    run $n 0 eval base.deck run.dir=cut-$n run.checkpoint=cut/checkpoints/best.h5
    evaluations cut-$n >want
    run $n 0 eval base.deck run.dir=whole-$n run.checkpoint=cut/checkpoints/best.h5 "data.val=whole-0*.h5" "$range"
    yields want "eval with a range on $n ranks" evaluations whole-$n
done

# Views and merged blocks count the same points; a further model sees the same voxels.
counts() {
    evaluations "$1" | tr -d ' ' | sed 's/"merged"/\n&/' | awk '/"merged"/ {
        sub(/.*"(point_)?confusion":/, ""); gsub(/[^0-9]+/, " "); for (i = 1; i <= 9; i++) sum += $i; print sum }'
}
for n in 1 3; do
    for keys in '0 eval.views=4' 'b eval.merge=true' 'b eval.merge=true eval.views=3'; do
        # shellcheck disable=SC2086 # a list of overrides
        set -- ${keys#* }
        run $n 0 eval base.deck "run.dir=m-$n-$#-$1" run.checkpoint=cut/checkpoints/best.h5 \
            "data.val=whole-${keys%% *}*.h5" "$range" "$@"
        test "$(counts "m-$n-$#-$1")" = 3000 || fail "$keys counts $(counts "m-$n-$#-$1") points, expected 3000"
    done
    run $n 0 eval base.deck run.dir=two-cut-$n run.checkpoint=cut/checkpoints/best.h5 'eval.members=["unlike"]'
    run $n 0 eval base.deck run.dir=two-$n run.checkpoint=cut/checkpoints/best.h5 'eval.members=["unlike"]' \
        "data.val=whole-0*.h5" "$range"
    evaluations two-cut-$n >want
    yields want "two models with a range on $n ranks" evaluations two-$n
done

# Predictions have all voxels, and the range does not change them.
for keys in eval.views=1 "$range"; do
    run 2 0 predict base.deck run.dir=p run.checkpoint=cut/checkpoints/best.h5 "data.val=whole-0*.h5" "$keys"
    mv p/predictions "p-$keys"
done
same_files p-eval.views=1 "p-$range" "predictions with a range"

# What is foreseen of a smaller range is less, and at least what is taken.
spvox scene --out s --samples 2 --extent 80 --seed 3
spvox scene --out t --samples 2 --extent 10 --seed 4
whole=
for keys in eval.views=1 'eval.range=[0,0,-100,20,20,100]'; do
    takes_foreseen base.deck "$keys" net.width=0.375 'data.train=t-*.h5' 'data.val=s-*.h5' run.threads=1
    whole=${whole:-$foreseen}
done
test "$foreseen" -lt $((whole * 2 / 3)) || fail "$foreseen MiB foreseen with a range, $whole without"

# A range beyond the data evaluates nothing, which is said; a malformed one is refused.
for n in 1 3; do
    run $n 0 eval base.deck run.dir=none-$n run.checkpoint=cut/checkpoints/best.h5 'eval.range=[100,0,0,200,100,100]'
    says err 'sample 0 of cut-0.* has no voxel within eval.range: nothing of it is evaluated (reported once)'
done
refused_twice 2 'eval.range takes \[\] or \[x0, y0, z0, x1, y1, z1\]' 'eval.range=[0,0,0,1,1]'
