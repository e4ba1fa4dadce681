#!/bin/sh
# conda-build runs it in a copy of the source, with the compilers in CC and CXX.
set -eu
autoreconf -fi
./configure --prefix="$PREFIX" --without-cuda --with-hdf5="$PREFIX"
make -j"${CPU_COUNT:-2}" source_folder=
make install source_folder=
