#!/bin/sh
# The library as strangers meet it: installed into a folder, found by pkg-config, linked
# static and shared, from C11, C++ and Fortran. Every example runs. The training of 01 gives
# the weights of sptrain, the one of 03 the same from arrays and from a shard on 1, 2 and 3
# ranks, and the loss of 04 has the gradient of a finite difference. Two threads with a
# communicator each do not wait for each other. What MPI cannot answer is refused. A locale
# with a decimal comma changes nothing.
set -eu
src=${SP_SRCDIR:-$(pwd)}
build=${SP_BUILDDIR:-.}
mpiexec=${MPIEXEC:-mpiexec}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
trap 'exit 1' HUP INT TERM
[ -f "$build/libsptrain.a" ] || {
    echo "SKIPPED: this build has no library"
    exit 77
}
if nm "$build/libsptrain.a" 2>/dev/null | grep -q __gcov_; then
    echo "SKIPPED: the library counts which lines run"
    exit 77
fi
cc=${SP_CC:-cc}
fail() {
    echo "$*" >&2
    exit 1
}
# What make install does is asked of make itself, so that the files' names are those.
make -C "$build" DESTDIR="$here/root" install-includeHEADERS install-libraryDATA \
    install-pkgconfigDATA install-data-hook >"$here/install.log" 2>&1 ||
    fail "$(cat "$here/install.log")"
pc=$(find "$here/root" -name sptrain.pc)
PKG_CONFIG_PATH=${pc%/*}
export PKG_CONFIG_PATH
lib=$(dirname "${pc%/*}")
ask() {
    pkg-config --define-variable=prefix="$here/root$(sed -n 's/^prefix=//p' "$pc")" "$@" sptrain
}
flags=$(ask --cflags)
libs=$(ask --libs)
mpi=${SP_TEST_CPPFLAGS-}
LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
mpi_libs=$(sed -n 's/^Libs.private: //p' "$pc")
cd "$here"

# compile NAME [COMPILER FLAGS...]: an example without a warning.
compile() {
    name=$1
    shift
    # shellcheck disable=SC2086 # lists of flags
    "$@" -Wall -Wextra -Werror -O1 -I"$src/examples" $mpi $flags \
        "$src/examples/$name.c" -o "${name##*/}" $libs $mpi_libs -lm || fail "$name: $*"
}
for name in 01_train 03_in_memory 04_own_loss 05_own_metric ../tests/api/own_loss_gradient; do
    # shellcheck disable=SC2086 # a compiler with arguments
    compile $name $cc -std=c11
done
# The header and an example as C++, and the static library.
# shellcheck disable=SC2086 # lists of flags
if command -v g++ >/dev/null; then
    g++ -std=c++11 -Wall -Wextra -Werror -pedantic $flags -x c++ -fsyntax-only \
        "$src/include/sptrain.h"
    g++ -std=c++11 -x c++ $flags -I"$src/examples" -include cstring \
        "$src/examples/05_own_metric.c" -o cxx -x none $libs -lm ||
        fail "05_own_metric as C++"
    ./cxx >cxx.out
else
    echo "C++ is left out: no g++"
fi
# shellcheck disable=SC2086,SC2046 # lists of flags
$cc -std=c11 $flags -I"$src/examples" "$src/examples/05_own_metric.c" -o static \
    "$lib/libsptrain.a" $(ask --static --libs | sed 's/-lsptrain//') -lm ||
    fail "05_own_metric with the static library"

./05_own_metric >05.out
./static >static.out
cmp 05.out static.out
[ ! -e cxx.out ] || cmp 05.out cxx.out
grep -q '^epoch 8: mIoU 0\.' 05.out || fail "05: $(cat 05.out)"

for np in 1 2 3; do
    "$mpiexec" -n $np ./03_in_memory data.h5 model.h5 >03.out ||
        fail "03 on $np ranks: $(cat 03.out)"
    grep -q ' the same from memory and from data.h5: yes$' 03.out
    grep '^step' 03.out >steps
    [ $np = 1 ] || cmp steps steps.1
    cp steps steps.1
    "$mpiexec" -n $np ./04_own_loss >04.out || fail "04 on $np ranks: $(cat 04.out)"
    "$mpiexec" -n $np ./own_loss_gradient >04.gradient || fail "04 on $np ranks: $(cat 04.gradient)"
done
awk '/^step 1:/ { first = $4 } /^step 15:/ { last = $4 }
    END { exit !(last > 0 && last < 0.85 * first) }' 04.out || fail "04: $(cat 04.out)"

# The same deck by sptrain, with its run folder, and by 01.
keys='net.family=dummy net.width=0.5 batch.size=4 train.epochs=2 train.lr=0.02
    train.warmup_steps=0 train.deterministic=world data.voxel_size=0.05 run.device=cpu run.threads=1'
echo '' >deck
# shellcheck disable=SC2086 # a list of keys
"$mpiexec" -n 2 ./01_train data.h5 data.h5 01.h5 $keys >01.out || fail "01: $(cat 01.out)"
grep -q '^evaluation: loss .* mIoU 0\.' 01.out
# shellcheck disable=SC2086 # a list of keys
"$mpiexec" -n 2 "$build/sptrain" deck $keys data.train='["data.h5"]' data.val='["data.h5"]' \
    run.dir=run run.report_every=0 >sptrain.out 2>&1 || fail "sptrain: $(cat sptrain.out)"
newest=$(find run/checkpoints -name 'step-*.h5' | sort | tail -n 1)
# shellcheck disable=SC2086 # a compiler with arguments, lists of flags
$cc -std=c11 -Wall -Wextra -Werror $flags "$src/tests/api/same_weights.c" -o same_weights $libs
# shellcheck disable=SC2086 # a list of keys
./same_weights data.h5 01.h5 "$newest" $keys || fail "01 and sptrain have other weights"
# shellcheck disable=SC2086 # a list of keys
./same_weights data.h5 01.h5 model.h5 $keys || fail "01 and 03 have other weights"
# shellcheck disable=SC2086 # a list of keys
./01_train data.h5 data.h5 other.h5 $keys train.seed=2 >other.out || fail "$(cat other.out)"
# shellcheck disable=SC2086 # a list of keys
! ./same_weights data.h5 01.h5 other.h5 $keys || fail "same_weights sees no difference"

# shellcheck disable=SC2086 # a compiler with arguments, lists of flags
$cc -std=c11 -Wall -Wextra -Werror $mpi $flags "$src/tests/api/two_threads.c" -o two_threads \
    $libs $mpi_libs -lpthread
rc=0
timeout 120 "$mpiexec" -n 2 ./two_threads data.h5 >threads.out 2>&1 || rc=$?
case $rc in
0) ;;
77) echo "two_threads is left out: this MPI serves one thread" ;;
*) fail "two_threads ends with $rc: $(cat threads.out)" ;;
esac

# shellcheck disable=SC2086 # a compiler with arguments, lists of flags
$cc -std=c11 -Wall -Wextra -Werror $mpi $flags "$src/tests/api/mpi_states.c" -o mpi_states \
    $libs $mpi_libs -lpthread
timeout 60 "$mpiexec" -n 2 ./mpi_states >states.out 2>&1 || fail "mpi_states: $(cat states.out)"

# A locale with a decimal comma, made from the system's sources of locales.
# shellcheck disable=SC2086 # a compiler with arguments, lists of flags
$cc -std=c11 -Wall -Wextra -Werror $flags "$src/tests/api/decimal_comma.c" -o decimal_comma $libs
./decimal_comma data.h5 comma.h5 C >steps.C || fail "decimal_comma in the C locale"
if localedef -i de_DE -f UTF-8 "$here/de_DE.UTF-8" >/dev/null 2>&1; then
    LOCPATH=$here ./decimal_comma data.h5 comma.h5 de_DE.UTF-8 >steps.comma ||
        fail "decimal_comma ends with $?"
    cmp steps.C steps.comma
else
    echo "a locale with a decimal comma is left out: localedef makes none"
fi

if command -v gfortran >/dev/null; then
    # shellcheck disable=SC2086 # lists of flags
    gfortran -std=f2018 -Wall -Werror -O1 "$src/examples/06_fortran.f90" -o 06 $libs
    ./06 >06.out
    grep -q '^step 6: loss' 06.out || fail "06: $(cat 06.out)"
else
    echo "06_fortran is left out: no gfortran"
fi
if grep -q '^sp_model_open$' "$build/sptrain.symbols"; then
    # shellcheck disable=SC2086 # a compiler with arguments
    compile 02_predict $cc -std=c11
    ./02_predict model.h5 >02.out || fail "02: $(cat 02.out)"
    grep -q '^accuracy 0\.' 02.out
    if command -v python3 >/dev/null; then
        python3 "$src/examples/predict.py" model.h5 >py.out || fail "predict.py"
        grep -q '^floor: [0-9]* voxels$' py.out
    else
        echo "predict.py is left out: no python3"
    fi
fi
