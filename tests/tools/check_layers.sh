#!/bin/sh
# The source keeps its layers (README, "Map of the source"): the folders of src/ have one
# order, a file includes headers of its own folder or of folders before it, and each outside
# library has one owner. A folder is one subject with one main header; private parts may live
# in a subfolder, which counts as its folder. The programs' main files lie in src/ itself.
order="base comm h5 deck compute cpu data net checkpoint predict weights api scan
    run report health train vox label bench"
cd "${SP_SRCDIR-.}" || exit 1
bad=0

complain() {
    echo "$*"
    bad=1
}

# at_FOLDER is the folder's position in the order, empty if it is not in it.
n=0
for room in $order; do
    n=$((n + 1))
    eval "at_$room=$n"
done

# The kernels of cuda/ see what stands up to the operations, and the planner of the CPU.
cuda_sees=" base comm compute cpu "

# Folders *.keep are what nvcc left behind in a build in place (make check-ptx).
sources=$(find src cuda -name '*.keep' -prune -o \( -name '*.[ch]' -o -name '*.cu' \
    -o -name '*.cuh' \) -print)
[ "$(echo "$sources" | wc -l)" -gt 100 ] || complain "no sources in $PWD"
for folder in src/*; do
    [ -d "$folder" ] || continue
    room=${folder#src/}
    eval "[ -n \"\${at_$room-}\" ]" ||
        complain "$folder: not in the order: give it a place in the order, here and in README"
done

# A file that Makefile.am does not list is not built, not run, or not in the distribution.
unlisted=$({
    echo "$sources"
    find src -name '*.inc'
    find tests -path '*/test_*.sh'
    find tests/unit -name 'test_*.c' | sed 's/\.c$//'
} | grep -vxF "$(tr -s ' \t\\' '\n\n\n' <Makefile.am)")
# shellcheck disable=SC2086 # one line for all
[ -z "$unlisted" ] || complain "Makefile.am does not list" $unlisted

long=$(awk 'length > 100 { printf " %s:%d", FILENAME, FNR }' man/*)
[ -z "$long" ] || complain "more than 100 columns:$long"

# A variable of the environment that users set is told in a man page and stands in the list
# by which sptrain warns of misspelt ones.
for name in $(grep -rhoE '(getenv|sp_env)\("SP_[A-Z0-9_]+' src cuda | sed 's/.*"//' | sort -u); do
    case $name in
    SP_TEST_FAULT | SP_H5_CHILD_*) continue ;; # of tests
    esac
    grep -q "\"$name\"" src/sptrain.c || complain "$name: not in src/sptrain.c"
    grep -q "$name" man/* || complain "$name: in no man page"
done

# Every file, and a header of the project that it includes.
while read -r file header; do
    room=${file#*/}
    room=${room%%/*}
    theirs=${header%%/*}
    [ "$room" != "${room%.c}" ] && room=bench
    case $file,$header in
    cuda/device/sp_cuda.h,emulator/hostcuda.h) ;; # where kernels run on the CPU
    cuda/*,cuda/*) [ -f "$header" ] || complain "$file: $header is not there" ;;
    cuda/*)
        case $cuda_sees in
        *" $theirs "*) ;;
        *) complain "$file includes $header: not a folder that kernels see" ;;
        esac
        ;;
    # spbench counts what the kernels do, without a device.
    src/bench/*,cuda/conv/cuda_count.h | src/bench/*,cuda/plan/cuda_map_host.h) ;;
    src/bench/*,vox/*) complain "$file includes $header of the other program" ;;
    *)
        if [ ! -f "src/$header" ]; then
            complain "$file: src/$header is not there"
        elif eval "[ \${at_$theirs-99} -gt \${at_$room-0} ]"; then
            complain "$file includes $header of a later folder"
        fi
        ;;
    esac
done <<END
$(grep -H '^ *# *include "' $sources | sed -n 's/^\([^:]*\):.*include "\(.*\)".*/\1 \2/p' |
    grep -v ' config\.h$')
END
# owner HEADER PATTERN...: only files of these names include the header, and one does.
owner() {
    header=$1
    shift
    found=0
    for file in $(grep -lE "#include <$header>" $sources); do
        is_owner=no
        for pattern in "$@"; do
            case $file in $pattern) is_owner=yes ;; esac
        done
        found=1
        [ $is_owner = yes ] || complain "$file includes $header, which belongs to $*"
    done
    [ $found = 1 ] || complain "$header: $* should include it and does not"
}
set -f # the patterns are for case, not for the shell's folder
owner mpi.h src/comm/sp_comm_internal.h
owner hdf5.h src/h5/sp_h5_internal.h
owner libconfig.h 'src/deck/*'
owner hwloc.h src/comm/sp_affinity.c
owner jansson.h src/run/sp_run_state.c src/report/sp_run_watch.c src/report/sp_history_line.c src/report/sp_page.c \
    src/weights/sp_safetensors.c src/scan/sp_scan_ept.c
owner png.h src/report/sp_png.c
owner tiffio.h src/label/label_raster_tiff.c
owner dlfcn.h src/comm/sp_comm.c 'cuda/*'
owner cuda_runtime.h cuda/device/sp_cuda.h
owner immintrin.h 'src/cpu/*' src/base/sp_crc_x86.c
owner sys/socket.h src/comm/sp_pmi.c src/comm/sp_world.c src/comm/sp_world_line.c \
    src/comm/sp_world_server.c src/h5/sp_h5_child.c src/h5/sp_h5_child_serve.c src/health/sp_auth_socket.c
# A hash is compiled in from the header, so every user has its own copy.
owner xxhash.h src/comm/sp_comm_agree.c src/comm/sp_comm_find.c src/data/sp_index_file.c src/h5/sp_h5_child.c src/h5/sp_h5_child_serve.c \
    src/data/sp_shard_copies.c src/data/sp_shard_index.c \
    src/train/sp_output.c src/checkpoint/sp_replica.c

# only PATH PATTERN WORDS: no other file has the pattern.
only() {
    for file in $(grep -lE "$2" $sources); do
        case $file in
        $1) ;;
        *) complain "$file: $3" ;;
        esac
    done
}
only 'cuda/*' '#include <nccl\.h>' "NCCL belongs to cuda/"
only 'src/h5/*' '#include "h5/sp_h5_internal.h"' "src/h5 alone sees HDF5"
only 'src/comm/*' '#include "comm/sp_comm_internal.h"' "src/comm alone sees MPI"
# One file ends the other ranks.
only src/comm/sp_comm.c 'MPI_Abort *\(' "MPI_Abort is called in sp_comm.c only"
exit $bad
