#!/bin/sh
# spvox index writes an index file beside shards: a training with it has the same bits, and opens
# no shard's headers; shards that changed, a damaged index file and one of another version are
# named, and the shards are opened instead.
. "$SP_SRCDIR/tests/fixtures/program.sh"
mkdir train val
spvox scene --out train/s --samples 6 --shards 3 --extent 20 --seed 3 --points
spvox scene --out val/s --samples 2 --extent 20 --seed 4 --points
deck 'family = "dummy";' 'train = ["train/*.h5"]; val = ["val/*.h5"];' 'size = 2;' \
    'epochs = 2; warmup_steps = 0; deterministic = "world";' 'log_every = 1;'
last=6
run 1 0 base.deck run.dir=plain
sums plain $last >plain.sums
evals plain >plain.eval

# trains NAME RANKS [TEXT]: the same bits with the index files as they are. It warns of TEXT,
# or of nothing about an index.
trains() {
    run "$2" 0 base.deck run.dir="$1"
    yields plain.sums "$1: other bits" sums "$1" $last
    if [ -n "$3" ]; then says err "$3"; else ! grep -i index err || fail "$1 warns"; fi
}
warning='spvox.index is not used: '

spvox index train
says out 'train/spvox.index: 3 shards, 6 samples'
spvox index val/s-00000-of-00001.h5
says out 'val/spvox.index: 1 shard, 2 samples'
trains indexed 1
trains ranks 2
yields plain.eval "another evaluation" evals indexed
cp train/spvox.index whole
"$MPIEXEC" -n 2 "$SP_BUILDDIR/spvox" index train >out 2>err || fail "index on 2 ranks"
cmp whole train/spvox.index || fail "the index file depends on the ranks"

# The headers are not read: a shard without them still opens, if nothing else has changed.
shard=train/s-00001-of-00003.h5
cp -p $shard kept.h5
printf 'damage' | dd of=$shard conv=notrunc 2>/dev/null
touch -r kept.h5 $shard
trains unread 1
mv train/spvox.index aside
run 1 3 base.deck run.dir=none
says err "$shard"
mv aside train/spvox.index
cp -p kept.h5 $shard

# A shard with another time or size is opened.
touch $shard
trains touched 1 "$shard changed after spvox index (1 such shard)"
touch train/*.h5
trains all 2 'and others changed after spvox index (3 such shards)'
spvox index train
trains again 1

# Damage of any part, and an index file of another version or kind of machine.
size=$(wc -c <train/spvox.index)
cp train/spvox.index whole
# damaged BYTE TEXT: one byte of the index file has another value.
damaged() {
    cp whole train/spvox.index
    printf '\377' | dd of=train/spvox.index bs=1 seek="$1" conv=notrunc 2>/dev/null
    run 1 0 base.deck run.dir="damaged$1" train.steps=1
    says err "train/$warning$2"
}
damaged 0 'no index of version'
damaged 9 'no index of version'
damaged 38 'no index of version'
damaged 47 'shorter than its table says'
damaged 60 'wrong checksum of its table'
damaged 90 'wrong checksum of the part of s-0000'
damaged $((size / 2)) 'wrong checksum of the part of s-0000'
damaged $((size - 3)) 'wrong checksum of its table'
for length in 0 40 $((size / 2)) $((size - 1)); do
    head -c "$length" whole >train/spvox.index
    trains "cut$length" 1 "train/$warning"
done
rm train/spvox.index
mkdir train/spvox.index
trains folder 1 "train/$warning"
rmdir train/spvox.index

# Wrong use, and files that are no shards, which leave the old index file.
alone 2 "$SP_BUILDDIR/spvox" index
alone 3 "$SP_BUILDDIR/spvox" index absent.h5
alone 2 "$SP_BUILDDIR/spvox" index train val
says err 'two folders'
cp whole train/spvox.index
echo text >train/text.h5
alone 3 "$SP_BUILDDIR/spvox" index train
says err 'train/text.h5'
cmp whole train/spvox.index || fail "the old index file is lost"
test ! -e train/spvox.index.tmp || fail "a temporary file is left"
exit 0
