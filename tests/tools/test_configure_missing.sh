#!/bin/sh
# configure names every package that is missing, in one run, one line each, and no other:
# what is missing is taken out of a folder of links to pkg-config's files.
set -eu
src=${SP_SRCDIR:-$(pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# A tree that was configured in place refuses another folder: configure runs in a copy.
mkdir -p "$work/tree/src/base"
cp -R "$src/configure" "$src/build-aux" "$work/tree/"
cp "$src/src/base/sp_error.h" "$work/tree/src/base/"
pkg=${PKG_CONFIG:-pkg-config}
command -v "$pkg" >/dev/null || exit 77
mkdir "$work/all"
for dir in $("$pkg" --variable=pc_path pkg-config | tr : ' '); do
    for file in "$dir"/*.pc; do
        [ ! -f "$file" ] || [ -e "$work/all/${file##*/}" ] || ln -s "$file" "$work/all/"
    done
done
# Of the compilers that is known which the build has found out, of libraries nothing. C++ is
# asked for no package.
sed -n '/^## Cache variables/,/^## Output variables/s/^\(a[cm]_cv_.*\)/\1/p' \
    "${SP_BUILDDIR:-.}/config.log" | grep -v '_cv_\(env\|search\|path\)_' >"$work/known" || :
export CXX=no CLANGXX=no
# configure ARGUMENTS...: here, without CUDA.
configure() {
    cp "$work/known" cache
    CFLAGS=${flags--O0} "$work/tree/configure" --cache-file=cache --without-cuda "$@"
}
if [ ! -e "$work/all/mpich.pc" ] || [ ! -e "$work/all/hdf5-mpich.pc" ]; then
    exit 77 # the packages have other names with another MPI
fi

# without NAME...: runs configure without these; its lines come out as "package name".
without() {
    rm -rf "$work/pc" "$work/build"
    cp -R -P "$work/all" "$work/pc"
    mkdir "$work/build"
    for name; do rm "$work/pc/$name.pc"; done
    if (cd "$work/build" && unset PKG_CONFIG_PATH && export PKG_CONFIG_LIBDIR="$work/pc" &&
        configure --with-mpi=mpich >"$work/out" 2>"$work/err"); then
        echo "configure went through without $*"
    fi
    sed -n 's/^missing: \([^ ]*\) (pkg-config \([^)]*\)): ..*/\1 \2/p' "$work/err" | sort
}
expect() {
    [ "$1" = "$2" ] || {
        printf 'expected:\n%s\nnamed:\n%s\n' "$2" "$1"
        cat "$work/err"
        exit 1
    }
}
expect "$(without hwloc jansson libconfig libxxhash hdf5-mpich hdf5-mpi hdf5)" \
    "libconfig-dev libconfig
libhdf5-mpich-dev hdf5-mpich
libhwloc-dev hwloc
libjansson-dev jansson
libxxhash-dev libxxhash"
# HDF5 is there, and what it requires is not.
expect "$(without mpich mpi)" "libmpich-dev mpich"
# What MPICH itself was linked with need not be installed (Ubuntu's mpich.pc names such
# libraries), with its own compiler and with another.
cp "$work/all/mpich.pc" "$work/mpich.pc"
rm "$work/all/mpich.pc"
sed 's/^Libs:.*/& -lnot_installed/' "$work/mpich.pc" >"$work/all/mpich.pc"
grep -q not_installed "$work/all/mpich.pc"
expect "$(without jansson)" "libjansson-dev jansson"
expect "$(CC=gcc && export CC && without jansson)" "libjansson-dev jansson"
# A folder that has no parallel HDF5 is named.
mkdir "$work/given"
(cd "$work/given" && configure --with-hdf5="$work/given" >out 2>err) && echo "an empty folder is HDF5" && exit 1
grep -q -e "--with-hdf5=$work/given has no parallel HDF5" "$work/given/err"
# A missing compiler for CUDA is told as that, in the folder that is given or in all.
for option in --with-cuda="$work/given" "--with-cuda ac_cv_path_NVCC=no"; do
    # shellcheck disable=SC2086
    (cd "$work/given" && CFLAGS=-O0 "$work/tree/configure" $option >out 2>err) && exit 1
    grep -q -e '--with-cuda was given, but there is no nvcc in /.*/bin$' "$work/given/err" ||
        { cat "$work/given/err" && exit 1; }
done
# Its libraries may lie in lib or in lib64.
for lib in lib lib64; do
    rm -rf "$work/given"
    mkdir "$work/given"
    for flag in $("$pkg" --cflags-only-I --libs-only-L hdf5-mpich); do
        case $flag in
        -I*hdf5*) ln -s "${flag#-I}" "$work/given/include" ;;
        -L*hdf5*) ln -s "${flag#-L}" "$work/given/$lib" ;;
        esac
    done
    (cd "$work/given" && flags="-O0 -Werror -flto" &&
        configure --no-create --with-hdf5="$work/given" >out 2>err) || { cat "$work/given/err" && exit 1; }
    # A search for libm would find none with -Werror.
    grep -q "^LIBS='.*-lm" "$work/given/config.log" || { echo "not linked with libm" && exit 1; }
    # gcc links no objects of -flto where -fno-lto stands too.
    if grep '^SP_CFLAGS=.*-fno-lto' "$work/given/config.log"; then exit 1; fi
done
