#!/bin/sh
# S3DIS has a folder for each room, with a text of points for each object in Annotations/; the
# object's class is in the file's name. This script writes one labelled text for each room,
# which spvox convert reads: x y z red green blue label, the labels as in maps/s3dis.map.
# Names that are no class (stairs) are clutter, as most preparing scripts have it.
#
#   sh s3dis_rooms.sh FROM TO
#
# FROM has the folders Area_1 to Area_6. TO gets the files Area_1_office_3.txt and so on.
set -eu
if [ $# -ne 2 ]; then
    sed -n 's/^# \{0,1\}//; 2,/^$/p' "$0" >&2
    exit 2
fi
mkdir -p "$2"
n=0
for room in "$1"/Area_*/*/; do
    test -d "$room/Annotations" || continue
    area=${room#"$1"/}
    to=$2/$(echo "${area%/}" | tr / _).txt
    # A byte that is no text between two numbers, which one file has, divides them.
    LC_ALL=C awk -v classes="ceiling floor wall beam column window door table chair sofa bookcase board clutter" '
    BEGIN {
        n = split(classes, name, " ")
        for (i = 1; i <= n; i++)
            code[name[i]] = i - 1
        print "# x y z red green blue label"
    }
    FNR == 1 {
        class = FILENAME
        sub(/.*\//, "", class)
        sub(/_.*/, "", class)
        label = class in code ? code[class] : code["clutter"]
    }
    {
        gsub(/[^-+.0-9eE \t]/, " ")
        $1 = $1
    }
    NF == 0 { next }
    NF != 6 {
        printf "%s: line %d has %d numbers, expected x y z r g b\n", FILENAME, FNR, NF >"/dev/stderr"
        is_bad = 1
        exit 3
    }
    { print $0, label }
    END { if (is_bad) exit 3 }' "$room"Annotations/*.txt >"$to.tmp" || {
        rm -f "$to.tmp"
        exit 3
    }
    mv "$to.tmp" "$to"
    n=$((n + 1))
done
test $n -gt 0 || {
    echo "$0: $1: no Area_*/ROOM/Annotations" >&2
    exit 3
}
echo "$2: $n rooms"
