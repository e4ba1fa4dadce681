#!/bin/sh
# numpy sums pairwise along the fastest axis only. The mean of the columns of a float32 table is
# summed row by row in float32: of equal coordinates it is off by kilometres. The same column by
# itself is right.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q numpy==2.4.6; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "numpy==2.4.6"
"$work/venv/bin/python" - >"$work/out" <<'PYTHON'
import numpy as np

table = np.full((2_000_000, 3), 5_000_000.5, dtype=np.float32)
print("mean of the table's columns %.0f" % table.mean(axis=0)[0])
print("mean of one column %.1f" % table[:, 0].mean())
print("in float64 %.1f" % table.mean(axis=0, dtype=np.float64)[0])
PYTHON
cat "$work/out"
grep -qxF 'mean of one column 5000000.5' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'in float64 5000000.5' "$work/out" || { echo 'this has changed'; exit 1; }
mean=$(sed -n "s/^mean of the table's columns //p" "$work/out")
[ "$mean" -gt 5010000 ] || { echo 'this has changed'; exit 1; }
