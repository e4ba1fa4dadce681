#!/bin/sh
# Shards written by a dozen lines of h5py are read, whatever types and storage they have; h5py
# reads ours. Skipped without python3, h5py and numpy.
. "$SP_SRCDIR/tests/run/story.sh"
find_python "h5py, numpy"
"$python" "$SP_SRCDIR/tests/run/shard_h5py.py" "$SP_BUILDDIR/tests/tools/shard_print" "$dir"
