/* Further models. Their probabilities are averaged with the first one's: the mean of an
 * ensemble. They share the first model's device and see its samples.
 *
 *     label A+B+C     sp_members_open, _open_nets --> one sum for each model
 *     eval.members    the same after sp_infer_open --> one sum of all
 *
 *     sample --columns by name, the member's own statistics--> batch --network-->
 *            probabilities --classes by name--> sum
 *
 * A member computes sample by sample what it would compute by itself, so its logits have
 * the bits of its own evaluation. The logits of a calibrated model, the first one too,
 * are divided by its temperature before views, blocks and models are averaged. */
#ifndef SP_MEMBERS_H
#define SP_MEMBERS_H

#include "train/sp_infer.h"

enum { SP_MOST_MEMBERS = 63 };

struct sp_member; /* sp_members.c */

typedef struct sp_members {
    int n;
    struct sp_member *member; /* [n] */
    sp_infer *first;          /* borrowed */
    sp_arena scratch;         /* of a sample: columns in another order, sums, logits */
} sp_members;

/* Reads the heads of n models, each as sp_infer_open_model takes it, and checks that
 * their classes, voxel size and columns are the first model's, which knows its own:
 * n_classes, class_name, n_columns and column, the names of its columns. SP_EUSAGE
 * names both models and what differs. Collective, agreed. Close after a failure too. */
sp_status sp_members_open(sp_members *members, sp_infer *first, char *const *column,
                          int n, char *const *model);
/* Opens the networks on the first model's device, which is open, and loads the weights:
 * SP_ENUMERIC if these are not finite. `set` gives the samples' voxel size and whether
 * they have positions in their voxels. Collective, agreed. */
sp_status sp_members_open_nets(sp_members *members, const sp_dataset *set,
                               const sp_views *views);
/* Adds member k's probabilities of a sample's stored voxels, seen in a view, to
 * sum [sample->n][stride] from its first column on, in the units of predict/sp_merge.h.
 * `what` names the sample. Local. SP_ENUMERIC: an output is not finite; SP_EDATA,
 * SP_EMEM, SP_EDEVICE. */
sp_status sp_members_add(sp_members *members, int k, const sp_sample *sample, int view,
                         const char *what, uint64_t *sum, int stride);
/* The temperature of the first model's probabilities: 1 if it has no members, which may
 * be NULL. Local. */
double sp_members_temperature(const sp_members *members);
/* The path of member k's file. Local. */
const char *sp_members_path(const sp_members *members, int k);
/* Frees all. Local. */
void sp_members_close(sp_members *members);
/* SP_ENUMERIC unless all logits, which are in host memory, are finite; `what` names the
 * sample. Local. */
sp_status sp_members_check_finite(const sp_graph *graph, sp_tensor logits,
                                  const char *what);

#endif
