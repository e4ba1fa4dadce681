/* Pictures of samples of data.val, in the run folder.
 *
 *     each rank   sp_sample_pictures_add: mIoU of a sample; predictions --> a temporary file
 *     all         sp_sample_pictures_write: mIoU of all samples --> rank 0 chooses the best,
 *                 the median and the worst; the rank that has one draws it --> rank 0
 *                 writes pictures/best-truth-top.png, ..., pictures.json
 *
 * The same data and weights give the same pictures on any number of ranks. Pictures are
 * not a result: if they cannot be made, a warning says so and the command goes on. */
#ifndef SP_SAMPLE_PICTURES_H
#define SP_SAMPLE_PICTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"

struct sp_batch;   /* data/sp_loader.h */
struct sp_dataset; /* data/sp_shard.h */
struct sp_session; /* train/sp_session.h */

typedef struct sp_sample_pictures sp_sample_pictures;

/* Makes a collection for one pass over data.val; class_name [n_classes] is borrowed.
 * Local. *collection is NULL, after a
 * warning, if there is no memory or no room for the temporary file, or if this build
 * has no libpng. */
void sp_sample_pictures_create(sp_sample_pictures **pictures, int n_classes,
                               char *const *class_name);
void sp_sample_pictures_destroy(sp_sample_pictures *pictures);
/* Keeps the predictions of a batch of data.val; prediction: [batch->n] as
 * sp_net_loss gives them. collection NULL: does nothing. Local. */
void sp_sample_pictures_add(sp_sample_pictures *pictures, const struct sp_batch *batch,
                            const int32_t *prediction);
/* Chooses, draws and writes pictures of samples of `set`. Collective over the world; a rank with a collection of
 * NULL takes part without samples. SP_EMPI; other failures are warnings. */
sp_status sp_sample_pictures_write(sp_sample_pictures *pictures,
                                   const struct sp_session *session,
                                   const struct sp_dataset *set);

#endif
