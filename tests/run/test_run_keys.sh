#!/bin/sh
# Keys that a deck may name do what the table of keys says.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 && "$SHARDS" plain p.h5 || fail "make_shards"
dummy_deck u.h5 'size = 4;' 'epochs = 3; warmup_steps = 1;' 'dir = "r";'

# Lines, checkpoints and evaluations come once an epoch. The newest checkpoints are kept.
run 2 0 base.deck run.log_every=0 run.keep=2 run.rank_logs=true "run.after_save=echo saved >>saved; echo"
test "$(steps r | cut -d ' ' -f 1 | tr '\n' ' ')" = "4 8 12 " || fail "log_every = 0"
test "$(ls r/checkpoints | tr '\n' ' ')" = "best.h5 step-000000008.h5 step-000000012.h5 " || fail "keep = 2"
# 3 checkpoints, 3 evaluations, best.h5 for each new best score; at the end three files.
test "$(wc -l <saved)" -ge 9 && test "$(wc -l <saved)" -le 12 || fail "after_save: $(wc -l <saved) calls"
for file in checkpoints/step-000000012.h5 checkpoints/best.h5 metrics.jsonl status.json deck.resolved; do
    says r/after_save.log "^0 r/$file\$"
done
test "$(wc -l <r/after_save.log)" = "$(wc -l <saved)" || fail "the record differs"
run 2 0 base.deck run.dir=logless run.log_dir=elsewhere/logs train.epochs=1
says elsewhere/logs/rank-00001.log '2 ranks'
test ! -e logless/logs || fail "log_dir: logs in the run folder too"
says r/logs/rank-00000.log 'eval epoch=3'
says r/logs/rank-00001.log '2 ranks'
says r/deck.resolved 'keep = 2'
rm -f saved
run 2 0 base.deck run.resume=never run.eval_every=0 run.after_save=false run.checkpoint_every=5
test "$(evals r | wc -l)" = 0 || fail "eval_every = 0"
test "$(ls r/checkpoints | tr '\n' ' ')" = "step-000000005.h5 step-000000010.h5 step-000000012.h5 " ||
    fail "checkpoint_every = 5: $(ls r/checkpoints)"
says err 'false r/checkpoints/step-000000005.h5: exit status 1'
says r/after_save.log '^1 r/checkpoints/step-000000005.h5$'
run 1 0 base.deck run.resume=never run.eval_every=2
test "$(evals r | sed 's/.*"epoch":\([0-9]*\),.*/\1/' | tr '\n' ' ')" = "2 3 " || fail "eval_every = 2"

# Within an epoch status and evaluation name it as its steps do, continued or not.
for step in 1 2; do
    run 1 75 base.deck run.dir=cut run.time_limit_s=1e-9
    says cut/status.json "\"epoch\":1,\"step\":$step"
done
run 1 0 eval base.deck run.dir=cut
says cut/evaluations.jsonl '"step":2,"epoch":1'

# Parts that the shards do not have are reported once.
run 2 0 base.deck data.train=p.h5 data.val=p.h5 run.dir=p train.steps=1
test "$(grep -c 'no /subvoxel' out)" = 1 || fail "augmentation without subvoxel"
run 1 0 base.deck run.dir=p data.train=p.h5 data.val='[]' train.steps=2 run.devices='[3]'
says err 'run.devices'

# A budget splits a step, drops nothing, and says once which sample is over it.
run 2 0 base.deck run.dir=budget batch.voxel_budget=600 run.eval_every=0 run.log_every=1
test "$(grep -c 'a micro-batch of its own' err)" = 1 || fail "$(grep -c 'a micro-batch of its own' err) warnings about the budget"
steps budget | cut -d ' ' -f 1,2 >a
run 1 0 base.deck run.dir=whole run.eval_every=0 run.log_every=1
steps whole | cut -d ' ' -f 1,2 >b
same a b "samples with a budget"

# The learning rate follows the effective batch over batch.size.
run 2 0 base.deck run.dir=s train.steps=2 batch.per=rank train.lr_scale=linear train.schedule=constant run.log_every=1
says out 'effective learning rate 0.2'
says s/metrics.jsonl '"lr":0.2'

# Keys at the ends of their ranges.
run 2 0 base.deck run.dir=ends train.label_smoothing=1 batch.accumulate=2147483647
says err '1 of the 2 ranks has nothing to do in a micro-batch of 1 sample:'
# u.h5 has 15 samples: one step an epoch, of one sample for 15 micro-batches.
run 1 0 base.deck run.dir=largest batch.size=2147483647 batch.accumulate=2147483647 \
    batch.eval_size=2147483647 train.epochs=3 train.warmup_steps=5 eval.views=24 \
    train.seed=-9223372036854775808 train.nonfinite_limit=2147483647 run.keep=2147483647 \
    run.log_every=1 run.checkpoint_every=2147483647 run.report_every=2147483647
test "$(grep -c '"event":"step"' largest/metrics.jsonl)" = 3 || fail "steps of huge batches"
says err 'train.warmup_steps = 5 of about 3 steps'
run 2 0 base.deck run.dir=few batch.size=2147483647 batch.accumulate=15 train.epochs=1
says err '1 of the 2 ranks has nothing to do in a micro-batch of 1 sample:'
for key in train.epochs batch.size batch.accumulate batch.eval_size run.keep run.log_every; do
    run 2 2 check base.deck $key=2147483648
    one_diagnosis "command line: $key = 2147483648 is above 2147483647"
done

# A training of so many steps ends at the end of its schedule although epochs end in short
# steps: u.h5 has 15 samples. It does so too where it goes on with another number of ranks
# and steps of other lengths.
rates() {
    sed -n 's/.*"event":"step".*"lr":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" |
        awk '{ printf "%.4f ", $1 }'
}
set -- base.deck run.eval_every=0 run.log_every=1 train.lr=1 train.warmup_steps=0 train.steps=4
run 2 0 "$@" run.dir=l batch.size=16
test "$(rates l)" = "1.0000 0.8536 0.5000 0.1464 " || fail "rates of whole epochs: $(rates l)"
says out 'step=4 .*done=100%'
run 1 0 "$@" run.dir=m batch.size=10 train.schedule=step
test "$(rates m)" = "1.0000 1.0000 0.1000 0.0100 " || fail "rates of short steps: $(rates m)"
run 2 0 "$@" run.dir=n batch.size=4 batch.per=rank train.schedule=constant train.steps=2
cp n/metrics.jsonl metrics.n
refused '1 3' 2 'batch.per = "rank": the run has 2 ranks, 8 samples a step, this start has [13] ranks*, [0-9]* sam' \
    "$@" run.dir=n batch.size=4 batch.per=rank train.schedule=step
refused 1 2 'the run has 2 ranks' check "$@" run.dir=n batch.size=4 batch.per=rank
same metrics.n n/metrics.jsonl "the metrics of a run that was refused"
run 2 0 "$@" run.dir=n batch.size=4 batch.per=rank train.schedule=step
test "$(rates n)" = "1.0000 1.0000 0.1000 0.0100 " || fail "rates of a run that goes on: $(rates n)"
# Nodes count where the batch is a node's, and no group where it is the world's.
SP_RANKS_PER_NODE=1 run 2 0 "$@" run.dir=o batch.size=4 batch.per=node train.schedule=constant train.steps=2
refused 2 2 'batch.per = "node": the run has 2 nodes, 8 samples a step, this start has 1 node, 4 sam' \
    "$@" run.dir=o batch.size=4 batch.per=node train.schedule=constant train.steps=3
SP_RANKS_PER_NODE=2 run 4 0 "$@" run.dir=o batch.size=4 batch.per=node train.schedule=constant train.steps=3

# The momentum that onecycle moves is told for each step, and else for none. It follows
# the samples, so that a run that was stopped and goes on with other ranks has the same.
momenta() {
    sed -n 's/.*"event":"step".*"momentum":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" |
        awk '{ printf "%.4f ", $1 }'
}
set -- "$@" batch.size=16 train.schedule=onecycle train.pct_start=0.5 train.div_factor=10 \
    train.final_div_factor=100 'train.cycle_momentum=[0.85, 0.95]'
run 2 0 "$@" run.dir=cycle
says out 'effective learning rate 1, onecycle from 0.1 to 0.001, momentum 0.95 to 0.85 and back$'
test "$(rates cycle)" = "0.1000 1.0000 0.5005 0.0010 " || fail "rates of a cycle: $(rates cycle)"
test "$(momenta cycle)" = "0.9500 0.8500 0.9000 0.9500 " || fail "momenta: $(momenta cycle)"
run 2 75 "$@" run.dir=cut-cycle run.time_limit_s=1e-9
run 1 0 "$@" run.dir=cut-cycle
test "$(momenta cut-cycle)" = "$(momenta cycle)" || fail "momenta, continued: $(momenta cut-cycle)"
test -z "$(momenta l)" || fail "a momentum without a cycle"
run 1 0 check base.deck train.schedule=step 'train.milestones=[0.6, 0.9]' train.gamma=0.2
says out 'effective learning rate 0.1, step times 0.2 at 0.6 0.9$'

# A key that schedule or optimizer do not use is named, unless it has its default.
run 1 0 check base.deck train.schedule=poly 'train.milestones=[0.6]' train.gamma=0.1 \
    'train.betas=[0.9, 0.99]'
says err 'ignored, not used by train.schedule = "poly": train.milestones$'
says err 'ignored, not used by train.optimizer = "sgd": train.betas$'
run 1 0 check base.deck train.schedule=step 'train.milestones=[0.6]' 'train.betas=[0.9, 0.999]'
grep ignored err && fail "a key that is used, or has its default, is named"

# The numbers of batch norms are shown, kept by a checkpoint and used by its evaluation.
set -- base.deck run.dir=bn train.steps=2 run.eval_every=1 net.bn_eps=0.3 net.bn_momentum=0.5
run 2 0 check "$@"
says out '^bn1 .* eps 0.3, momentum 0.5$'
run 2 0 "$@"
run 1 0 eval base.deck run.dir=bn
miou() { sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$1" | tail -n 1; }
grep '"event":"eval"' bn/metrics.jsonl >bn-train
test "$(miou bn-train)" = "$(miou bn/evaluations.jsonl)" || fail "eval with another net.bn_eps"
run 1 0 eval base.deck run.dir=bn net.bn_eps=1e-5
test "$(miou bn-train)" = "$(miou bn/evaluations.jsonl)" && fail "net.bn_eps has no effect"
run 2 0 "$@" train.steps=3 net.bn_momentum=0.1
refused 2 2 'net.bn_eps' train "$@" train.steps=4 net.bn_eps=0.2

# Deck and shards that do not fit each other: status 3, with the line of the deck, in a
# training and before it.
misfit() {
    for verb in train check; do
        refused 2 3 "$1" $verb misfit.deck run.dir=misfit $2
    done
}
cp base.deck misfit.deck
misfit 'command line: data.features: u.h5 has no column "nope"' data.features='nope'
misfit 'command line: train.class_weights has 2 numbers' train.class_weights='[1,2.5]'
misfit 'has a label of a class with a weight above 0 in train.class_weights' train.class_weights='[0,0,0,0]'
misfit 'command line: u.h5: voxel_size' data.voxel_size=0.07
sed -i 's/^data : {/data : { features = ["nope"];/' misfit.deck
misfit 'misfit.deck:1: data.features: u.h5 has no column "nope"'
cat >misfit.deck <<'DECK'
data : { train = "u.h5"; val = "u.h5"; };
net : { layers = (
    { name = "a"; op = "linear"; out = 77; } ); };
DECK
misfit 'misfit.deck:3: layer a: the last layer has 77 channels'

# A deck in a folder such as a sweep makes, whose name looks like a key. The job script finds
# its run folder, which no comment names and which is a text in two pieces, with quotes and
# a backslash: here without Slurm, by an srun of our own.
mkdir bin lr=0.1
{
    sed 's/dir = "r"/dir : "sw\\"" # piece\n "\\\\\\"ept\\""/' base.deck
    echo '# run.dir = "elsewhere"'
} >lr=0.1/my.deck
run 1 0 check lr=0.1/my.deck
cat >bin/srun <<'SH'
#!/bin/sh
while test "${1#-}" != "$1"; do shift; done
exec "$@"
SH
chmod +x bin/srun
SPTRAIN=$SPTRAIN PATH=$dir/bin:$PATH bash "$SP_SRCDIR/jobs/train.slurm" lr=0.1/my.deck train.steps=1 \
    train.epochs=1 >out 2>err </dev/null || fail "jobs/train.slurm"
says out 'srun ended with 0; sw"\\"ept"/status.json: done, 0'

# A misspelt command has a suggestion, a deck that is not there has none.
refused 2 2 'trian: no such command or deck; did you mean "train"?' trian
refused 2 2 'mydeck: no such command, and no deck of this name' mydeck
grep -q 'did you mean' err && fail "a suggestion for a name that is near to none"

# The program prints these texts without ranks.
"$SPTRAIN" --keys >keys || fail "--keys"
for key in data.train augment.jitter batch.voxel_budget net.layers train.nonfinite_limit run.time_limit_s; do
    says keys "$key"
done
# The table of operations lists all there are, and so does the man page; the page's network
# runs.
sed -n '/^op  /,$p' keys | sed 1d | cut -d ' ' -f 1 >ops
test "$(wc -l <ops)" -ge 14 || fail "$(wc -l <ops) operations in --keys"
while read -r op; do
    grep -q "^\.BR* \(.* \)*$op" "$SP_SRCDIR/man/sptrain-deck.5" || fail "man page lacks $op"
done <ops
sed -n '/^\.nf/,/^\.fi/p' "$SP_SRCDIR/man/sptrain-deck.5" | sed 's/^\..*//; s/out = 20/out = 4/' >man.deck
run 1 0 man.deck data.train=u.h5 data.val=u.h5 run.dir=man train.steps=1 batch.size=4
alone 2 "$SPTRAIN" --keys train
one_diagnosis 'keys: expected nothing after it, found train'
for program in sptrain spvox spbench; do
    alone 2 "$SP_BUILDDIR/$program" --version x
    says err '^[a-z]*: error: --version: expected nothing after it, found x'
done
alone 0 "$SPTRAIN" --version
for library in MPI HDF5 CUDA; do says out "$library"; done
"$SPTRAIN" --help >help || fail "--help"
says help 'preflight'
# On several ranks one answers for all, in spbench's refusals too.
for program in sptrain spvox spbench; do
    for option in --help --version; do
        "$SP_BUILDDIR/$program" $option >one || fail "$program $option"
        "$MPIEXEC" -n 3 "$SP_BUILDDIR/$program" $option >three || fail "$program $option, 3 ranks"
        same one three "$program $option on 3 ranks"
    done
done
for help in 'sptrain label x --out y -h' 'spvox convert x --help'; do
    # shellcheck disable=SC2086
    { "$SP_BUILDDIR"/$help >one && "$MPIEXEC" -n 3 "$SP_BUILDDIR"/$help >three; } || fail "$help"
    same one three "$help on 3 ranks"
    says one "^usage: ${help%% x*} "
done
"$MPIEXEC" -n 3 "$SP_BUILDDIR/spbench" steps >out 2>err
test "$(grep -c 'did you mean "step"' err)" = 1 || fail "several ranks refuse a word"
# What one process measures is measured by rank 0, and no other takes its processor.
"$MPIEXEC" -n 3 "$SP_BUILDDIR/spbench" plan --quick --voxels 500 >out 2>err || fail "spbench plan"
test "$(grep -c '^multiply_add' out)" = 1 || fail "several ranks measure"
# A task of srun --mpi=pmix does not answer for itself, so it asks MPI, which is not Open MPI.
if "$MPIEXEC" --version | grep -q HYDRA; then
    SLURM_NTASKS=3 PMIX_RANK=1 "$SPTRAIN" --help >out 2>err && fail "task 1 of 3 answers"
    says err 'Slurm started 3 tasks, but MPI sees a world of one'
fi
for verb in train eval predict check preflight status; do
    "$SPTRAIN" $verb --help >b || fail "$verb --help"
    same help b "$verb --help"
done
"$SPTRAIN" status r >state || fail "status"
says state 'r: done, exit code 0'
"$SPTRAIN" status 2>err && fail "status without a folder"
one_diagnosis 'expected one run folder'
run 2 0 check base.deck
says out 'conv4'
says out 'MiB of activations'
test -e check && fail "check wrote something"
run 2 0 preflight base.deck
says out 'all-reduce MB/s'
# What was not measured is a dash. A rank whose own samples are empty reads those of others.
says out ' mpi  *[0-9]*  *-  *[0-9]*$'
"$SHARDS" box empty.h5 1 0 4 2 3 0 && "$SHARDS" box full.h5 1 5000 4 2 3 0 || fail "make_shards"
run 2 0 preflight base.deck 'data.train=["empty.h5", "full.h5"]'
says out '^ *0 .* mpi .* [1-9][0-9]*$'
run 1 0 preflight base.deck data.train=empty.h5
says out ' none  *-  *-  *-$'
"$SPTRAIN" check base.deck <&- >&- 2>err
test $? = 4 || fail "closed standard streams"
one_diagnosis 'cannot write to standard output'
if test -w /dev/full; then
    for command in --keys "check base.deck" "label --help"; do
        "$SPTRAIN" $command >/dev/full 2>err
        test $? = 4 || fail "$command, disk full"
        one_diagnosis 'cannot write to standard output'
    done
fi
# The default deck is that of the source only for a program in its build folder. An installed
# one does not look there, where others could put a deck after the source is gone.
mkdir installed && cp "$SPTRAIN" installed/sptrain
prefix=$(sed -n 's/^prefix = //p' "$SP_BUILDDIR/Makefile")
if test ! -e "$prefix/share/sptrain/input/default.deck"; then
    alone 2 installed/sptrain check
    one_diagnosis "no default deck found"
    says_not err "$SP_SRCDIR/input"
fi
"$SPTRAIN" check >out 2>err || fail "no deck found in the build folder: $(cat err)"
