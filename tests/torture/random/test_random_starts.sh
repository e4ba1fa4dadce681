#!/bin/sh
# RUNS random starts (30), drawn from SEED (7): ways to start 1 to 4 ranks, variables of
# schedulers and of OpenMP libraries, masks and limits, names of hosts and folders. Each is held
# against the plain start of the same ranks under the same mask (mpirun -n N, no other
# variables): the same cores and threads and the same bits, or a refusal with words and exit 2
# if several tasks are announced that MPI does not see.
. "${SP_SRCDIR-.}/tests/fixtures/program.sh"
runs=${RUNS:-30}
seed=${SEED:-7}
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck "$dir/u.h5" "size = 4;" "steps = 2; warmup_steps = 1;" \
    "threads = 0; rank_logs = true; eval_every = 0; log_every = 1;"
for name in $(env | sed -n 's/^\(SLURM[^=]*\|PMI[^=]*\|OMP_PROC[^=]*\|OMP_PLACES\|RANK\|WORLD_SIZE\)=.*/\1/p'); do
    unset "$name"
done
"$MPIEXEC" --version 2>/dev/null | grep -q "Open MPI\|OpenRTE" &&
    skip "the ways to start are those of MPICH"
command -v taskset >/dev/null || skip "no taskset"
unshare -u true 2>/dev/null && may_name=yes || may_name=
first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
port=$((20000 + $$ % 20000))

# draw_below N: sets $drawn to 0 .. N-1. (The generator of POSIX's rand, upper bits.)
draw_below() {
    seed=$(((seed * 1103515245 + 12345) & 0x7fffffff))
    drawn=$((seed / 65536 % $1))
}

# pick WORD...: sets $picked to one of the words.
pick() {
    draw_below $#
    shift $drawn
    picked=$1
}

# perhaps N WORD...: adds one of the words to $variables, once in N times.
perhaps() {
    one_in=$1
    shift
    draw_below "$one_in"
    test $drawn = 0 || return 0
    pick "$@"
    variables="$variables $picked"
}

# what_cores DIR: the cores of each rank and the threads, as the run says them.
what_cores() {
    grep -h -o '[0-9]* threads* a rank' "$dir/out"
    grep -h -o 'rank [0-9]* has cores.*\|more ranks than cores.*' "$1"/logs/* \
        2>/dev/null | sort -u
}

# start WAY RANKS RUN: starts them in the folder of the case; $got is their status.
start() {
    way=$1 n=$2 where=$3
    set -- "$SPTRAIN" "$dir/base.deck" "run.dir=$where"
    # shellcheck disable=SC2086
    case $way in
    mpirun) set -- $mask $host env $variables "$MPIEXEC" $bind -n "$n" "$@" ;;
    alone) set -- $mask $host env $variables "$@" ;;
    launch)
        shift
        set -- $mask $host env $variables "$SPTRAIN" launch -n "$n" "$@"
        ;;
    esac
    if test "$way" = torchrun; then
        pids=''
        r=$((n - 1))
        while test $r -ge 0; do
            # shellcheck disable=SC2086
            timeout -k 5 "$limit_s" $mask $host env $variables RANK=$r LOCAL_RANK=$r \
                WORLD_SIZE="$n" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" \
                >"$dir/out.$r" 2>"$dir/err.$r" </dev/null &
            pids="$pids $!"
            r=$((r - 1))
        done
        got=0
        for p in $pids; do
            wait "$p" || got=$?
        done
        cat "$dir"/out.[0-9] >"$dir/out"
        cat "$dir"/err.[0-9] >"$dir/err"
        rm -f "$dir"/out.[0-9] "$dir"/err.[0-9]
        port=$((port + 17))
    else
        timeout -k 5 "$limit_s" "$@" >"$dir/out" 2>"$dir/err" </dev/null
        got=$?
    fi
}

# plain KEY: the plain start of $n ranks under the mask, once for each of them.
plain() {
    test -e "$dir/cores.$1" && return
    kept=$variables
    variables="-u RANK"
    kept_host=$host
    host=
    start mpirun "$n" "$dir/plain.$1"
    test $got = 0 || fail "the plain start of $n ranks ends with $got"
    variables=$kept
    host=$kept_host
    what_cores "$dir/plain.$1" >"$dir/cores.$1"
    sums "$dir/plain.$1" 2 >"$dir/sums.$1"
}

n_refused=0
for _ in $(seq "$runs"); do
    begun=$seed
    variables=''
    is_announced=''
    pick mpirun mpirun torchrun torchrun launch alone
    way=$picked
    pick 1 2 2 3 4
    ranks=$picked
    test "$way" != alone || ranks=1
    test "$way$ranks" != torchrun1 || way=alone
    pick all all one
    mask=''
    key=$ranks.$picked
    test "$picked" = all || mask="taskset -c $first"
    bind=
    test "$way" != mpirun || { pick "" "" "-bind-to none" "-bind-to core" && bind=$picked; }
    test "$bind" != "-bind-to core" || key=$key.core
    host=
    if test -n "$may_name"; then
        pick "" "" a host-1.example.org UPPER_case \
            n123456789012345678901234567890123456789012345678901234567890
        test -z "$picked" || {
            printf '#!/bin/sh\nhostname %s 2>/dev/null\nexec "$@"\n' "$picked" >named
            chmod +x named
            host="unshare -u $dir/named"
        }
    fi
    test "$way" != torchrun || test -z "$host" || host= # their hosts would differ by namespace
    # OpenMP's libraries: GNU's, LLVM's and Intel's, NVIDIA's.
    perhaps 3 OMP_PROC_BIND=close OMP_PROC_BIND=true OMP_PROC_BIND=spread \
        OMP_PROC_BIND=master OMP_PROC_BIND=false
    perhaps 3 OMP_PLACES=cores OMP_PLACES=threads OMP_PLACES=sockets "OMP_PLACES={$first}" \
        "OMP_PLACES={0}:1"
    perhaps 4 "GOMP_CPU_AFFINITY=$first" GOMP_CPU_AFFINITY=0-1 GOMP_CPU_AFFINITY=1
    perhaps 4 KMP_AFFINITY=compact KMP_AFFINITY=granularity=fine,scatter KMP_HW_SUBSET=1c \
        KMP_AFFINITY=disabled KMP_BLOCKTIME=0
    perhaps 5 MP_BIND=yes MP_BLIST=0
    perhaps 3 OMP_NUM_THREADS=1 OMP_NUM_THREADS=7 OMP_DYNAMIC=true OMP_NESTED=true \
        OMP_MAX_ACTIVE_LEVELS=0 OMP_WAIT_POLICY=active OMP_SCHEDULE=dynamic,3 \
        OMP_STACKSIZE=4M OMP_DISPLAY_ENV=false
    # Schedulers: a batch script or shell, arrays, and tasks that MPI does not see.
    perhaps 5 "SLURM_JOB_ID=5 SLURM_NTASKS=4" \
        "SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1" \
        "SLURM_JOB_ID=5 SLURM_ARRAY_TASK_ID=2"
    perhaps 5 "PBS_JOBID=5 PBS_TASKNUM=1 PBS_NP=4" "PBS_JOBID=5 PBS_ARRAY_INDEX=2"
    perhaps 5 "LSB_JOBID=5 LSB_DJOB_NUMPROC=4 LSB_JOBINDEX=1" "JOB_ID=5 NSLOTS=4 NHOSTS=1" \
        "JOB_ID=5 SGE_TASK_ID=2"
    perhaps 6 "LOCAL_RANK=3" "RANK=0 WORLD_SIZE=1" "MASTER_ADDR=elsewhere MASTER_PORT=1"
    draw_below 5
    if test $drawn = 0 && test "$way" = alone; then
        is_announced=yes
        pick "SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4" \
            "FLUX_JOB_SIZE=2 FLUX_TASK_RANK=1" "PMIX_RANK=1" "PBS_JOBID=5 PBS_TASKNUM=3" \
            "JSM_NAMESPACE_SIZE=2" "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1" \
            "WORLD_SIZE=2" "NHOSTS=2 NSLOTS=4" "SLURM_JOB_ID=9 SLURM_JOB_NUM_NODES=2"
        # The last one of a name counts, as env takes it.
        case "$picked$variables" in
        JSM*STEP_NUM* | FLUX*STEP_NUM* | PMIX*STEP_NUM* | PBS*STEP_NUM* | WORLD*WORLD*)
            variables= ;;
        esac
        variables="$variables $picked"
    fi
    test -n "$variables" || variables="-u RANK"
    pick work "with space" "a=b" grün "(x)"
    mkdir -p "$dir/$picked"
    cd "$dir/$picked" || exit 1
    what="SEED=$begun: $way of $ranks: $mask $bind $host $variables in '$picked'"
    n=$ranks
    plain "$key"
    draw_below 3
    # shellcheck disable=SC3045 # dash has it
    test $drawn != 0 || ulimit -S -n 256
    start "$way" "$ranks" r
    where=$PWD
    cd "$dir" || exit 1
    if test -n "$is_announced"; then
        test $got = 2 || fail "status $got, expected a refusal: $what"
        test "$(grep -c 'error: ' err)" = 1 || fail "not one diagnosis: $what"
        n_refused=$((n_refused + 1))
        continue
    fi
    test $got = 0 || fail "status $got: $what"
    what_cores "$where/r" >cores
    same "cores.$key" cores "cores and threads: $what"
    (cd "$where" && sums r 2) >mine
    same "sums.$key" mine "bits: $what"
    rm -rf "$where/r"
done
echo "$runs starts, of which $n_refused were refused, as they should be"
exit 0
