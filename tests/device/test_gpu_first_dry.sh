#!/bin/sh
# gpu_first.sh with the real programs, on an emulated device: every command line is read as it
# stands, the programs run on few voxels, and the numbers that the script looks for are in
# what they say. Stand-ins are the profiler and the sanitizer, which tell how they were
# called, and the tests of the kernels, which run elsewhere.
. "$SP_SRCDIR/tests/device/devices.sh"
on_emulator sptrain_hostcuda
stand_in
at=$SP_BUILDDIR/tests
ln -s "$SPTRAIN" bin/sptrain

# The command line is read as it is; then it runs with small numbers.
cat >bin/spbench <<END
#!/bin/sh
bench=$at/device/spbench_hostcuda
"\$bench" "\$@" --help >/dev/null || exit
case \$1 in
ops | plan) set -- "\$@" --quick --repeats 2 --voxels 60 ;;
step) set -- "\$@" --quick --repeats 2 ;;
esac
for word; do
    shift
    case \$word in
    32,96,128,256) set -- "\$@" 32 ;;
    256) set -- "\$@" 128 ;;
    *) set -- "\$@" "\$word" ;;
    esac
done
exec "\$bench" "\$@"
END
cat >bin/gpu_tests <<END
#!/bin/sh
case \$1 in
"") exec $at/gpu/kernels ;;
gpu_large) exec $at/gpu/kernels gpu_large 200 \$3 ;;
esac
$at/gpu/kernels | grep -qx "\$1"
END
cat >bin/compute-sanitizer <<END
#!/bin/sh
echo "\$*" >>$dir/sanitizer
echo "SP_TILES=\$SP_TILES \$*" >>$dir/watched
shift 4
"\$@"
END
cat >bin/ncu <<END
#!/bin/sh
case \$* in *--query-metrics*) exit ;; esac
echo "SP_TILES=\$SP_TILES \$*" >>$dir/watched
while [ \$# -gt 0 ]; do
    case \$1 in
    --log-file) file=\$2 ;;
    --launch-count) n=\$2 ;;
    train.steps=*) steps=\${1#*=} ;;
    esac
    shift
done
echo '"ID","Kernel Name","gpu__time_duration.sum","sm__pipe_tensor_cycles_active"' >\$file
echo '"","","nsecond","%"' >>\$file
seq \${n:-\$steps} | sed 's/.*/"&","void conv_kernel<(int)1>(int)","1,000","35.0"/' >>\$file
[ -z "\$n" ] || echo '"0","void conv_kernel<(int)2>(int)","1","5.0"' >>\$file
END
chmod +x bin/*
export SP_FIRST_VOXELS=60 SP_FIRST_NET=dummy PATH="$dir/bin:$PATH"

# Without a device, and with a driver that is too old, every part says so and is skipped.
for part in right rates step sanitize profile; do
    HC_DEVICES=0 alone 77 sh "$SP_SRCDIR/tests/measure/gpu_first.sh" none "$part"
    says out '^SKIPPED: no usable CUDA device: '
done
HC_DRIVER=0 alone 77 sh "$SP_SRCDIR/tests/measure/gpu_first.sh" none right

alone 0 "$SP_SRCDIR/tests/measure/gpu_first.sh" results # a command of its own
jsonl=results/first.jsonl
said() {
    says $jsonl "$1"
}

# What depends on a device's ceilings, which an emulated one does not have, is null.
said '"part":"right","command":"large","status":0'
said '"part":"sanitize","command":"racecheck-test_cuda_wgmma","status":0'
said '"part":"rates","command":"wgmma","status":0'
said '"part":"step","command":"late","status":0'
said '"part":"profile","command":"ncu","status":0'
for name in gather_512 gather_128 stream products launch "one rank over NCCL adds" \
    "evaluation of two scans" "memory in use" "conv_kernel" "all, one after the other" \
    "step of two scans" "early launches save" \
    "plan of minkunet34" "operations of that plan" "waits of that plan"; do
    said "\"number\":\"$name\",\"value\":-\\?[0-9.e+-]*[0-9]"
done
said '"number":"conv_kernel, tensor pipe","value":35.000,' # of the longest
# One archive a part holds all of it; no tile was timed and no child tried wgmma where a tool
# watched.
for part in right rates step sanitize profile; do
    mkdir "of-$part"
    tar -C "of-$part" -xzf "results/$part.tgz" || fail "$part.tgz"
    [ "$(grep -c . "of-$part/first.jsonl")" = "$(grep -c "\"part\":\"$part\"" $jsonl)" ] ||
        fail "$part.tgz lacks lines"
done
[ -s of-profile/profile.jsonl ] && [ -s of-step/logs/step ] || fail "what a part measured"
says watched '^SP_TILES=formula .*gpu_tests test_cuda_wgrad'
says watched '^SP_TILES=formula .*train.steps=3 run.wgmma=true'
grep -v '^SP_TILES=formula ' watched && fail "tiles are timed under a tool"
grep -qx -e '--tool initcheck --error-exitcode 1 gpu_tests test_cuda_conv' sanitizer ||
    fail "how the sanitizer was called: $(cat sanitizer)"
[ "$(grep -c '"command"' "$jsonl")" = "$(grep -c '"status":\(0\|77\)' "$jsonl")" ] ||
    fail "a command failed"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    assert "command" in row or "predicted" in row, row' "$jsonl" || fail "not JSON"
fi
