# The functions that tests of whole programs share; they source this file. A test works in a
# folder of its own with small data sets, and runs sptrain under the launcher with a time
# limit.
SPTRAIN=$SP_BUILDDIR/sptrain
SHARDS=$SP_BUILDDIR/tests/tools/make_shards
test -x "$SHARDS" || {
    echo "SKIPPED: tests/tools/make_shards is not built (no cmocka)" >&2
    exit 77
}
limit_s=$((${SP_TEST_TIMEOUT:-1800} / 2)) # of one run, lest it hangs
dir=$(mktemp -d) || exit 1
job=
# A failure at the end of a pipe ends only a subshell; the mark ends the test by 1 all the same.
clean_up() { :; } # what a test has to undo besides; it may define its own
trap 'end=$?; clean_up 2>/dev/null; test -n "$job" && kill $job 2>/dev/null && wait $job
    test ! -e "$dir/failed.mark" || end=1; rm -rf "$dir"; exit $end' EXIT
cd "$dir" || exit 1

fail() {
    echo "FAILED: $*" >&2
    : >"$dir/failed.mark"
    for file in out err; do
        test -f $file && sed "s/^/$file: /" $file | tail -15 >&2
    done
    exit 1
}

skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}

# on_emulator PROGRAM: uses this build of sptrain from now on, on emulated devices, with the
# tests' NCCL.
on_emulator() {
    SPTRAIN=$SP_BUILDDIR/tests/device/$1
    SP_NCCL_LIB=$SP_BUILDDIR/tests/emulator/nccl_double
    export SP_NCCL_LIB
    test -x "$SPTRAIN" || skip "no emulator in this build"
}

# stand_in: makes a folder bin and sets SP_RUN to a script that puts it first in the PATH, as
# the scripts of tests/measure find programs.
stand_in() {
    mkdir bin
    printf '#!/bin/sh\nPATH=%s/bin:$PATH exec "$@"\n' "$dir" >run
    chmod +x run
    SP_RUN=$dir/run
    export SP_RUN
}

# find_python MODULES: sets $python to the first python3 that imports them: the PATH's, else
# the system's, which has the packages of install-deps.sh. Threads would spend more on
# numpy's small matrices than they save.
find_python() {
    export OPENBLAS_NUM_THREADS=1
    for python in "${PYTHON:-python3}" /usr/bin/python3; do
        "$python" -c "import $1" 2>/dev/null && return
    done
    skip "no python3 that imports $1 (install-deps.sh --tests)"
}

# deck NET DATA BATCH TRAIN [RUN]: writes base.deck, with these keys in its groups.
deck() {
    cat >base.deck <<DECK
data : { $2 };
net : { $1 };
batch : { $3 };
train : { $4 };
run : { $5 };
DECK
}

# dummy_deck FILE BATCH TRAIN [RUN]: a deck that trains the family dummy on a data set and
# evaluates on it; narrow_deck: a network of five levels, with a tenth of its channels.
dummy_deck() {
    deck 'family = "dummy";' "train = \"$1\"; val = \"$1\";" "$2" "$3" "$4"
}
narrow_deck() {
    deck 'family = "minkunet14A"; width = 0.1; stem_kernel = 3;' \
        "train = \"$1\"; val = \"$1\";" "$2" "$3" "$4"
}

# folders KIND...: makes the data set KIND/s.h5 of each kind.
folders() {
    for kind; do
        mkdir "$kind" && "$SHARDS" "$kind" "$kind/s.h5" || fail "make_shards $kind"
    done
}

# launch RANKS ARGUMENTS...: leaves its status in $? and its output in out and err.
launch() {
    ranks=$1
    shift
    timeout -k 5 "$limit_s" "$MPIEXEC" -n "$ranks" "$SPTRAIN" "$@" >out 2>err </dev/null
}

# is_forgotten: MPICH's launcher forgets a status that it collects before it has seen the
# rank's connection closed, and says 1. This is rare and happens while it waits for a
# processor.
is_forgotten() {
    test "$got" = 1 && grep -q 'EXIT STRING: Hangup (signal 1)' out
}

# ended STATUS WHAT: fails unless $got, of a run that cannot be repeated, is this status. The
# caller looks at status.json too, which has it where the launcher has forgotten it.
ended() {
    test "$got" = "$1" || is_forgotten || fail "status $got, expected $1: $2"
}

# is_unborn: MPICH's launcher may be ended by SIGPIPE (128 + 13) before a rank has begun. It
# was seen once in some ten thousand starts, on a machine with much else to do.
is_unborn() {
    test "$got" = 141 && ! test -s out && ! test -s err
}

# launched COMMAND...: runs a command that calls the launcher, a second time where the
# launcher forgets the status, which is left in $got, or starts nothing.
launched() {
    "$@"
    got=$?
    if is_forgotten || is_unborn; then
        "$@"
        got=$?
    fi
}

# run RANKS STATUS ARGUMENTS...: fails unless it ends with this status.
run() {
    n=$1 want=$2
    shift 2
    launched launch "$n" "$@"
    test $got = "$want" || fail "status $got, expected $want: $n ranks: $*"
}

# refused RANKS STATUS TEXT ARGUMENTS...: on each number of RANKS ("1 3") a run ends with this
# status and one diagnosis, which says TEXT.
refused() {
    numbers=$1 want=$2 refusal=$3
    shift 3
    for n in $numbers; do
        run "$n" "$want" "$@"
        one_diagnosis "$refusal"
    done
}

# refused_twice STATUS TEXT ARGUMENTS...: so end check and the training of base.deck on two ranks.
refused_twice() {
    status=$1 text=$2
    shift 2
    for command in check train; do
        refused 2 "$status" "$text" $command base.deck run.dir=refused "$@"
    done
}

# same_on_ranks NAME STEPS ARGUMENTS...: base.deck trains to the same weights, whose sums are left
# in the file want, on 1, 2 and 3 ranks with as many readers, and if it is stopped after half
# of the steps and continued on other ranks.
same_on_ranks() {
    name=$1 steps=$2
    shift 2
    for number in 1 2 3; do
        run $number 0 base.deck "$@" run.dir="$name-$number" data.readers=$number
        test $number != 1 || sums "$name-1" "$steps" >want
        yields want "$name on $number ranks" sums "$name-$number" "$steps"
    done
    run 1 0 base.deck "$@" run.dir="$name-moved" train.steps=$((steps / 2))
    run 2 0 base.deck "$@" run.dir="$name-moved" data.readers=5
    yields want "$name: continued on other ranks" sums "$name-moved" "$steps"
}

# allocates_nothing RANKS STEPS EPOCH ARGUMENTS...: training base.deck, no rank allocates after
# the first epoch of EPOCH steps. The count of an epoch's first step has the report of the
# last epoch too.
allocates_nothing() {
    number=$1 lines=$(($1 * $2)) epoch=$3
    shift 3
    SPTRAIN=$SP_BUILDDIR/tests/run/sptrain_counted run "$number" 0 base.deck run.dir=counted \
        run.resume=never run.checkpoint_every=1000 "$@"
    test "$(grep -c '^step .* allocations' err)" = $lines || fail "$lines lines of steps expected"
    awk -v n="$epoch" '/^step .* allocations/ && $2 > n && $2 % n != 1 && $4 > 0 { print; bad = 1 }
        END { exit bad }' err >&2 || fail "steps that allocate: $*"
}

# peak RANKS STATUS ARGUMENTS...: as run, but in $taken the MiB of the largest rank.
peak() {
    test -x measured || {
        printf '#!/bin/sh\nexec "%s" mib "%s" "$@"\n' "$SP_BUILDDIR/tests/tools/peak_memory" \
            "$MPIEXEC" >measured
        chmod +x measured
    }
    MPIEXEC=$dir/measured run "$@"
    taken=$(cat mib)
}

# foresees DECK ARGUMENTS...: leaves in $foreseen the MiB of a rank that check estimates.
foresees() {
    run 1 0 check "$@"
    foreseen=$(sed -n 's/.*memory: about \([0-9]*\) MiB a rank.*/\1/p' out)
}

# takes_foreseen DECK ARGUMENTS...: a training takes no more memory than check estimates.
takes_foreseen() {
    foresees "$@"
    peak 1 0 train "$@" run.dir=memory run.resume=never
    test "$taken" -le "$foreseen" || fail "$foreseen MiB foreseen, $taken taken: $*"
}

# voxels DIR: those of each step.
voxels() {
    sed -n 's/.*"event":"step".*"voxels":\([0-9]*\).*/\1/p' "$1/metrics.jsonl"
}

# alone STATUS PROGRAM ARGUMENTS...: as run, of one process without a launcher.
alone() {
    want=$1
    shift
    timeout -k 5 "$limit_s" "$@" >out 2>err </dev/null
    got=$?
    test $got = "$want" || fail "status $got, expected $want: $*"
}

# spvox ARGUMENTS...: one process of it ends with 0.
spvox() {
    alone 0 "$SP_BUILDDIR/spvox" "$@"
}

# begin RANKS ARGUMENTS...: a run in the background; $job is its launcher. Whoever waits for
# words in err finds none of an earlier run.
begin() {
    n=$1
    shift
    : >err
    "$MPIEXEC" -n "$n" "$SPTRAIN" "$@" >out 2>err </dev/null &
    job=$!
}

# finish: waits for $job; its status is in $got.
finish() {
    wait $job
    got=$?
    job=
}

# finishes STATUS WHAT: $job ends with this status.
finishes() {
    finish
    ended "$1" "$2"
}

# healthy RANKS ARGUMENTS...: a run that ends with 0. Leaves in $late_s within how many
# seconds of a fault, or of a limit that finds it, such a run is gone: sooner than by the
# shortest limit of the program's own, which is 30 s, unless this run takes long too.
healthy() {
    late_s=$(date +%s)
    n=$1
    shift
    run "$n" 0 "$@"
    late_s=$((26 + 2 * ($(date +%s) - late_s)))
}

# patience DIR: prints seconds for watchdog_s, so that a busy machine is no fault, nor one
# that stands still for ten seconds: 15, or eight times the longest step of this run.
patience() {
    sed -n 's/.*"step_s":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" |
        awk '$1 > most { most = $1 } END { print (most > 2 ? int(8 * most) : 15) }'
}

# await WHAT COMMAND...: waits until the command succeeds; fails with WHAT where it does not
# within the time limit of a run.
await() {
    awaited=$1 looks=0
    shift
    until "$@" 2>/dev/null; do
        looks=$((looks + 1))
        test $looks -lt $((20 * limit_s)) || fail "$awaited"
        sleep 0.05
    done
}

# await_step N DIR: waits until a run has written the line of a step.
await_step() {
    await "$2: no step $1" grep -q "\"step\":$1," "$2/metrics.jsonl"
}

# await_stopped DIR RANK: waits until the fault `stop` has stopped this rank, whose process
# is then in $pid.
await_stopped() {
    await "$1: no fault" grep -q '^fault: stop' err
    pid=$(record "$1" "$2")
    pid=${pid%% *}
    await "$1: rank $2 is not stopped" is_state T "$pid"
}

# is_state LETTERS PID: /proc has one of these letters for the process.
is_state() {
    grep -q "^State:.[$1]" "/proc/$2/status"
}

# has_gone PID: a process that has ended, or that nobody waits for.
has_gone() {
    ! is_state ^ZX "$1" 2>/dev/null
}

# gone_within SECONDS FILE: fails where more time has passed since the fault that FILE
# reports. The time since the start is of no use, since a start takes long on a busy
# machine.
gone_within() {
    at=$(sed -n 's/^fault: .* at \([0-9]*\)$/\1/p' "$2" | head -n 1)
    test -n "$at" || fail "no fault happened"
    test $(($(date +%s) - at)) -le "$1" || fail "gone after $(($(date +%s) - at)) s, not $1"
}

# says FILE TEXT: FILE has a line with TEXT (a basic regular expression).
says() {
    grep -q -- "$2" "$1" || fail "$1 lacks: $2"
}

# says_not FILE TEXT: FILE, which is there, has no such line.
says_not() {
    test -f "$1" || fail "$1 is missing"
    ! grep -q -- "$2" "$1" || fail "$1 says: $2"
}

# one_diagnosis TEXT: err has one error, a line without codes of the program's own and
# without positions in its source, and it says TEXT.
one_diagnosis() {
    count=$(grep -c '^sptrain: .*error: ' err)
    test "$count" = 1 || fail "$count diagnoses, expected one"
    ! grep -q 'SP_E[A-Z]\|src/.*\.c:[0-9]\|internal error' err || fail "not plain text"
    ! grep -q 'error: .*phase start' err || fail "a phase of the start is no place"
    says err "$1"
}

# is_told DIR: its status is no longer that of a run that goes on.
is_told() {
    ! grep -q '"state":"running"' "$1/status.json"
}

# status DIR STATE CODE: status.json says so, or will in a moment, where the launcher was
# faster.
status() {
    await "$1 is running" is_told "$1"
    grep -qF "\"state\":\"$2\",\"exit_code\":$3," "$1/status.json" ||
        fail "$1/status.json is not $2, $3: $(cat "$1/status.json")"
}

# steps DIR: prints step, samples, voxels and loss of each step line.
steps() {
    sed -n 's/.*"event":"step","step":\([0-9]*\).*"samples":\([0-9]*\),"loss":\([^,]*\),.*"voxels":\([0-9]*\),.*/\1 \2 \4 \3/p' "$1/metrics.jsonl"
}

# near DIR DIR N FIRST REST: both runs have N steps of the same samples and voxels, whose losses
# differ by these shares at most, in the first step and in the others. A step without a loss
# in one of them has none in the other: awk would compare the text as some number.
near() {
    steps "$1" >steps.1
    steps "$2" >steps.2
    test "$(wc -l <steps.1)" = "$3" || fail "$1: $(wc -l <steps.1) step lines, expected $3"
    paste -d ' ' steps.1 steps.2 | awk -v first="$4" -v rest="$5" '
        $1 != $5 || $2 != $6 || $3 != $7 { print "other samples: " $0; bad = 1 }
        $4 == $8 { next }
        $4 + 0 != $4 || $8 + 0 != $8 { print "no loss: " $0; bad = 1; next }
        {
            off = ($4 > $8 ? $4 - $8 : $8 - $4) / $8
            if (off > (NR == 1 ? first : rest)) { print "other loss: " $0; bad = 1 }
            if (off > most) most = off
        }
        END { print "greatest difference of loss: " most; exit bad || !NR }' >differences ||
        fail "$1 is not near $2: $(head -3 differences)"
}

# lines DIR: prints step and eval lines without times.
lines() {
    sed -n '/"event":"step"/s/"step_s".*//p; /"event":"eval"/s/,"time":"[^"]*"//p' \
        "$1/metrics.jsonl"
}

# interval: reads a number a line; prints their median, and the interval that holds the true
# median with 90 % certainty (order statistics).
interval() {
    sort -g | awk '
        { x[NR] = $1 }
        END {
            low = int((NR - 1.645 * sqrt(NR)) / 2)
            if (low < 1) low = 1
            printf "%.4f %.4f %.4f", (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2,
                x[low], x[NR + 1 - low]
        }'
}

# ratios FILE FILE: the same of the ratios of the files' numbers, pair by pair.
ratios() {
    paste "$1" "$2" | awk '{ print $1 / $2 }' | interval
}

# record DIR RANK: prints "pid phase epoch step" of the rank in the present heartbeat.bin.
record() {
    "$SPTRAIN" status "$1" 2>/dev/null |
        awk -v r="$2" '$1 == r && $3 ~ /^[0-9]+$/ { print $3, $4, $5, $6 }'
}

# draw I N: prints a number below N, the same for the same I.
draw() {
    awk -v i="$1" -v n="$2" 'BEGIN { srand(i); rand(); print int(rand() * n) }'
}

# nth I WORDS...: prints word I, from 0 on.
nth() {
    shift "$(($1 + 1))"
    echo "$1"
}

# nothing_behind DIR FILES: demands that the folder of a finished run has these files and
# folders and no unfinished checkpoint, and that none of its processes works in the test's
# folder any more.
# best.h5.old, .old2 may be there: the best weights of steps that a kill has undone are kept.
nothing_behind() {
    found=$(ls -A "$1" | tr '\n' ' ')
    test "$found" = "$2 " || fail "$1 has: $found"
    found=$(ls -A "$1/checkpoints" | grep -v '^step-[0-9]\{9\}\.h5$\|^best\.h5\(\.old[0-9]*\)\{0,1\}$')
    test -z "$found" || fail "$1/checkpoints has: $found"
    await "a process is left" is_gone
}

# is_gone: no process of a run works in the test's folder any more. A launcher that was
# asked to stop may end before its ranks do.
is_gone() {
    for at in /proc/[0-9]*; do
        if grep -q '^sptrain' "$at/comm" 2>/dev/null; then
            test "$(readlink "$at/cwd" 2>/dev/null)" != "$dir" || return
        fi
    done
}

# evals DIR: prints the evaluations made while training, from their step on, without time.
evals() {
    sed -n 's/.*"event":"eval",\("step".*\),"time":"[^"]*"/\1/p' "$1/metrics.jsonl"
}

# evaluations DIR: prints those of `sptrain eval` likewise, without time, arguments and
# files.
evaluations() {
    sed -n 's/.*"event":"eval".*\],\("step".*\)/\1/p' "$1/evaluations.jsonl"
}

# same FILE FILE WHAT: the files are the same, and not empty, as where nothing was found.
same() {
    test -s "$1" || fail "$1 is empty: $3"
    cmp -s "$1" "$2" || {
        diff "$1" "$2" | head -10 >&2
        fail "$3"
    }
}

# same_files DIR DIR WHAT: each file of the first folder is in the second, the same.
same_files() {
    for file in "$1"/*; do
        same "$file" "$2/${file##*/}" "${file##*/}: $3"
    done
}

# yields FILE WHAT COMMAND...: the command ends with 0 and prints what is in FILE.
yields() {
    expected=$1 what=$2
    shift 2
    "$@" >yielded || fail "$what: status $?: $*"
    same "$expected" yielded "$what"
}

# last COMMAND...: the last line that the command prints.
last() {
    "$@" | tail -n 1
}

# differ FILE FILE WHAT: the files differ; both are there.
differ() {
    cmp -s "$1" "$2"
    test $? = 1 || fail "$3"
}

# sums DIR STEP: prints checksums of the arrays of a checkpoint.
sums() {
    "$SHARDS" sums "$1/checkpoints/step-$(printf %09d "$2").h5" || fail "no sums of $1 step $2"
}

# smooth_deck: writes smooth.deck, base.deck with a network of two levels with norms and a
# concatenation, for 4 classes; it has no ReLU, where a rounding error could change a sign and
# so the losses by much.
smooth_deck() {
    sed '/^net/d' base.deck >smooth.deck
    cat >>smooth.deck <<'END'
net : { layers = ( { name = "a"; op = "conv"; out = 8; kernel = 3; }, { name = "bn"; op = "batchnorm"; },
  { name = "b"; op = "conv"; out = 12; kernel = 2; stride = 2; }, { name = "bn2"; op = "batchnorm"; },
  { name = "c"; op = "conv_transpose"; out = 8; kernel = 2; stride = 2; },
  { name = "d"; op = "concat"; from = ["c", "bn"]; }, { name = "e"; op = "linear"; out = 4; bias = true; } ); };
END
}
