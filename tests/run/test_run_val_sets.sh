#!/bin/sh
# The sets of data.val_sets are evaluated after data.val and reported by their names, with the
# same bits on any number of ranks. They change neither the training nor data.val's lines nor
# best.h5.
. "$SP_SRCDIR/tests/fixtures/program.sh"
for set in s:2:6 t:2:9 night:3:11; do
    n=${set#*:}
    alone 0 "$SP_BUILDDIR/spvox" scene --out ${set%%:*} --samples "${n%:*}" --extent 12 \
        --seed "${n#*:}" --points
done
alone 0 "$SP_BUILDDIR/spvox" scene --out large --samples 1 --extent 60 --seed 5
cat >base.deck <<'DECK'
data : { train = "s-*.h5"; val = "t-*.h5"; };
batch : { size = 2; eval_size = 2; };
net : { family = "dummy"; };
train : { epochs = 2; warmup_steps = 0; lr = 0.05; deterministic = "world"; };
run : { eval_every = 1; };
DECK
sets='data.val_sets=["night=night-*.h5", "same=t-*.h5"]'
evals() { grep '"event":"eval"' "$1/metrics.jsonl" | sed 's/,"time.*//'; }
without() { sed 's/,"sets":.*//'; }
# of NAME: the members of a set in the last line of evaluations on stdin.
of() { sed -n "\$s/.*\"$1\":{\"samples\"\\(.*\\)/\"samples\"\\1/p" | sed 's/]]},".*/]]/; s/]]}}*$/]]/; s/,"point_confusion.*//'; }

run 2 0 base.deck run.dir=without
grep -q 'eval_set' out && fail "a set is reported though none is asked for"
says_not without/metrics.jsonl '"sets"'
evals without >plain
for n in 1 2 3; do
    run $n 0 base.deck run.dir=with$n "$sets" run.tensorboard=true
    test "$(grep -c '^eval_set=night epoch=[12] step=[12] loss=.*miou=' out)" = 2 || fail "lines of the set"
    evals with$n >with.$n
    same with.1 with.$n "the sets on 1 and $n ranks"
    without <with.$n | same plain /dev/stdin "data.val with sets"
    "$SHARDS" sums with$n/checkpoints/best.h5 | grep '^/[pb]' >with.sums
    "$SHARDS" sums without/checkpoints/best.h5 | grep '^/[pb]' | same with.sums /dev/stdin "best.h5 with sets"
done
# A set of the same files has the results of data.val, another one those of sptrain eval.
of same <with.1 >got
tail -n 1 plain | sed 's/.*"samples"/"samples"/; s/,"point_confusion.*//' | same got /dev/stdin "a set of data.val's files"
sed 's/val = "t-\*.h5";/& val_sets = ["night=night-*.h5", "same=t-*.h5"];/' base.deck >sets.deck
last=run.checkpoint=without/checkpoints/step-000000002.h5
run 2 0 eval sets.deck run.dir=without $last 'data.val=night-*.h5'
of night <with.1 >got
sed 's/.*"samples"/"samples"/; s/,"point_confusion.*//' without/evaluations.jsonl |
    same got /dev/stdin "a set and sptrain eval of its files"
says_not without/evaluations.jsonl '"sets"'
# Eval of a deck with sets has the results of the training, on any ranks; predict leaves them.
for n in 1 3; do
    rm without/evaluations.jsonl
    run $n 0 eval sets.deck run.dir=without $last
    test "$(grep -c '^eval_set=.* miou=' out)" = 2 || fail "eval has no lines of the sets"
    sed -n 's/.*\("sets":.*\)}$/\1/p' without/evaluations.jsonl >got
    test -s got || fail "eval has no sets"
    sed -n '$s/.*"sets":/"sets":/p' with.1 | same got /dev/stdin "sets of eval on $n ranks"
done
run 2 0 predict sets.deck run.dir=without $last
refused "1 2" 3 'no_such.h5' eval sets.deck run.dir=without $last 'data.val_sets="a=no_such.h5"'
find with1 -name '*tfevents*' -exec cat {} + >curves
grep -aq 'eval-night/miou' curves || fail "no curve of the set"
alone 0 "$SPTRAIN" report with1
says with1/report.html '<tr><td>night</td><td>3</td>'
says with1/report.html '<tr><td>same</td><td>2</td>'
alone 0 "$SPTRAIN" report without
says_not without/report.html 'validation set'

# With averaged weights as the model's, sets are evaluated with those; views are merged; a test
# set comes after all of them.
run 2 0 base.deck run.dir=ema 'data.val_sets="same=t-*.h5"' train.ema=0.5 run.weights=ema \
    eval.views=2 'data.test="t-*.h5"'
evals ema >ema.evals
test "$(sed -n '$s/.*"ema_loss":\([^,]*\),.*/\1/p' ema.evals)" = "$(of same <ema.evals | sed 's/.*"loss":\([^,]*\),.*/\1/')" ||
    fail "a set is not evaluated with the averaged weights"
says ema/metrics.jsonl '"sets":{"same":{.*"merged":{"views":2'
says ema/metrics.jsonl '"event":"test"'

# A run that is continued evaluates them too.
run 3 0 base.deck run.dir=with1 "$sets" train.epochs=3
test "$(evals with1 | grep -c '"sets":{"night"')" = 3 || fail "sets after a restart"

# The memory of the largest sample of all sets is foreseen, and cut or refused as if that were
# one of data.val.
memory() { sed -n 's/^memory: about \([0-9]*\) MiB.*/\1/p' out; }
alone 0 "$SPTRAIN" check base.deck
small=$(memory)
alone 0 "$SPTRAIN" check base.deck 'data.val=large-*.h5'
large=$(memory)
test "$large" -gt "$((small + 5))" || fail "the large sample is not large"
alone 0 "$SPTRAIN" check base.deck 'data.val_sets=["n=night-*.h5", "l=large-*.h5"]'
test "$(memory)" = "$large" || fail "memory of the sets: $(memory) MiB, of data.val $large MiB"
says out 'validation set l: 1 sample '
for given in 'data.val="large-*.h5"' 'data.val_sets="l=large-*.h5"'; do
    alone 5 "$SPTRAIN" check base.deck "$given" run.memory_mb=$((large + 1))
    one_diagnosis 'sample 0 of large-00000-of-00001.h5 .* needs about'
done
run 1 0 base.deck run.dir=bound 'data.val_sets=["l=large-*.h5", "n=night-*.h5"]' run.memory_mb=$((large + 20)) batch.eval_size=3
says bound/metrics.jsonl '"sets":{"l":{"samples":1,'
alone 0 "$SPTRAIN" check base.deck 'data.val_sets=["l=large-*.h5", "n=night-*.h5"]' run.memory_mb=$((large + 14))

for n in 1 3; do
    run $n 0 check base.deck 'data.val_sets=["n=night-*.h5", "both=s-*.h5"]'
    says err 'files of data.val_sets both that are in data.train too: 1 of 1'
done
says_not err 'data.val_sets n '
alone 0 "$SPTRAIN" check base.deck 'data.val_sets="n=night-*.h5"' 'data.val=[]'
says err 'ignored, not used without data.val: data.val_sets'
alone 0 "$SPTRAIN" check base.deck 'data.val_sets="n=night-*.h5"' run.eval_every=0
says err 'ignored, not used by a training with run.eval_every = 0: data.val_sets'
for bad in 'night-0.h5' '=night-0.h5' 'night=' 'a b=night-0.h5' 'a/b=night-0.h5'; do
    alone 2 "$SPTRAIN" check base.deck "data.val_sets=\"$bad\""
    one_diagnosis "data.val_sets: \"$bad\", expected \"NAME=FILES\""
done
refused "1 2" 2 'data.val_sets has the name a twice' check base.deck 'data.val_sets=["a=s-*.h5", "b=t-*.h5", "a=t-*.h5"]'
refused "1 2" 3 'no_such.h5' check base.deck 'data.val_sets="a=no_such.h5"'
for kind in bare bare-nameless; do
    "$SHARDS" $kind $kind.h5 || fail "make_shards"
done
refused "1 2" 3 "nameless.h5: /labels: set a of data.val_sets is evaluated" check base.deck data.train=bare.h5 \
    data.val=bare.h5 'data.val_sets="a=bare-nameless.h5"'
