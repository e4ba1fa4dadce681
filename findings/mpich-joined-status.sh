#!/bin/sh
# mpiexec of MPICH (Hydra) joins the exit statuses of its ranks by OR: ranks that end with 3 and
# with 8 make 11, which no rank returned and which shells print as a segmentation fault's number.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q mpich==5.0.2; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "mpich==5.0.2"
# shellcheck disable=SC2016
status=0
"$work/venv/bin/mpiexec" -n 1 sh -c 'exit 3' : -n 1 sh -c 'exit 8' </dev/null >/dev/null 2>&1 || status=$?
echo "ranks end with 3 and 8, mpiexec with $status"
[ "$status" = 11 ] || { echo 'this has changed'; exit 1; }
