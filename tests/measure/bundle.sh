#!/bin/sh
# bundle.sh FOLDER PROGRAM...: makes a folder that runs on another machine of this
# architecture with no package installed: the programs, the MPI launcher and the shared
# libraries of both. The C library comes from that machine (as new as this one's, or newer),
# and so do the driver and CUDA's libraries, which are loaded where they are found. MPI and
# kernels for several architectures are large, so all travels compressed; `FOLDER/run`
# unpacks it once. The programs are linked with a path to lib beside their own folder, which
# their libraries follow too, so that other programs that `run` starts, as NVIDIA's tools,
# keep the machine's libraries. The launcher is a copy, so that it gets the path from `run`.
set -eu
to=$1
shift
src=${SP_SRCDIR:-.}
fail() {
    echo "bundle.sh: $*" >&2
    exit 1
}

# The launcher starts the proxy that it finds beside itself.
launcher=$(command -v mpiexec.hydra) || fail "no mpiexec.hydra (MPICH's launcher) on the PATH"
proxy=$(command -v hydra_pmi_proxy) || fail "no hydra_pmi_proxy on the PATH"

rm -rf "$to"
mkdir -p "$to/bin" "$to/lib"
for program in "$@"; do
    cp -L "$program" "$to/bin/"
    strip "$to/bin/$(basename "$program")"
    readelf -d "$program" | grep -q 'RPATH.*\$ORIGIN/../lib' ||
        fail "$program was not linked for a bundle: make bundle"
done
cp -L "$launcher" "$to/bin/mpirun"
cp -L "$proxy" "$to/bin/hydra_pmi_proxy"

for program in "$to"/bin/*; do
    ldd "$program" | grep 'not found' >&2 && fail "$program lacks a library"
    ldd "$program" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p'
done | sort -u | while read -r name path; do
    case $name in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.*) ;;
    libcuda.so* | libcudart.so* | libnvidia* | libnccl.so*) ;;
    *) cp -L "$path" "$to/lib/$name" ;;
    esac
done
tar -C "$to" -czf "$to/programs.tar.gz" bin lib
rm -r "$to/bin" "$to/lib"

mkdir "$to/input" "$to/tests"
cp "$src"/input/*.deck "$to/input/"
for file in gpu_here.sh gpu_check.sh gpu_first.sh gpu_speed.sh gpu_speed.awk gpu_profile.sh \
    peer_spconv.py; do
    cp "$src/tests/measure/$file" "$to/tests/"
done
cat >"$to/run" <<'END'
#!/bin/sh
# run PROGRAM ARGUMENTS...: one of this folder's, or any other.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
at=$here/programs
if ! [ -d "$at" ]; then
    part=$here/.programs.$$ # renamed when whole: several runs may begin at once
    mkdir "$part" && tar -C "$part" -xzf "$here/programs.tar.gz" &&
        { mv -T "$part" "$at" 2>/dev/null || [ -d "$at" ]; } || exit 1
    rm -rf "$part"
fi
PATH=$at/bin:$PATH
export PATH
[ "${1-}" != mpirun ] || export LD_LIBRARY_PATH="$at/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$@"
END
chmod +x "$to/run"
echo "$to: $(du -sm "$to" | cut -f 1) MiB"
