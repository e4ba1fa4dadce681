#!/bin/sh
# Nodes that have copies of their own of the shards, which differ: a run ends with 3 and
# names file and hosts, before it trains on them. Equal copies and shared files pass.
. "$SP_SRCDIR/tests/fixtures/program.sh"
mkdir a b
"$SHARDS" bare a/n.h5 && "$SHARDS" plain a/c.h5 && cp a/n.h5 b/n.h5 && cp a/c.h5 b/c.h5 ||
    fail "make_shards"
dummy_deck n.h5 'size = 4;' 'steps = 2;'
mv base.deck a
cp a/base.deck b

# on_nodes FOLDERS ARGUMENTS...: a run in which each rank is a node in a folder of its own.
on_nodes() {
    folders=$1
    shift
    printf 'cd "$1" && shift && exec "$@"\n' >in
    set -- "$SPTRAIN" "$@"
    line=
    for folder in $folders; do
        line="$line ${line:+:} -n 1 sh $dir/in $folder $*"
    done
    # shellcheck disable=SC2086 # the words of the line
    SP_RANKS_PER_NODE=1 timeout -k 5 "$limit_s" "$MPIEXEC" $line >out 2>err </dev/null
    got=$?
}

# passes FOLDERS ARGUMENTS..., differs FOLDERS TEXT ARGUMENTS...
passes() {
    on_nodes "$@"
    test $got = 0 || fail "status $got: $*"
}
differs() {
    where=$1 text=$2
    shift 2
    for command in train check eval; do
        on_nodes "$where" $command "$@" run.checkpoint="$dir/same/checkpoints/best.h5"
        ended 3 "$command $*"
        one_diagnosis "$text"
    done
    test ! -e "$dir/r/checkpoints/step-000000002.h5" || fail "a run that was refused has trained"
}
host=$(hostname)

# Copies of other times and inodes, of the same bytes.
touch -d '2020-01-01' b/n.h5
passes 'a b' base.deck run.dir="$dir/same"
passes 'a a' base.deck run.dir="$dir/shared"
passes 'a b a b' check base.deck
says_not err warning:.*cop

# One feature of a sample differs, and nothing else: no checksum would tell.
"$SHARDS" bad-feature b/n.h5 3 || fail "make_shards"
content="n.h5: the copy on the node of rank 1, host $host, has other content than that on rank 0's, host $host"
differs 'a b' "$content" base.deck run.dir="$dir/r"
touch -r a/n.h5 b/n.h5
differs 'a b' "$content" base.deck run.dir="$dir/r"
differs 'a a b' 'n.h5: the copy on the node of rank 2' base.deck run.dir="$dir/r"
# The validation data likewise; and a copy with checksums that fit it.
differs 'a b' "$content" base.deck run.dir="$dir/r" data.train=c.h5 data.val=n.h5
passes 'a b' check base.deck data.train=c.h5 data.val=c.h5
"$SHARDS" costly b/c.h5 && "$SHARDS" costly a/c.h5 || fail "make_shards"
passes 'a b' check base.deck data.train=c.h5 data.val=c.h5

# A copy of another length, and one that is missing.
printf x >>b/n.h5
bytes=$(wc -c <a/n.h5)
differs 'a b' "n.h5: $((bytes + 1)) bytes on the node of rank 1, host $host, but $bytes on rank 0's" \
    base.deck run.dir="$dir/r"
rm b/n.h5
differs 'a b' 'n.h5: No such file or directory on this node, which rank 0 can read' \
    base.deck run.dir="$dir/r"
exit 0
