/* Local variables that are given back where their block ends, whichever way it is left,
 * the last that was declared first. Each needs a value from its declaration on.
 *
 *     SP_FREED char *text = NULL;
 *     SP_CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
 *
 *     SP_TRY(sp_file_read(path, &text, NULL)); a failure from here on leaks nothing
 *     SP_TRY(make_grid(text, &grid));
 *     return write_grid(&grid);
 */
#ifndef SP_SCOPE_H
#define SP_SCOPE_H

#include <stdlib.h>
#include <string.h>

#define SP_CLOSED_BY(destroy) __attribute__((cleanup(destroy)))
#define SP_FREED              SP_CLOSED_BY(sp_scope_free)

/* Frees the memory that a variable points to. */
static inline void sp_scope_free(void *pointer)
{
    void *memory;

    memcpy(&memory, pointer, sizeof memory);
    free(memory);
}

#endif
