#!/bin/sh
# Each planted mistake still has its place in the source, so that `make check-planted`
# proves as much as when it was written.
command -v patch >/dev/null || { echo "SKIPPED: no patch program" >&2; exit 77; }
n=0
bad=0
for patch in "$SP_SRCDIR"/tests/torture/random/planted/*.patch; do
    said=$(patch -d "$SP_SRCDIR" -p1 -F 2 --dry-run <"$patch" 2>&1) || {
        echo "FAILED: ${patch##*/}: $said" >&2
        bad=1
    }
    n=$((n + 1))
done
test $n -gt 0 || { echo "FAILED: no patches in tests/torture/random/planted" >&2; exit 1; }
exit $bad
