#!/bin/sh
# Random shards and decks give the same results in other ways of running (README in this
# folder). 30 cases of one seed, or as many as there is time for on a machine with much else
# to do; `make check-random RUNS=1000 SEED=7` runs others.
SPTRAIN=${SPTRAIN-$SP_BUILDDIR/sptrain}
SPTRAIN_HOSTCUDA=${SPTRAIN_HOSTCUDA-$SP_BUILDDIR/tests/device/sptrain_hostcuda}
export SPTRAIN SPTRAIN_HOSTCUDA
tester=$SP_BUILDDIR/tests/torture/random/random_runs
test -x "$tester" || {
    echo "SKIPPED: tests/torture/random/random_runs is not built (no cmocka)" >&2
    exit 77
}
if test -n "$RUNS"; then
    limit=0
else
    limit=120
fi
exec "$tester" --runs "${RUNS-30}" --seed "${SEED-1}" --first "${FIRST-0}" \
    --seconds $limit ${JOBS:+--jobs "$JOBS"} --keep "$SP_BUILDDIR/random-faults"
