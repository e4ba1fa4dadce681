#!/bin/sh
# Processes that torchrun's variables describe make one world, with the bits of the launcher's
# ranks; a missing, doubled or lost one is named. What announces several tasks, while MPI sees
# one, is refused. OpenMP's variables move no rank to other cores. Ranks with different
# instruction sets agree on one.
. "${SP_SRCDIR-.}/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 "size = 4;" "steps = 3; warmup_steps = 1;" "threads = 0;"
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LOCAL_RANK
unset OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY
port=$((20000 + $$ % 20000))

# process RANK SIZE NAME=VALUE... PROGRAM ARGUMENTS...: one process; its output is in
# out.RANK and err.RANK.
process() {
    rank=$1 size=$2
    shift 2
    exec timeout -k 5 "$limit_s" env RANK="$rank" LOCAL_RANK="$rank" WORLD_SIZE="$size" \
        MASTER_ADDR=localhost MASTER_PORT=$port "$@" >out."$rank" 2>err."$rank" </dev/null
}

# world SIZE STATUS "RANKS" NAME=VALUE... PROGRAM ARGUMENTS...: the processes of these ranks end
# with this status.
world() {
    size=$1 want=$2 mine=$3
    shift 3
    pids=
    for r in $mine; do
        (process "$r" "$size" "$@") &
        pids="$pids $!"
    done
    for p in $pids; do
        wait "$p"
        got=$?
        cat out.* >out
        cat err.* >err
        test $got = "$want" || fail "a process of $size: status $got, expected $want: $*"
    done
    port=$((port + 1))
}

"$MPIEXEC" --version 2>/dev/null | grep -q "Open MPI\|OpenRTE" && is_openmpi=yes

# ---- torchrun's variables ----
for n in 2 3; do
    test -z "${is_openmpi-}" || break
    all=$(seq -s ' ' 0 $((n - 1)))
    run $n 0 base.deck run.dir=mpi$n
    sums mpi$n 3 >a
    world $n 0 "$all" "$SPTRAIN" base.deck run.dir=torch$n
    says out.0 " $n ranks on 1 node"
    yields a "$n processes of torchrun's variables" sums torch$n 3
done
if test -z "${is_openmpi-}"; then
    # Stale variables of a launcher further out, whose socket torchrun has closed.
    world 2 0 "0 1" PMI_FD=77 PMI_RANK=0 PMI_SIZE=4 "$SPTRAIN" base.deck run.dir=stale
    says out.0 " 2 ranks on 1 node"
    # Other programs, other first ports; torchrun itself may listen at MASTER_PORT.
    world 2 0 "0 1" TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=x \
        "$SP_BUILDDIR/spvox" scene --out torch --samples 3 --extent 8 --seed 1
    spvox scene --out plain --samples 3 --extent 8 --seed 1
    cmp torch-00000-of-00001.h5 plain-00000-of-00001.h5 || fail "spvox: other bytes"
    world 3 6 "0 2" SP_START_S=2 "$SPTRAIN" base.deck run.dir=missing
    says err.0 "missing: RANK 1,"
    says err.2 "missing: RANK 1,"
    world 2 6 "1" SP_START_S=2 "$SPTRAIN" base.deck run.dir=missing
    says err.1 "RANK 0 is missing"
    test ! -e missing || fail "a start that failed has made a run folder"
    world 2 2 "0 0" SP_START_S=60 "$SPTRAIN" base.deck run.dir=twice
    says err "two processes have RANK=0"
    world 3 2 "0 1 1" SP_START_S=60 "$SPTRAIN" base.deck run.dir=twice
    says err "two processes have RANK=1"
    # A process that ends takes the other with it.
    (process 0 2 "$SPTRAIN" base.deck run.dir=lost train.steps=1000000 run.log_every=1) &
    # shellcheck disable=SC2034 # finish waits for it
    job=$!
    (process 1 2 "$SPTRAIN" base.deck run.dir=lost train.steps=1000000 run.log_every=1) \
        2>/dev/null &
    await_step 3 lost
    pid=$(record lost 1)
    kill -9 "${pid%% *}"
    cat err.0 >err
    finish
    test "$got" = 6 || fail "rank 0 ends with $got where rank 1 is lost"
    says err.0 "error: rank 1/2 host .* died"
else
    world 2 2 "0" "$SPTRAIN" base.deck run.dir=torch
    says err "Open MPI makes no world"
fi
# Answers need no ranks: rank 0 gives them, the others are silent.
world 2 0 "0 1" "$SPTRAIN" --version
says out.0 "^sptrain "
test ! -s out.1 || fail "both processes answer"
alone 2 env WORLD_SIZE=2 "$SPTRAIN" base.deck
one_diagnosis "RANK is not set"
alone 2 env RANK=2 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=1 "$SPTRAIN" base.deck
one_diagnosis "RANK=2, WORLD_SIZE=2"
alone 2 env RANK=0 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=port "$SPTRAIN" base.deck
one_diagnosis "MASTER_PORT=port"
alone 2 env RANK=1 WORLD_SIZE=1 "$SPTRAIN" base.deck
one_diagnosis "RANK=1, WORLD_SIZE=1"
alone 2 env RANK=1 "$SPTRAIN" base.deck
one_diagnosis "RANK=1 announces .* WORLD_SIZE is not set"
alone 2 env RANK=0 MASTER_ADDR=x MASTER_PORT=1 "$SPTRAIN" base.deck
one_diagnosis "RANK=0 announces .* WORLD_SIZE is not set"
alone 0 env RANK=0 WORLD_SIZE=1 "$SPTRAIN" check base.deck
alone 0 env RANK=0 "$SPTRAIN" check base.deck

# ---- schedulers ----
# One that has started several tasks: every program is refused.
for tasks in "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2" \
    "FLUX_JOB_SIZE=2 FLUX_TASK_RANK=0" "JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_RANK=0" \
    "PMIX_RANK=0" "PBS_JOBID=1 PBS_TASKNUM=2" "MV2_COMM_WORLD_SIZE=2" "WORLD_SIZE=2"; do
    test -z "${is_openmpi-}" || test "$tasks" != PMIX_RANK=0 || continue
    # shellcheck disable=SC2086
    alone 2 env $tasks "$SPTRAIN" base.deck
    one_diagnosis "world of one\|RANK is not set"
done
alone 2 env FLUX_JOB_SIZE=2 "$SP_BUILDDIR/spvox" info u.h5
alone 2 env FLUX_JOB_SIZE=2 "$SP_BUILDDIR/spbench" step base.deck
# An allocation of several hosts: training by one process in it would leave the rest idle.
printf 'a\na\nb\n' >hosts
printf 'a slots=2\nb slots=2\n' >slots
# several_hosts NAME=VALUE...
several_hosts() {
    alone 2 env "$@" "$SPTRAIN" base.deck
    one_diagnosis "would train alone"
}
several_hosts LSB_JOBID=1 "LSB_MCPU_HOSTS=a 2 b 2"
several_hosts PBS_JOBID=1 PBS_NODEFILE=hosts
several_hosts JOB_ID=1 NSLOTS=4 NHOSTS=2
several_hosts SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2
several_hosts K8S_MPI_JOB_ROLE=launcher HYDRA_HOST_FILE=slots
several_hosts K8S_MPI_JOB_ROLE=worker
alone 0 env JOB_ID=1 NSLOTS=4 NHOSTS=2 "$SPTRAIN" check base.deck
# One process by intention: the shell of an interactive allocation, a job of several slots of
# one host, a job of an array.
for one in "SLURM_JOB_ID=1 SLURM_STEP_ID=4294967290 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1" \
    "NSLOTS=4 NHOSTS=1 SGE_TASK_ID=3" "LSB_DJOB_NUMPROC=4 LSB_JOBINDEX=2" \
    "PBS_JOBID=1 PBS_TASKNUM=1 PBS_NP=4" "FLUX_JOB_SIZE=1" "SLURM_ARRAY_TASK_ID=3"; do
    # shellcheck disable=SC2086
    alone 0 env $one "$SPTRAIN" check base.deck
done
# shellcheck disable=SC2086
alone 0 env SLURM_JOB_ID=1 SLURM_STEP_ID=4294967290 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 \
    "$SP_BUILDDIR/spvox" info u.h5

# ---- OpenMP's variables ----
# cores ARGUMENTS...: what a start says of threads and cores.
cores() {
    run 2 0 "$@" run.dir=cores run.resume=never
    grep -o '[0-9]* threads* a rank\|has cores.*' out
}
cores base.deck >plain
for name in OMP_PROC_BIND=close OMP_PLACES=cores GOMP_CPU_AFFINITY=0; do
    export "${name?}"
    cores base.deck >bound
    same plain bound "cores with $name"
    says err "${name%%=*} in the environment: no effect"
    unset "${name%%=*}"
done
export OMP_PROC_BIND=false
cores base.deck >bound
says_not err "no effect"
unset OMP_PROC_BIND

# ---- instruction sets ----
if grep -q 'ISAS.*avx2' "$SP_BUILDDIR/config.h" && grep -q avx2 /proc/cpuinfo; then
    timeout "$limit_s" "$MPIEXEC" -n 1 env SP_CPU_ISA=avx2 "$SPTRAIN" base.deck run.dir=mixed \
        : -n 1 env SP_CPU_ISA=portable "$SPTRAIN" base.deck run.dir=mixed >out 2>err ||
        fail "ranks with and without AVX2"
    says err "rank 1 on host .* computes with portable, others with avx2"
    SP_CPU_ISA=portable
    export SP_CPU_ISA
    run 2 0 base.deck run.dir=low
    says_not err "computes with"
    sums low 3 >a
    yields a "ranks with and without AVX2" sums mixed 3
    unset SP_CPU_ISA
fi

# ---- sptrain launch ----
alone 0 "$SPTRAIN" launch --dry-run train "a b.deck" run.dir=x
says out "^$MPIEXEC .*-n [1-9][0-9]* .*sptrain train 'a b.deck' run.dir=x\$"
test -z "${is_openmpi-}" || says out "--oversubscribe"
alone 0 "$SPTRAIN" launch -n 2 base.deck run.dir=launched
says out " 2 ranks on 1 node"
alone 2 "$SPTRAIN" launch -n none
one_diagnosis "launch -n none: expected a number"
refused 2 2 "a launcher has started this process already" launch base.deck
exit 0
