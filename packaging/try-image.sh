#!/bin/sh
# Executes the RUN lines of Dockerfile and the %post of sptrain.def in a clean Debian, without
# a container engine: one chroot builds, another one runs what it built, a third one does
# both. Needs root and debootstrap.
#   try-image.sh FOLDER [SUITE [MPI]]     FOLDER: for the three systems, some 4 GiB
set -eu
folder=$(readlink -f "${1:?try-image.sh FOLDER [SUITE [MPI]]}")
suite=${2:-bookworm}
mpi=${3:-}
# Open MPI starts no program for root without these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"

# lines N: the RUN lines of stage N as a script, a shell each, continued lines joined. The first
# that fails ends it.
lines() {
    sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$here/Dockerfile" |
        awk -v stage="$1" '/^FROM/ { n++ } n == stage && sub(/^RUN /, "") { print "( " $0 " ) || exit" }'
}
# post: the section %post with the definition's own arguments, and this MPI.
post() {
    sed -n '/^%post/,/^%runscript/{/^%/!p}' "$here/sptrain.def" |
        sed -e "s/{{ configure }}/$(sed -n 's/^ *configure=//p' "$here/sptrain.def")/" \
            -e "s/{{ mpi }}/${mpi:+--mpi=$mpi}/"
}
# system NAME: a clean Debian in FOLDER/NAME, and the source in it.
system() {
    [ -e "$folder/$1/bin/sh" ] || debootstrap --variant=minbase "$suite" "$folder/$1"
    mountpoint -q "$folder/$1/proc" || mount -t proc proc "$folder/$1/proc"
    mountpoint -q "$folder/$1/dev/shm" || {
        mkdir -p "$folder/$1/dev/shm"
        mount -t tmpfs -o size=1g shm "$folder/$1/dev/shm"
    }
    cp /etc/resolv.conf /etc/hosts "$folder/$1/etc/" 2>/dev/null || :
    cp -R /etc/apt/apt.conf.d/. "$folder/$1/etc/apt/apt.conf.d/" 2>/dev/null || :
    rm -rf "$folder/$1/source" "$folder/$1/build"
    mkdir "$folder/$1/source"
    (cd "$here/.." && git archive HEAD) | tar -x -C "$folder/$1/source"
}
# execute NAME LINE...: the lines on its input, in this system.
execute() {
    { printf '%s\n' "set -eu" "$2" && cat; } >"$folder/$1/run.sh"
    chroot "$folder/$1" sh /run.sh
}
trains() {
    chroot "$folder/$1" su "$2" -c 'cd && sptrain --version &&
        spvox scene --out s --samples 4 --extent 20 --seed 1 &&
        mpirun -n 2 sptrain "data.train=s-*.h5" "data.val=s-*.h5" net.family=dummy \
            train.steps=3 run.dir=r'
}
leave() {
    for name in build run def; do
        umount "$folder/$name/proc" "$folder/$name/dev/shm" 2>/dev/null || :
    done
}
trap leave EXIT
trap 'exit 1' HUP INT TERM
for name in build run def; do system "$name"; done
lines 1 | execute build "cd /source; CONFIGURE=--without-cuda MPI=$mpi"
cp -R "$folder/build/image/usr/local/." "$folder/run/usr/local/"
lines 2 | execute run ""
trains run mpiuser
echo "Dockerfile: the programs train"
post | execute def ""
trains def root
echo "sptrain.def: the programs train"
