#!/bin/sh
# Scenes are the same bytes on 1, 2 and 3 ranks and the same samples in any number of shards;
# info reads them back, and refuses a damaged file with exit 3.
. "$SP_SRCDIR/tests/fixtures/program.sh"
SPTRAIN=$SP_BUILDDIR/spvox # what run starts
scene="scene --samples 5 --extent 12 --seed 7 --points"

# names WORD...: out has each word.
names() {
    for word; do says out "$word"; done
}

for np in 1 2 3; do
    # shellcheck disable=SC2086
    run $np 0 $scene --shards 2 --out np$np/x
    for f in x-00000-of-00002.h5 x-00001-of-00002.h5; do
        same np1/$f np$np/$f "$f differs on $np ranks"
    done
done
# shellcheck disable=SC2086
spvox $scene --out one

# One shard or two: the same samples (all but the number of shards in the first line).
spvox info --samples np1/x-*.h5
says out '^shards 2  samples 5 '
names ground vegetation building vehicle wire intensity height number_of_returns \
    scene-7-000004
sed 's/^shards [0-9]*//' out >two.txt
spvox info --samples one-*.h5
yields two.txt "contents of one shard and of two" sed 's/^shards [0-9]*//' out
mv out one.txt
run 3 0 info --samples one-*.h5
same one.txt out "info on 3 ranks"

# Exit codes.
while IFS=';' read -r want text arguments; do
    # shellcheck disable=SC2086
    alone "$want" "$SPTRAIN" $arguments
    says err "$text"
done <<END
2;expected 4 to 1000;scene --samples 1 --extent 1001 --seed 7 --out hall
2;;scene --kind street --samples 1 --extent 9 --seed 7 --out y
2;at least one sample a shard;$scene --out y --shards 6
2;--extent is missing;scene --out y --samples 2 --seed 1
2;did you mean "scene";scenes
4;;$scene --out /dev/null/x
END
spvox --version
says out '^spvox [0-9]'
spvox --help convert
says out convert
if test -w /dev/full; then
    for command in 'info one-00000-of-00001.h5' --version; do
        # shellcheck disable=SC2086
        "$SPTRAIN" $command >/dev/full 2>err
        test $? = 4 || fail "$command, disk full"
        says err 'standard output'
    done
fi
head -c $(($(wc -c <one-00000-of-00001.h5) - 1000)) one-00000-of-00001.h5 >cut.h5
run 2 3 info cut.h5
says err 'cut.h5'
