#!/bin/sh
# Executes the RUN lines of Dockerfile in a clean Debian, without a container engine: one
# chroot builds, another one runs what it built. Needs root and debootstrap.
#   try-image.sh FOLDER [SUITE]     FOLDER: for the two systems, some 3 GiB
set -eu
folder=${1:?try-image.sh FOLDER [SUITE]}
suite=${2:-bookworm}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"

# lines N: the RUN lines of stage N as a script, continued lines joined.
lines() {
    sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$here/Dockerfile" |
        awk -v stage="$1" '/^FROM/ { n++ } n == stage && sub(/^RUN /, "")'
}
system() {
    [ -e "$folder/$1/bin/sh" ] || debootstrap --variant=minbase "$suite" "$folder/$1"
    mountpoint -q "$folder/$1/proc" || mount -t proc proc "$folder/$1/proc"
    cp /etc/resolv.conf "$folder/$1/etc/" 2>/dev/null || :
    cp -R /etc/apt/apt.conf.d/. "$folder/$1/etc/apt/apt.conf.d/" 2>/dev/null || :
}
trap 'umount "$folder"/build/proc "$folder"/run/proc 2>/dev/null || :' EXIT
system build
system run
rm -rf "$folder/build/source" "$folder/build/build"
mkdir "$folder/build/source"
(cd "$here/.." && git archive HEAD) | tar -x -C "$folder/build/source"
{ echo "set -eu; cd /source; CONFIGURE=--without-cuda" && lines 1; } >"$folder/build/run.sh"
chroot "$folder/build" sh /run.sh
cp -R "$folder/build/image/usr/local/." "$folder/run/usr/local/"
{ echo "set -eu" && lines 2; } >"$folder/run/run.sh"
chroot "$folder/run" sh /run.sh
chroot "$folder/run" su mpiuser -c 'cd && sptrain --version &&
    spvox scene --out s --samples 4 --extent 20 --seed 1 &&
    mpirun -n 2 sptrain data.train=s-*.h5 data.val=s-*.h5 net.family=dummy train.steps=3 run.dir=r'
echo "the image's programs train"
