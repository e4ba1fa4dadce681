/* The data sets that a deck names: training, validation, further validation sets, test.
 *
 * Functions are collective and agreed unless they are marked local. */
#ifndef SP_DATA_SETS_H
#define SP_DATA_SETS_H

#include "data/sp_shard.h"
#include "deck/sp_deck.h"

/* A set of data.val_sets. */
typedef struct sp_val_set {
    char *name;
    sp_dataset data;
} sp_val_set;

typedef struct sp_data_sets {
    sp_dataset train, val, test; /* zeroed if they were not asked for */
    sp_val_set *val_set;         /* [n_val_sets] in the deck's order */
    int n_val_sets;
} sp_data_sets;

/* Reads the indexes of data.train and data.val, as asked for. A training with data.val
 * opens data.val_sets and data.test too. */
sp_status sp_data_sets_open(sp_data_sets *data, const sp_config *config, sp_comm *comm,
                            bool with_train, bool with_val);
/* Reads the indexes of data.val_sets, after open. SP_EDATA: a set without labels or
 * samples. */
sp_status sp_data_sets_open_val_sets(sp_data_sets *data, const sp_config *config,
                                     sp_comm *comm);
/* Local. */
void sp_data_sets_close(sp_data_sets *data);

#endif
