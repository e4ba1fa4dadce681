#!/bin/sh
# Evaluation and prediction end at the first request to stop, with 75 on all ranks and one
# plain line, and leave nothing that looks like a result; the same command then does all
# of it. They read the checkpoint that they verified, whatever becomes of its path.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 4; eval_size = 3;' 'steps = 2;' 'watchdog_s = 0; threads = 1;'
run 1 0 base.deck run.dir=r
model=run.checkpoint=r/checkpoints/best.h5

# stopped RANKS WHO SIGNAL COMMAND ARGUMENTS...: rank WHO gets the signal in its first batch.
stopped() {
    n=$1 who=$2 signal=$3 command=$4
    shift 4
    rm -rf s
    SP_TEST_FAULT=$signal@$who:eval:0 run "$n" 75 "$command" base.deck run.dir=s $model "$@"
    says err "^fault: $signal at "
    says out '^stopped by signal [0-9]*, and nothing was written: run the same command again$'
    grep -q 'error: ' err && fail "a request is no error"
    says s/status-$command.json '"state":"stopped","exit_code":75,'
    test ! -e s/evaluations.jsonl || fail "an evaluation was written"
    test ! -e s/predictions || fail "left $(ls s/predictions)"
}
for command in eval predict; do
    stopped 1 0 hup $command
    stopped 3 0 xcpu $command
    stopped 2 1 term $command
    stopped 2 1 term $command eval.views=2
    # nohup keeps HUP from the ranks too. The mpirun of Open MPI takes it back.
    case $("$MPIEXEC" --version) in *OpenRTE* | *'Open MPI'*) continue ;; esac
    SP_TEST_FAULT=hup@1:eval:0 timeout -k 5 "$limit_s" sh -c 'trap "" HUP; exec "$@"' sh \
        "$MPIEXEC" -n 2 "$SPTRAIN" $command base.deck run.dir=s $model >out 2>err </dev/null ||
        fail "$command with HUP ignored"
    says err '^fault: hup at '
    says s/status-$command.json '"state":"done","exit_code":0,'
    test $command = eval || test -s s/predictions/u.h5 || fail "no predictions"
done
# A training gives up its evaluation, with a checkpoint: that of an epoch, and the last
# one. The continued run begins with it and has what an uninterrupted one has.
epochs="train.steps=0 train.epochs=2 run.keep=9"
for n in 1 2; do
    # shellcheck disable=SC2086
    run $n 0 base.deck run.dir=whole$n $epochs
    steps=$(sed -n 's/.*"event":"eval","step":\([0-9]*\).*/\1/p' whole$n/metrics.jsonl)
    for step in $steps; do
        rm -rf t
        # shellcheck disable=SC2086
        SP_TEST_FAULT=term@$((n - 1)):eval:$step run $n 75 base.deck run.dir=t $epochs
        says out "stopped by .* after step $step: run the same command again to continue"
        grep -q "\"event\":\"eval\",\"step\":$step," t/metrics.jsonl && fail "half an evaluation"
        # shellcheck disable=SC2086
        run $n 0 base.deck run.dir=t $epochs
        evals t >got
        evals whole$n >want
        same got want "evaluations of a run stopped at step $step"
        for file in whole$n/checkpoints/*.h5; do
            "$SHARDS" sums "$file" >want
            "$SHARDS" sums "t/checkpoints/${file##*/}" >got
            same got want "${file##*/} of a run stopped at step $step"
        done
    done
done
# A limit of time ends an evaluation too, but not that which a continued run begins with.
for status in 75 75 0; do
    run 1 $status base.deck run.dir=i run.time_limit_s=1e-6
done
evals i >got
evals r >want
same got want "evaluation of a run with a limit of time"
# One that is asked in its last step is done all the same.
SP_TEST_FAULT=term@0:forward:1 run 1 0 base.deck run.dir=l run.eval_every=0
says err '^fault: term at '
status l done 0
# One whose job is at its end stops, and goes on in a job with time left.
SLURM_JOB_END_TIME=$(($(date +%s) + 85)) run 2 75 base.deck run.dir=j
says j/status.json "stopped near the end of the job's time after step 1: "
SLURM_JOB_END_TIME=$(($(date +%s) + 900)) run 2 0 base.deck run.dir=j
status j done 0

# stopped_at PHASE COMMAND ARGUMENTS...: starts $job, whose process $pid stops itself when
# this phase begins, and has.
stopped_at() {
    fault=stop@0:$1:0
    shift
    SP_TEST_FAULT=$fault begin 1 "$@" run.dir="$1"
    await_stopped "$1" 0
}

# The file is removed when its weights are about to be loaded.
run 1 0 eval base.deck run.dir=w $model
evaluations w >want
for command in eval predict; do
    cp r/checkpoints/best.h5 model.h5
    stopped_at load $command base.deck run.checkpoint=model.h5
    rm model.h5
    kill -CONT "$pid" || fail "no process of rank 0: $pid"
    finish
    test $got = 0 || fail "$command: status $got"
done
yields want "evaluation of a file that was removed" evaluations eval

# A rank ends by ABRT of another process too.
stopped_at forward train base.deck train.steps=1000000 train.warmup_steps=0
kill -ABRT "$pid" && kill -CONT "$pid" || fail "no process of rank 0: $pid"
finish
test $got != 0 || fail "ABRT: the training went on"
status train failed 6
