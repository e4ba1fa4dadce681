#!/bin/sh
# TensorBoard's own reader finds in the event files what metrics.jsonl says, bit for bit as
# float32, after kill -9 and going on too. Needs Python with tensorboard, which nothing else
# does: SP_TENSORBOARD_PYTHON names one, else python3.
. "$SP_SRCDIR/tests/fixtures/program.sh"
python=${SP_TENSORBOARD_PYTHON-python3}
"$python" -c 'import tensorboard' 2>/dev/null ||
    skip "$python has no tensorboard (pip install tensorboard): event files are not read by it"
"$SHARDS" uneven u.h5 && "$SHARDS" hostile h.h5 || fail "make_shards"
dummy_deck u.h5 'size = 4;' 'epochs = 3; warmup_steps = 1;' \
    'log_every = 1; checkpoint_every = 3; tensorboard = true;'
run 2 0 base.deck run.dir=whole
for at in 5 8; do
    SP_TEST_FAULT=kill@0:forward:$at launch 2 base.deck run.dir=r
done
run 1 0 base.deck run.dir=r
run 1 0 base.deck run.dir=h data.train=h.h5 data.val=h.h5 train.steps=2
"$python" "$SP_SRCDIR/tests/show/tensorboard_read.py" whole r h >out 2>err ||
    fail "TensorBoard reads something else"
cat out
