/* Files of weights that other programs wrote: named tensors, and nothing that is run.
 *
 *     sp_tensors_open --> which container is it?      sp_tensors.c
 *         safetensors                                 sp_safetensors.c
 *         PyTorch's zip file (1.6 and later)          sp_torch_zip.c  +
 *         PyTorch's file before 1.6                   sp_torch.c    --+-> sp_pickle.c
 *     sp_tensors.at[]  name, type, shape, place of the numbers in the file
 *         --> sp_tensor_read  float32 in C order
 *
 * PyTorch's files are programs of a stack machine (pickle). sp_pickle.c runs them over
 * inert values: a name of a function stays a name, and its call yields an opaque value,
 * except for the few calls that describe a tensor. All functions are local.
 */
#ifndef SP_TENSORS_H
#define SP_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sp_error.h"

enum {
    SP_TENSOR_RANK = 8,
    SP_TENSOR_NAME = 512, /* bytes of a name, with its NUL */
    SP_MOST_TENSORS = 1 << 18
};

/* One tensor of a file. */
typedef struct sp_tensor_view {
    char *name;
    char type[12]; /* as safetensors names it: "F32", "BF16", "I64" ... */
    int rank;
    int64_t dim[SP_TENSOR_RANK], stride[SP_TENSOR_RANK]; /* in elements */
    int64_t count;                                       /* elements */
    const unsigned char *data; /* the first element, in the file's bytes */
    const char *fault;         /* why its numbers cannot be read; NULL: they can */
} sp_tensor_view;

typedef struct sp_tensors {
    char *path;
    const char *container; /* "safetensors" ... */
    char *bytes;           /* the file */
    size_t n_bytes;
    bool is_swapped; /* numbers have the highest byte first */
    int n;
    sp_tensor_view *at;             /* [n] in the file's order */
    const sp_tensor_view **by_name; /* [n] the same by rising name */
} sp_tensors;

/* Opens a file and lists its tensors. SP_EDATA with the tensor's name or the byte if
 * the file is damaged or of another kind; SP_EIO; SP_EMEM. Close in any case. */
sp_status sp_tensors_open(sp_tensors *file, const char *path);
void sp_tensors_close(sp_tensors *file);
/* The tensor of this name; NULL if it does not exist. */
const sp_tensor_view *sp_tensors_find(const sp_tensors *file, const char *name);
/* Writes the tensor's numbers in C order to `to` [count]. float16, bfloat16 and float32
 * are exact, float64 is rounded. SP_EDATA names a tensor of another type, and a
 * number that is not finite. */
sp_status sp_tensor_read(const sp_tensors *file, const sp_tensor_view *tensor,
                         float *to);
/* Prints "[27, 32, 64]". */
enum { SP_TENSOR_SHAPE = 200 };
char *sp_tensor_print_shape(int rank, const int64_t *dim, char to[SP_TENSOR_SHAPE]);
/* Prints a line for each tensor: name, type, shape, bytes; and the sum. */
void sp_tensors_print(const sp_tensors *file, FILE *to);

/* ---- for the readers of containers ---- */

/* Bytes of an element of a type; 0 if it is unknown. */
int sp_tensor_element_bytes(const char *type);
/* Appends a tensor. The caller has checked its name and shape; the name is copied.
 * SP_EDATA: a name given twice, or too many tensors; SP_EMEM. */
sp_status sp_tensors_add(sp_tensors *file, const sp_tensor_view *tensor);
/* Sets strides of C order and the count. SP_EDATA: more than 2^40 elements. */
sp_status sp_tensor_set_dense(const sp_tensors *file, sp_tensor_view *tensor);
sp_status sp_safetensors_parse(sp_tensors *file);
sp_status sp_torch_zip_parse(sp_tensors *file);
sp_status sp_torch_old_parse(sp_tensors *file);

/* ---- safetensors that are written ---- */

/* One tensor to write: float32 in C order, borrowed. */
typedef struct sp_tensor_out {
    const char *name;
    int rank;
    int64_t dim[SP_TENSOR_RANK];
    const float *data;
} sp_tensor_out;

/* Writes the tensors as a safetensors file that atomically replaces the one at path.
 * `source` is stored in its metadata. SP_EIO, SP_EMEM. */
sp_status sp_safetensors_write(const char *path, int n, const sp_tensor_out *tensor,
                               const char *source);

#endif
