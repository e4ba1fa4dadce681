#!/bin/sh
# Comments, messages and manuals are in the field's plain English: no dialect is more frequent
# than in well-known projects of the field. Counted per 1,000 words of all comments of src,
# cuda, include and examples, of all texts of four words or more in their code, and of README
# and the manual pages. `check_words.sh FOLDER...` lists the places in comments of these
# folders, `check_words.sh --messages FOLDER...` those in messages.
cd "${SP_SRCDIR-.}" || exit 1

# count PART FOLDER...: prints for each pattern its number and its rate in the comments, the
# messages or the manuals, and fails above a limit.
count() {
    part=$1
    shift
    echo "$part"
    find "$@" -name '*.keep' -prune -o \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' \
        -o -name '*.cuh' -o -name '*.f90' -o -name '*.[1357]' -o -name '[RHC][A-Z]*' \) -print |
        LC_ALL=C sort | xargs awk -v list="$list" -v part="$part" '
    BEGIN {
        n = split("where|of which|that of|none|behind|alone", name, "|")
        pattern[1] = " where (it|they|there|the|no|a|an|one|this|that|these|those|its|all|none|some|such|any|both|only|not|nothing|neither) "
        pattern[2] = " ((of|by|to|in|from|with|on|at|for|through|after|under|over|into|against|behind) (which|whom)|whose) "
        pattern[3] = " (that|those) of "
        pattern[4] = " none "
        pattern[5] = " behind "
        pattern[6] = " alone "
        # at most so many per 1,000 words: the rates of the anchors
        limit[1] = 0.65; limit[2] = 1.5; limit[3] = 0.2; limit[4] = 0.1; limit[5] = 0.1
        limit[6] = 0.1
    }
    function take(text,   i, rest, at, w) {
        gsub(/"[^"]*"/, " ", text) # words of decks
        gsub(/[-=]+none/, " ", text)
        gsub(/[^A-Za-z_\047]+/, " ", text)
        text = " " tolower(text) " "
        words += split(text, w, " ")
        for (i = 1; i <= n; i++) {
            rest = text
            while ((at = match(rest, pattern[i])) > 0) {
                found[i]++
                if (list)
                    printf "%s:%d: %s\n", FILENAME, first, name[i]
                rest = " " substr(rest, at + RLENGTH)
            }
        }
    }
    # The texts in code. Those of fewer words are names, and words between bars a list.
    function messages(line,   text) {
        while (match(line, /"([^"\\]|\\.)*"/)) {
            text = substr(line, RSTART + 1, RLENGTH - 2)
            line = substr(line, RSTART + RLENGTH)
            gsub(/\\"/, "\"", text)
            gsub(/%[-+0-9.*lz]*[a-z]|\\./, " ", text)
            first = FNR
            if (text !~ /\|.*\|/ && text ~ /[A-Za-z]+[^A-Za-z]+[A-Za-z]+[^A-Za-z]+[A-Za-z]+[^A-Za-z]+[A-Za-z]/)
                take(text)
        }
    }
    FNR == 1 { if (open) take(comment); open = 0; comment = "" }
    part == "manuals" {
        sub(/^\.[A-Za-z\\"]+/, "")
        gsub(/\\f[A-Z]|\\&/, "")
        gsub(/\\-/, "-")
        comment = comment " " $0
        open = 1
        next
    }
    part == "messages" && $0 !~ /^ *(\/?\*|#include)/ { messages($0); next }
    part == "messages" { next }
    {
        line = $0
        while (line != "") {
            if (open) {
                at = index(line, "*/")
                comment = comment " " (at ? substr(line, 1, at - 1) : line)
                if (!at) { line = ""; break }
                take(comment)
                open = 0; comment = ""
                line = substr(line, at + 2)
                continue
            }
            sub(/^([^"\/]|\/[^*\/]|"([^"\\]|\\.)*")*/, "", line)
            if (substr(line, 1, 2) == "/*") { open = 1; first = FNR; line = substr(line, 3) }
            else if (substr(line, 1, 2) == "//") { first = FNR; take(substr(line, 3)); line = "" }
            else line = substr(line, 2)
        }
    }
    END {
        if (part == "manuals") take(comment)
        if (list) exit 0
        if (words < 1000) { print "only " words + 0 " words of " part; exit 1 }
        for (i = 1; i <= n; i++) {
            rate = 1000 * found[i] / words
            printf "%-9s %4d %6.2f per 1,000 words, at most %.2f\n", name[i], found[i], rate, limit[i]
            if (rate > limit[i]) bad = 1
        }
        exit bad
    }'
}
list=
if [ $# -gt 0 ]; then
    list=1 what=comments
    test "$1" != --messages || { what=messages; shift; }
    count $what "$@"
    exit
fi
bad=0
count comments src cuda include examples || bad=1
count messages src cuda || bad=1
count manuals README HACKING CONTRIBUTING man || bad=1
exit $bad
