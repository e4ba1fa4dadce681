#!/bin/sh
# h5repack of a dataset whose filter it lacks (h5py's lzf, which is in no plugin that HDF5 comes
# with): the new file has no such dataset, and the status is 0. A line on standard error says
# that the dataset "cannot be read".
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q numpy==2.4.6 h5py==3.16.0; }; then
    echo "cannot be installed here"
    exit 77
fi
cd "$work"
apt-get download hdf5-tools=1.10.8+repack1-1 libhdf5-103-1=1.10.8+repack1-1 libhdf5-hl-100=1.10.8+repack1-1 libsz2 libaec0 >/dev/null 2>&1 || { echo "needs Debian 12's apt-get"; exit 77; }
for deb in *.deb; do dpkg -x "$deb" root; done
LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
"$work/venv/bin/python" - <<'PYTHON'
import h5py
import numpy as np

with h5py.File("in.h5", "w") as f:
    f["plain"] = np.arange(10)
    f.create_dataset("labels", data=np.arange(10), compression="lzf")
PYTHON
root/usr/bin/h5repack --version
status=0
root/usr/bin/h5repack -f GZIP=4 in.h5 out.h5 || status=$?
names=$("$work/venv/bin/python" -c 'import h5py; print(*h5py.File("out.h5"))')
echo "status $status; in.h5 has labels and plain, out.h5 has $names"
[ "$status $names" = "0 plain" ] || { echo 'this has changed'; exit 1; }
