#!/bin/sh
# cuda_registers.sh LOG: registers of each CUDA kernel, from the output of a build with
# NVCCFLAGS="-O3 -Xptxas -v", and what the compiler could not keep in them. Fails where a
# kernel spills or has a stack, as for an array with an index that is not constant: its
# loads and stores go to memory, in the loop that was to avoid them.
# The library's own kernels (CUB) are listed, but not ours to mend.
[ -s "$1" ] || { echo "no build log: $1" >&2; exit 1; }
table=$(awk '
/Compiling entry function/ {
    match($0, /_Z[A-Za-z0-9_]*/); kernel = substr($0, RSTART, RLENGTH)
    match($0, /sm_[0-9a-z]*/); arch = substr($0, RSTART, RLENGTH)
}
/bytes spill stores/ {
    stores = loads = stack = 0
    if (match($0, /[0-9]+ bytes stack frame/)) stack = substr($0, RSTART) + 0
    if (match($0, /[0-9]+ bytes spill stores/)) stores = substr($0, RSTART) + 0
    if (match($0, /[0-9]+ bytes spill loads/)) loads = substr($0, RSTART) + 0
}
/Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5) + 0
    printf "%-7s %4d registers %5d bytes spilled %5d of stack  %s\n", arch, registers,
        stores + loads, stack, kernel
    n++
    if (stores + loads + stack && kernel !~ /^_ZN3cub/) bad++
}
END { printf "kernels=%d spilling=%d\n", n, bad }' "$1")
echo "$table" | c++filt -p
case $table in
*kernels=0\ *) exit 1 ;;
*spilling=0) exit 0 ;;
*) exit 1 ;;
esac
