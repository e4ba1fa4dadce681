#!/bin/sh
# The job scripts work under a real Slurm that this test starts: two nodes on this host,
# with GPUs that are none; nothing of it lies outside this folder and three ports. When a
# job is asked to stop or its time ends, it saves, goes back into the queue and ends as the
# run that nobody stopped; a job on two nodes does too. A failing one says why, and each
# seed gets a folder.
. "$SP_SRCDIR/tests/fixtures/program.sh"

PATH=$PATH:/usr/sbin:/sbin
export PATH
for tool in munged slurmctld slurmd sbatch srun scontrol scancel; do
    command -v $tool >/dev/null || skip "no $tool (install-deps.sh --tests)"
done
test "$(id -u)" = 0 || skip "slurmctld and slurmd start jobs as root only"
"$MPIEXEC" --version | grep -q HYDRA ||
    skip "not MPICH: over pmix ranks of two nodes that are one machine do not meet"

# ---- a cluster of two nodes ----

free_port() { # FROM: the first port from there on that nobody uses
    port=$1
    while grep -qi ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6; do
        port=$((port + 1))
    done
    echo "$port"
}
stop() { # ends what was started here, by its id
    test -n "$is_up" && timeout 5 scancel -u root 2>/dev/null
    i=0
    test -n "$is_up" || i=50
    while test $i -lt 50 && test -n "$(timeout 5 squeue -h 2>/dev/null)"; do
        sleep 0.1
        i=$((i + 1))
    done
    for pid in $daemons; do
        kill "$pid"
        wait "$pid"
    done 2>/dev/null
    daemons=
    rm -rf "$dir"
}
daemons=
is_up=
trap stop EXIT
trap 'exit 1' HUP INT TERM

host=$(hostname -s)
ctld=$(free_port $((20000 + $$ % 9000)))
port_1=$(free_port $((ctld + 1)))
port_2=$(free_port $((port_1 + 1)))
mkdir -p slurm/state slurm/spool slurm/cgroup
# Character devices make Slurm take them for GPUs.
gres=
mknod slurm/gpu0 c 1 3 2>/dev/null && mknod slurm/gpu1 c 1 3 && gres="Gres=gpu:2"
test -n "$gres" || echo "no rights to make devices: jobs with GPUs are left out" >&2
test -z "$gres" || echo "Name=gpu File=$dir/slurm/gpu[0-1]" >slurm/gres.conf
cat >slurm/slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctld
SlurmUser=root
AuthInfo=socket=$dir/slurm/munge.sock
StateSaveLocation=$dir/slurm/state
SlurmdSpoolDir=$dir/slurm/spool/%n
SlurmctldPidFile=$dir/slurm/slurmctld.pid
SlurmdPidFile=$dir/slurm/slurmd-%n.pid
SlurmctldLogFile=$dir/slurm/slurmctld.log
SlurmdLogFile=$dir/slurm/slurmd-%n.log
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
KillWait=5
OverTimeLimit=60
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
${gres:+GresTypes=gpu}
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$port_1 CPUs=8 RealMemory=1000 $gres
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$port_2 CPUs=8 RealMemory=1000 $gres
PartitionName=test Nodes=ALL Default=YES MaxTime=60 State=UP
CONF
# slurmd requires these files whether it uses control groups or not, and containers lack
# them.
printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=%s\n' "$dir/slurm/cgroup" \
    >slurm/cgroup.conf
SLURM_CONF=$dir/slurm/slurm.conf
export SLURM_CONF
head -c 128 /dev/urandom >slurm/munge.key
chmod 600 slurm/munge.key
munged --foreground --force --num-threads=2 --socket="$dir/slurm/munge.sock" \
    --key-file="$dir/slurm/munge.key" --pid-file="$dir/slurm/munged.pid" \
    --seed-file="$dir/slurm/munge.seed" --log-file="$dir/slurm/munged.log" 2>slurm/munged.err &
munge=$!
slurmctld -D -c 2>slurm/slurmctld.err &
ctl=$!
daemons="$ctl $munge"
for n in n1 n2; do
    slurmd -D -c -N $n 2>slurm/slurmd-$n.err &
    daemons="$! $daemons"
done
# no_slurm: skips, with the messages of the daemons
no_slurm() {
    tail -n 3 slurm/*.log slurm/*.err >&2
    skip "a private Slurm does not start here: $(grep -h 'error\|fatal' slurm/*.err |
        tail -n 1)"
}
begin_s=$(date +%s)
until test "$(timeout 30 sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" = 2; do
    for pid in $daemons; do
        kill -0 "$pid" 2>/dev/null || no_slurm
    done
    test $(($(date +%s) - begin_s)) -lt "$limit_s" || no_slurm
    sleep 0.1
done
is_up=1

# ---- jobs ----

ln -s "$SP_SRCDIR/jobs" jobs
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 2;' 'epochs = 100; warmup_steps = 5;' \
    'log_every = 1; eval_every = 50; dir = "r"; threads = 1;'
last=800 # 8 steps an epoch
export SPTRAIN # for the job scripts
submit() { # SBATCH ARGUMENTS: the job's number
    sbatch --parsable --ntasks-per-node=2 --cpus-per-task=1 --time=10 \
        --output=%x-%A-%a.log "$@" </dev/null
}
field() { # JOB NAME: what scontrol says of it
    scontrol show job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -1
}
# restart JOB: requeues it, but not before all processes of its earlier life have gone; its
# step removes sockets by name and slurmd refuses a start within the second of the requeue.
restart() {
    test -z "$(find slurm/spool -type s -name "*[._]$(field "$1" JobId).*")" || return 0
    sleep 2
    scontrol update JobId="$1" StartTime=now
}
# until_so JOB WHAT COMMAND...: until the command succeeds; a requeued job is not left to
# the two minutes that Slurm holds it back.
until_so() {
    which=$1 what=$2
    shift 2
    since=$(date +%s)
    until "$@"; do
        test "$(field "$which" Reason)" = BeginTime && restart "$which"
        sleep 0.1
        test $(($(date +%s) - since)) -lt "$limit_s" ||
            ended_badly "$which" "job $which: no $what after $limit_s s"
    done
}
has_ended() {
    state=$(field "$1" JobState)
    case $state in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;; *) false ;; esac
}
is_restarted() { test "$(field "$1" Restarts)" = "$2"; }
ended_badly() { # JOB TEXT
    cat ./*-"$1"-*.log >err 2>/dev/null
    grep -h "JobId=$1[ _]" slurm/slurmctld.log | tail -5 >out
    scontrol show job "$1" >>out 2>&1
    fail "$2"
}
ends() { # JOB STATE CODE
    until_so "$1" end has_ended "$1"
    code=$(field "$1" ExitCode)
    test "$state ${code%:*}" = "$2 $3" ||
        ended_badly "$1" "job $1: $state $code, expected $2 $3"
}
reach() { # JOB STEP DIR: until the step is there
    until_so "$1" "step $2" grep -qs "\"step\":$2," "$3/metrics.jsonl"
}
whole() { # DIR: all steps, once each, and the weights of the run that nobody stopped
    status "$1" done 0
    steps "$1" | cut -d ' ' -f 1 >got.steps
    seq $last | cmp -s - got.steps || fail "$1: steps missing or repeated"
    yields want.sums "$1: weights" sums "$1" $last
}

# A job whose time ends half a minute from now runs while the rest of this test goes on.
# Slurm counts in minutes, so the signal comes when it checks: after some 30 s.
sed 's/epochs = 100;/epochs = 1000000;/' base.deck >timed.deck
timed=$(submit --ntasks-per-node=1 --time=1 --signal=USR1@40 jobs/train.slurm timed.deck \
    run.dir=timed run.log_every=1 run.eval_every=0 run.checkpoint_every=1000000) || fail "sbatch"

# The run that nobody stops.
job=$(submit jobs/train.slurm base.deck run.dir=want) || fail "sbatch"
ends "$job" COMPLETED 0
sums want $last >want.sums
status want done 0

# A job is asked to stop as before a time limit (the tasks hear USR1), with and without the
# script itself hearing it: the same job goes on until the run is done.
job=$(submit jobs/train.slurm base.deck)
reach "$job" 20 r
scancel -s USR1 "$job"
until_so "$job" restart is_restarted "$job" 1
reach "$job" $(($(steps r | wc -l) + 20)) r
scancel --full -s USR1 "$job"
ends "$job" COMPLETED 0
test "$(field "$job" Restarts)" = 2 || ended_badly "$job" "$(field "$job" Restarts) restarts"
whole r

# A time limit of the program's own does the same, and gives up the last evaluation, with
# which the third life begins; the script finds the run folder in an included file, between
# comments.
grep -v '^run' base.deck >limited.deck
printf '%s\n' '# dir = "not"' '@include "run#.part" // run' '/* dir = "nor"; */' >>limited.deck
printf '%s\n' 'run : { threads = 1; time_limit_s = 0.001; log_every = 1;' '  dir =' \
    '    "limited"; }; // dir = "neither";' >run#.part
job=$(submit jobs/train.slurm limited.deck train.steps=2)
ends "$job" COMPLETED 0
test "$(field "$job" Restarts)" = 2 || ended_badly "$job" "$(field "$job" Restarts) restarts"
test "$(steps limited | cut -d ' ' -f 1 | tr '\n' ' ')" = "1 2 " || fail "steps of limited"

# A job whose tasks hear USR1 before the program listens goes on too. Without a deck the
# script finds the run folder where the program does.
mkdir input
sed 's/"r"/"own"/' base.deck >input/default.deck
printf '#!/bin/sh\n[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && kill -USR1 $$\nexec "%s" "$@"\n' \
    "$SPTRAIN" >deaf
chmod +x deaf
job=$(SPTRAIN=$dir/deaf submit jobs/train.slurm train.steps=2) || fail "sbatch"
ends "$job" COMPLETED 0
test "$(field "$job" Restarts)" = 1 || ended_badly "$job" "$(field "$job" Restarts) restarts"
status own done 0

# One job on two nodes is stopped too; its run.resume = "never" is for the first life.
job=$(submit --nodes=2 jobs/train.slurm base.deck run.dir=wide run.resume=never \
    train.epochs=8 run.oversubscribe=true)
reach "$job" 10 wide
scancel -s USR1 "$job"
ends "$job" COMPLETED 0
test "$(field "$job" Restarts)" = 1 || ended_badly "$job" "$(field "$job" Restarts) restarts"
status wide done 0
says wide/metrics.jsonl '"nodes":2,'
steps wide | cut -d ' ' -f 1-3 >a
steps want | cut -d ' ' -f 1-3 | head -64 >b
same a b "samples on two nodes"

# The line for GPUs, as a user uncomments it: every task sees all of its node.
printf '#!/bin/sh\necho "$SLURM_NODEID $SLURM_LOCALID $CUDA_VISIBLE_DEVICES" >>"%s/gpus"\nexec "%s" "$@"\n' \
    "$dir" "$SPTRAIN" >with_gpus
chmod +x with_gpus
sed 's/^##SBATCH --gpus-per-node=4/#SBATCH --gpus-per-node=2/' \
    jobs/train.slurm >gpu.slurm
for option in --nodes=2 --gres=gpu:1; do
    test -n "$gres" || continue
    rm -f gpus
    script=gpu.slurm
    test $option = --nodes=2 || script=jobs/train.slurm
    job=$(SPTRAIN=$dir/with_gpus submit $option $script base.deck run.dir=gpu$option \
        train.epochs=2) || fail "sbatch $option"
    ends "$job" COMPLETED 0
    status gpu$option done 0
    sort gpus >a
    case $option in
    --nodes=2) printf '%s\n' '0 0 0,1' '0 1 0,1' '1 0 0,1' '1 1 0,1' >b ;;
    *) printf '%s\n' '0 0 0' '0 1 0' >b ;;
    esac
    same b a "GPUs that the tasks see with $option"
done

# Failures end the job with the program's own status, and are not tried again.
failing() { # CODE TEXT ARGUMENTS
    want=$1 text=$2
    shift 2
    job=$(submit jobs/train.slurm "$@")
    ends "$job" FAILED "$want"
    test "$(field "$job" Restarts)" = 0 || ended_badly "$job" "tried again"
    cat ./*-"$job"-*.log >err
    one_diagnosis "$text"
}
failing 2 'train.epoch; nearest is train.epochs' base.deck train.epoch=3
failing 3 'none.h5' base.deck run.dir=none data.train=none.h5

# A job that its owner canceled stays canceled.
job=$(submit jobs/train.slurm base.deck run.dir=canceled train.epochs=100000)
reach "$job" 5 canceled
scancel "$job"
until_so "$job" end has_ended "$job"
sleep 1
test "$(field "$job" JobState)" = CANCELLED || ended_badly "$job" "canceled, but goes on"

# Two seeds at a time, each in its folder. The one that is stopped and put back is the last,
# which has the number of the array; the other one goes on undisturbed.
job=$(submit --array=1-2 --job-name=seeds jobs/array.slurm base.deck)
reach "${job}_1" 20 runs/seeds/seed-1
reach "${job}_2" 20 runs/seeds/seed-2
scancel -s USR1 "${job}_2"
for task in 2 1; do
    ends "${job}_$task" COMPLETED 0
    test "$(field "${job}_$task" Restarts)" = $((task - 1)) ||
        ended_badly "${job}_$task" "$(field "${job}_$task" Restarts) restarts"
    status "runs/seeds/seed-$task" done 0
    says "runs/seeds/seed-$task/deck.resolved" "seed = $task;"
done

# A run is evaluated on another number of tasks.
job=$(submit --ntasks-per-node=1 jobs/eval.slurm base.deck run.dir=want)
ends "$job" COMPLETED 0

# Tasks that each think they are alone are refused; a program beside them is not.
launch_alone() {
    timeout -k 5 "$limit_s" salloc -Q --ntasks=2 --time=1 "$@" >out 2>err </dev/null
}
launch_alone srun --mpi=none "$SPTRAIN" train base.deck run.dir=alone
says err 'srun --mpi=pmi2'
test -d alone && fail "singletons made a run folder"
printf '#!/bin/sh\n"%s" check base.deck\n' "$SPTRAIN" >beside
job=$(submit beside)
ends "$job" COMPLETED 0
launch_alone "$MPIEXEC" -n 2 "$SPTRAIN" train base.deck run.dir=m train.steps=2 ||
    fail "mpiexec within an allocation"
says m/metrics.jsonl '"ranks":2'
# The step in which salloc runs its shell (use_interactive_step) is one process by intention.
launch_alone srun --interactive --preserve-env sh -c '
    test "$SLURM_NTASKS $SLURM_STEP_NUM_TASKS" = "2 1" || exit 1
    exec "$SPTRAIN" check base.deck' || fail "check in an interactive step"
# Tasks without a process manager of MPI make a world by torchrun's variables.
launch_alone srun --mpi=none sh -c '
    RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=127.0.0.1 MASTER_PORT=29507
    export RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
    exec "$SPTRAIN" train base.deck run.dir=v train.steps=2' || fail "torchrun in a step"
says v/metrics.jsonl '"ranks":2'

# The first job was stopped at the end of its time and put back, and goes on, now to a near
# end.
has_stopped() { grep -qs '"state":"stopped"' timed/status.json || is_restarted "$timed" 1; }
until_so "$timed" "stop at the end of its time" has_stopped
says timed/status.json 'stopped by signal 10\|"state":"running"'
done=$(steps timed | tail -1 | cut -d ' ' -f 1)
sed "s/epochs = 100;/epochs = $((done / 8 + 200));/" base.deck >timed.deck
ends "$timed" COMPLETED 0
test "$(field "$timed" Restarts)" -ge 1 || ended_badly "$timed" "never put back"
status timed done 0
steps timed | cut -d ' ' -f 1 >a
seq "$(tail -1 a)" | cmp -s - a || fail "timed: steps missing or repeated"
test "$(tail -1 a)" -ge "$done" || fail "timed: fewer steps than before"
test "$(ls timed*.log sptrain-"$timed"-*.log 2>/dev/null | wc -l)" = 1 || fail "logs of $timed"
exit 0
