#!/bin/sh
# The proof that random runs find mistakes: each patch of planted/ breaks sptrain in one
# place, and random_runs must find that within RUNS cases (200) of SEED (1), in a case
# in which the unbroken program is right. `make check-planted`; PLANTED="05 07" tries
# these alone.
#   COMPILE    compiles a source: $COMPILE -c -o OBJECT FILE
#   LINK_MAIN  links sptrain: $LINK_MAIN PROGRAM OBJECTS $LINK_LIBS
# A patched source is compiled apart; its object stands before the library, whose member
# of the same functions is then not taken.
here=$SP_SRCDIR/tests/torture/random
cd "$SP_BUILDDIR" || exit 1
tester=$PWD/tests/torture/random/random_runs
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
runs=${RUNS-200}
bad=0

# broken NAME: $work/sptrain is the program with this patch; says what went wrong.
broken() {
    rm -rf "$work/src" "$work/sptrain"
    mkdir -p "$work/src"
    sources=$(sed -n 's/^+++ b\/\([^ \t]*\).*/\1/p' "$here/planted/$1")
    objects=
    for path in $sources; do
        file=$(find "$SP_SRCDIR/src" -name "${path##*/}")
        test -f "$file" || { echo "$1: no file ${path##*/} in src"; return 1; }
        mkdir -p "$work/${path%/*}"
        cp "$file" "$work/$path"
    done
    patch -d "$work" -p1 -F 2 <"$here/planted/$1" >"$work/log" 2>&1 ||
        { cat "$work/log"; echo "$1: does not apply"; return 1; }
    for path in $sources; do
        $COMPILE -Wno-unused -c -o "$work/$path.o" "$work/$path" 2>"$work/log" ||
            { cat "$work/log"; echo "$1: does not compile"; return 1; }
        objects="$objects $work/$path.o"
    done
    # shellcheck disable=SC2086
    $LINK_MAIN "$work/sptrain" $objects $LINK_LIBS 2>"$work/log" ||
        { cat "$work/log"; echo "$1: does not link"; return 1; }
}

# random PROGRAM FIRST RUNS: the first fault, as "case way"; nothing where there is none.
random() {
    SPTRAIN=$1 "$tester" --seed "${SEED-1}" --first "$2" --runs "$3" --shrink 0 \
        --until 1 --keep "$work/faults" ${JOBS:+--jobs "$JOBS"} >"$work/out" 2>&1
    sed -n 's/^FAULT case [0-9]*\/\([0-9]*\) way \(.\):.*/\1 \2/p' "$work/out" |
        sort -n | head -1
}

# find_it NAME: where and how the mistake is found.
find_it() {
    first=0
    while test "$first" -lt "$runs"; do
        # shellcheck disable=SC2046
        set -- "$1" $(random "$work/sptrain" "$first" $((runs - first)))
        test -n "$2" || break
        words=$(sed -n "s/^FAULT case [0-9]*\/$2 way .: //p" "$work/out" | head -1)
        if test -z "$(random "$PWD/sptrain" "$2" 1)"; then
            echo "found ${1%.patch}: case $2, way $3: $words"
            return
        fi
        first=$(($2 + 1)) # a fault of the unbroken program
    done
    echo "NOT FOUND ${1%.patch}: in $runs cases"
    bad=1
}

n=0
for patch in "$here"/planted/*.patch; do
    name=${patch##*/}
    case " ${PLANTED-${name%%-*}} " in
    *" ${name%%-*} "*) ;;
    *) continue ;;
    esac
    n=$((n + 1))
    if broken "$name"; then
        find_it "$name"
    else
        bad=1
    fi
done
echo "$n mistakes"
exit $bad
