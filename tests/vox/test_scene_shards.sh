#!/bin/sh
# Scenes are the same bytes on 1, 2 and 3 ranks and the same samples in any number of shards;
# info reads them back, and refuses a damaged file with exit 3.
spvox="$SP_BUILDDIR/spvox"
dir=`mktemp -d` || exit 99
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
scene="scene --samples 5 --extent 12 --seed 7 --points"

for np in 1 2 3; do
    $MPIEXEC -n $np "$spvox" $scene --shards 2 --out "$dir/np$np/x" >"$dir/log" 2>&1 ||
        { cat "$dir/log"; fail "scene on $np ranks"; }
    for k in 0 1; do
        f=x-0000$k-of-00002.h5
        cmp "$dir/np1/$f" "$dir/np$np/$f" || fail "$f differs on $np ranks"
    done
done
"$spvox" $scene --out "$dir/one" >"$dir/log" 2>&1 || { cat "$dir/log"; fail "one shard"; }

# One shard or two: the same samples (all but the number of shards in the first line).
"$spvox" info --samples "$dir"/np1/x-*.h5 >"$dir/two.txt" || fail "info of two shards"
"$spvox" info --samples "$dir"/one-*.h5 >"$dir/one.txt" || fail "info of one shard"
sed 's/^shards [0-9]*//' "$dir/two.txt" >"$dir/a.txt"
sed 's/^shards [0-9]*//' "$dir/one.txt" >"$dir/b.txt"
cmp "$dir/a.txt" "$dir/b.txt" || { diff "$dir/a.txt" "$dir/b.txt"; fail "contents differ"; }
$MPIEXEC -n 3 "$spvox" info --samples "$dir"/one-*.h5 >"$dir/c.txt" || fail "info, 3 ranks"
cmp "$dir/one.txt" "$dir/c.txt" || fail "info differs on 3 ranks"
grep -q '^shards 2  samples 5 ' "$dir/two.txt" || fail "first line of info"
for word in ground vegetation building vehicle wire intensity height number_of_returns \
    scene-7-000004; do
    grep -q "$word" "$dir/two.txt" || fail "info does not say $word"
done

# A room, with classes of its own.
"$spvox" scene --kind room --samples 2 --extent 5 --seed 7 --out "$dir/room" >"$dir/log" 2>&1 ||
    { cat "$dir/log"; fail "a room"; }
"$spvox" info --samples "$dir"/room-*.h5 >"$dir/room.txt" || fail "info of a room"
for word in floor wall ceiling table chair cabinet room-7-000001; do
    grep -q "$word" "$dir/room.txt" || fail "info of a room does not say $word"
done
"$spvox" scene --kind room --samples 1 --extent 17 --seed 7 --out "$dir/hall" 2>"$dir/err"
test $? -eq 2 || fail "a room of 17 m"
grep -q 'expected 4 to 16' "$dir/err" || fail "message of 17 m"
"$spvox" scene --kind street --samples 1 --extent 9 --seed 7 --out "$dir/y" 2>"$dir/err"
test $? -eq 2 || fail "a street"

# Exit codes.
"$spvox" $scene --out "$dir/y" --shards 6 2>"$dir/err"; test $? -eq 2 || fail "6 shards"
grep -q 'at least one sample a shard' "$dir/err" || fail "message of 6 shards"
"$spvox" scene --out "$dir/y" --samples 2 --seed 1 2>"$dir/err"
test $? -eq 2 || fail "no extent"
grep -q -e '--extent is missing' "$dir/err" || fail "message of no extent"
"$spvox" scenes 2>"$dir/err"; test $? -eq 2 || fail "unknown command"
grep -q 'did you mean "scene"' "$dir/err" || fail "message of an unknown command"
"$spvox" --version | grep -q '^spvox [0-9]' || fail "--version"
"$spvox" --help convert | grep -q convert || fail "--help"
if test -w /dev/full; then
    "$spvox" info "$dir"/one-*.h5 >/dev/full 2>"$dir/err"; test $? -eq 4 || fail "info, disk full"
    grep -q 'standard output' "$dir/err" || fail "message of a full disk"
    "$spvox" --version >/dev/full 2>"$dir/err"; test $? -eq 4 || fail "version, disk full"
    grep -q 'standard output' "$dir/err" || fail "no message: version, disk full"
fi
"$spvox" $scene --out /dev/null/x 2>"$dir/err"; test $? -eq 4 || fail "no folder: exit 4"
size=`wc -c <"$dir/one-00000-of-00001.h5"`
head -c `expr $size - 1000` "$dir/one-00000-of-00001.h5" >"$dir/cut.h5"
$MPIEXEC -n 2 "$spvox" info "$dir/cut.h5" >"$dir/log" 2>"$dir/err"
test $? -eq 3 || fail "truncated file: exit 3"
grep -q 'cut.h5' "$dir/err" || fail "message does not name the file"
exit 0
