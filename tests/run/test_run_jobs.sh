#!/bin/sh
# The job scripts with launchers of the test's own: one that fails at once, one that ends by
# a signal, one whose program refuses a misspelt key, one that loses a rank, and one that
# finishes. The scripts succeed only for the last, in a folder whose earlier run was done
# too, and ask for the queue again where a later start can help.
. "${SP_SRCDIR-.}/tests/fixtures/program.sh"
jobs=$(cd "${SP_SRCDIR-.}" && pwd)/jobs

# The launcher does what $ACT says; scontrol writes down what it is asked for.
mkdir bin jobs runs
cp "$jobs"/*.slurm jobs/
cat >bin/srun <<'END'
#!/bin/sh
state() {
    mkdir -p runs/mine/checkpoints
    echo "{\"state\":\"$1\",\"exit_code\":$2}" >runs/mine/status.json
    test ! -d labelled/.sptrain || cp runs/mine/status.json labelled/.sptrain/status-label.json
}
case $ACT in
hidden) state failed 3 && exit 143 ;;
vanished) state running 0 ;;
fails) exit 1 ;;
signal) kill -9 $$ ;;
misspelt) exit 2 ;;
"done") state "done" 0 ;;
lost) state failed 6 && exit 6 ;;
killed) state running 0 && exit 137 ;;
saves) state failed 6 && sleep 1 && touch runs/mine/checkpoints/step-000000002.h5 && exit 6 ;;
stopped) state stopped 75 && exit 75 ;;
esac
END
printf '#!/bin/sh\necho "$*" >>asked\n' >bin/scontrol
cp bin/srun bin/mpirun
chmod +x bin/*
PATH=$dir/bin:$PATH
export PATH ACT

# job STATUS REQUEUES SCRIPT...: runs it with ACT.
job() {
    want=$1 queue=$2
    shift 2
    : >asked
    "$@" >out 2>err
    got=$?
    test $got = "$want" || fail "$ACT: $*: status $got, expected $want"
    test "$(grep -c requeue asked)" = "$queue" || fail "$ACT: $*: asked: $(cat asked)"
}

earlier_done() {
    rm -rf runs
    mkdir -p runs/mine/checkpoints
    echo '{"state":"done","exit_code":0}' >runs/mine/status.json
    touch -d '1 hour ago' runs/mine/status.json
}

# train STATUS REQUEUES, array STATUS REQUEUES, eval_ STATUS
train() {
    SLURM_JOB_ID=7 job "$1" "$2" bash jobs/train.slurm my.deck run.dir=runs/mine
}
array() {
    sed 's@run.dir=.*@run.dir=runs/mine@' "$jobs/array.slurm" >jobs/array.slurm
    SLURM_JOB_ID=8 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=2 SLURM_SUBMIT_DIR=. \
        job "$1" "$2" bash jobs/array.slurm my.deck
}
evaluate() {
    job "$1" 0 bash jobs/eval.slurm my.deck
}

for script in train array; do
    for act in "fails 1" "signal 137" "misspelt 2"; do
        ACT=${act% *}
        earlier_done
        $script "${act#* }" 0
    done
    ACT="done"
    earlier_done
    $script 0 0
    ACT=stopped
    $script 0 1
    # Lost ranks: three times in a row, and again after a new checkpoint.
    ACT=lost
    earlier_done
    for _ in 1 2 3; do $script 0 1; done
    $script 6 0
    ACT=saves
    $script 0 1
    ACT=killed
    $script 0 1
done
# A run folder below HOME, which only the program expands, in the command line or the deck.
earlier_done
ACT="done"
SLURM_JOB_ID=7 HOME=$PWD job 0 0 bash jobs/train.slurm my.deck 'run.dir=~/runs/mine'
echo 'run : { dir = "~/runs/mine"; resume = "never"; };' >home.deck
ACT=saves
SLURM_JOB_ID=7 HOME=$PWD job 0 1 bash jobs/train.slurm home.deck
for act in "fails 1" "signal 137" "misspelt 2" "done 0"; do
    ACT=${act% *}
    evaluate "${act#* }"
    SLURM_JOB_ID=7 job "${act#* }" 0 bash jobs/label.slurm runs/mine labelled 'tiles/*.laz'
done
# label STATUS REQUEUES [VARIABLE=VALUE...]
label() {
    want=$1 queue=$2
    shift 2
    job "$want" "$queue" env SLURM_JOB_ID=7 "$@" \
        bash jobs/label.slurm runs/mine labelled 'tiles/*.laz'
}
ACT=stopped
label 0 1
# A task that ends without a word is no success; the status of an earlier start says nothing.
mkdir -p labelled/.sptrain
for act in "killed 137" "vanished 1" "hidden 3" "done 0"; do
    ACT=${act% *}
    label "${act#* }" 0
done
touch -d '1 hour ago' labelled/.sptrain/status-label.json
ACT=fails
label 1 0 saved=0 state="done"
# An array is FIRST-LAST, from any number on.
array_of="SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=5 SLURM_ARRAY_TASK_STEP=1"
ACT="done"
# shellcheck disable=SC2086 # words of env
label 0 0 $array_of SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_ID=5
says out 'labelled/.sptrain/task-2-of-3/status-label.json'
# shellcheck disable=SC2086
label 2 0 $array_of SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_ID=5
says err 'an array with gaps: expected --array=FIRST-LAST'

# The launcher's container of the MPI Operator: the lines after "- |".
sed -n '/args:.*edit/,/volumeMounts/p' "$jobs/mpijob.yaml" |
    sed '1,2d; /volumeMounts/d; s/^ *//' >container
grep -q '^mpirun' container || fail "no mpirun in mpijob.yaml"
for act in fails signal misspelt lost killed stopped; do
    ACT=$act
    earlier_done
    sh -c "$(cat container)" >out 2>err && fail "mpijob.yaml: $act counts as a success"
    rm -rf runs
    sh -c "$(cat container)" >out 2>err && fail "mpijob.yaml: $act, new folder"
done
ACT="done"
earlier_done
sh -c "$(cat container)" >out 2>err || fail "mpijob.yaml: a finished run is no success"
exit 0
