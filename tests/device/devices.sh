# The functions that tests of whole programs on emulated devices share, in addition to
# those of program.sh; they source this file.
. "$SP_SRCDIR/tests/fixtures/program.sh"
CPU=$SPTRAIN
CUDA=$SP_BUILDDIR/tests/device/sptrain_hostcuda

# scene NAME SAMPLES EXTENT [SEED]: writes shards NAME-*.h5.
scene() {
    "$SP_BUILDDIR/spvox" scene --out "$1" --samples "$2" --extent "$3" --seed "${4-3}" \
        --voxel-size 0.7 >out 2>err || fail "no data"
}

# smooth_net: a network with two levels, norms and a shortcut; it has no ReLU, where a
# rounding error could change a sign and so the losses by much.
smooth_net() {
    cat <<'END'
net : { layers = (
    { name = "c1"; op = "conv"; out = 8; kernel = 3; }, { name = "b1"; op = "batchnorm"; },
    { name = "c2"; op = "conv"; out = 12; kernel = 3; stride = 2; },
    { name = "b2"; op = "batchnorm"; },
    { name = "u"; op = "conv_transpose"; out = 8; kernel = 3; stride = 2; },
    { name = "a"; op = "add"; from = ["u", "b1"]; },
    { name = "f"; op = "conv"; out = 5; kernel = 1; bias = true; } ); };
END
}

# wide_net: the smallest network with a layer that wgmma multiplies.
wide_net() {
    cat <<'END'
net : { layers = (
    { name = "c1"; op = "conv"; out = 64; kernel = 1; },
    { name = "c2"; op = "conv"; out = 128; kernel = 3; stride = 2; },
    { name = "b2"; op = "batchnorm"; }, { name = "r2"; op = "relu"; },
    { name = "u"; op = "conv_transpose"; out = 8; kernel = 2; stride = 2; },
    { name = "f"; op = "conv"; out = 5; kernel = 1; bias = true; } ); };
END
}

# three_steps RUN-KEYS: writes d.deck, which trains smooth_net for three steps of four samples
# on devices, with these keys of group run besides, and makes its samples.
three_steps() {
    scene tiny 4 6
    smooth_net >d.deck
    cat >>d.deck <<END
data : { train = ["tiny*.h5"]; val = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 4; eval_size = 4; };
train : { steps = 3; warmup_steps = 0; lr = 0.01; };
run : { device = "cuda"; log_every = 1; threads = 1; eval_every = 0; $1 };
END
}

# losses DIR: those of the steps.
losses() {
    steps "$1" | cut -d' ' -f4
}

# close_to DIR DIR TOLERANCE: both have the same steps, and losses that are this close.
close_to() {
    near "$1" "$2" "$(steps "$2" | wc -l)" "$3" "$3"
}

# same_steps DIR DIR: both have the same steps, losses to the bit.
same_steps() {
    steps "$1" >want
    steps "$2" >got
    [ -s want ] || fail "no steps in $1"
    same want got "$1 and $2: other losses"
}
