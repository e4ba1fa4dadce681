#!/bin/sh
# The training thread stops a known number of times within a step for the device and for
# other ranks. With NCCL it stops once for the device, at the end, whatever the scope of
# batch norm. In exact mode and where MPI sums device memory it stops where the host has to
# take part:
#   mpi-staged, over a scope of several ranks   each norm, forward and backward
#   mpi-staged                                  the sums of gradients, then their square
#   deterministic = "world"                     each norm twice, each convolution (for
#                                               some MiB of samples), the loss, the end
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_waits
scene s 4 7
# The network has three norms and four convolutions, and its gradient five buckets.
cat >d.deck <<'DECK'
data : { train = ["s-*.h5"]; val = []; voxel_size = 0.7; };
batch : { size = 4; };
net : { family = "dummy"; width = 0.1; };
train : { steps = 3; warmup_steps = 0; lr = 0.01; };
run : { device = "cuda"; log_every = 0; threads = 1; eval_every = 0; bucket_mb = 0.001; };
DECK

# stops RANKS DEVICE PEERS OVERRIDES...: each step of each rank stops exactly DEVICE times
# for the device, and at most PEERS times for other ranks, NCCL's own threads included.
stops() {
    ranks=$1 device=$2 peers=$3
    shift 3
    rm -rf r
    run "$ranks" 0 train d.deck run.dir=r "$@"
    grep '^stops' err >got
    test "$(wc -l <got)" = $((3 * ranks)) || fail "$(wc -l <got) steps"
    awk -v d="$device" -v p="$peers" '$3 != d || $5 > p { print; bad = 1 } END { exit bad }' got ||
        fail "$ranks ranks, $*: more or less than device $device ranks $peers"
}

stops 1 1 0
stops 2 1 6
HC_PAGEABLE=1 stops 2 1 6 # devices that read pageable memory later, when it is their turn
SP_PEER_MEMORY=0 stops 2 1 12
stops 2 1 7 train.bn_scope=rank
SP_RANKS_PER_NODE=2 stops 3 1 7 train.bn_scope=node
stops 2 8 8 run.transport=mpi
stops 2 2 3 run.transport=mpi train.bn_scope=rank
stops 1 12 0 train.deterministic=world
stops 2 12 7 train.deterministic=world
echo "once a step by NCCL"
