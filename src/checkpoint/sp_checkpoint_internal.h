/* Functions shared by the files of sp_checkpoint: the root attributes, the rows of the
 * normalization and the checksums. All are local to rank 0. */
#ifndef SP_CHECKPOINT_INTERNAL_H
#define SP_CHECKPOINT_INTERNAL_H

#include "net/sp_graph.h"
#include "h5/sp_h5.h"
#include "net/sp_optim.h"
#include "checkpoint/sp_checkpoint.h"

/* The most feature columns, or classes, that a checkpoint may have; predictions store
 * classes in 16 bits. */
enum { SP_CHECKPOINT_COLUMNS = 1 << 16 };

/* Writes the root attributes with their checksum; of norm only the texts, which are
 * attributes. */
sp_status sp_checkpoint_write_root(sp_h5 *file, const sp_checkpoint_state *state,
                                   const sp_normalization *norm);
/* Fills state and the texts of norm. They are malloc'd and the caller's to free, after
 * a failure too. A weights-only file has no attribute "format": it gives step 0 and
 * deck NULL. SP_EDATA for numbers that no run can have reached. */
sp_status sp_checkpoint_read_root(sp_h5 *file, sp_checkpoint_state *state,
                                  sp_normalization *norm);
/* SP_EDATA for a deck that includes another file or has another seed than the state. A
 * deck that this version cannot parse (written by a newer one) is not damage; functions
 * that need the deck report it. */
sp_status sp_checkpoint_check_deck(const char *path, const sp_checkpoint_state *state);
/* Writes the rows of numbers in norm, each as a dataset with its checksum, and the
 * recipe. */
sp_status sp_checkpoint_write_rows(sp_h5 *file, const sp_normalization *norm);
/* Reads these rows. To be called after sp_checkpoint_read_root, which has filled the
 * texts; SP_EDATA if lengths differ from theirs. */
sp_status sp_checkpoint_read_rows(sp_h5 *file, sp_normalization *norm);
/* Reads the parameters or buffers of a group, except the layers that `skip` names, and
 * checks their checksums, or their numbers if they have no checksums. */
sp_status sp_checkpoint_read_group(sp_h5 *file, const char *group,
                                   const sp_param *params, int n,
                                   const sp_strings *skip, float *flat);
/* True for shapes that differ in dimensions of 1 only and so hold the same numbers in
 * the same order: [1, c_in, c_out] for a kernel of 1, or [1, c_out] for a bias. */
bool sp_checkpoint_has_shape(const sp_h5_shape *shape, const sp_param *p);
/* True for the name of running variances, which are not negative. */
bool sp_checkpoint_is_variance(const char *name);
/* The index of the first number that no network can work with; -1 if all are usable. */
int64_t sp_checkpoint_find_bad(const char *name, const float *x, int64_t n);
/* Finds the number of classes of the model in the file; 0 if it does not say. */
sp_status sp_checkpoint_find_classes(sp_h5 *file, const sp_graph *graph, int64_t *n);
/* Writes a dataset and its attribute crc32c. */
sp_status sp_checkpoint_write_array(sp_h5 *file, const char *name, sp_h5_type type,
                                    int rank, const int64_t *dim, const void *data,
                                    size_t bytes);
/* SP_EDATA if x, the n elements of an array from `first` on, has a number that no network
 * can work with. */
sp_status sp_checkpoint_check_numbers(sp_h5 *file, const char *name, const float *x,
                                      int64_t n, int64_t first);
/* Compares the checksum of an array that was read. A file of weights without `format`
 * has no checksums. SP_EDATA. */
sp_status sp_checkpoint_check_crc(sp_h5 *file, const char *name, uint32_t crc);
/* Verifies a checkpoint that this process has just written. SP_EIO. */
sp_status sp_checkpoint_verify_written(const char *path);
/* SP_EDATA unless the attributes format and version are a checkpoint's. */
sp_status sp_checkpoint_check_format(sp_h5 *file);

#endif
