/* The memory of a network that does not depend on the batch: parameters, packed
 * weights, statistics, coefficients of norms. One walk takes it of an arena; over an
 * arena that counts, it tells how much that is. */
#ifndef SP_FIXED_H
#define SP_FIXED_H

#include "compute/sp_backend.h"
#include "memory/sp_lower.h"

enum { SP_PACK_FORWARD, SP_PACK_GRAD_INPUT, SP_PACK_DIRECTIONS };

typedef struct sp_fixed_norm {
    float *scale, *shift, *mean, *inv_std; /* [c] of the last forward */
} sp_fixed_norm;

typedef struct sp_fixed_rules {
    bool is_frugal; /* one room for the packed weights of all steps */
    bool is_exact;  /* gradients of samples, on devices of several at once */
    bool has_class_weights;
} sp_fixed_rules;

/* All of it memory of the backend. */
typedef struct sp_fixed {
    float *param;   /* [graph->n_floats] */
    float *running; /* [graph->n_buffer_floats] */
    float *wgrad;   /* [n_wgrad] exact mode: gradients of samples; else NULL */
    size_t n_wgrad;
    float *coefficients;                  /* [3][widest norm] */
    double *norm_own, *norm_all;          /* [2 widest norm + 1] sums of a norm */
    float *class_weight;                  /* [n_classes] or NULL */
    float *(*packed)[SP_PACK_DIRECTIONS]; /* [n_steps] NULL: not packed */
    sp_fixed_norm *norm;                  /* [n_steps] of norms alone */
} sp_fixed;

/* Local. The arena is created for what it takes, under that name. SP_EMEM; destroy,
 * and the backend's arena_destroy, after failure too. */
sp_status sp_fixed_create(sp_fixed *fixed, const sp_lowered *low, const sp_backend *be,
                          const sp_fixed_rules *rules, sp_arena *arena);
void sp_fixed_destroy(sp_fixed *fixed);
/* Bytes that the arena would have; the backend need not be open. SP_EMEM. */
sp_status sp_fixed_size(const sp_lowered *low, const sp_backend *be,
                        const sp_fixed_rules *rules, int64_t *bytes);

#endif
