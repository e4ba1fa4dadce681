#!/bin/sh
# gpu_profile.sh reads the output of ncu: a page written here by hand in ncu's format, and
# the output of a stand-in for ncu, which tells how it was called.
. "$SP_SRCDIR/tests/fixtures/program.sh"
profile=$SP_SRCDIR/tests/measure/gpu_profile.sh

# ---- a page: names with commas, thousands, units, what else ncu says ----
start='"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC"'
left='"7","sptrain","host"'
right='"1","13","(256, 1, 1)","(100, 1, 1)","0","9.0"'
conv='"void (anonymous namespace)::conv_kernel<(int)128, (bool)1>(conv_args, int)"'
cat >page.csv <<END
==PROF== Connected to process 7 (/tmp/sptrain)
==PROF== Disconnected from process 7
$start,"dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","lts__throughput.avg.pct_of_peak_sustained_elapsed","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","","","","","","","","","","%","nsecond","%","%","%"
"0",$left,$conv,$right,"10.00","1,000,000","20.00","60.00","70.00"
"1",$left,$conv,$right,"30.00","3,000,000","40.00","20.00","50.00"
"2",$left,"norm_kernel(float *, int)",$right,"90.00","500,000","30.00","0","20.00"
"3",$left,"a_kernel()",$right,"1","40,000","1","1","1"
"4",$left,"b_kernel()",$right,"1","30,000","1","1","1"
"5",$left,"c_kernel()",$right,"1","20,000","1","1","1"
"6",$left,"d_kernel()",$right,"1","10,000","1","1","1"
END
sh "$profile" --csv page.csv minkunet18 2 bf16 "$dir" >out 2>&1 || fail "a page of ncu's"
# calls, ms, share, then means over the time: SM, tensor, L2, DRAM
grep -qx 'conv_kernel<128,1> *2 *4.000 *87.0 *55.0 *30.0 *35.0 *25.0' out || fail "conv_kernel"
grep -qx 'norm_kernel *1 *0.500 *10.9 *20.0 *0.0 *30.0 *90.0' out || fail "norm_kernel"
grep -qx '6 kernels, 4.600 ms one after the other' out || fail "sum"
[ "$(wc -l <out)" = 7 ] && ! grep -q d_kernel out || fail "not the five longest"
grep -q '"net":"minkunet18",.*"kernel":"d_kernel","calls":1,"ms":0.010000' profile.jsonl ||
    fail "profile.jsonl"
sed 's/nsecond/usecond/' page.csv >us.csv
sh "$profile" --csv us.csv minkunet18 2 bf16 "$dir" >out 2>&1 || fail "microseconds"
grep -q '^norm_kernel *1 *500.000 ' out || fail "microseconds"
echo '==PROF== nothing' >empty.csv
sh "$profile" --csv empty.csv minkunet18 2 bf16 "$dir" >out 2>&1 && fail "an empty page"
grep -q 'no profile in this file' out || fail "an empty page is not told"

# ---- the whole script, with a stand-in: 40 launches before the steps, 10 in each ----
bench=$SP_BUILDDIR/tests/device/spbench_hostcuda
[ -x "$bench" ] || { echo "the rest not tried: no emulator in this build"; exit 0; }
stand_in
ln -s "$SP_BUILDDIR/tests/device/sptrain_hostcuda" bin/sptrain
ln -s "$bench" bin/spbench
cat >bin/ncu <<END
#!/bin/sh
echo "\$*" >>$dir/calls
case \$* in *--query-metrics*) echo "sm__pipe_tensor_op_hmma_cycles_active  cycles"; exit ;; esac
while [ \$# -gt 0 ]; do
    case \$1 in
    --log-file) file=\$2 ;;
    --launch-count) only=\$2 ;;
    train.steps=*) n=\$((40 + 10 * \${1#*=})) ;;
    esac
    shift
done
[ -z "\$SP_NO_COUNTERS" ] || {
    echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission" >\$file
    exit 1
}
sed -n 1,4p $dir/page.csv >\$file
i=0
while [ \$i -lt \${only:-\$n} ]; do
    sed -n 5p $dir/page.csv | sed "s/^\"0\"/\"\$i\"/"
    i=\$((i + 1))
done >>\$file
END
chmod +x bin/ncu
export SP_PROFILE_VOXELS=60 PATH="$dir/bin:$PATH"
sh "$profile" dummy 1 fp32 "$dir/results" >out 2>&1 || fail "the whole script"
grep -q '^conv_kernel<128,1> *10 *10.000 ' out || fail "not the launches of one step"
tail -n 1 calls | grep -q -e 'tensor_op_hmma.*--launch-skip 60 --launch-count 10 sptrain train' ||
    { cat calls; fail "how ncu was called"; }
SP_NO_COUNTERS=yes sh "$profile" dummy 1 fp32 "$dir/results" >out 2>&1
[ $? = 77 ] && grep -q 'SKIPPED: .*ERR_NVGPUCTRPERM' out || fail "no permission: not skipped"
HC_DEVICES=0 sh "$profile" dummy 1 fp32 "$dir/results" >out 2>&1
[ $? = 77 ] && grep -q 'SKIPPED: no usable CUDA device' out || fail "no device: not skipped"

# ncu ends with the script, where a limit of time ends that
cat >bin/ncu <<END
#!/bin/sh
case \$* in *--query-metrics*) exit ;; esac
echo \$\$ >$dir/hanging.part && mv $dir/hanging.part $dir/hanging
exec sleep 600
END
timeout 600 sh "$profile" dummy 1 fp32 "$dir/results" >out 2>&1 &
limit=$!
until [ -e hanging ] || ! kill -0 $limit 2>none; do sleep 0.1; done
[ -e hanging ] || fail "the profiler was not called"
kill $limit
wait $limit
for i in $(seq 6000); do
    kill -0 "$(cat hanging)" 2>none || break
    sleep 0.1
done
kill "$(cat hanging)" 2>none && fail "ncu goes on behind the end of the script"
rm bin/ncu
if ! command -v ncu >none && ! ls /usr/local/cuda*/bin/ncu >none 2>&1; then
    sh "$profile" dummy 1 fp32 "$dir/results" >out 2>&1
    [ $? = 77 ] && grep -q 'SKIPPED: no ncu' out || fail "no ncu: not skipped"
fi
