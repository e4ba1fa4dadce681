#!/bin/sh
# The source keeps its layers (README, "Map of the source"): a file includes headers of
# its own layer or of earlier ones, each file belongs to a layer, and each outside
# library has one owner.
src=${SP_SRCDIR-.}/src
cuda=${SP_SRCDIR-.}/cuda
bad=0

complain() {
    echo "$*"
    bad=1
}

# Layer of a file or header by the first part of its name; 0: none.
layer() {
    case $1 in
    config.h) echo 0 ;;
    sp_error.* | sp_log.* | sp_rng.* | sp_exact.* | sp_crc.* | sp_machine.* | sp_file.* | \
        sp_child.* | sp_signal.* | sp_pulse.* | sp_fault.* | sp_json.* | \
        sp_probe.*) echo 1 ;;
    sp_comm*.* | sp_table.* | sp_records.* | sp_affinity.* | sp_h5*.* | sp_deck*.*) echo 2 ;;
    sp_tensor.* | sp_ranges.* | sp_plan.* | sp_backend.* | sp_norm.h | sp_transport*.* | \
        cpu*.* | ref_*.* | cuda*.* | \
        sp_cuda*.h | hostcuda.h) echo 3 ;;
    sp_graph*.* | sp_family.*) echo 4 ;;
    sp_shard*.* | sp_sample*.* | sp_voxel.* | sp_foresee.* | sp_budget.* | sp_cut.* | \
        sp_loader*.* | sp_gridding.* | sp_world.* | sp_lidar.* | sp_scene.* | \
        sp_scan*.*) echo 5 ;;
    sp_bucket.* | sp_net*.* | sp_optim.* | sp_metrics.* | sp_checkpoint*.*) echo 6 ;;
    sp_heartbeat.* | sp_watchdog*.* | sp_witness.* | sp_saver.* | sp_replica.* | \
        sp_selftest*.* | sp_run*.* | \
        sp_mapping.* | sp_session*.* | sp_train*.* | sp_resume.* | \
        sp_report.* | sp_evaluate.* | sp_eval.* | sp_infer.* | sp_predict.* | \
        sp_check*.* | sp_preflight.* | sp_main.*) echo 7 ;;
    vox*.* | bench*.*) echo 8 ;;
    *) echo none ;;
    esac
}

sources=$(ls "$src"/*.[ch] "$src"/cpu/*.[ch] "$cuda"/*.[ch] "$cuda"/*.cu "$cuda"/*.cuh 2>/dev/null)
[ "$(echo "$sources" | wc -l)" -gt 100 ] || complain "no sources in $src"
for file in $sources; do
    name=$(basename "$file")
    mine=$(layer "$name")
    if [ "$mine" = none ]; then
        complain "$name: belongs to no layer: give it one here and in README"
        continue
    fi
    for header in $(sed -n 's/^#include "\(.*\)".*/\1/p' "$file"); do
        header=$(basename "$header")
        theirs=$(layer "$header")
        if [ "$theirs" = none ] || [ "$theirs" -gt "$mine" ]; then
            complain "$name (layer $mine) includes $header (layer $theirs)"
        fi
    done
    # The two programs beside sptrain share layer 8 and know nothing of each other.
    case $name in
    vox*) other='"bench' ;;
    bench*) other='"vox' ;;
    *) continue ;;
    esac
    grep -q "#include $other" "$file" && complain "$name includes a header of the other program"
done

# owner HEADER PATTERN...: only files of these names include the header, and one does.
owner() {
    header=$1
    shift
    found=0
    for file in $(grep -lE "#include <$header>" $sources); do
        name=$(basename "$file")
        is_owner=no
        for pattern in "$@"; do
            case $name in $pattern) is_owner=yes ;; esac
        done
        found=1
        [ $is_owner = yes ] || complain "$name includes $header, which belongs to $*"
    done
    [ $found = 1 ] || complain "$header: $* should include it and does not"
}
set -f # the patterns are for case, not for the shell's folder
owner mpi.h sp_comm_internal.h
owner hdf5.h sp_h5_internal.h
owner libconfig.h sp_deck.c sp_deck_value.c sp_deck_layer.c
owner hwloc.h sp_affinity.c
owner jansson.h sp_run_state.c
owner dlfcn.h sp_scan_laz.c 'cuda*'
owner cuda_runtime.h sp_cuda.h
owner immintrin.h cpu_vec.h 'cpu_plan*' sp_crc.c
owner sys/socket.h sp_shard_index.c 'sp_watchdog*' sp_witness.c
# A hash is compiled in from the header, so every user has its own copy.
owner xxhash.h sp_comm_agree.c sp_shard_probe.c sp_shard_index.c sp_report.c sp_replica.c
for file in $(grep -l '#include <nccl\.h>' $sources); do
    case $(basename "$file") in
    cuda*) ;;
    *) complain "$(basename "$file"): NCCL belongs to cuda/" ;;
    esac
done

for file in $(grep -l '#include "sp_h5_internal.h"' $sources); do
    case $(basename "$file") in
    sp_h5*) ;;
    *) complain "$(basename "$file") includes sp_h5_internal.h: sp_h5 alone sees HDF5" ;;
    esac
done

for file in $(grep -l '#include "sp_comm_internal.h"' $sources); do
    case $(basename "$file") in
    sp_comm*) ;;
    *) complain "$(basename "$file") includes sp_comm_internal.h: sp_comm alone sees MPI" ;;
    esac
done

# One place decides which backends a build has, one ends the other ranks.
for file in $(grep -lE '#if.*SP_WITH_CUDA' $sources); do
    [ "$(basename "$file")" = sp_backend.c ] ||
        complain "$(basename "$file"): SP_WITH_CUDA is tested in sp_backend.c only"
done
for file in $(grep -lE 'MPI_Abort *\(' $sources); do
    [ "$(basename "$file")" = sp_comm.c ] ||
        complain "$(basename "$file"): MPI_Abort is called in sp_comm.c only"
done
exit $bad
