#!/bin/sh
# A training renews report and pictures in its run folder at evaluations and hands the
# report to after_save; the pictures are the same on any number of ranks; the report of
# several runs is one file; a run that was killed has a report too.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
narrow_deck u.h5 'size = 4; eval_size = 5;' 'epochs = 2; warmup_steps = 2;' \
    'log_every = 1;'
# sees FILE TEXT: FILE has this text.
sees() {
    grep -qF -- "$2" "$1" || fail "$1 lacks: $2"
}

# Nothing is made that nobody asked for.
run 2 0 base.deck run.dir=plain
test ! -e plain/pictures && test ! -e plain/report.html || fail "pictures unasked"

mkdir -p r/pictures
for i in $(seq 100); do # the queue of commands is not short
    : >"r/pictures/$i.png"
done
run 2 0 base.deck run.dir=r run.report_every=1 run.tensorboard=true run.rank_logs=true \
    run.after_save="sh -c 'echo \$0 >>$dir/saved; cp \$0 $dir/\${0##*/}.copy'"
sees saved r/report.html
# It gets every file that one would copy, and the last metrics.jsonl is the whole one.
find r -type f | grep -v '/lock$\|/heartbeat.bin$\|/after_save.log$\|/logs/' >files
while read -r file; do
    grep -qxF "0 $file" r/after_save.log || fail "after_save did not get $file"
done <files
rm r/pictures/[0-9]*.png
sees files r/tensorboard/events.out.tfevents.
same r/metrics.jsonl metrics.jsonl.copy "metrics.jsonl that after_save got last"
sees r/report.html '<span class="state done">done</span>'
sees r/report.html '<small>ranks 0 to 1</small>'
# The page of a run that goes on has a browser read it again; the last page does not.
grep -qF 'http-equiv="refresh"' r/report.html && fail "a finished run's page renews itself"
cp -R r going
sed 's/"state":"done"/"state":"running"/' r/status.json >going/status.json
run 1 0 report going
sees going/report.html '<meta http-equiv="refresh" content="10">'
rm -r going
lines plain >a
yields a "lines of a run with a report" lines r
head -1 r/report.csv | grep -q '^run,step,epoch,unit,class,' || fail "report.csv"
# The mean IoU of the last evaluation is that of metrics.jsonl.
score=$(evals r | tail -1 | sed 's/.*"point_miou":\([^,]*\),.*/\1/')
sees r/report.html "<td>$(printf %.4f "$score")<span"

if grep -q '^#define SP_WITH_PNG 1' "$SP_BUILDDIR/config.h"; then
    sees r/report.html 'src="data:image/png;base64,'
    test "$(ls r/pictures | wc -l)" = 19 || fail "pictures: $(ls r/pictures)"
    for which in best median worst; do
        says r/pictures/pictures.json "\"which\":\"$which\",\"name\":\"u.h5: sample "
    done
    # The same pictures by eval, on any number of ranks.
    for n in 1 3; do
        run $n 0 eval base.deck run.dir=e$n run.pictures=true \
            run.checkpoint=r/checkpoints/best.h5
    done
    run 2 0 eval base.deck run.dir=e2 run.pictures=true batch.eval_size=2 \
        run.checkpoint=r/checkpoints/best.h5
    diff -r e1/pictures e2/pictures >diffs || fail "pictures on 2 ranks: $(head -3 diffs)"
    diff -r e1/pictures e3/pictures >diffs || fail "pictures on 3 ranks: $(head -3 diffs)"
    # A shard without labels has nothing to choose from; eval refuses it as ever.
    "$SHARDS" unlabelled n.h5 || fail "make_shards"
    run 1 0 eval base.deck run.dir=n run.pictures=true data.val=n.h5 \
        run.checkpoint=r/checkpoints/best.h5
    test ! -e n/pictures/best-truth-top.png || fail "pictures of nothing"
    # The report of a folder that has evaluations alone.
    run 1 0 report e2
    sees e2/report.html 'by sptrain eval of r/checkpoints/best.h5'
fi

# SCHEMA has each key of the lines and of the status.
cat r/metrics.jsonl r/status.json e?/evaluations.jsonl 2>/dev/null |
    sed 's/"\(point_\)\{0,1\}iou":{[^}]*}//g' |
    grep -o '"[a-z0-9_]*":' | tr -d '":' | sort -u >keys
test "$(wc -l <keys)" -gt 50 || fail "$(wc -l <keys) keys"
while read -r key; do
    grep -qw "$key" "$SP_SRCDIR/input/SCHEMA" || fail "SCHEMA lacks $key"
done <keys

# Several runs in one file, from folders of the same name too.
mkdir other && cp -r plain other/r
# One of several ranks answers, whether or not the others see the folder.
run 3 0 report r -o ranks.html
test "$(grep -c 'ranks.html: 1 run' out)" = 1 || fail "$(grep -c 'ranks.html' out) ranks wrote"
printf '%s\n' 'test "$PMI_RANK$OMPI_COMM_WORLD_RANK" = 0 || cd /' "exec $SPTRAIN check r" >apart.sh
timeout -k 5 "$limit_s" "$MPIEXEC" -n 2 sh apart.sh >out 2>err || fail "check MODEL that rank 0 alone sees"
run 1 0 report r other/r -o two/report.html
sees two/report.html '2 runs compared'
sees two/report.html '<tr><td>run.report_every</td><td>1</td><td>0</td></tr>'
refused 1 2 'expected RUN... -o FILE.html' report r plain
cp r/metrics.jsonl keep
run 1 2 report r -o r/metrics.jsonl
one_diagnosis '-o r/metrics.jsonl: expected a name that ends in .html'
same keep r/metrics.jsonl "metrics.jsonl, which a report would have replaced"
refused 1 4 'nothing: no such run folder' report nothing -o x.html
refused 1 4 'no run in it' report . -o x.html
run 1 0 report --help

# A run that was killed in the middle of a line; resume = never moves report and pictures.
cp -r r killed
head -c -30 r/metrics.jsonl >killed/metrics.jsonl
run 1 0 report killed
says err 'incomplete and was skipped'
sees killed/report.html 'is incomplete and was skipped.'
run 1 0 base.deck run.dir=r run.resume=never train.epochs=1
test -e r/old-001/report.html && test ! -e r/report.html || fail "report was not moved"
test ! -e r/pictures || fail "pictures were not moved"
