#!/bin/sh
# Every shipped recipe is accepted with data of its columns and classes, and trains three steps
# on a narrow network; the last column of the table in input/README is what it sets.
. "$SP_SRCDIR/tests/fixtures/program.sh"
decks=$SP_SRCDIR/input

# The text after the last `WORD = ` of a deck, and a list without brackets, quotes, blanks.
list_of() { tr '\n' ' ' <"$2" | sed -n "s/.* $1 = \[\([^]]*\)\].*/\1/p" | tr -d '" '; }
value_of() { sed -n "s/^ *$1 = \([^;]*\);.*/\1/p" "$2" | head -n 1; }

# data_of DECK: the points of a made room, with the deck's columns and all classes of its map.
data_of() {
    features=$(list_of features "$1")
    map=$SP_SRCDIR/input/$(sed -n 's/^#.*--map @\(maps\/[a-z0-9]*\.map\).*/\1/p' "$1" | head -n 1)
    test -f "$map" || fail "$1 names no map"
    size=$(value_of voxel_size "$1")
    codes=$(sed 's/#.*//; s/=.*//' "$map" | awk 'NF { print $1 }' | tr '\n' ' ')
    # Attributes: those that are not computed and no coordinates.
    others=$(echo "$features" | tr ',' '\n' | grep -vxE 'x|y|z|one|height|count' | tr '\n' ',')
    for k in 1 2 3; do
        awk -v seed=$k -v size="$size" -v codes="$codes" -v others="$others" 'BEGIN {
            srand(seed); n = split(codes, code, " "); m = split(others, name, ",") - 1
            for (i = 0; i < 900; i++) {
                printf "%.4f %.4f %.4f", 30 * size * rand(), 30 * size * rand(), 12 * size * rand()
                for (k = 1; k <= m; k++) printf " %d", name[k] ~ /red|green|blue/ ? int(255 * rand()) : int(5 * rand())
                print " " code[i % n + 1]
            }
        }' >points$k.txt
    done
    cut=
    test "$(value_of merge "$1")" = true && cut="--block 20 --overlap 2"
    # shellcheck disable=SC2086
    alone 0 "$SP_BUILDDIR/spvox" convert --out made --voxel-size "$size" --points --shards 1 \
        --columns "x,y,z,${others}label" --features "$features" --map "@$map" \
        $cut points?.txt
}

n_recipes=0
for deck in "$decks"/*.deck; do
    name=${deck##*/}
    case $name in default.deck | dummy.deck | nimes3.deck) continue ;; esac
    n_recipes=$((n_recipes + 1))
    data_of "$deck"
    cp "$deck" this.deck
    grep -q "^$name |" "$decks/README" || fail "input/README has no table of $name"
    # The deck as it is, but for its data: its parameters are printed, its numbers the table's.
    run 1 0 check this.deck 'data.train=["made-*.h5"]' 'data.val=["made-*.h5"]' batch.size=2
    says out '[0-9]* parameters'
    run 1 0 this.deck 'data.train=["made-*.h5"]' 'data.val=["made-*.h5"]' run.dir="as-$name" \
        train.steps=1 net.width=0.05 train.precision=fp32 run.threads=1 run.eval_every=0
    run 2 0 this.deck 'data.train=["made-*.h5"]' 'data.val=["made-*.h5"]' run.dir="narrow-$name" \
        train.steps=3 net.width=0.05 batch.size=2 run.threads=1 run.log_every=1
    test "$(grep -c '"event":"step"' "narrow-$name/metrics.jsonl")" = 3 || fail "$name: not three steps"
    grep -q '"event":"eval"' "narrow-$name/metrics.jsonl" || fail "$name: no evaluation"
    sed -n "/^$name |/,/^\$/p" "$decks/README" | grep '^    ' >rows
    while IFS='|' read -r key there here; do
        key=$(echo "$key" | tr -d ' ') here=$(echo "$here" | tr -d ' ')
        got=$(awk -v section="${key%.*}" -v key="${key#*.}" '
            $2 == ":" { at = $1 }
            at == section && $1 == key && $2 == "=" {
                sub(/^[^=]*= */, ""); sub(/;$/, ""); gsub(/ /, ""); print; exit }' "as-$name/deck.resolved")
        test "$got" = "$here" || fail "$name: $key is $got, in input/README $here (there: $there)"
    done <rows
    test -s rows || fail "$name: an empty table"
done
test $n_recipes = 8 || fail "$n_recipes recipes, expected 8"
