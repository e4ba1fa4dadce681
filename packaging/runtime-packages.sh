#!/bin/sh
# Names the Debian packages that programs and libraries below FOLDER need to run, and the
# launcher of their MPI: runtime-packages.sh FOLDER
set -eu
folder=${1:?runtime-packages.sh FOLDER}
find "$folder" -type f \( -perm -100 -o -name '*.so*' \) -exec ldd {} + 2>/dev/null |
    sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
    # Debian's packages name /lib or /usr/lib, whichever they were built with.
    owner=$(dpkg-query -S "*/${library##*/}" 2>/dev/null | sed -n '1s/:.*//p')
    [ -z "$owner" ] || echo "$owner"
done | sort -u
for launcher in mpich openmpi-bin; do
    dpkg-query -W -f='${Status} ${Package}\n' "$launcher" 2>/dev/null |
        sed -n 's/^install ok installed //p'
done
