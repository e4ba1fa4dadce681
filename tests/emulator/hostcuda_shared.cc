/* Shared memory: the front of hc_space, from which each block takes its arrays. A block
 * that is suspended has taken none, so that there is one list, of the cluster that
 * runs. */
#include "emulator/hostcuda_internal.h"

enum { SHARED_GAP = 256 }; /* bytes between arrays, never allocated */
enum { STATIC_SHARED = 48 << 10 };

struct shared_array {
    const void *declaration;
    char *data;
    size_t size;
    int rank; /* of its block in the cluster */
};

/* Never destroyed: its content is used to the end of the program. */
static std::vector<shared_array> &arrays = *new std::vector<shared_array>();
static size_t static_bytes[HC_MOST_BLOCKS];

static char *take(const void *declaration, size_t size, size_t align)
{
    const int rank = hc_current()->rank;
    char *at = hc_window + SHARED_GAP;

    for (const shared_array &a : arrays) {
        if (a.rank != rank)
            continue;
        if (a.declaration == declaration)
            return a.data;
        at = a.data + a.size + SHARED_GAP;
    }
    at = (char *)(((uintptr_t)at + align - 1) / align * align);
    hc_fill_garbage(at, size);
    if (hc_hook.allocated)
        hc_hook.allocated(at, size);
    arrays.push_back({declaration, at, size, rank});
    return at;
}

void *hc_shared(const void *declaration, size_t size, size_t align)
{
    const size_t before = arrays.size(), launch_bytes = hc_launch_shared_bytes();
    char *at = take(declaration, size, align);
    size_t *bytes = &static_bytes[hc_current()->rank];

    if (arrays.size() == before)
        return at;
    *bytes += size;
    if (*bytes > STATIC_SHARED || *bytes + launch_bytes > hc_most_shared())
        hc_fail("%zu bytes of shared memory, %zu with the launch's: %d and %zu fit",
                *bytes, *bytes + launch_bytes, (int)STATIC_SHARED, hc_most_shared());
    return at;
}

char *hc_launch_shared(size_t align)
{
    return take(&arrays, hc_launch_shared_bytes(), align);
}

bool hc_shared_is_taken()
{
    return !arrays.empty();
}

void hc_shared_drop()
{
    for (const shared_array &a : arrays)
        if (hc_hook.freed)
            hc_hook.freed(a.data, a.size);
    arrays.clear();
    memset(static_bytes, 0, sizeof static_bytes);
}
