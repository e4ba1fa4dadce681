/* A run of two steps of a tiny network, made by sptrain itself. */
#ifndef CHECKPOINT_SEEDS_H
#define CHECKPOINT_SEEDS_H

#include "net/sp_graph.h"
#include "checkpoint/sp_checkpoint.h"
#include "train/sp_train.h"

#define SEED_SHARD      "train.h5"
#define SEED_RUN        "seed-run"
#define SEED_CHECKPOINT SEED_RUN "/checkpoints/step-000000002.h5"
#define SEED_DECK       "tiny.deck"

/* Writes deck, shard, run folder and predictions into the working folder. Only the
 * first call does something. */
void seed_run(void);
/* The network of the deck. */
void seed_graph(sp_graph *graph);

/* Runs a command of sptrain on a deck, in this process and without MPI. */
sp_status seed_sptrain(const char *name, const char *deck, int n, char **overrides);

#endif
