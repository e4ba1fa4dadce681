#!/bin/sh
# The memory that training, evaluation and prediction take of data of many shapes: what is
# foreseen, what is taken, and what is taken under a bound of three quarters of that. A
# bound is kept to 5 %, or the run ends with 5; `check` foresees what a training takes,
# evaluation included, to 10 %, but for 25 MiB of large pages; eval and predict foresee at
# least what they take, to 10 %. SP_SHAPES=all takes twelve shapes of up to two million
# voxels (half an hour, 6 GiB).
. "$SP_SRCDIR/tests/fixtures/program.sh"
limit_s=3000
shapes=${SP_SHAPES-few}
deck 'family = "minkunet14A"; width = 0.25; stem_kernel = 3;' 'voxel_size = 0.5;' \
    'size = 4; eval_size = 4;' 'steps = 2; warmup_steps = 0; lr = 0.001;' \
    'device = "cpu"; threads = 2; log_every = 1; logits = true;'

# taken STATUSES ARGUMENTS...: runs sptrain; the MiB of its largest process in $taken.
taken() {
    want=$1
    shift
    timeout -k 5 "$limit_s" "$SP_BUILDDIR/tests/tools/peak_memory" mib \
        "$MPIEXEC" -n 1 "$SPTRAIN" "$@" >out 2>err </dev/null
    got=$?
    case " $want " in *" $got "*) ;; *) fail "status $got, expected $want: $*" ;; esac
    taken=$(cat mib)
}
row() {
    printf '%-10s %-8s %9s %7s %6s %7s %7s %6s %s\n' "$@" | tee -a table
}
# is_foreseen COMMAND: whether $taken is what $foreseen says. An evaluation's bound has a margin.
is_foreseen() {
    awk -v f="$foreseen" -v t="$taken" -v command="$1" 'BEGIN {
        exit !(t <= 1.1 * f && (command != "train" || f <= 1.1 * t + 25)) }'
}
# measured COMMAND ARGUMENTS...: a row of the table.
measured() {
    command=$1
    shift
    taken 0 "$command" base.deck run.dir=whole "$@"
    is_foreseen "$command" || faults="$faults $name/$command/foreseen"
    whole=$taken
    bound=$((whole * 3 / 4))
    test "$command" = train || cp -r whole/checkpoints kept
    rm -rf bound
    test "$command" = train || { mkdir bound && mv kept bound/checkpoints; }
    taken '0 5' "$command" base.deck run.dir=bound run.memory_mb=$bound "$@"
    test $got = 5 || test $((taken * 100)) -le $((bound * 105)) ||
        faults="$faults $name/$command/bound"
    row "$name" "$command" "$foreseen" "$whole" "$(ratio "$whole" "$foreseen")" \
        "$bound" "$taken" "$(ratio "$taken" "$bound")" "status $got"
}
ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { print (b ? sprintf("%.2f", a / b) : "-") }'
}
# shape NAME OVERRIDES...: of the shards NAME*.h5.
shape() {
    name=$1
    shift
    set -- "data.train=$name*.h5" "data.val=$name*.h5" "$@"
    foresees base.deck "$@"
    measured train "$@"
    for command in eval predict; do
        run 1 0 $command base.deck run.dir=whole run.memory_mb=1000000 "$@"
        foreseen=$(sed -n 's/.*step needs about \([0-9]*\).*/\1/p' out)
        measured $command "$@"
    done
    rm -rf whole bound "$name"*.h5
}
# box NAME SAMPLES VOXELS GAP COLUMNS CLASSES HAS_POINTS
box() {
    "$SHARDS" box "$1.h5" "$2" "$3" "$4" "$5" "$6" "$7" || fail "no data: $1"
}

faults=
row shape command foreseen taken ratio bound taken ratio ""
box points 4 20000 1 3 4 1
shape points
if test "$shapes" = all; then
    box isolated 4 20000 64 3 4 0
    shape isolated
    "$SHARDS" large uneven.h5 || fail "no data"
    shape uneven
    box million 1 2000000 1 3 4 0
    shape million
    box apart 1 300000 64 3 4 0
    shape apart
    box many 3000 30 1 3 4 0
    shape many batch.size=512 batch.eval_size=512
    box wide 4 60000 1 32 40 0
    shape wide
    box coarse 4 300000 1 3 4 1
    shape coarse data.voxel_size=1.0
    spvox scene --out tiles --samples 6 --extent 100 --seed 5 --voxel-size 0.5 --points
    shape tiles
    box weights 4 500 1 3 4 0
    shape weights net.family=minkunet34 net.width=1.0 train.optimizer=adamw
    box world 4 60000 1 3 4 0
    shape world train.deterministic=world
    # Ten million voxels in one sample do not fit: refused before they are read.
    box refused 1 10000000 1 3 4 0
    taken 5 train base.deck run.dir=no run.memory_mb=1000 data.train=refused.h5 data.val='[]'
    one_diagnosis 'sample 0 of refused.h5 (10000000 voxels) needs about'
    test "$taken" -le 1050 || faults="$faults refused"
    row refused train "" "" "" 1000 "$taken" "$(ratio "$taken" 1000)" "status $got"
fi
test -z "$faults" || fail "beyond what is promised:$faults"
