#!/bin/sh
# A run that was stopped, killed or damaged goes on to the results of the run that was not,
# and says so.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 && "$SHARDS" plain p.h5 || fail "make_shards"
dummy_deck u.h5 'size = 2;' 'epochs = 5; warmup_steps = 5;' \
    'log_every = 1; checkpoint_every = 3; keep = 100; dir = "r";'
# 15 samples in steps of 2: 8 steps an epoch, 40 in all.

# whole DIR WHAT: DIR is like the uninterrupted run, bit for bit.
whole() {
    status "$1" done 0
    yields want.sums "$2: weights" sums "$1" 40
    yields want.lines "$2: metrics.jsonl" lines "$1"
}
# begin_to_stop RANKS: a run in the background, until rank 0, which is process $pid, has
# stopped itself in step 7.
begin_to_stop() {
    rm -rf r
    SP_TEST_FAULT=stop@0:forward:7 begin "$1" base.deck
    await_stopped r 0
}
# is_asked: a signal waits for that process.
is_asked() {
    grep '^S[hi][dg]Pnd:' "/proc/$pid/status" | grep -q '[1-9a-f][0-9a-f]*$'
}
# end SIGNAL PROCESS: sends it, to rank 0 or to the launcher, and continues rank 0; leaves the
# launcher's status in $got.
end() {
    kill -"$1" "$2"
    test "$1" = KILL || await "$1 has not come" is_asked
    kill -CONT "$pid"
    finish
}
# sequence DIR: prints step, samples and voxels of each step line.
sequence() {
    steps "$1" | cut -d ' ' -f 1-3
}

# A checkpoint that is written slowly has the weights of its step: the next update waits.
SP_TEST_FAULT=pause@0:saving:3 run 2 0 base.deck run.dir=whole
says err '^fault: pause at '
sums whole 3 >want3.sums
sums whole 40 >want.sums
lines whole >want.lines
test "$(wc -l <want.lines)" = 45 || fail "40 steps and 5 evaluations expected"

# TERM ends a run with status 75 and a checkpoint of the step; continued it is the whole
# run. A small time limit does the same, several times over.
begin_to_stop 2
end TERM "$pid"
ended 75 "after TERM"
status r stopped 75
says r/status.json 'stopped by signal 15 after step'
says out 'stopped by signal 15 after step [0-9]*: run the same command again to continue'
cp r/metrics.jsonl before
run 2 0 base.deck
says out 'continuing from r/checkpoints/step-'
whole r "continued after TERM"
yields want3.sums "step 3, written slowly: weights" sums r 3
head -c "$(wc -c <before)" r/metrics.jsonl | cmp -s - before ||
    fail "a line was cut although no step was repeated"

# A signal may come through the launcher, whose own status is 0 where it forgets that of the
# ranks (MPICH before 4.1), and 1 after INT to that of Open MPI, which sends TERM after this
# time (1 s by default) and KILL after twice that: status.json and the console say what
# happened.
OMPI_MCA_odls_base_sigkill_timeout=2
export OMPI_MCA_odls_base_sigkill_timeout
case $("$MPIEXEC" --version) in
*OpenRTE* | *'Open MPI'*) statuses="USR1:75 INT:1" ;;
*) statuses="USR1:75 INT:75 USR1:0 INT:0" ;;
esac
for signal in USR1 INT; do
    begin_to_stop 2
    end $signal $job
    case " $statuses " in
    *" $signal:$got "*) ;;
    *) fail "status $got after $signal through the launcher" ;;
    esac
    status r stopped 75
    says out 'run the same command again to continue'
done
run 2 0 base.deck
whole r "continued after signals through the launcher"

# A run that is continued in the middle of an epoch on other numbers of ranks has the same
# sequence.
sequence whole >want.sequence
run 2 0 base.deck run.dir=o train.steps=13
for n in 1 3; do
    rm -rf o$n && cp -r o o$n
    rm o$n/checkpoints/step-000000013.h5
    run $n 0 base.deck run.dir=o$n
    yields want.sequence "continued on $n ranks" sequence o$n
    grep -q '"event":"resume","step":12,' o$n/metrics.jsonl || fail "no resume event"
done
run 2 75 base.deck run.dir=l run.time_limit_s=0.001
says l/status.json 'stopped by run.time_limit_s after step 1: run the same command again to continue'
run 2 75 base.deck run.dir=l run.time_limit_s=0.001
says l/status.json 'after step 2: '
run 2 0 base.deck run.dir=l
whole l "continued after time limits"

# After kill -9 of a rank the next start names it, and the run goes on.
begin_to_stop 2
end KILL "$pid"
test $got != 0 || fail "status 0 after kill -9"
run 2 0 base.deck
says err 'the run before this one was lost with rank 0/2 .*, which died'
whole r "continued after kill -9"
test "$(grep -c '"event":"start"\|"event":"resume"' r/metrics.jsonl)" = 2 ||
    fail "starts: $(grep -c '"event":"start"\|"event":"resume"' r/metrics.jsonl)"

# A damaged newest checkpoint is named and skipped; with none whole the run begins anew.
printf 'x' | dd of=r/checkpoints/step-000000040.h5 bs=1 seek=9000 conv=notrunc 2>/dev/null
: >r/checkpoints/step-000000039.h5
run 2 0 base.deck
says err 'damaged checkpoint skipped: r/checkpoints/step-000000040.h5'
says err 'damaged checkpoint skipped: r/checkpoints/step-000000039.h5'
says out 'continuing from r/checkpoints/step-000000036.h5: step 36'
whole r "continued from an older checkpoint"
rm -rf a && mkdir -p a/checkpoints && echo no >a/checkpoints/step-000000040.h5
run 1 0 base.deck run.dir=a train.steps=2
says err 'every checkpoint is damaged'
test -f a/old-001/checkpoints/step-000000040.h5 || fail "nothing was put aside"

# A finished run says so and changes nothing. More epochs go on.
cp r/metrics.jsonl before
run 2 0 base.deck
says out 'r: finished at step 40'
same before r/metrics.jsonl "a finished run changed metrics.jsonl"
refused '1 2' 2 'net.width: checkpoint .*, deck 0.5; it must stay the same to continue' \
    check base.deck net.width=0.5
run 2 0 check base.deck net.width=0.5 run.resume=never
layers='net.layers=( { name = "last"; op = "conv"; out = 4; kernel = 1; } )'
refused '1 2' 2 'the checkpoint has net.family = ".*", the deck net.layers (1 layers)' check base.deck "$layers"
status r done 0
run 2 2 base.deck net.width=0.5
status r failed 2
run 2 0 eval base.deck
cp r/metrics.jsonl before
run 2 0 base.deck
says out 'r: finished at step 40'
status r done 0
same before r/metrics.jsonl "a failed start has undone the end of the run"
run 2 0 base.deck train.epochs=6
says out 'continuing with train.epochs = 6 (was 5)'
status r done 0
test "$(steps r | tail -1 | cut -d ' ' -f 1,2)" = "48 90" || fail "epoch 6"

# Another optimizer begins anew, as it does with weights of run.init_from. All samples are in
# each step and sums are exact, so the order of samples, that of another epoch, does not show.
set -- base.deck batch.size=15 train.deterministic=world train.schedule=constant \
    train.warmup_steps=0 augment.flip=false augment.rotate_z=false augment.scale=[] \
    augment.drop=0 augment.jitter=0
for pair in "sgd adamw" "adamw sgd"; do
    rm -rf o n
    run 2 0 "$@" run.dir=o train.steps=2 train.optimizer=${pair% *}
    run 2 0 "$@" run.dir=n train.steps=2 train.optimizer=${pair#* } \
        run.init_from=o/checkpoints/step-000000002.h5
    run 2 0 "$@" run.dir=o train.steps=4 train.optimizer=${pair#* }
    says err 'step-000000002.h5 has no state of this optimizer: it starts from zero'
    sums n 2 >want
    yields want "from $pair" sums o 4
    run 2 0 "$@" run.dir=o train.steps=5 train.optimizer=${pair#* }
    says_not err 'of this optimizer'
done

# metrics.jsonl is counted in the folder of a checkpoint: continued from another folder's
# checkpoint, this folder's file is not cut to that length but begins anew.
mkdir -p f && cp whole/metrics.jsonl before
run 2 0 base.deck run.dir=f run.resume=whole/checkpoints/step-000000036.h5
says out 'step-000000036.h5 is of another run folder: metrics.jsonl begins anew'
test "$(steps f | cut -d ' ' -f 1 | tr '\n' ' ')" = "37 38 39 40 " || fail "steps of f"
head -1 f/metrics.jsonl | grep -q '"event":"resume","step":36,' || fail "no resume event"
yields want.sums "continued from another folder: weights" sums f 40
test -f f/checkpoints/best.h5 || fail "no best.h5: the other folder's was better"
cp f/metrics.jsonl other
mkdir f/checkpoints-kept && cp whole/checkpoints/step-000000039.h5 f/checkpoints-kept
run 2 0 base.deck run.dir=f run.resume=f/checkpoints-kept/step-000000039.h5
same other f/old-001/metrics.jsonl "what was in the folder is lost"
test "$(steps f | cut -d ' ' -f 1)" = 40 || fail "steps of f"
same before whole/metrics.jsonl "the other folder changed"
# Where nothing is left to train, the folder stays as it is.
run 2 2 base.deck run.dir=f run.resume=whole/checkpoints/step-000000040.h5
says err 'step-000000040.h5: step 40, epoch [0-9]*: nothing is left to train'
test -f f/checkpoints/step-000000040.h5 || fail "its checkpoints were set aside"
# The run's own checkpoint by another path cuts the file.
run 2 0 base.deck run.dir=f run.resume="$dir/whole/../f/checkpoints/step-000000040.h5"
test "$(steps f | cut -d ' ' -f 1)" = 40 || fail "steps of f"
# A link in the run's own checkpoints to another folder's file is moved with them, and the
# file is read all the same. As many steps as its epochs have, the last of each a short one,
# are as long a training.
mkdir -p h/checkpoints
ln -s ../../whole/checkpoints/step-000000036.h5 h/checkpoints/link.h5
echo more >h/metrics.jsonl
run 2 0 base.deck run.dir=h run.resume=h/checkpoints/link.h5 train.steps=40
says out '/whole/checkpoints/step-000000036.h5 is of another run folder'
test -h h/old-001/checkpoints/link.h5 || fail "the link was not set aside"
yields want.sums "continued from a link: weights" sums h 40
# When a run goes back to an earlier checkpoint, the later ones are moved out of the way,
# whatever run.keep says.
run 2 0 base.deck run.dir=back train.steps=12
run 2 0 base.deck run.dir=back train.steps=8 run.keep=1 \
    run.resume=back/checkpoints/step-000000006.h5
says out '3 checkpoints of later steps renamed'
test -f back/checkpoints/step-000000008.h5 || fail "the new checkpoint was deleted"
test -f back/checkpoints/step-000000012.h5.old || fail "a later checkpoint was deleted"
test -f back/checkpoints/best.h5.old || fail "best.h5 of a later step stayed or was deleted"
"$SHARDS" sums back/checkpoints/best.h5 >c || fail "no best.h5 after going back"
yields c "best.h5 after going back" sums back 8
run 2 0 base.deck run.dir=back train.steps=12
run 2 0 base.deck run.dir=back train.steps=9 run.keep=3 \
    run.resume=back/checkpoints/step-000000008.h5
test -f back/checkpoints/step-000000012.h5.old || fail "what was set aside before is gone"
test -f back/checkpoints/step-000000012.h5.old2 || fail "a later checkpoint was not set aside"
run 2 0 base.deck run.dir=back train.steps=12
head -12 want.sequence >before
yields before "steps after going back" sequence back
# A best.h5 that cannot be taken is set aside too, beside those of before.
for i in 1 2; do
    echo "damaged $i" >back/checkpoints/best.h5
    run 2 0 base.deck run.dir=back train.steps=$((12 + i))
done
for i in 1 2; do
    grep -qx "damaged $i" back/checkpoints/best.h5.old* || fail "best.h5 number $i is gone"
done
test -d f/old-002 && fail "an own checkpoint put the folder's content aside"

# run.resume=never moves the content to old-NNN.
run 1 0 base.deck run.resume=never train.steps=1
test -f r/old-001/checkpoints/step-000000048.h5 || fail "nothing was put aside"
test "$(steps r | wc -l)" = 1 || fail "the new run's metrics"
run 1 0 base.deck run.resume=never train.steps=1
test -f r/old-002/metrics.jsonl || fail "old-002"

# Keys that must not change are refused with both values; other changes are logged.
for change in batch.size=3:2:3 batch.per=rank:world:rank train.seed=2:1:2 net.family=minkunet14A:dummy:minkunet14A; do
    run 2 2 base.deck run.dir=l "${change%%:*}"
    values=${change#*:}
    one_diagnosis "checkpoint \"\{0,1\}${values%:*}\"\{0,1\}, deck \"\{0,1\}${values#*:}"
done
status l failed 2
# The place of the last step, sample 12 of an epoch, is none among the six samples of p.h5,
# which is no damage.
run 2 2 base.deck run.dir=back data.train=p.h5 data.val='[]'
one_diagnosis 'data index: checkpoint [0-9a-f]*, data.train [0-9a-f]*'
run 2 0 base.deck run.dir=l
whole l "continued after refusals"

# One program a folder.
begin_to_stop 1
refused 2 4 "r: run folder in use by host $(hostname) pid [0-9]" base.deck
end TERM "$pid"
ended 75 "after TERM"
status r stopped 75
