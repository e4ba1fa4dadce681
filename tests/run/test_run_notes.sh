#!/bin/sh
# What a colleague would say before a training is said once, in its case and in no other:
# by check and by the training, on one rank and on several.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 && "$SHARDS" plain p.h5 || fail "make_shards"
dummy_deck u.h5 'size = 1;' 'steps = 2; warmup_steps = 0; schedule = "constant";'

# told RANKS TEXT ARGUMENTS...: check and the training warn of it once; untold: check, which
# says what the training says, does not.
told() {
    ranks=$1 text=$2
    shift 2
    for command in check train; do
        run "$ranks" 0 $command base.deck run.dir=r run.resume=never "$@"
        test "$(grep -c "warning: .*$text" err)" = 1 ||
            fail "$(grep -c "$text" err) times in $command of $*: $text"
    done
}
untold() {
    ranks=$1 text=$2
    shift 2
    run "$ranks" 0 check base.deck run.dir=r run.resume=never "$@"
    says_not err "$text"
}

# A batch that grew with the ranks; a deck that names lr_scale has decided.
grown='2 samples, 2 times batch.size, but train.lr = 0.1 is not scaled'
told 2 "$grown" batch.per=rank
untold 1 'is not scaled' batch.per=rank
untold 2 'is not scaled' batch.per=node
untold 2 'is not scaled' batch.size=2
untold 2 'is not scaled' batch.per=rank train.lr_scale=none
untold 2 'is not scaled' batch.per=rank train.lr_scale=sqrt

# Linear scaling without warm-up.
warm='linear" makes the learning rate 2 times train.lr from the first step on'
told 2 "$warm" batch.per=rank train.lr_scale=linear
untold 2 'linear scaling' batch.per=rank train.lr_scale=linear train.warmup_steps=1
untold 2 'linear scaling' batch.per=rank train.lr_scale=linear train.schedule=onecycle
untold 2 'linear scaling' train.lr_scale=linear
untold 2 'linear scaling' batch.per=rank train.lr_scale=sqrt

# SGD that is named without a momentum.
told 1 'they are 0.9 and true, while PyTorch.s SGD has 0 and false' train.optimizer=sgd
untold 1 'PyTorch.s SGD'
untold 1 'PyTorch.s SGD' train.optimizer=adamw
untold 1 'PyTorch.s SGD' train.optimizer=sgd train.momentum=0.9
untold 1 'PyTorch.s SGD' train.optimizer=sgd train.nesterov=false

# A step of more than 32 samples, and of more than a tenth of all.
cp u.h5 copy.h5
cp u.h5 third.h5
three='data.train=["u.h5","copy.h5","third.h5"]'
told 1 'a step has 33 of the 45 samples of data.train, more than a tenth' batch.size=33 "$three"
told 2 'a step has 34 of the 45 samples of data.train, more than a tenth' batch.size=17 batch.per=rank "$three"
untold 1 'more than a tenth' batch.size=32 "$three"
untold 2 'more than a tenth' batch.per=rank
untold 1 'more than a tenth' batch.size=15

# Ranks without samples.
told 2 '1 of the 2 ranks has nothing to do in a step of 1 sample'
untold 2 'nothing to do' batch.size=2

# A step has at most all samples, in words, in the learning rate and in the warm-up.
told 2 'a step of 2000 samples is asked for (.*, and data.train has 15: each step has 15 samples' \
    batch.size=1000 batch.per=rank
untold 2 'is asked for' batch.size=15
run 2 0 check base.deck batch.size=60 train.lr_scale=linear
says out '^batch: 15 samples a step in the world, 15 a node, 7.5 a rank; 1 step an epoch; effective learning rate 0.025'
run 2 0 base.deck run.dir=warm batch.size=150 train.warmup_steps=2 run.log_every=1
test "$(sed -n 's/.*"event":"step".*"lr":\([^,]*\),.*/\1/p' warm/metrics.jsonl | tr '\n' ' ')" = \
    '0.050000000000000003 0.10000000000000001 ' || fail "warm-up of steps of all samples"

# An average that is longer than the training.
told 1 'train.ema = 0.99 averages over about 100 steps, and the training has 30: 75 % of its average are' \
    train.ema=0.99 train.steps=30
untold 1 'averages over' train.ema=0.9 train.steps=30
untold 1 'averages over' train.ema=0.99 train.epochs=100 train.steps=0
untold 1 'averages over' train.ema=0.9 train.steps=4

# A file in data.train and in data.val, under any name.
ln -s u.h5 link.h5
told 2 'files of data.val that are in data.train too: 1 of 1'
told 1 'files of data.val that are in data.train too: 1 of 1' data.val=link.h5
untold 1 'in data.train too' data.val=copy.h5
untold 1 'in data.train too' data.val='[]'
untold 1 'in data.train too' run.eval_every=0

# A file of several names counts once.
told 1 'link.h5 are one file, which counts once (.*: 1 of 2)' data.train='["u.h5", "link.h5"]'
says out '^data: 15 training samples'
told 1 'u.h5 and u.h5 are one file, which counts once (.*: 2 of 3)' data.train='["u.h5", "u.h5", "*u.h5"]'
untold 1 'counts once' data.train='["u.h5", "copy.h5"]'
says out '^data: 30 training samples'

# Classes that only the validation data have.
for set in '12 train' '13 val' '1 few'; do
    awk -v codes="${set% *}" 'BEGIN { for (i = 0; i < 300; i++)
        print i % 20, int(i / 20), 0, substr(codes, 1 + i % length(codes), 1) }' >"${set#* }.txt"
    timeout "$limit_s" "$SP_BUILDDIR/spvox" convert --out "${set#* }" --columns x,y,z,label \
        --voxel-size 1 --map '1=ground,2=tree,3=car' "${set#* }.txt" >out 2>err || fail "spvox"
done
T=-00000-of-00001.h5
for n in 1 2; do
    told $n '1 class of data.val without a voxel in data.train: car (150 voxels); nothing can learn it' \
        data.voxel_size=1 data.train=train$T data.val=val$T
done
told 1 '2 classes of data.val without a voxel in data.train: tree (150 voxels), car' \
    data.voxel_size=1 data.train=few$T data.val="[\"val$T\", \"train$T\"]"
untold 1 'without a voxel in' data.voxel_size=1 data.train=train$T data.val=few$T
untold 1 'without a voxel in' data.voxel_size=1 data.train=train$T data.val=val$T run.eval_every=0

# "~/" is the user's folder in each key that is a path, in decks too.
mkdir home 'home/~x'
cp u.h5 home/u.h5
HOME=$dir/home
export HOME
run 2 0 base.deck run.dir='~/r' data.train='~/u.h5' data.val='["~/u.h5"]'
test -e home/r/status.json && test ! -e '~' || fail "no run in ~/r"
run 1 0 base.deck run.dir='~/s' run.init_from='~/r/checkpoints/best.h5'
run 1 0 eval base.deck run.dir='~/t' run.checkpoint='~/r/checkpoints/best.h5'
run 1 0 base.deck run.dir='~/s' run.resume='~/s/checkpoints/step-000000002.h5' train.steps=3
sed 's|run : {|run : { dir = "~/d"; |' base.deck >home.deck
run 1 0 home.deck
test -e home/d/status.json || fail "no run in ~/d of a deck"
says home/d/deck.resolved "dir = \"$dir/home/d\""
refused '1 2' 2 'run.dir = "~nobody/r": expected ~/ or a whole path' base.deck run.dir='~nobody/r'
run 1 0 base.deck run.dir='./~nobody'
HOME=
refused 1 2 'run.dir = "~/r": the variable HOME is not set' base.deck run.dir='~/r'
exit 0
