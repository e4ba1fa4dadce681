#!/bin/sh
# Every header compiles alone as C11 without a warning, and so names all that it needs. CUDA
# sources include them too: all together compile as C++20.
src=${SP_SRCDIR-.}/src
flags="-Wall -Wextra -pedantic -Werror -fsyntax-only -D_GNU_SOURCE ${SP_TEST_CPPFLAGS-}"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0

# compile COMPILER STANDARD SOURCE: what the compiler says is in log
compile() {
    $1 -std="$2" $flags -I"$src" "$3" >"$work/log" 2>&1 && return
    head -n 12 "$work/log"
    bad=1
}

for header in "$src"/*/*.h; do
    line="#include \"${header#"$src"/}\""
    echo "$line" >"$work/alone.c"
    echo "$line" >>"$work/all.cc"
    compile "${SP_CC-cc}" c11 "$work/alone.c"
done
if ! ${SP_CXX-c++} --version >/dev/null 2>&1; then
    echo "no C++ compiler: the headers were compiled as C11 only" >&2
    [ $bad = 0 ] && exit 77
    exit $bad
fi
# A designated initializer that names some fields is meant to leave the others zero. Open MPI's
# header brings bindings for C++, with warnings of their own, unless it is told not to.
flags="$flags -Wno-missing-field-initializers -DOMPI_SKIP_MPICXX"
compile "${SP_CXX-c++}" c++20 "$work/all.cc"
exit $bad
