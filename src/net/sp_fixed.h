/* The memory of a network that does not depend on the batch: parameters, packed
 * weights, statistics and coefficients of norms. One function allocates all of it from
 * an arena. Run over an arena that only counts, the same function gives the size:
 *
 *     sp_fixed_size    counting arena --> bytes
 *     sp_fixed_create  bytes --> the backend's arena --> pointers of sp_fixed
 */
#ifndef SP_FIXED_H
#define SP_FIXED_H

#include "compute/sp_backend.h"
#include "net/sp_lower.h"

/* The two packed forms of the weights of a convolution. */
enum { SP_PACK_FORWARD, SP_PACK_GRAD_INPUT, SP_PACK_DIRECTIONS };

/* Coefficients and batch statistics of a norm as the last forward pass left them. */
typedef struct sp_fixed_norm {
    float *scale, *shift, *mean, *inv_std; /* [c] */
} sp_fixed_norm;

typedef struct sp_fixed_rules {
    /* All steps share one room for packed weights and pack them at each use. */
    bool is_low_memory;
    /* There is no backward pass: each step has a room for its forward form only. */
    bool is_inference;
    bool is_exact; /* weight gradients are formed for each sample by itself */
    bool has_class_weights;
} sp_fixed_rules;

/* All pointers but `packed` and `norm` lead into the backend's memory. */
typedef struct sp_fixed {
    float *param;   /* [graph->n_floats] the parameters, one after the other */
    float *running; /* [graph->n_buffer_floats] running statistics of norms */
    float *wgrad;   /* [n_wgrad] weight gradients of samples in exact mode, else NULL */
    size_t n_wgrad; /* at least the largest weight and bias; more on a device */
    float *coefficients; /* [3][widest norm] of a norm's backward pass */
    /* [2 widest norm + 1] each: a norm's sums of this rank, and of all ranks */
    double *norm_own, *norm_all;
    float *class_weight;                  /* [n_classes]; NULL: all classes weigh 1 */
    float *(*packed)[SP_PACK_DIRECTIONS]; /* [n_steps] NULL: the step packs nothing */
    float *shared; /* the room of all steps that have no own room; NULL: all have one */
    sp_fixed_norm *norm;                  /* [n_steps] set only for batch norms */
} sp_fixed;

/* Creates the arena, named "parameters" and as large as needed, and sets the pointers.
 * Local. SP_EMEM; call destroy, and the backend's arena_destroy, after a failure too.
 */
sp_status sp_fixed_create(sp_fixed *fixed, const sp_lowered *low, const sp_backend *be,
                          const sp_fixed_rules *rules, sp_arena *arena);
void sp_fixed_destroy(sp_fixed *fixed);
/* Lays the forward forms that are in the shared room out in `memory` [n], as many as it
 * holds, until memory is NULL. Local; memory is borrowed. */
void sp_fixed_lend(sp_fixed *fixed, const sp_lowered *low, const sp_backend *be,
                   float *memory, size_t n);
/* Finds the bytes of that arena. The backend need not be open. SP_EMEM. */
sp_status sp_fixed_size(const sp_lowered *low, const sp_backend *be,
                        const sp_fixed_rules *rules, int64_t *bytes);

#endif
