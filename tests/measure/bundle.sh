#!/bin/sh
# bundle.sh FOLDER PROGRAM...: makes a folder that runs on another machine of this
# architecture with no package installed: the programs, the MPI launcher and the shared
# libraries of both. The C library comes from that machine (as new as this one's, or newer),
# and so do the driver and CUDA's libraries, which are loaded where they are found. MPI and
# kernels for several architectures are large, so all travels compressed; `FOLDER/run`
# unpacks it once.
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
# run PROGRAM ARGUMENTS...: one of this folder's, or any other, with its libraries.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
at=$here/programs
if ! [ -d "$at" ]; then
    part=$here/.programs.$$ # renamed when whole: several runs may begin at once
    mkdir "$part" && tar -C "$part" -xzf "$here/programs.tar.gz" &&
        { mv -T "$part" "$at" 2>/dev/null || [ -d "$at" ]; } || exit 1
    rm -rf "$part"
fi
LD_LIBRARY_PATH=$at/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PATH=$at/bin:$PATH
export LD_LIBRARY_PATH PATH
exec "$@"
END
chmod +x "$to/run"
echo "$to: $(du -sm "$to" | cut -f 1) MiB"
