# A file that the real torch wrote from the real spconv 2.3.8: its tensors are listed, its
# submanifold layers and batch norm agree with plain numpy, and the whole network agrees with
# what spconv computed, to the file's own tolerance. The file is optional: SP_GOLDEN, or
# shared/data/spconv_golden/golden_net.pt beside the source folder.
. "$SP_SRCDIR/tests/fixtures/program.sh"
golden=${SP_GOLDEN-$SP_SRCDIR/../shared/data/spconv_golden/golden_net.pt}
test -e "$golden" || skip "no golden_net.pt"
"$SPTRAIN" weights list "$golden" >out 2>err || fail list
for case in 0 1; do
    test "$(grep -c "^cases.$case.state_dict" out)" -eq 17 || fail "tensors of case $case"
done
grep -q 'cases.0.state_dict.down.weight *F32 *\[32, 3, 3, 3, 16\] *55296 bytes' out ||
    fail "the shape of a kernel"
grep -q 'cases.1.state_dict.head.bias *F16 *\[8\] *16 bytes' out || fail "a bias in float16"

find_python h5py,numpy
cat >deck <<'DECK'
data : { train = "g.h5"; val = "g.h5"; voxel_size = 0.1; normalize = false; };
net : { layers = (
    { name = "stem.0"; op = "conv"; out = 16; kernel = 3; },
    { name = "stem.1"; op = "batchnorm"; }, { name = "stem.2"; op = "relu"; },
    { name = "stem.3"; op = "conv"; out = 16; kernel = 3; } ); };
run : { logits = true; threads = 1; dir = "run"; };
DECK
reference=$SP_SRCDIR/tests/weights/golden_reference.py
"$python" "$reference" shard "$golden" g.h5 16 || fail "the shard"
"$SPTRAIN" weights import "$golden" --layout spconv2 --names ours --deck deck -o w.h5 \
    --prefix cases.0.state_dict. >out 2>err || fail import
grep -q 'left over in the file: cases.0.state_dict.down.weight' out ||
    fail "the generating convolution is not among what is left over"
"$SPTRAIN" predict deck run.checkpoint=w.h5 >out 2>err || fail predict
"$python" "$reference" same "$golden" run/predictions/g.h5 || fail "other numbers"

# The whole network: its 3^3 convolution of stride 2 generates voxels within a grid of 32^3.
cat >whole.deck <<'DECK'
data : { train = "g8.h5"; val = "g8.h5"; voxel_size = 0.1; normalize = false; };
augment : { flip = false; rotate_z = false; scale = []; drop = 0.0; jitter = 0.0; };
batch : { size = 4; };
train : { steps = 1; lr = 0.0; };
net : { bn_momentum = 1.0; grid = [32, 32, 32]; layers = (
    { name = "stem.0"; op = "conv"; out = 16; kernel = 3; },
    { name = "stem.1"; op = "batchnorm"; }, { name = "stem.2"; op = "relu"; },
    { name = "stem.3"; op = "conv"; out = 16; kernel = 3; },
    { name = "down"; op = "conv"; out = 32; kernel = 3; stride = 2; coordinates = "dilated"; },
    { name = "mid.0"; op = "conv"; out = 32; kernel = 3; },
    { name = "mid.1"; op = "batchnorm"; }, { name = "mid.2"; op = "relu"; },
    { name = "up"; op = "conv_transpose"; out = 16; kernel = 3; stride = 2; },
    { name = "cat"; op = "concat"; from = ["up", "stem.3"]; },
    { name = "head"; op = "conv"; out = 8; kernel = 1; bias = true; } ); };
run : { logits = true; threads = 1; dir = "whole"; };
DECK
"$python" "$reference" shard "$golden" g8.h5 8 || fail "the shard"
import_whole() {
    "$SPTRAIN" weights import "$golden" --layout spconv2 --names ours --deck "$1" -o w8.h5 \
        --prefix cases.0.state_dict. >out 2>err
}
import_whole whole.deck || fail "import of the whole network"
# spconv's numbers are a training's: a step without a learning rate takes its statistics.
"$SPTRAIN" train whole.deck run.dir=step run.init_from=w8.h5 >out 2>err || fail step
"$python" "$reference" biased "$golden" step/checkpoints/step-000000001.h5 b8.h5 ||
    fail statistics
"$SPTRAIN" predict whole.deck run.checkpoint=b8.h5 >out 2>err || fail predict
"$python" "$reference" whole "$golden" whole/predictions/g8.h5 || fail "other numbers than spconv"

# A convolution of stride 2 that generates nothing is another operation.
sed 's/ coordinates = "dilated";//' whole.deck >floor.deck
import_whole floor.deck
test $? -eq 3 || fail "the generating convolution is taken for ours"
grep -q 'other operation: cases.0.state_dict.down.weight: .*SparseConv3d' out ||
    fail "the generating convolution is not named"
grep -q 'other operation: cases.0.state_dict.up.weight' out || fail "its inverse is not named"
