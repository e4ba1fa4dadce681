#!/bin/sh
# Mistakes that are refused before anything is touched, and output that nobody could read,
# end with the right status on one and three ranks and one line that says why; nothing is
# written elsewhere.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" plain p.h5 || fail "make_shards"
dummy_deck p.h5 'size = 2;' 'steps = 4; warmup_steps = 1;' 'log_every = 1; dir = "r";'
run 2 0 base.deck

# An unset variable of a shell in run.dir=$X, and the root folder. Rank 0 alone reads decks.
for verb in train eval predict check preflight; do
    refused 3 2 'command line: run.dir is empty' $verb base.deck run.dir=
done
for root in / // /.. /./; do
    refused 1 2 "run.dir = \"$root\" is the root of the file system" base.deck run.dir=$root
done
sed 's/dir = "r"/dir = ""/' base.deck >empty.deck
refused 1 2 'empty.deck:5: run.dir is empty' empty.deck
refused 2 2 'command line: run.resume is empty' check base.deck run.resume=
run 1 0 empty.deck run.dir=r
for name in lock checkpoints metrics.jsonl heartbeat.bin deck.resolved status.json; do
    test ! -e /$name || fail "/$name was written"
done

# A pipe to which nobody writes.
mkfifo pipe.deck
refused '1 3' 2 'pipe.deck is no regular file' pipe.deck

# A run folder or a checkpoint in place of a deck, and a command that is not the first word.
refused 1 2 "r is a folder, expected a deck; a run folder's deck is its deck.resolved" eval r
refused 1 2 'best.h5 is no deck: it is a binary file' eval r/checkpoints/best.h5
for words in 'base.deck eval' 'run.dir=r eval' 'train eval'; do
    refused 1 2 'eval: a command is the first word' $words
done
refused 1 2 'base.deck: expected SECTION.KEY=VALUE; the deck comes before all keys' \
    data.val= base.deck

# A folder in place of a run folder.
mkdir none
for command in 'label none p.h5 --out l' 'check none'; do
    refused 1 2 'none/checkpoints: no checkpoint; name a run that has one, or a file' $command
done

# A run, or a checkpoint, that is not there: no folder is made for its results.
for command in eval predict; do
    refused '1 2' 2 'nope/checkpoints: no checkpoint; name one by' $command base.deck run.dir=nope
    refused 2 3 'no.h5' $command base.deck run.dir=nope run.checkpoint=no.h5
    ! test -e nope || fail "$command made a run folder"
done

# Numbers beyond their arithmetic.
refused 1 3 'expected the same or a multiple up to 1048576' base.deck run.dir=v \
    data.voxel_size=1e9
run 1 75 base.deck run.dir=long train.steps=1000000000000 batch.size=2147483647 run.time_limit_s=0.2
says out 'lr=0.1 .*done=0%'

# More threads than are of any use, which machines with fewer cores than these have.
threads=4096
if test "$(nproc --all)" -lt 64; then
    run 1 2 base.deck run.dir=threads run.threads=4096
    one_diagnosis 'run.threads = 4096: the ranks of this node may use [0-9]* cores\?, expected'
    threads=$(sed -n 's/.*expected at most \([0-9]*\) threads a rank.*/\1/p' err)
fi
# More threads than the system starts: their stacks do not fit into these addresses.
if (ulimit -s 4000000 && ulimit -v 40000000) 2>/dev/null; then
    (
        ulimit -s 4000000
        ulimit -v 40000000
        refused 1 2 "command line: run.threads = $threads: the system starts [0-9]* for this rank" \
            base.deck run.dir=threads run.threads="$threads"
    ) || exit 1
fi

# unheard STATUS ARGUMENTS...: with the ranks' standard output on a full disk.
printf '#!/bin/sh\n"%s" "$@" >/dev/full\n' "$SPTRAIN" >mute
chmod +x mute
unheard() {
    for n in 1 3; do
        SPTRAIN=$dir/mute run $n "$@"
        says err 'cannot write to standard output'
    done
}
if test -c /dev/full; then
    unheard 4 eval base.deck
    unheard 4 predict base.deck
    unheard 4 check base.deck
    rm -rf r
    unheard 0 base.deck
    says err 'r/metrics.jsonl has every line'
    says r/metrics.jsonl '"event":"end","state":"done"'
fi

# A limit on the size of files is a full disk, not the end of the process.
# The library of MPI needs 1 MB; a checkpoint has 14 MB here.
for n in 1 3; do
    rm -rf u
    (
        ulimit -f 12000 # of 512 bytes or of 1024, by the shell
        run $n 4 base.deck run.dir=u net.width=4 train.steps=1
    ) || exit 1
    one_diagnosis 'cannot be written: File too large (ulimit -f'
    test -z "$(ls u/checkpoints)" || fail "an unfinished file stays"
done
run 1 0 base.deck run.dir=u net.width=4 train.steps=1

# Links and pipes in the run folder, and what killed writers left.
echo precious >victim
for name in lock metrics.jsonl heartbeat.bin status.json checkpoints logs; do
    rm -rf r && mkdir r && ln -s ../victim r/$name
    set -- base.deck train.steps=6 run.rank_logs=true
    refused 3 4 "r/$name: a symbolic link, expected a .*what is in it may not" "$@"
    rm r/$name && mkfifo r/$name
    refused 1 4 "r/$name: a device, pipe or socket, expected a" "$@"
done
for n in 1 3; do
    rm -rf r && mkdir -p r/checkpoints
    touch r/status.json.tmp-0 r/checkpoints/best.h5.tmp
    ln -s ../victim r/heartbeat.bin.tmp-0
    ln -s ../../victim r/checkpoints/step-000000004.h5.tmp
    run $n 0 base.deck
    test -z "$(find r -name '*tmp*')" || fail "unfinished files stay"
    test "$(cat victim)" = precious || fail "a link was followed"
done
