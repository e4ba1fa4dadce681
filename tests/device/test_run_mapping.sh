#!/bin/sh
# The program maps ranks to emulated devices: each mistake is refused with one line that
# names who and what to do, and an allowed mapping trains.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda

scene tiny 2 9
cat >d.deck <<'END'
data : { train = ["tiny*.h5"]; val = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 2; eval_size = 2; };
net : { layers = ( { name = "c"; op = "conv"; out = 5; kernel = 3; bias = true; } ); };
train : { steps = 2; warmup_steps = 0; lr = 0.01; };
run : { device = "cuda"; log_every = 1; threads = 1; };
END

# refuses RANKS STATUS TEXT ARGUMENTS...
refuses() {
    ranks=$1 code=$2 text=$3
    shift 3
    rm -rf run
    refused "$ranks" "$code" "$text" train d.deck run.dir=run "$@"
}

export HC_DEVICES
HC_DEVICES=0
refuses 2 7 "no usable CUDA device"
export HC_DRIVER
HC_DRIVER=0
refuses 2 7 "no usable CUDA device for run.device: no driver"
HC_DRIVER=12040
refuses 2 7 "the driver is too old: it serves CUDA up to 12.4, this program"
unset HC_DRIVER
export HC_CAPABILITY
HC_CAPABILITY=75 HC_DEVICES=2
refuses 2 7 "emulated device: compute capability 7.5; 8.0 is the least"
unset HC_CAPABILITY
HC_DEVICES=1
refuses 2 7 "ranks 0 and 1 on .* have the same device, emulated"
HC_DEVICES=2
refuses 3 7 "rank 2/3.*error: 3 ranks on .* has 2 CUDA devices"
HC_DEVICES=8
refuses 2 7 "have the same device" 'run.devices=[1, 1]'
refuses 2 2 "run.devices names device 9, the process sees 8" 'run.devices=[0, 9]'
refuses 3 2 "run.devices names 2 devices, the node .* runs 3 ranks" 'run.devices=[0, 1]'

# Three mappings are allowed: one device each; a device shared on purpose; a made-up node
# for each rank with one device each.
run 2 0 train d.deck run.dir=two
steps two >want
export HC_PAGEABLE=1 HC_LAZY=1
run 2 0 train d.deck run.dir=late
unset HC_PAGEABLE HC_LAZY
yields want "copies that read the host's memory late: other losses" steps late
run 2 0 train d.deck run.dir=named 'run.devices=[5, 3]'
yields want "named devices: other losses" steps named
HC_DEVICES=1
run 2 0 train d.deck run.dir=shared run.oversubscribe=true
yields want "two ranks on one device: other losses" steps shared
SP_RANKS_PER_NODE=1
export SP_RANKS_PER_NODE
run 2 0 train d.deck run.dir=nodes
unset SP_RANKS_PER_NODE

# preflight shows the mapping.
HC_DEVICES=8
run 2 0 preflight d.deck 'run.devices=[5, 3]'
says out "^ *0  *5  *GPU-.*-[0-9a-f]*05  *0000:e5:00.0 .*emulated device"
says out "^ *1  *3  *GPU-.*-[0-9a-f]*03  *0000:e3:00.0 .*emulated device"

# An error after the mapping has its message too.
refuses 2 3 "none\*.h5: no such file" 'data.train=["none*.h5"]'

# auto without a device trains on the CPU and says why; a wrong deck is refused all the same.
HC_DEVICES=0
run 1 0 train d.deck run.dir=auto run.device=auto
says out "takes the CPU: no usable CUDA device for run.device"
HC_DEVICES=8
refuses 1 2 "run.devices names device 9" run.device=auto 'run.devices=[9]'
echo "ok"
