/* Python's pickle as a stack machine over inert values. Nothing of a file is executed:
 * a global is a name, and a call of one (REDUCE, NEWOBJ, BUILD) is an opaque value,
 * except PyTorch's calls for tensors, parameters and ordered dicts.
 *
 *     torch._utils._rebuild_tensor_v2(storage, offset, size, stride, ...) --> tensor
 *     torch._utils._rebuild_parameter(tensor, ...)                        --> tensor
 *     collections.OrderedDict()                                           --> dict
 *     persistent id ('storage', type, key, device, elements)              --> storage
 *     any other call                                                      --> opaque
 *
 * Opcodes of protocols 2 to 5, as in Python's pickletools. The numbers of values,
 * cells, stack entries and memo entries are limited. Local.
 */
#ifndef SP_PICKLE_H
#define SP_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

typedef enum sp_pickle_kind {
    SP_PICKLE_NONE,
    SP_PICKLE_WHOLE, /* a whole number, or a flag */
    SP_PICKLE_TEXT,  /* text or bytes */
    SP_PICKLE_LIST,  /* list, tuple or set */
    SP_PICKLE_DICT,
    SP_PICKLE_GLOBAL, /* the name of a class or a function */
    SP_PICKLE_STORAGE,
    SP_PICKLE_TENSOR,
    SP_PICKLE_OPAQUE, /* anything else; its state if it is a dict */
} sp_pickle_kind;

typedef struct sp_pickle_text {
    const char *at; /* in the file, without a NUL */
    size_t n;
} sp_pickle_text;

/* Numbers of values are indices into sp_pickle.value; -1: no value. */
typedef struct sp_pickle_value {
    sp_pickle_kind kind;
    int64_t whole; /* a number; a storage's elements; a tensor's offset in elements */
    sp_pickle_text text, module; /* a text, a storage's key, a global's name */
    int first, last;             /* cells of a list or a dict; -1: it is empty */
    int count;
    /* of a storage its type; of a tensor its storage, size and stride, and the type if
     * that is not the storage's; of an opaque value its state */
    int type, storage, size, stride;
} sp_pickle_value;

/* An element of a list, or a key and its value. */
typedef struct sp_pickle_cell {
    int key, value, next;
} sp_pickle_cell;

typedef struct sp_pickle {
    const char *path;           /* for messages; borrowed */
    const unsigned char *bytes; /* borrowed, and outlives the values */
    size_t n_bytes, at;
    int64_t n_values, n_cells, n_stack, n_marks, n_memo;
    sp_pickle_value *value;
    sp_pickle_cell *cell;
    int *stack, *memo;
    int64_t *mark; /* heights of the stack */
    int root;
} sp_pickle;

/* Runs the pickle that begins at byte `at`; *end is the byte after it, root its value.
 * Values of earlier runs are kept. pickle is zeroed, with path, bytes and n_bytes,
 * before the first run. SP_EDATA with the byte; SP_EMEM. Destroy in any case. */
sp_status sp_pickle_run(sp_pickle *pickle, size_t at, size_t *end);
void sp_pickle_destroy(sp_pickle *pickle);
/* Element i of a list; -1 if the list is shorter. */
int sp_pickle_element(const sp_pickle *pickle, int list, int i);
/* True if the text is this word. */
bool sp_pickle_is(sp_pickle_text text, const char *word);

#endif
