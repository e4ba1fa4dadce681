#!/bin/sh
# The head of minkunet34v2w32 interpolates strides 16 and 4 (net.upsample): the same bits on
# any number of ranks and after a continuation, memory foreseen; "nearest" is another
# network, which a checkpoint keeps.
. "$SP_SRCDIR/tests/fixtures/program.sh"
spvox scene --out s --samples 5 --extent 20 --seed 3
deck 'family = "minkunet34v2w32"; width = 0.1;' 'train = ["s-*.h5"]; val = ["s-*.h5"];' 'size = 2;' \
    'epochs = 2; warmup_steps = 0; schedule = "constant"; deterministic = "world"; lr = 0.01;' 'log_every = 1;'
last=6
same_on_ranks linear $last
run 2 0 base.deck run.dir=nearest net.upsample=nearest
sums nearest $last >nearest.sums
cmp -s want nearest.sums && fail "net.upsample changes nothing"
run 1 0 base.deck run.dir=again train.recompute=true
yields want "recomputation" sums again $last

# eval takes the checkpoint's network; a continued run may not change it.
run 2 0 eval base.deck run.dir=nearest run.checkpoint=nearest/checkpoints/step-00000000$last.h5
evaluations nearest >got
last evals nearest >expected
same expected got "the network of a checkpoint"
refused '1 2' 2 'net.upsample: checkpoint "nearest", deck "trilinear"; it must stay the same' check base.deck run.dir=nearest

takes_foreseen base.deck net.width=0.5 run.device=cpu run.threads=1
run 1 0 check base.deck net.family=minkunet34w32 net.upsample=nearest
says err 'ignored, not used by minkunet34w32: net.upsample'
