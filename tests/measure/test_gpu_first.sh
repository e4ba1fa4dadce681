#!/bin/sh
# gpu_first.sh tries every part, whatever fails or hangs before it, and writes each number
# beside its prediction. The programs are stand-ins that say what real ones would.
. "$SP_SRCDIR/tests/run/story.sh"
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
plan*) echo '{"name":"plan_minkunet34_stem3","ms":1.5,"operations":94,"waits":3}' ;;
esac
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
said '"number":"gather_512","value":4800.5,"predicted":"5500","unit":"GB/s"'
said '"number":"conv3_forward 32","value":null'
said '"number":"wgmma, 256 channels","value":1.5,'
said '"number":"step of two scans","value":12.0,'
said '"number":"early launches save","value":4,'
said '"number":"wgmma saves","value":20,'
said '"number":"plan of minkunet34","value":1.5,'
said '"number":"operations of that plan","value":94,'
said '"number":"waits of that plan","value":3,'
says results/logs/right-test_cuda_conv '^conv is broken$'
says out '1 commands failed$'
first 0 step
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
