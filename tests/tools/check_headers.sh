#!/bin/sh
# Every header compiles alone, as C11 and as C++20 (CUDA sources include them), without
# a warning.
src=${SP_SRCDIR-.}/src
flags="-Wall -Wextra -pedantic -Werror -fsyntax-only -D_GNU_SOURCE ${SP_TEST_CPPFLAGS-}"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0

# compile COMPILER LANGUAGE STANDARD: all headers, one file each
compile() {
    for header in "$src"/*/*.h; do
        printf '#include "%s"\n' "${header#"$src"/}" >"$work/alone.$2"
        $1 -std="$3" $flags -I"$src" "$work/alone.$2" \
            >"$work/log" 2>&1 && continue
        echo "${header#"$src"/} alone as $3:"
        head -n 12 "$work/log"
        bad=1
    done
}

compile "${SP_CC-cc}" c c11
if ! ${SP_CXX-c++} --version >/dev/null 2>&1; then
    echo "no C++ compiler: the headers were compiled as C11 only" >&2
    [ $bad = 0 ] && exit 77
    exit $bad
fi
# A designated initializer that names some fields is meant to leave the others zero.
flags="$flags -Wno-missing-field-initializers"
compile "${SP_CXX-c++}" cc c++20
exit $bad
