#!/bin/sh
# Shards written by a dozen lines of h5py are read, whatever types and storage they have; h5py
# reads ours. Skipped without python3, h5py and numpy.
python3 -c 'import h5py, numpy' 2>/dev/null || {
    echo "SKIP: python3 with h5py and numpy is not here"
    exit 77
}
dir=`mktemp -d` || exit 1
trap 'rm -rf "$dir"' EXIT
exec python3 "$SP_SRCDIR/tests/shard_h5py.py" "$SP_BUILDDIR/tests/shard_print" "$dir"
