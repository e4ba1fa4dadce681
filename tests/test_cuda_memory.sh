#!/bin/sh
# On an emulated CUDA device: after the first epoch no step asks for memory, of the device
# or pinned.
SPVOX=$SP_BUILDDIR/spvox
SPTRAIN=$SP_BUILDDIR/tests/sptrain_memory
[ -x "$SPTRAIN" ] || { echo "SKIPPED: no emulator in this build"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
    echo "FAILED: $*" >&2
    tail -5 out >&2
    exit 1
}

run() { # run PROGRAM ARGUMENTS...
    timeout 100 "$@" >out 2>&1 || fail "$*"
}

run "$SPVOX" scene --out tiny --samples 4 --extent 7 --seed 3 --voxel-size 0.7
cat >dummy.deck <<'END'
data : { train = ["tiny*.h5"]; val = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 2; eval_size = 2; };
net : { family = "dummy"; width = 0.1; };
train : { epochs = 3; warmup_steps = 0; lr = 0.01; };
run : { device = "cuda"; log_every = 1; threads = 1; };
END

# 2 steps an epoch, behind those of the device's self-test; an evaluation and a checkpoint
# after each epoch. From the second epoch's first step on the number stays.
run "$SPTRAIN" train dummy.deck run.dir=run
sed -n 's/^step .* memory calls //p' out | tail -4 >late
[ "$(wc -l <late)" = 4 ] || fail "6 steps expected"
[ "$(sort -u late | wc -l)" = 1 ] || fail "steps that ask for memory: $(tr '\n' ' ' <late)"
grep -q '^arena activations: ' out || fail "no arenas"
