# The first part of gpu_check.sh and gpu_first.sh, which source this file with $run (which
# puts the programs on the PATH) and $results set. Makes $results, an absolute path from here
# on, and goes to a folder of its own, which is gone when the script ends. Ends the script
# with 77 where there is no GPU and with 1 where the programs do not start. Writes the names
# of the kernels' tests to ./names and the device to $results/device; $sanitizer becomes the
# path of compute-sanitizer, empty where there is none.
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$run" gpu_tests >names 2>why
case $? in
0) ;;
77)
    cat why
    exit 77
    ;;
*)
    echo "FAILED  the programs do not start on this machine"
    cat why
    exit 1
    ;;
esac
nvidia-smi --query-gpu=name,uuid,driver_version,memory.total --format=csv,noheader \
    >"$results/device" 2>/dev/null && cat "$results/device"
sanitizer=$(command -v compute-sanitizer ||
    ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)
