# Weights of one random network, written by a script in the layouts, names and containers of
# other programs, are imported to the same bits; export and import keep the bits too.
. "$SP_SRCDIR/tests/fixtures/program.sh"
find_python json
files=$SP_SRCDIR/tests/weights/weights_files.py
"$SP_BUILDDIR/spvox" scene --out s --samples 1 --extent 12 --seed 3 >out 2>err || fail scene

# network FAMILY [KEYS]: trains FAMILY for two steps with these keys of section train; its weights
# are FAMILY/ours.safetensors.
network() {
    family=$1
    mkdir -p "$family"
    deck "family = \"$family\"; width = 0.04;" 'train = "s*.h5"; val = "s*.h5";' 'size = 1;' \
        "steps = 2; ${2-}" "threads = 1; eval_every = 0; dir = \"$family/run\";"
    mv base.deck "$family/deck"
    "$SPTRAIN" train "$family/deck" >out 2>err || fail "train $family"
    "$SPTRAIN" weights export "$family/run" -o "$family/ours.safetensors" >out 2>err ||
        fail "export $family"
}

# imports LAYOUT NAMES [OPTIONS]: x holds the network of $family.
imports() {
    layout=$1 names=$2
    shift 2
    "$SPTRAIN" weights import x --layout "$layout" --names "$names" --deck "$family/deck" \
        -o x.h5 "$@" >out 2>err || fail "import $family $layout $names"
    "$SPTRAIN" weights export x.h5 --deck "$family/deck" -o back.safetensors >out 2>err ||
        fail "export of the import"
    "$python" "$files" same "$family/ours.safetensors" back.safetensors ||
        fail "$family, $layout, $names: other weights"
}

# foreign LAYOUT NAMES CONTAINER: a file by the script, in the words of the script.
foreign() {
    "$python" "$files" write "$family/ours.safetensors" "$1" "$2" "$3" x || fail "write $*"
}

# round LAYOUT NAMES [OPTIONS]: a file by export.
round() {
    rm -f x.safetensors
    layout=$1 names=$2
    shift 2
    "$SPTRAIN" weights export "$family/run" --layout "$layout" --names "$names" "$@" \
        -o x.safetensors >out 2>err || fail "export $layout $names"
    mv x.safetensors x
    imports "$layout" "$names" "$@"
}

network minkunet14A
foreign minkowski me safetensors
imports minkowski me
foreign torchsparse me safetensors
imports torchsparse me
foreign minkowski pointcept-me zip2
imports minkowski pointcept
foreign spconv1 ours zip4
imports spconv1 ours
foreign spconv2-zyx ours old2
imports spconv2 ours --axes zyx
for each in ours minkowski torchsparse spconv2 spconv1; do
    round "$each" me
done
round spconv2 ours --axes zyx

# A map file stands for names that the program does not know.
foreign minkowski me safetensors
printf '%s\n' '# ME in our words' '(.*)\.bn\.(.*)   \1.\2' '(.*)\.kernel \1.weight' \
    '(.*\.bias) \1' >map
imports minkowski map

# The batch norms of a frozen block are ones and zeros, which the script stores once each.
network spunet 'freeze = "enc.2.block0";'
foreign spconv2 pointcept zip2
imports spconv2 pointcept
foreign spconv2 pointcept old4
imports spconv2 pointcept
round spconv2 pointcept
"$SPTRAIN" weights export spunet/run --layout spconv2 --names pointcept -o p.safetensors \
    >out 2>err || fail "export of spunet"
"$python" "$files" shapes p.safetensors spunet 0.04 || fail "spunet is not Pointcept's"
network minkunet18w32
"$SPTRAIN" weights export minkunet18w32/run --layout torchsparse --names spvnas \
    -o p.safetensors >out 2>err || fail "export of minkunet18w32"
"$python" "$files" shapes p.safetensors spvnas 0.04 || fail "minkunet18w32 is not spvnas's"
# spvnas's cr = 0.5 and 0.64, layer by layer.
for each in minkunet18w16:0.5 minkunet18w20:0.64; do
    family=${each%:*}
    mkdir -p "$family"
    sed "s/minkunet18w32/$family/; s/width = [0-9.]*/width = 1.0/" minkunet18w32/deck >"$family/deck"
    "$SPTRAIN" train "$family/deck" run.dir="$family/run" train.steps=1 >out 2>err ||
        fail "training of $family"
    "$SPTRAIN" weights export "$family/run" --layout torchsparse --names spvnas \
        -o p.safetensors >out 2>err || fail "export of $family"
    "$python" "$files" shapes p.safetensors spvnas-cr "${each#*:}" || fail "$family is not spvnas's"
done
family=minkunet18w32
foreign torchsparse spvnas zip5
imports torchsparse spvnas
for each in torchsparse spconv2 minkowski; do
    foreign "$each" mmdet3d safetensors
    imports "$each" mmdet3d
    round "$each" mmdet3d
done
test ! -e was-run || fail "something of a pickle was run"

family=minkunet14A
# Of several sets of weights the one that is no average is taken, and the other is named.
foreign minkowski me averaged
imports minkowski me
averaged() {
    "$SPTRAIN" weights import x --layout minkowski --names me --deck "$family/deck" -o x.h5 \
        "$@" >out 2>err || fail "import of two sets $*"
}
averaged
grep -q 'prefix semantic-model\.$' out || fail "another prefix"
grep -q 'as many under another prefix: --prefix ema\.$' out || fail "the average is not named"
averaged --prefix ema.
"$SPTRAIN" weights export x.h5 --deck "$family/deck" -o back.safetensors >out 2>err ||
    fail "export of the average"
! "$python" "$files" same "$family/ours.safetensors" back.safetensors 2>err ||
    fail "--prefix takes no average"
# A tensor of a type that no network has does not matter.
foreign torchsparse me strange
imports torchsparse me
"$SPTRAIN" weights list x >out 2>err || fail "list of an unknown type"
grep -q '^strange *? .*its type is unknown$' out || fail "the unknown type is not listed"

# The report names what is missing, what is left over and which shapes differ.
foreign minkowski me safetensors
sed 's/final\.kernel/Final.kernel/' x >y
sed 's/0\.04/0.05/' minkunet14A/deck >wide.deck
"$SPTRAIN" weights import y --layout minkowski --names me --deck minkunet14A/deck -o y.h5 \
    >out 2>err
test $? -eq 3 || fail "a missing parameter is no failure"
grep -q 'missing in the file: final.kernel' out || fail "the missing one is not named"
grep -q 'left over in the file: Final.kernel' out || fail "what is left over is not named"
test ! -e y.h5 || fail "something was written"
"$SPTRAIN" weights import y --layout minkowski --names me --deck minkunet14A/deck -o y.h5 \
    --partial >out 2>err || fail "--partial"
"$SPTRAIN" weights import x --layout minkowski --names me --deck wide.deck -o z.h5 >out 2>err
test $? -eq 3 || fail "other shapes are no failure"
grep -q 'other shape: conv1p1s2.kernel: .*, expected ' out || fail "no shapes"

# What was left out begins afresh: fine-tuning from a file of which one layer is missing.
"$SPTRAIN" train minkunet14A/deck run.dir=tuned run.init_from=y.h5 'run.init_skip=["final"]' \
    train.steps=3 >out 2>err || fail "fine-tuning"
"$SPTRAIN" train minkunet14A/deck run.dir=tuned2 run.init_from=y.h5 >out 2>err
test $? -eq 3 || fail "a missing layer is begun without a word"

# The generating convolution of spconv is refused by name.
sed 's/width = 0.04/width = 0.04; kernel_down = 3/' minkunet14A/deck >three.deck
"$SPTRAIN" train three.deck run.dir=three >out 2>err || fail three
"$SPTRAIN" weights export three -o three.safetensors >out 2>err || fail "export three"
"$python" "$files" write three.safetensors spconv2 ours safetensors x
"$SPTRAIN" weights import x --layout spconv2 --names ours --deck three.deck -o x.h5 >out 2>err
test $? -eq 3 || fail "the generating convolution is taken for ours"
grep -q 'SparseConv3d' out || fail "the generating convolution is not named"
