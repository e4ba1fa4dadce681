#!/bin/sh
# The share of the lines and functions of src that tests run: builds with the counters of the
# compiler in the folder "coverage" of the build folder, runs tests there and prints a row for
# each folder of src. TESTS="..." runs only these, else those of make check; counts of earlier
# calls are kept until the folder is removed. Needs lcov. Lines in coverage/src.info
# (genhtml makes pages of it).
command -v lcov >/dev/null || { echo "coverage: no lcov; install it first" >&2; exit 1; }
source=$(cd "$SP_SRCDIR" && pwd) || exit 1 # as gcc names it
mkdir -p coverage && cd coverage || exit 1
counters='--coverage -fprofile-update=atomic'
test -f Makefile || "$source/configure" --without-cuda CC="$SP_CC" CFLAGS="-O1 -g $counters" \
    LDFLAGS=--coverage || exit 1
"${MAKE-make}" check ${TESTS+TESTS="$TESTS"}
failed=$?
lcov -q --capture --directory . --output-file all.info &&
    lcov -q --extract all.info "$source/src/*" --output-file src.info || exit 1
awk -F : -v from="$source/src/" '
function percent(hit, all) { return all ? sprintf("%5.1f %%", 100 * hit / all) : "      -" }
/^SF:/ {
    path = substr($0, length("SF:" from) + 1)
    folder = index(path, "/") ? substr(path, 1, index(path, "/") - 1) : "(programs)"
}
/^LF:/ { lines[folder] += $2; n_lines += $2 }
/^LH:/ { lines_hit[folder] += $2; n_lines_hit += $2 }
/^FNF:/ { functions[folder] += $2; n_functions += $2 }
/^FNH:/ { functions_hit[folder] += $2; n_functions_hit += $2 }
END {
    for (folder in lines)
        printf "%-12s lines %s of %6d   functions %s of %5d\n", folder, \
            percent(lines_hit[folder], lines[folder]), lines[folder], \
            percent(functions_hit[folder], functions[folder]), functions[folder] | "sort"
    close("sort")
    printf "%-12s lines %s of %6d   functions %s of %5d\n", "all", \
        percent(n_lines_hit, n_lines), n_lines, \
        percent(n_functions_hit, n_functions), n_functions
    if (n_lines == 0)
        exit 1
}' src.info && exit $failed
