#!/bin/sh
# A name leads to one place: at most 1 % of the names of functions of src and cuda are defined
# in more than one .c or .cu file. The functions of no_*.c do not count: they replace another
# file's in builds without a library. `check_names.sh -l` lists the names and their files.
# And HACKING leads there: the files and functions that it names exist.
cd "${SP_SRCDIR-.}" || exit 1
lost=$(
    grep -ohE '[a-z]+_[a-z0-9_]*[a-z0-9](\.(cuh|cu|c|h|sh))?\>' HACKING | sort -u |
        while read -r name; do
            case $name in
            sp_x_destroy) continue ;; # an example
            *.*) find src cuda tests -name "$name" | grep -q . && continue ;;
            *) grep -rqw "$name" src cuda include tests Makefile.am && continue ;;
            esac
            echo "HACKING: $name does not exist"
        done
)
test -z "$lost" || { echo "$lost"; exit 1; }
find src cuda -name '*.keep' -prune -o -name 'no_*.c' -o \( -name '*.c' -o -name '*.cu' \) -print |
    LC_ALL=C sort | xargs awk -v list="${1-}" '
FNR == 1 { head = "" }
# The head of a definition begins in column 0 and goes on, indented, to a "{" of its own.
/^[A-Za-z_]/ { head = head " " $0; if (/[;}]$/) head = ""; next }
/^[ \t]/ && head != "" { head = head " " $0; if (/[;}]$/) head = ""; next }
/^{$/ && head != "" {
    gsub(/__launch_bounds__[ ]*\(([^()]|\([^()]*\))*\)/, "", head)
    gsub(/__attribute__[ ]*\(\(([^()]|\([^()]*\))*\)\)/, "", head)
    gsub(/template <[^>]*>/, "", head)
    if (match(head, /[A-Za-z_][A-Za-z_0-9]* ?\(/)) {
        name = substr(head, RSTART, RLENGTH - 1)
        sub(/ $/, "", name)
        if (name ~ /[a-z]/ && !((name, FILENAME) in seen)) {
            seen[name, FILENAME] = 1
            if (!n_files[name]++)
                n++
            files[name] = files[name] " " FILENAME
        }
    }
}
{ head = "" }
END {
    for (name in n_files)
        if (n_files[name] > 1) {
            several++
            if (list)
                print name ":" files[name]
        }
    if (n < 1000) { print "only " n + 0 " functions found"; exit 1 }
    printf "%d names of functions, %d in several files: %.2f %% (at most 1)\n", \
        n, several, 100 * several / n
    if (100 * several > n) {
        print "a static function carries its noun: shard_read_rows, not read_rows (list: -l)"
        exit 1
    }
}'
