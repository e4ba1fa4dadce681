#!/bin/sh
# Two hosts (network namespaces with names, processes and shared memory of their own, so
# that MPI uses the network between them) train as one host does. When they are cut off from
# each other, they say who was lost and leave.
. "$SP_SRCDIR/tests/fixtures/program.sh"

PATH=$PATH:/usr/sbin:/sbin
export PATH
for tool in ip unshare; do
    command -v $tool >/dev/null || skip "no $tool (iproute2, util-linux)"
done
"$MPIEXEC" --version 2>/dev/null | grep -q HYDRA || skip "not MPICH's mpiexec"

# ---- the network: a bridge here, a host at each end ----

id=sp$(($$ % 100000))
net=10.$((64 + $$ % 64)).$(($$ / 64 % 256))
take_down() {
    test -n "$job" && kill "$job" 2>/dev/null && wait "$job"
    # A namespace lives on, with its end of the link, while sockets in it wait for answers.
    for n in 1 2; do ip link del ${id}v$n; ip netns del ${id}n$n; done 2>/dev/null
    ip link del ${id}br 2>/dev/null
    rm -rf "$dir"
}
trap take_down EXIT
trap 'exit 1' HUP INT TERM
put_up() {
    ip link add ${id}br type bridge && ip addr add "$net.254/24" dev ${id}br &&
        ip link set ${id}br up || return
    for n in 1 2; do
        ip netns add ${id}n$n &&
            ip link add ${id}v$n type veth peer name eth0 netns ${id}n$n &&
            ip link set ${id}v$n master ${id}br up &&
            ip -n ${id}n$n addr add "$net.$n/24" dev eth0 &&
            ip -n ${id}n$n link set eth0 up && ip -n ${id}n$n link set lo up || return
    done
}
put_up 2>err || skip "no rights to make network namespaces: $(head -1 err)"
ip netns exec ${id}n1 unshare -u -i -m -p -f --mount-proc true 2>err ||
    skip "no rights to unshare: $(head -1 err)"

# This script stands for ssh: hydra calls it with options, the host's name and a command.
cat >enter <<SH
#!/bin/sh
while test "\${1#-}" != "\$1"; do shift; done
host=\$1
shift
exec ip netns exec "${id}n\${host#node}" unshare -u -i -m -p -f --mount-proc --kill-child \\
    sh -c 'hostname '"\$host"'; \$PRIVATE; exec sh -c "\$*"' sh "\$@"
SH
chmod +x enter
PRIVATE="mount -t tmpfs tmpfs /dev/shm"
export PRIVATE
printf 'node1:2\nnode2:2\n' >hosts
hosts() { # ARGUMENTS: four ranks on the two hosts
    timeout -k 5 "$limit_s" "$MPIEXEC" -f hosts -launcher ssh -launcher-exec "$dir/enter" \
        -localhost "$net.254" -n 4 "$SPTRAIN" "$@" >out 2>err </dev/null
}

"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 4;' 'steps = 20; warmup_steps = 5;' \
    'log_every = 1; dir = "r"; threads = 1; oversubscribe = true;'

healthy 4 base.deck run.dir=one
watch_s=$(($(patience one) + 2))
sed -i "s/dir = \"r\";/& watchdog_s = $watch_s;/" base.deck
hosts base.deck run.dir=two || fail "status $? on two hosts"
says two/metrics.jsonl '"nodes":2'
says two/heartbeat.bin node2
near two one 20 1e-6 1e-2 # as little as of other numbers of ranks (test_run_ranks.sh)

# Without this variable MPI_Finalize of MPICH 4.0 and 4.1 takes 30 s in some of the runs
# (sp_comm.h).
SP_UCX_DISCONNECT=0
export SP_UCX_DISCONNECT

# The same by torchrun's variables: two processes in each of two pods, and then four pods, two
# of them on each machine, with a memory of their own each.
pods() { # RUN PODS: how many, of four processes
    pids=
    for pod in $(seq 0 $(($2 - 1))); do
        each=$((4 / $2))
        timeout -k 5 "$limit_s" ./enter node$((pod * 2 / $2 + 1)) "
            for i in \$(seq 1 $each); do
                RANK=\$(($pod * $each + i - 1)) WORLD_SIZE=4 MASTER_ADDR=$net.1 \\
                MASTER_PORT=29500 $SPTRAIN base.deck run.dir=$1 >out.$pod.\$i 2>err.$pod.\$i &
                p=\"\$p \$!\"
            done
            for i in \$p; do wait \$i || exit; done" </dev/null &
        pids="$pids $!"
    done
    for p in $pids; do
        wait "$p" || fail "a pod of $2 ends with $?: $(cat err.*)"
    done
    says "$1/metrics.jsonl" "\"nodes\":$2"
}
hosts base.deck run.dir=launched || fail "status $? on two hosts"
pods pods 2
sums launched 20 >a
yields a "two processes in each of two pods" sums pods 20
pods four 4
near four one 20 1e-6 1e-2

# MPI_Finalize returns over the network too, every time.
for n in 1 2 3 4 5 6; do
    hosts check base.deck || fail "status $? of check, start $n"
done

# Values for each node count two nodes: 2 samples on each are 4, and the statistics of a
# node are those of its own voxels.
hosts base.deck run.dir=node batch.per=node batch.size=2 train.bn_scope=node ||
    fail "status $? with the scopes of nodes"
steps node | head -1 | cut -d ' ' -f 2 | grep -qx 4 || fail "batch of two nodes"
SP_RANKS_PER_NODE=2 launch 4 base.deck run.dir=parts batch.per=node batch.size=2 \
    train.bn_scope=node || fail "status $? with parts of a host"
near node parts 20 1e-6 1e-2

# ---- devices: two on each host, emulated ones, with the tests' NCCL, which stands for a
# network by shared memory ----

CPU=$SPTRAIN
if test -x "$SP_BUILDDIR/tests/device/sptrain_hostcuda"; then
    SPTRAIN=$SP_BUILDDIR/tests/device/sptrain_hostcuda
    SP_NCCL_LIB=$SP_BUILDDIR/tests/emulator/nccl_double
    export SP_NCCL_LIB
    PRIVATE=true
    set -- train.steps=3 net.width=0.25 run.device=cuda run.oversubscribe=false \
        run.watchdog_s=$((watch_s + 15))
    for scope in world node; do
        hosts base.deck run.dir=on-$scope train.bn_scope=$scope "$@" ||
            fail "status $? on the devices of two hosts"
        says out 'all-reduce by NCCL'
        SP_RANKS_PER_NODE=2 run 4 0 base.deck run.dir=by-$scope train.bn_scope=$scope \
            "$@" run.device=cpu run.oversubscribe=true
        near on-$scope by-$scope 3 1e-6 1e-2
    done
fi
SPTRAIN=$CPU
PRIVATE="mount -t tmpfs tmpfs /dev/shm"

# ---- cut off in the middle ----

hosts base.deck run.dir=cut train.steps=0 train.epochs=100000 run.checkpoint_every=50 &
job=$!
await_step 10 cut
inside() { # processes of the two hosts
    ip netns pids ${id}n1
    ip netns pids ${id}n2
}
ip link set ${id}v2 down
begin_s=$(date +%s)
wait $job
got=$?
job=
i=0
while test -n "$(inside)"; do
    test $(($(date +%s) - begin_s)) -le $((watch_s + 10 + late_s)) ||
        fail "still there: $(inside)"
    sleep 0.2
done
test $(($(date +%s) - begin_s)) -le $((watch_s + 10 + late_s)) || fail "gone after $(($(date +%s) - begin_s)) s"
test $got != 0 || fail "status 0 after a host was cut off"
status cut failed 6
says cut/status.json 'rank [23]/4 host node2 is silent'
says err 'rank [23]/4 host node2 is silent'
exit 0
