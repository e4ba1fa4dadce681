/* The functions of h5 that free memory got from files, for a library without HDF5. */
#include <stdlib.h>

#include "h5/sp_h5.h"
#include "h5/sp_h5_rows.h"

void sp_h5_list_free(char **names, int64_t n)
{
    for (int64_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

/* No file has given a cache of chunks. */
void sp_h5_cache_destroy(sp_h5_cache *cache)
{
    (void)cache;
}
