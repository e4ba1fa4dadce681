#!/bin/sh
# Every header compiles alone as C11 without a warning, and so names all that it needs. CUDA
# sources include them too: all together compile as C++20. The vector code keeps its versions
# apart where CFLAGS turn on the instructions of all of them, as -march=native does.
src=${SP_SRCDIR-.}/src
# The files of a version, as Makefile.am names them: LANES ISA PRODUCTS TILES.
files_of() {
    printf '%s ' "-DLANES=$1" "-DISA_FILE=\"cpu/cpu_vec_$2.inc\"" \
        "-DPRODUCTS_FILE=\"cpu/bf16/bf16_$3.inc\"" "-DTILES_FILE=\"cpu/bf16/tile_$4.inc\""
}
portable=$(files_of 4 portable steps portable)
flags="-Wall -Wextra -pedantic -Werror -fsyntax-only -D_GNU_SOURCE $portable ${SP_TEST_CPPFLAGS-}"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0

# compile COMPILER STANDARD SOURCE...: what the compiler says is in log
compile() {
    compiler=$1 standard=$2
    shift 2
    $compiler -std="$standard" $flags -I"$src" -I"$src/../include" "$@" >"$work/log" 2>&1 && return
    head -n 12 "$work/log"
    bad=1
}

mkdir "$work/alone"
for header in "$src"/*/*.h "$src"/*/*/*.h; do
    echo "#include \"${header#"$src"/}\"" >"$work/alone/${header##*/}.c"
done
cat "$work/alone/"* >"$work/all.cc"
compile "${SP_CC-cc}" c11 "$work/alone/"*

# version NAME FLAGS FILE...: compiles these files of src/cpu/bf16 as the Makefile does for one
# version.
wide=-march=sapphirerapids
version() {
    name=$1
    made=$2
    shift 2
    for file; do
        # shellcheck disable=SC2086
        ${SP_CC-cc} -std=gnu11 $wide $made -D_GNU_SOURCE ${SP_TEST_CPPFLAGS-} -I"$src" -I"$src/../include" -c \
            -o "$work/$name-$file.o" "$src/cpu/bf16/$file" || bad=1
    done
}
: >"$work/none.c"
if ${SP_CC-cc} $wide -fsyntax-only "$work/none.c" 2>"$work/log"; then
    version portable "$portable" bf16_peak.c bf16_conv.c bf16_portable.c tile_pack.c
    version avx2 "$(files_of 8 avx2 steps portable)" bf16_peak.c bf16_conv.c
    version avx512 "$(files_of 16 avx512 steps portable)" bf16_peak.c bf16_conv.c
    version avx512bf16 "$(files_of 16 avx512 instruction portable)" bf16_peak.c bf16_conv.c
    version amx "$(files_of 16 avx512 steps amx)" tile_pack.c tile_amx.c
    twice=$(nm -g --defined-only "$work"/*.o | sed -n 's/.* [A-Z] //p' | sort | uniq -d)
    [ -z "$twice" ] || echo "in two versions of the vector code: $twice"
    [ -z "$twice" ] || bad=1
fi

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
