#!/bin/sh
# After the first epoch a step allocates nothing on the training thread, whatever the step
# has, with a live line and event files too.
. "$SP_SRCDIR/tests/run/story.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
SPTRAIN=$SP_BUILDDIR/tests/run/sptrain_counted
deck 'family = "minkunet14A"; width = 0.1; stem_kernel = 3;' \
    'train = "u.h5"; val = [];' 'size = 4; accumulate = 2;' \
    'epochs = 5; warmup_steps = 2;' \
    'log_every = 1; eval_every = 0; checkpoint_every = 1000;'
# 4 steps an epoch; the count of an epoch's first step has the report of the last epoch too.
for n in 1 2 3; do
    more=
    test $n = 3 && more="run.tensorboard=true run.progress=always augment.tilt=5
        augment.shift=1 augment.noise=0.1 augment.elastic=[1,1,4,4]"
    # shellcheck disable=SC2086
    run $((n > 2 ? 1 : n)) 0 base.deck run.dir=r$n $more
    test "$(grep -c '^step .* allocations' err)" = $((n == 2 ? 40 : 20)) || fail "20 steps expected"
    awk '/^step .* allocations/ && $2 > 4 && $2 % 4 != 1 && $4 > 0 { print; bad = 1 } END { exit bad }' err >&2 ||
        fail "steps that allocate"
done
