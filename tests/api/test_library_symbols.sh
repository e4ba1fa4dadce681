#!/bin/sh
# The library is silent and leaves the process to its caller: it has no function that prints
# to the console, ends the process, catches signals, reads the environment or starts a
# program. It exports the functions of the header and no others, each of which the man page
# names and a comment describes.
set -eu
src=${SP_SRCDIR:-$(pwd)}
build=${SP_BUILDDIR:-.}
bad=0
complain() {
    echo "$*"
    bad=1
}
[ -f "$build/libsptrain.o" ] || {
    echo "SKIPPED: this build has no library"
    exit 77
}
if nm "$build/libsptrain.o" 2>/dev/null | grep -q __gcov_; then
    echo "SKIPPED: the library counts which lines run"
    exit 77
fi
forbidden='printf|vprintf|__printf_chk|__vprintf_chk|puts|putchar|perror|stdout|stderr|dprintf|
vdprintf|__dprintf_chk|exit|_exit|_Exit|quick_exit|abort|atexit|signal|sigaction|raise|kill|
getenv|secure_getenv|setenv|putenv|fork|vfork|execv|execve|posix_spawn|posix_spawnp|system|
popen|MPI_Abort|MPI_Init|MPI_Init_thread|MPI_Finalize'
pattern=$(echo "$forbidden" | tr -d '\n')
# A test that finds nothing in the programs finds nothing at all.
nm "$build/sptrain" | grep -qE " U (getenv|_exit)(@|$)" || complain "nm finds no getenv in sptrain"
# nvcc and its headers add atexit and getenv to objects of kernels, so of these the sources are
# read. NCCL takes three settings from the environment only.
trap 'rm -f names.$$ found.$$ added.$$' EXIT
nm "$build/libsp_cuda.a" 2>/dev/null | sed -n 's/^ *U //p' >added.$$
found=$(nm "$build/libsptrain.o" | sed -n 's/^ *U //p' | grep -xE "$pattern" |
    grep -vxFf added.$$ || :)
# shellcheck disable=SC2086 # one line for all
[ -z "$found" ] || complain "the library calls" $found
found=$(grep -rnE "(^|[^A-Za-z0-9_])($pattern) *\\(" "$src/cuda" |
    grep -vE '/cuda_reduce_nccl\.cu:[0-9]+: *setenv\("NCCL_' || :)
[ -z "$found" ] || complain "$found"
open=$(nm "$build/libsptrain.o" | sed -n 's/^ *U //p' | grep '^sp_' || :)
# shellcheck disable=SC2086 # one line for all
[ -z "$open" ] || complain "not in the library:" $open

# Names: those of the header, in both forms of the library.
awk -f "$src/src/api/symbols.awk" "$src/include/sptrain.h" | sort >names.$$
[ "$(wc -l <names.$$)" -gt 25 ] || complain "too few functions in sptrain.h"
for file in "$build/libsptrain.a" "$build"/libsptrain.so.*.*.*; do
    case $file in
    *.a) nm --defined-only --extern-only "$file" ;;
    *) nm -D --defined-only "$file" ;;
    esac | awk 'NF == 3 && $3 !~ /^(__bss_start|_edata|_end|_init|_fini)$/ { print $3 }' |
        sort >found.$$
    other=$(comm -13 names.$$ found.$$)
    # shellcheck disable=SC2086 # one line for all
    [ -z "$other" ] || complain "$file: exports" $other
    missing=$(comm -23 names.$$ found.$$ | grep -vE "${SP_LIBRARY_ABSENT:-^$}" || :)
    # shellcheck disable=SC2086 # one line for all
    [ -z "$missing" ] || complain "$file: does not have" $missing
done

# The man page lists the same functions.
sed -n 's/^\.FN \(sp_[a-z0-9_]*\).*/\1/p' "$src/man/sptrain.3" | sort >found.$$
cmp -s names.$$ found.$$ || complain "man/sptrain.3 and sptrain.h list other functions:" \
    "$(comm -3 names.$$ found.$$ | tr -s '\t\n' '  ')"
# A comment ends on the line before each declaration, or before the first of a group without
# an empty line between.
awk '/^$/ || /^}/ { described = 0 } /\*\/$/ { described = 1 }
    /^[a-z].*[ *]sp_[a-z0-9_]+\(/ && !/^typedef/ && !described { print FILENAME ": no comment: " $0 }' \
    "$src/include/sptrain.h" >found.$$
[ ! -s found.$$ ] || complain "$(cat found.$$)"
exit $bad
