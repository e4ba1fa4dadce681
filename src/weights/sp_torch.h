/* Inside of the readers of PyTorch's files: tensors among the values of a pickle. */
#ifndef SP_TORCH_H
#define SP_TORCH_H

#include "weights/sp_pickle.h"
#include "weights/sp_tensors.h"

/* Finds the bytes of a storage. SP_EDATA if the file has no storage of this key. */
typedef sp_status sp_torch_find(void *arg, sp_pickle_text key,
                                const unsigned char **bytes, size_t *n_bytes);

/* Adds the tensors below the root's dicts and lists to the file, under the path of
 * their keys, joined by points. SP_EDATA names a tensor outside of its storage. */
sp_status sp_torch_collect(sp_tensors *file, const sp_pickle *pickle,
                           sp_torch_find *find, void *arg);

#endif
