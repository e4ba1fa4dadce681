#!/bin/sh
# MPI_Allreduce with MPI_MAX over numbers of which one is NaN: ranks get different results in
# the same call, so ranks that decide by it go different ways.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q numpy==2.4.6 mpich==5.0.2 mpi4py==4.1.2; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "mpich==5.0.2 mpi4py==4.1.2"
cat >"$work/max.py" <<'PYTHON'
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
mine = np.array([float("nan") if world.rank == 0 else world.rank], dtype=float)
most = np.empty(1)
world.Allreduce(mine, most, op=MPI.MAX)
all = world.gather(float(most[0]))
if world.rank == 0:
    print("results of the ranks:", all)
PYTHON
PATH=$work/venv/bin:$PATH mpiexec -n 2 python "$work/max.py" </dev/null | tee "$work/out"
grep -qx 'results of the ranks: \[1.0, nan\]' "$work/out" || { echo 'this has changed'; exit 1; }
