#!/bin/sh
# The source keeps its layers (README, "Map of the source"): a file includes headers of its own
# layer or of earlier ones, and each outside library has one owner.
src=${SP_SRCDIR-.}/src
bad=0

# Layer of a file or header by the first part of its name.
layer() {
    case $1 in
    sp_error* | sp_machine* | sp_log* | sp_rng* | sp_exact* | sp_crc* | sp_json* | sp_file* | \
        sp_child* | sp_signal* | sp_pulse* | sp_fault*) echo 1 ;;
    sp_comm* | sp_h5* | sp_deck*) echo 2 ;;
    sp_tensor* | sp_plan* | sp_backend* | cpu* | ref_*) echo 3 ;;
    sp_graph* | sp_family*) echo 4 ;;
    sp_shard* | sp_sample* | sp_voxel* | sp_gridding* | sp_world* | sp_lidar* | \
        sp_scene* | sp_scan* | sp_loader*) echo 5 ;;
    sp_bucket* | sp_net* | sp_optim* | sp_metrics* | sp_checkpoint*) echo 6 ;;
    sp_heartbeat* | sp_watchdog* | sp_run* | sp_session* | sp_evaluate* | sp_train* | sp_resume* | \
        sp_report* | sp_eval* | sp_infer* | sp_predict* | sp_check* | sp_preflight* | \
        sp_main* | vox* | bench*) echo 7 ;;
    *) echo 0 ;;
    esac
}

for file in "$src"/*.[ch] "$src"/cpu/*.[ch]; do
    name=$(basename "$file")
    mine=$(layer "$name")
    if [ "$mine" = 0 ]; then
        echo "$name: belongs to no layer: give it one here and in README"
        bad=1
    fi
    for header in $(sed -n 's/^#include "\(.*\)"$/\1/p' "$file"); do
        header=$(basename "$header")
        [ "$header" = config.h ] && continue
        if [ "$(layer "$header")" -gt "$mine" ]; then
            echo "$name (layer $mine) includes $header (layer $(layer "$header"))"
            bad=1
        fi
    done
done

owner() { # owner HEADER FILES-PATTERN
    for file in $(grep -lE "#include <$1>" "$src"/*.[ch] "$src"/cpu/*.[ch]); do
        case $(basename "$file") in
        $2) ;;
        *)
            echo "$(basename "$file") includes $1, which belongs to $2"
            bad=1
            ;;
        esac
    done
}
owner mpi.h 'sp_comm.c'
owner hdf5.h 'sp_h5*'
owner libconfig.h 'sp_deck*'
owner 'cuda_runtime.h' 'none'
owner 'nccl.h' 'none'

# One place decides which backends a build has.
for file in $(grep -lE '#if.*SP_WITH_CUDA' "$src"/*.[ch] "$src"/cpu/*.[ch]); do
    [ "$(basename "$file")" = sp_backend.c ] && continue
    echo "$(basename "$file"): SP_WITH_CUDA is tested in sp_backend.c only"
    bad=1
done
exit $bad
