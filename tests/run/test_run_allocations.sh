#!/bin/sh
# After the first epoch a step allocates nothing on the training thread, whatever the step
# has, with a live line and event files too.
. "$SP_SRCDIR/tests/fixtures/program.sh"
"$SHARDS" uneven u.h5 || fail "make_shards"
narrow_deck u.h5 'size = 4; accumulate = 2;' 'epochs = 5; warmup_steps = 2;' \
    'log_every = 1; eval_every = 0;'
for n in 1 2 3; do
    more=
    test $n = 3 && more="run.tensorboard=true run.progress=always augment.tilt=5
        augment.shift=1 augment.noise=0.1 augment.elastic=[1,1,4,4]"
    # shellcheck disable=SC2086
    allocates_nothing $((n > 2 ? 1 : n)) 20 4 data.val=[] $more
done
