#!/bin/sh
# After the first epoch no step on an emulated CUDA device allocates memory, of the device
# or pinned; `sptrain check` foresees the memory of a run to 5 %.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_memory

run() { # run PROGRAM ARGUMENTS...
    timeout -k 5 "$limit_s" "$@" >out 2>&1 || fail "$*"
}

scene tiny 4 7
cat >dummy.deck <<'END'
data : { train = ["tiny*.h5"]; val = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 2; eval_size = 2; };
net : { family = "dummy"; width = 0.1; };
train : { epochs = 3; warmup_steps = 0; lr = 0.01; };
run : { device = "cuda"; log_every = 1; threads = 1; };
END

# An epoch has 2 steps, and the self-test's steps come first; an evaluation and a checkpoint
# follow each epoch. From the second epoch's first step on the number stays.
run "$SPTRAIN" train dummy.deck run.dir=run
sed -n 's/^step .* memory calls //p' out | tail -4 >late
[ "$(wc -l <late)" = 4 ] || fail "6 steps expected"
[ "$(sort -u late | wc -l)" = 1 ] || fail "steps that ask for memory: $(tr '\n' ' ' <late)"
grep -q '^arena activations: ' out || fail "no arenas"

# Compares the bytes in use of all arenas but those of the self-tests with the memory that
# was foreseen.
foreseen() { # foreseen DECK
    run "$SPTRAIN" check "$1"
    sed -n 's/.*memory: about \([0-9.]*\) MiB of each device.*/\1/p' out >mib
    [ -s mib ] || fail "check says nothing of the device"
    run "$SPTRAIN" train "$1" run.dir="run-$1"
    sed '1,/^arena self-test/d; /^arena self-test/d' out |
        sed -n 's/^arena .*: \([0-9]*\) bytes of .*/\1/p' |
        awk -v mib="$(cat mib)" -v deck="$1" '{ sum += $1 }
            END { taken = sum / 1048576; error = mib / taken - 1
                  printf "%s: %.2f MiB foreseen, %.2f taken\n", deck, mib, taken
                  exit error < -0.05 || error > 0.05 || taken < 0.5 }' ||
        fail "$1: not what was foreseen"
}

# The third is so small that scratch of the self-test, 0.2 MiB which nobody foresees, would
# show.
scene one 1 44 5
scene two 1 24 5
scene three 1 12 5
cat >wide.deck <<'END'
data : { train = ["one*.h5"]; val = []; voxel_size = 0.7; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = 1; };
net : { family = "dummy"; width = 0.25; };
train : { epochs = 3; warmup_steps = 0; };
run : { device = "cuda"; threads = 1; wgmma = false; };
END
sed 's/one/two/
     s/family = "dummy".*/family = "minkunet14A"; width = 0.125; stem_kernel = 5; };/
     s/warmup/optimizer = "adamw"; precision = "bf16"; warmup/' wide.deck >deep.deck
sed 's/one/three/' wide.deck >small.deck
sed 's/one/two/; s/0.25/0.05/; s/warmup/loss = "lovasz"; warmup/' wide.deck >loss.deck
foreseen wide.deck
foreseen loss.deck
foreseen small.deck
foreseen deep.deck
