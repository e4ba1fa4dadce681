# The fuzzer finds each kind of fault: a crash, a crash of a command, a loop, memory beyond
# the bound, a changed value. It goes on after each and keeps the input, and the command
# that it prints repeats the fault.
set -u
. "$SP_SRCDIR/tests/fixtures/program.sh"
fuzz=$SP_BUILDDIR/tests/torture/fuzz/test_fuzz
[ -x "$fuzz" ] || skip "test_fuzz is not built"

"$fuzz" --kind faulty --runs 12 --limit 1 --keep kept >out 2>err
code=$?
[ "$code" = 1 ] || fail "exit status $code, expected 1"
for words in "ended by signal 11\|ended with exit status 1" "command ended by signal 9" \
    "hangs: works" "memory: " "content changed"; do
    grep -q "^FAULT faulty: mutant [0-9]*: .*\($words\)" err || fail "not found: $words"
done
grep -q "^faulty  *12 " out || fail "not all mutants were run"
one=$(ls kept | head -n 1)
[ -s "kept/$one/files/input" ] || fail "no input in kept/$one"
sh -c "$(head -n 1 "kept/$one/command") --limit 1 --keep again" >out2 2>err2 &&
    fail "the command in kept/$one does not repeat the fault"
[ "$(ls again)" = "$one" ] || fail "another mutant was repeated"
