#!/bin/sh
# A name leads to one place: at most 1 % of the names of functions of src and cuda are defined
# in more than one .c or .cu file. The functions of no_*.c do not count: they replace another
# file's in builds without a library. `check_names.sh -l` lists the names and their files.
# "take" has one meaning, ownership, at the end of a name (HACKING).
# And prose leads there: what HACKING names exists, a function that it names "of" or "in" a
# file is in that file, and the files and functions that comments name exist.
cd "${SP_SRCDIR-.}" || exit 1
tree=$(find src cuda tests include -type f | sed 's,^,/,; s,$, ,')
lost=$(
    grep -ohE '([a-z]+/)*[a-z]+_[a-z0-9_]*[a-z0-9](\.(cuh|cu|c|h|sh))?\>' HACKING | sort -u |
        while read -r name; do
            case $name in
            sp_x_destroy) continue ;; # an example
            *.*) echo "$tree" | grep -q "/$name \$" && continue ;;
            *) grep -rqw "${name##*/}" src cuda include tests Makefile.am && continue ;;
            esac
            echo "HACKING: $name does not exist"
        done
    tr -s ' \n' ' ' <HACKING |
        grep -oE '[a-z]+_[a-z0-9_]+ (of|in) [a-z_0-9/]+\.(cuh|cu|c|h|sh)\>' |
        while read -r name _ file; do
            for path in $(echo "$tree" | grep "/$file \$"); do
                grep -qw "$name" "${path#/}" || echo "HACKING: $name is not in $file"
            done
        done
    # What comments of src, cuda and include name: files, if they have a folder or an
    # underscore, as all sources have; functions and types, which are words of the code.
    find src cuda include tests -name '*.keep' -prune -o -type f \( -name '*.[ch]' -o \
        -name '*.cu*' -o -name '*.inc' \) -print | xargs awk '
    function words_of(text, is_comment,   name, after) {
        while (match(text, /[A-Za-z_][A-Za-z0-9_]*([\/.-]+[A-Za-z0-9_]+)*/)) {
            name = substr(text, RSTART, RLENGTH)
            after = substr(text, RSTART + RLENGTH, 1)
            text = substr(text, RSTART + RLENGTH)
            if (!is_comment)
                add_code(name)
            else if (FILENAME ~ /^tests/ || after ~ /[*<]/)
                continue
            else if (name ~ /\.(cuh|cu|c|h|sh)$/ && name ~ /^[a-z][a-z0-9\/]*[\/_]/)
                print "file", FILENAME ":" FNR ":", name
            else if (name ~ /^(sp|vox|label|bench|cuda|api)_[a-z0-9_]*[a-z0-9]$/)
                said[name] = FILENAME ":" FNR ":"
        }
    }
    function add_code(name,   part, n, i) {
        n = split(name, part, /[\/.-]/)
        for (i = 1; i <= n; i++)
            code[part[i]] = 1
    }
    FNR == 1 { inside = 0 }
    {
        rest = $0
        while (rest != "") {
            at = index(rest, inside ? "*/" : "/*")
            words_of(at ? substr(rest, 1, at - 1) : rest, inside)
            if (!at)
                break
            rest = substr(rest, at + 2)
            inside = !inside
        }
    }
    END {
        for (name in said)
            if (!(name in code))
                print "name", said[name], name
    }' | while read -r kind place name; do
        case $kind$tree in
        name*) grep -qw "$name" Makefile.am man/* || echo "$place $name does not exist" ;;
        *"/$name "*) ;;
        *) echo "$place $name does not exist" ;;
        esac
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
            if (name ~ /(^|_)take_/) {
                print FILENAME ": " name ": say alloc, read, parse, copy or set; _take ends" \
                    " the name of a function that becomes the owner"
                is_wrong = 1
            }
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
    exit is_wrong
}'
