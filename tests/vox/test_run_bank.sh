#!/bin/sh
# spvox bank collects the objects of classes, and augment.paste pastes them: the same on any
# number of ranks and after a continuation in the middle of an epoch; off keeps all bits;
# budgets and memory know of it; files and words that do not fit are refused.
. "$SP_SRCDIR/tests/fixtures/program.sh"
spvox scene --out s --samples 4 --extent 30 --seed 3
deck 'family = "minkunet14A"; width = 0.1; stem_kernel = 3;' 'train = ["s-*.h5"]; val = [];' 'size = 2;' \
    'epochs = 3; warmup_steps = 0; schedule = "constant"; deterministic = "world";' 'log_every = 1;'
last=6

# bank: the objects, with the bytes of any number of ranks.
spvox bank --out bank.h5 --classes vehicle,4 --min-voxels 3 s-*.h5
says out 'class 3 vehicle: [0-9]* objects of [0-9]* voxels'
says out 'class 4 wire: [0-9]* objects of [0-9]* voxels'
"$MPIEXEC" -n 3 "$SP_BUILDDIR/spvox" bank --out three.h5 --classes wire,vehicle --min-voxels 3 s-*.h5 >out 2>err ||
    fail "bank on 3 ranks"
cmp bank.h5 three.h5 || fail "the bank depends on the ranks"
spvox info bank.h5
says out 'shards 1 '
says out '0 ground  *0 '
test "$(sed -n 's/^ *3 vehicle *\([0-9]*\) .*/\1/p' out)" -gt 100 || fail "few voxels of vehicles"
cp out info
spvox bank --out again.h5 --classes vehicle,wire --min-voxels 1 bank.h5
spvox info again.h5
test "$(sed -n 's/^ *3 vehicle *\([0-9]*\) .*/\1/p' out)" = "$(sed -n 's/^ *3 vehicle *\([0-9]*\) .*/\1/p' info)" ||
    fail "a bank of the bank has other voxels"

keys='augment.paste=bank.h5 augment.paste_p=0.8 augment.paste_count=3 augment.mix=mix3d augment.mix_p=0.3'
# shellcheck disable=SC2086 # lists of overrides
{
    same_on_ranks paste $last $keys
    run 1 0 base.deck run.dir=plain
    sums plain $last >plain.sums
    cmp -s want plain.sums && fail "nothing is pasted"
    run 1 0 base.deck augment.paste=bank.h5 augment.paste_p=0 run.dir=off
    yields plain.sums "paste_p = 0 changes bits" sums off $last

    # Without other changes a sample has more voxels, by paste_voxels at most.
    same='augment.drop=0.0 augment.rotate_z=false augment.scale=[]'
    run 1 0 base.deck $same run.dir=few train.steps=2
    run 1 0 base.deck $same augment.paste=bank.h5 augment.paste_voxels=200 run.dir=more train.steps=2
    pasted=$({ voxels more; voxels few | sed 's/^/-/'; } | awk '{ n += $1 } END { print n }')
    test $pasted -gt 0 || fail "nothing is pasted"
    test $pasted -le 800 || fail "$pasted voxels are pasted"
    # The budget counts what may be pasted.
    run 1 0 base.deck $same augment.paste=bank.h5 augment.paste_voxels=5000 batch.voxel_budget=12000 run.dir=budget train.steps=2
    grep '"event":"step"' budget/metrics.jsonl | grep -qv '"micro_batches":2' && fail "pasted voxels are not counted"

    # What is foreseen is at least what is taken.
    takes_foreseen base.deck augment.paste=bank.h5 augment.paste_count=50 net.width=0.375 run.device=cpu run.threads=1

    # After the first epoch a step allocates nothing.
    allocates_nothing 1 $last 2 $keys
}

refused_twice 3 'augment.paste_classes: "car" is no class of s-.*, expected names of' augment.paste=bank.h5 'augment.paste_classes=["car"]'
refused_twice 3 'augment.paste: bank.h5: no object of the classes of augment.paste_classes' augment.paste=bank.h5 \
    'augment.paste_classes=["ground"]'
refused_twice 3 'absent.h5' augment.paste=absent.h5
"$SHARDS" plain other.h5 || fail "make_shards"
refused_twice 3 'other.h5' augment.paste=other.h5

# wrong STATUS TEXT ARGUMENTS...: spvox bank ends so, and leaves no file.
wrong() {
    status=$1 text=$2
    shift 2
    "$SP_BUILDDIR/spvox" bank --out none.h5 "$@" >out 2>err
    test $? = "$status" || fail "bank $*: status"
    says err "$text"
    test ! -e none.h5 || fail "bank $* leaves a file"
}
wrong 2 'no shard given' --classes 3
wrong 2 '--classes is missing' s-*.h5
wrong 2 '"car" is no class of' --classes car s-*.h5
wrong 3 'no object of 5000 to 20000 voxels of the classes vehicle' --classes vehicle --min-voxels 5000 s-*.h5
