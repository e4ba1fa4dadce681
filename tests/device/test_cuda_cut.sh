#!/bin/sh
# A step that needs more than the memory of an emulated device is cut and does not fail. It
# has the bits of a deck that asks for as many micro-batches, on one rank and on two, and of
# an uninterrupted run when it is continued, whatever is free by then. A sample that does
# not fit by itself is named and ends the run with status 5; if it would fit with
# train.recompute, the message says so, and it does.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
scene s 1 14 4
for i in 1 2 3 4 5 6; do cp s-00000-of-00001.h5 t$i.h5; done
# Much memory, little work: each activation takes some MiB for the six samples.
{
    echo 'data : { train = ["t*.h5"]; val = ["s-*.h5"]; voxel_size = 0.7; };'
    echo 'batch : { size = 6; eval_size = 6; };'
    echo 'net : { layers = ( { name = "c"; op = "conv"; out = 64; kernel = 1; },'
    echo '{ name = "b"; op = "batchnorm"; },'
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28; do
        echo "{ name = \"l$i\"; op = \"leaky_relu\"; slope = 0.5; },"
    done
    echo '{ name = "f"; op = "conv"; out = 5; kernel = 1; bias = true; } ); };'
    echo 'train : { steps = 3; warmup_steps = 0; lr = 0.01; schedule = "constant"; };'
    echo 'run : { device = "cuda"; threads = 1; log_every = 1; };'
} >d.deck

micro() {
    sed -n 's/.*"event":"step".*"micro_batches":\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '
}

# same_weights DIR DIR WHAT
same_weights() {
    sums "$1" 3 >got
    yields got "$3" sums "$2" 3
}

# Devices of 46 MiB, 40 of them for a rank.
for ranks in 1 2; do
    HC_MEMORY=46 run $ranks 0 train d.deck run.dir=cut$ranks
    says err "memory: a rank may use 40.0 of the 46.0 MiB that a device has for it, and the largest step needs about .* cut into micro-batches, the largest into .; batch statistics are computed for each micro-batch"
    parts=$(micro cut$ranks | cut -c 1)
    test "$(micro cut$ranks)" = "$parts $parts $parts " || fail "cut into $(micro cut$ranks)"
    test "$parts" = $((4 - ranks)) || fail "$ranks ranks: cut into $parts micro-batches"
    says cut$ranks/deck.resolved 'memory_mb = 40'
    run $ranks 0 train d.deck run.dir=asked$ranks batch.accumulate="$parts"
    says out 'memory: a rank may use 224.0 of the 256.0 MiB'
    same_weights cut$ranks asked$ranks "other weights than with batch.accumulate=$parts"
done
# Per rank two samples fit: that many voxels as a budget cut alike.
run 2 0 train d.deck run.dir=voxels batch.voxel_budget=1300
same_weights cut2 voxels "other weights than with batch.voxel_budget"
HC_MEMORY=46 run 1 0 check d.deck
says err 'memory: a rank may use 40.0 of the 46.0 MiB .* the largest into 3'

# When it goes on with more memory, or with less that is enough, it is cut as before. With
# too little it goes on too, and says that sums change.
run_half() {
    HC_MEMORY=46 run 1 0 train d.deck run.dir="$1" train.steps=2
}
run_half more
run 1 0 train d.deck run.dir=more
same_weights more cut1 "continued with more memory: other weights"
run_half used
HC_MEMORY=46 HC_USED=2 run 1 0 train d.deck run.dir=used
same_weights used cut1 "continued with less free: other weights"
run_half less
HC_MEMORY=37 run 1 0 train d.deck run.dir=less
says err 'run.memory_mb = 40, .* has 3[0-7].0 MiB free .* are not the bits'

# Other programs use so much of the device that less than a rank's share is free.
HC_MEMORY=100 HC_USED=50 run 1 0 train d.deck run.dir=pressed train.steps=1
says err 'a device has 50.0 MiB free for a rank, of 87.0: others use it.* run.memory_mb=48'
says pressed/deck.resolved 'memory_mb = 48'

# A sample needs more than all of the memory, which suffices for the self-test.
scene big 1 28 4
cp big-00000-of-00001.h5 t7.h5
mv big-00000-of-00001.h5 t8.h5
for ranks in 1 2; do
    HC_MEMORY=24 run $ranks 5 train d.deck 'data.train=t[78].h5' batch.size=$ranks \
        run.eval_every=0 run.dir=small$ranks
    one_diagnosis 'sample [0-9] of t[0-9].h5 ([0-9]* voxels) needs about [0-9.]* MiB by itself, expected at most the 21.0 MiB of a rank: arena .*: out of memory'
    says small$ranks/status.json '"exit_code":5'
done
scene huge 1 48 4
mv huge-00000-of-00001.h5 t9.h5
HC_MEMORY=46 run 1 5 train d.deck data.train=t9.h5 batch.size=1 run.eval_every=0 run.dir=huge
one_diagnosis 'sample 0 of t9.h5 ([0-9]* voxels) needs about [0-9.]* MiB by itself, expected at most the 40.0 MiB of a rank, or set train.recompute = true: it then needs about 3[0-9.]* MiB: arena .*: out of memory'
HC_MEMORY=46 run 1 0 train d.deck data.train=t9.h5 batch.size=1 run.eval_every=0 run.dir=fits \
    train.recompute=true train.steps=1
echo "cut, continued, refused"
