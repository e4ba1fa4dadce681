/* The network of `sptrain label`: probabilities of the voxels of a sample in memory. */
#ifndef LABEL_NET_H
#define LABEL_NET_H

#include "label/label_model.h"
#include "predict/sp_merge.h"
#include "predict/sp_nearby.h"

typedef struct label_net {
    sp_infer *infer;     /* borrowed */
    sp_members *members; /* borrowed */
    sp_single_batch *single;
    sp_views views;
    sp_dataset set; /* describes the samples to the single batch */
    sp_shard source;
    sp_arena scratch;         /* logits of a device */
    const label_model *model; /* borrowed */
    sp_arena features;        /* that the last layer reads, of a sample */
    uint64_t *far;            /* [far_room bytes] sums of distances of its voxels */
    size_t far_room;
    int edge; /* stored voxels of a cell of the surroundings */
    sp_nearby nearby;
    double busy_s; /* spent on plans and in the network */
} label_net;

/* Opens the network of a model; the model's session has its folder. Collective, agreed.
 * Must not be moved while open; close in any case. */
sp_status label_net_open(label_net *net, label_model *model, int n_views);
void label_net_close(label_net *net);
/* Sums the probabilities of the sample's voxels over all views, model by model:
 * sum [sample->n][label_model_sums], in the units of sp_merge.h, is written. `what`
 * names the sample. Local. SP_ENUMERIC: an output is not finite; SP_EDATA, SP_EMEM,
 * SP_EDEVICE. */
sp_status label_net_run(label_net *net, const sp_sample *sample, const char *what,
                        uint64_t *sum);

#endif
