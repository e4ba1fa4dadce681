/* A run of two steps of a tiny network, made by sptrain itself. */
#ifndef CHECKPOINT_SEEDS_H
#define CHECKPOINT_SEEDS_H

#include "graph/sp_graph.h"
#include "run/sp_checkpoint.h"
#include "train/sp_train.h"

#define SEED_SHARD      "train.h5"
#define SEED_RUN        "seed-run"
#define SEED_CHECKPOINT SEED_RUN "/checkpoints/step-000000002.h5"
#define SEED_DECK       "tiny.deck"

/* In the working folder: deck, shard, run folder and predictions. Once; later calls do
 * nothing. */
void seed_run(void);
/* The network of its deck. */
void seed_graph(sp_graph *graph);

/* A command of sptrain on a deck, in this process and without MPI. */
sp_status seed_sptrain(const char *name, const char *deck, int n, char **overrides);

#endif
