/* OpenMP and the rules of arithmetic belong to the program that calls the library: the
 * number of threads of its loops, how they round and what they do with small numbers are
 * unchanged when the library returns. */
#ifndef SP_LOOPS_H
#define SP_LOOPS_H

#include <fenv.h>
#include <stdbool.h>

typedef struct sp_loops {
    int threads, dynamic, levels; /* of the caller */
    fenv_t arithmetic;            /* of the caller, and of its threads */
    bool is_usual;                /* it rounds to nearest and keeps small numbers */
} sp_loops;

/* Gives loops of this thread without a number of their own `threads` threads; 0: as
 * many as the caller's. They compute by the default rules: a program that was linked
 * with -ffast-math, or rounds upwards for intervals, would have other weights, and could
 * not read the numbers of its own checkpoints. The threads of OpenMP do not survive a
 * fork, and the child's first loop would wait for them for ever. So in a child of the
 * process that called this first all loops run in the calling thread. */
sp_loops sp_loops_begin(int threads);
/* Restores what the caller had. */
void sp_loops_end(sp_loops caller);

#endif
