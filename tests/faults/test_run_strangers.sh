#!/bin/sh
# Other users of the machine connect to every socket of a run from its first moment on: the
# run ends as if nobody had been there, with the same bits, and tells them nothing.
# SP_STRANGERS tries of each kind (2), SP_KINDS or all, in a network of their own; as root.
# With SP_TIMED (make check-strangers, on a machine that does nothing else) steps are longer
# and runs alternate with runs beside a stranger that does the same to a port of its own:
# what its connections take from the machine they take without a trainer too. The test fails
# where the time of the steps is longer by more than 3 % with 95 % certainty (the lower end
# of the interval of the median of the pairs' ratios), and where the thread that watches
# takes more than 3 % of it, which no other load of the machine disturbs.
. "$SP_SRCDIR/tests/fixtures/program.sh"
n_tries=${SP_STRANGERS-2}
ranks=3 epochs=6 family=dummy
test -z "$SP_TIMED" || ranks=2 epochs=4 family=minkunet18
last=$((5 * epochs)) # 15 samples in steps of 3
PATH=$PATH:/usr/sbin:/sbin
test "$(id -u)" = 0 || skip "not root: strangers are processes of another user"
for tool in setpriv unshare ip; do
    command -v $tool >/dev/null || skip "no $tool (util-linux, iproute2)"
done
if test -z "$STRANGERS_INSIDE"; then
    unshare -n true 2>err || skip "no rights to unshare: $(head -1 err)"
    STRANGERS_INSIDE=1
    export STRANGERS_INSIDE
    unshare -n sh "$SP_SRCDIR/tests/faults/test_run_strangers.sh"
    exit $?
fi
ip link set lo up || fail "no loopback"

cp "$SP_BUILDDIR/tests/tools/stranger" . || fail "tests/tools/stranger is not built"
chmod 755 . stranger
"$SHARDS" uneven u.h5 || fail "make_shards"
deck "family = \"$family\";" 'train = "u.h5"; val = "u.h5";' 'size = 3;' \
    "epochs = $epochs; warmup_steps = 5; lr = 0.005;" \
    'log_every = 1; checkpoint_every = 10; dir = "r"; threads = 1; watchdog_s = 60;'

# The ports that are open before the program begins are the launcher's: MPICH's mpiexec ends
# when anybody connects to it. With APART rank 1 has a network of its own and does not
# reach rank 0, which therefore listens until the end. Open MPI's ranks would not reach their
# launcher.
apart=yes
"$MPIEXEC" --version | grep -q HYDRA || apart=
REAL=$SPTRAIN
export REAL
cat >rank <<'SH'
#!/bin/sh
rank=${PMI_RANK-$OMPI_COMM_WORLD_RANK}
if test "$rank" = 0; then
    while read -r _ at _ state _; do
        test "$state" = 0A && printf '%d\n' "0x${at#*:}"
    done </proc/net/tcp >spare.new
    mv spare.new spare
fi
until test -e spare; do sleep 0.01; done
test "$rank$APART" = 1yes && exec unshare -n "$REAL" "$@"
exec "$REAL" "$@"
SH
chmod +x rank
SPTRAIN=$dir/rank

rm -f spare
run $ranks 0 base.deck run.dir=want
sums want $last >want.sums
steps want >want.steps

# attacked KIND: makes one run; $told counts the bytes that the stranger received, $time_s
# is the time of the steps.
attacked() {
    rm -rf r spare
    setpriv --reuid=65534 --regid=65534 --clear-groups \
        nice -n 19 ./stranger "$1" spare 100 >told &
    job=$!
    run $ranks 0 base.deck
    rm -f spare
    wait $job
    job=
    sums r $last >sums
    steps r >steps
    same want.sums sums "other weights after strangers: $1"
    same want.steps steps "other steps after strangers: $1"
    status r done 0
    says told '^ports .* unasked 0$'
    time_s=$(sed -n 's/.*"event":"step".*"step_s":\([0-9.e-]*\),.*/\1/p' r/metrics.jsonl |
        awk '{ sum += $1 } END { printf "%.4f", sum }')
    watch_s=$(sed -n 's/.*"watchdog_cpu_s":\([0-9.e-]*\).*/\1/p' r/metrics.jsonl)
}
# compared KIND: the row of the table; the tries have got the same bits, or ended the test.
compared() {
    ratio="- - -"
    test -z "$SP_TIMED" || ratio=$(ratios times quiet)
    share=$(ratios watch times)
    awk -v t="$SP_TIMED" -v ratio="$ratio" -v share="$share" 'BEGIN {
        split(ratio, r); split(share, s)
        exit !(t != "" && (r[2] > 1.03 || s[1] > 0.03)) }' && slowed="$slowed $1"
    printf '%-8s %5d %10d %7s (%s to %s) %7.2f %%\n' "$1" "$n_tries" "$n_tries" $ratio \
        "$(awk -v s="${share%% *}" 'BEGIN { print 100 * s }')" >>table
}
slowed= quiet_first=
for kind in ${SP_KINDS-backlog token leave close places idle garbage replay}; do
    i=0
    rm -f times quiet watch
    while test $i -lt "$n_tries"; do
        if test $((i % 2)) = 0; then APART=; else APART=$apart; fi
        export APART
        test -z "$SP_TIMED" || quiet_first=$((i / 2 % 2))
        if test "$quiet_first" = 1; then
            attacked own-$kind
            echo "$time_s" >>quiet
        fi
        attacked $kind
        echo "$time_s" >>times
        echo "$watch_s" >>watch
        i=$((i + 1))
        echo "$kind $i ${APART:-no} $(cat told) steps $time_s s, watchdog_cpu_s $watch_s" >>all
        if test "$quiet_first" = 0; then
            attacked own-$kind
            echo "$time_s" >>quiet
        fi
    done
    compared $kind
done
echo "kind, try, rank 1 apart, what the stranger found and was told, times:"
cat all
echo "attack   tries bits equal  time / time beside own-KIND (90 % interval), share of watching"
cat table
test -z "$slowed" || fail "more than 3 % slower under attack:$slowed"
