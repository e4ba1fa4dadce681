#!/bin/sh
# gpu_first.sh tries every part, whatever fails or hangs before it, and writes each number
# beside its prediction. The programs are stand-ins that say what real ones would.
. "$SP_SRCDIR/tests/fixtures/program.sh"
stand_in
cat >bin/gpu_tests <<'END1'
#!/bin/sh
case $1 in
"") printf 'test_cuda_conv\ntest_cuda_loss\ntest_cuda_wgrad\n' ;;
test_cuda_conv) echo "conv is broken" && exit 1 ;;
test_cuda_wgrad) echo "SKIPPED: no such device" && exit 77 ;;
esac
END1
cat >bin/spbench <<'END1'
#!/bin/sh
case "$*" in
*--wgmma*) echo '{"name":"conv3_forward","c_in":256,"c_out":256,"ms":2.0,"ratio":0.5}' ;;
ops*)
    echo '{"name":"gather_512","ms":1.0,"gbytes_s":4800.5}'
    echo '{"name":"conv3_forward","c_in":256,"c_out":256,"ms":3.0,"ratio":0.25}'
    ;;
*wgmma=false*) echo '{"name":"step","ms":15.0}' ;;
step*) [ "$SP_EARLY_LAUNCH" = 0 ] && echo '{"name":"step","ms":12.5}' ||
    echo '{"name":"step","ms":12.0}' ;;
eval*) echo '{"name":"eval","ms":5.0}' ;;
plan*) echo '{"name":"plan_minkunet34_stem3","ms":1.5,"operations":94,"waits":3}' ;;
esac
END1
cat >bin/sptrain <<'END1'
#!/bin/sh
echo "memory: a rank may use 8.0 GiB; the largest step needs about 3.5 GiB"
mkdir memory && echo '{"event":"step","memory_bytes":3500000000}' >memory/metrics.jsonl
END1
chmod +x bin/*

first() { # first STATUS ARGUMENTS...
    rm -rf results
    want=$1
    shift
    alone "$want" sh "$SP_SRCDIR/tests/measure/gpu_first.sh" results "$@"
}
said() {
    says results/first.jsonl "$1"
}

first 1 right rates step
said '^{"part":"right","command":"test_cuda_conv","status":1,"seconds":[0-9]*}$'
said '"command":"test_cuda_loss","status":0'
said '"command":"test_cuda_wgrad","status":77'
said '"command":"large","status":0'
said '"number":"gather_512","value":4800.5,"predicted":"4500-6500","unit":"GB/s"'
said '"number":"conv3_forward 32","value":null'
said '"number":"wgmma, 256 channels","value":1.5,'
said '"number":"step of two scans","value":12.0,'
said '"number":"early launches save","value":4,"predicted":"1-4",'
said '"number":"wgmma saves","value":20,'
said '"number":"plan of minkunet34","value":1.5,'
said '"number":"operations of that plan","value":94,'
said '"number":"waits of that plan","value":3,'
# what a part said is in its archive, and nothing else is in the results
archived() { # archived PART FILE TEXT
    mkdir -p "of-$1"
    tar -C "of-$1" -xzf "results/$1.tgz" || fail "$1.tgz"
    says "of-$1/$2" "$3"
}
archived right logs/test_cuda_conv '^conv is broken$'
archived right first.jsonl '"command":"test_cuda_wgrad","status":77'
archived step first.jsonl '"number":"step of two scans"'
grep -q '"part":"right"' of-step/first.jsonl && fail "lines of another part"
[ "$(ls results | tr '\n' ' ')" = "device first.jsonl rates.tgz right.tgz step.tgz " ] ||
    [ "$(ls results | tr '\n' ' ')" = "first.jsonl rates.tgz right.tgz step.tgz " ] ||
    fail "more than one archive a part: $(ls results)"
says out '1 commands failed$'
said '"number":"evaluation of two scans","value":5.0,'
said '"number":"memory in use","value":3500000000,"predicted":"at most 3.5 GiB and'
printf '#!/bin/sh\necho "NVIDIA H200, GPU-1, 580, 143771 MiB"\n' >bin/nvidia-smi
chmod +x bin/nvidia-smi
PATH=$dir/bin:$PATH first 0 step
said '"number":"step of two scans","value":12.0,"predicted":"10.5-12.1"'
archived step device 'H200'
rm bin/nvidia-smi
first 2 nothing

# a part that has no time left leaves its commands out
printf '#!/bin/sh\n[ -z "$1" ] && echo test_cuda_conv && exit\nsleep 60\n' >bin/gpu_tests
SP_FIRST_PART_S=0 first 0 right
said '^{"part":"right","command":"test_cuda_conv","status":null,"seconds":0}$'
said '"command":"large","status":null,"seconds":0}$'
says out '^left out right: large: 0 s are over$'

# a command that does not end is ended, and the next one runs
sed 's/try "\$test" 60/try "$test" 1/; s/try large 120/try large 1/' \
    "$SP_SRCDIR/tests/measure/gpu_first.sh" >short.sh
cp "$SP_SRCDIR/tests/measure/gpu_here.sh" .
sh short.sh results right step >out 2>&1
said '"command":"test_cuda_conv","status":124'
said '"command":"large","status":124'
[ "$(grep -c '"number":"step of two scans"' results/first.jsonl)" = 1 ] || fail "step"
