/* Whole commands of sptrain on checkpoints, run folders and decks that are wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture/fuzz/checkpoint_seeds.h"
#include "torture/fuzz/fuzz.h"
#include "torture/fuzz/mutate_h5.h"

static blob checkpoint, shard, deck;

static void prepare(void)
{
    seed_run();
    checkpoint = blob_read(SEED_CHECKPOINT);
    shard = blob_read(SEED_SHARD);
    deck = blob_read(SEED_DECK);
}

/* Changes numbers of a checkpoint with checksums that fit, or bytes. */
static void put_checkpoint(const char *path, uint64_t *rng)
{
    size_t how = mutate_below(rng, 8);

    fuzz_put_seed(path, checkpoint, how == 0, rng);
    if (how > 0) {
        h5_change_value(path, rng);
        h5_mend_checkpoint_sums(path);
    }
}

static void put_data(uint64_t *rng)
{
    fuzz_put(SEED_DECK, deck);
    fuzz_put(SEED_SHARD, shard);
    if (mutate_below(rng, 4) == 0) {
        h5_change_value(SEED_SHARD, rng);
        h5_mend_shard_sums(SEED_SHARD);
    }
}

static const sp_status refusals[] = {SP_EDATA, SP_EUSAGE, SP_EMEM, SP_ENUMERIC, SP_OK};

/* ---- eval ---- */

static sp_status evaluate(void *context)
{
    char *overrides[] = {"run.checkpoint=mutant.h5", "run.dir=eval"};

    (void)context;
    return seed_sptrain("eval", SEED_DECK, 2, overrides);
}

static bool run_eval(uint64_t *rng)
{
    put_data(rng);
    put_checkpoint("mutant.h5", rng);
    return fuzz_command(evaluate, NULL, refusals) == 0;
}

/* ---- a run that continues ---- */

static sp_status resume(void *context)
{
    char *overrides[] = {"train.steps=3", "train.epochs=2"};

    (void)context;
    return seed_sptrain("train", SEED_DECK, 2, overrides);
}

static bool run_resume(uint64_t *rng)
{
    fuzz_shell("rm -rf " SEED_RUN "; cp -r '%s/" SEED_RUN "' .", fuzz_seeds());
    put_data(rng);
    put_checkpoint(SEED_CHECKPOINT, rng);
    unlink(SEED_RUN "/checkpoints/best.h5");
    return fuzz_command(resume, NULL, refusals) == 0;
}

const fuzz_kind fuzz_eval = {"eval", 12, prepare, run_eval};
const fuzz_kind fuzz_resume = {"resume", 12, prepare, run_resume};
