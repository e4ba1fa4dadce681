# A file that the real torch wrote from the real spconv 2.3.8: its tensors are listed, and its
# submanifold layers and batch norm agree with plain numpy. The file is optional: SP_GOLDEN, or
# shared/data/spconv_golden/golden_net.pt beside the source folder.
. "$SP_SRCDIR/tests/run/story.sh"
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
"$python" "$reference" shard "$golden" g.h5 || fail "the shard"
"$SPTRAIN" weights import "$golden" --layout spconv2 --names ours --deck deck -o w.h5 \
    --prefix cases.0.state_dict. >out 2>err || fail import
grep -q 'left over in the file: cases.0.state_dict.down.weight' out ||
    fail "the generating convolution is not among what is left over"
"$SPTRAIN" predict deck run.checkpoint=w.h5 >out 2>err || fail predict
"$python" "$reference" same "$golden" run/predictions/g.h5 || fail "other numbers"

# The generating convolution itself is refused by name.
cat >down.deck <<'DECK'
net : { layers = (
    { name = "stem.0"; op = "conv"; out = 16; kernel = 3; },
    { name = "down"; op = "conv"; out = 32; kernel = 3; stride = 2; },
    { name = "up"; op = "conv_transpose"; out = 16; kernel = 3; stride = 2; } ); };
DECK
"$SPTRAIN" weights import "$golden" --layout spconv2 --names ours --deck down.deck -o d.h5 \
    --prefix cases.0.state_dict. >out 2>err
test $? -eq 3 || fail "the generating convolution is taken"
grep -q 'other operation: cases.0.state_dict.down.weight: .*SparseConv3d' out ||
    fail "the generating convolution is not named"
