#!/bin/sh
# With OMP_PROC_BIND set, libgomp binds the thread that loads it to one core. A program that
# asks the system for its cores after importing scikit-learn, and starts as many workers, has
# one: the library's own threads are spread, those of everybody else are not.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q scikit-learn==1.9.1; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "scikit-learn==1.9.1, whose wheel has libgomp"
[ "$(nproc)" -gt 1 ] || { echo "needs two cores"; exit 77; }
cat >"$work/cores.py" <<'PYTHON'
import os

before = len(os.sched_getaffinity(0))
import sklearn.utils._openmp_helpers

after = len(os.sched_getaffinity(0))
print("the same" if after == before else "one core" if after == 1 else after)
PYTHON
plain=$(env -u OMP_PROC_BIND -u OMP_PLACES "$work/venv/bin/python" "$work/cores.py")
bound=$(env -u OMP_PLACES OMP_PROC_BIND=true "$work/venv/bin/python" "$work/cores.py")
echo "after the import: $plain; with OMP_PROC_BIND=true: $bound"
[ "$plain, $bound" = "the same, one core" ] || { echo 'this has changed'; exit 1; }
