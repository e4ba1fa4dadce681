#include "comm/sp_affinity.h"

#include <assert.h>
#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_env.h"
#include "base/sp_log.h"

_Static_assert(sizeof(unsigned long) == sizeof(uint64_t), "the words of hwloc");

static hwloc_bitmap_t to_bitmap(const uint64_t set[SP_CORE_WORDS])
{
    hwloc_bitmap_t map = hwloc_bitmap_alloc();

    for (unsigned w = 0; map && w < SP_CORE_WORDS; w++)
        hwloc_bitmap_set_ith_ulong(map, w, set[w]);
    return map;
}

static void from_bitmap(hwloc_const_bitmap_t map, uint64_t set[SP_CORE_WORDS])
{
    for (unsigned w = 0; w < SP_CORE_WORDS; w++)
        set[w] = hwloc_bitmap_to_ith_ulong(map, w);
}

/* Loads the machine's topology as hwloc sees it. The callers restrict it to the allowed
 * cores. */
static bool open_topology(hwloc_topology_t *topology, bool has_devices)
{
    if (hwloc_topology_init(topology) != 0)
        return false;
    if (has_devices)
        hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(*topology) == 0)
        return true;
    hwloc_topology_destroy(*topology);
    return false;
}

void sp_affinity_near(const uint64_t allowed[SP_CORE_WORDS], const char *pci,
                      uint64_t near[SP_CORE_WORDS])
{
    hwloc_topology_t topology;
    hwloc_obj_t device, place;

    memcpy(near, allowed, SP_CORE_WORDS * sizeof *near);
    if (!pci || !open_topology(&topology, true))
        return;
    device = hwloc_get_pcidev_by_busidstring(topology, pci);
    place = device ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;
    if (place && place->cpuset) {
        uint64_t local[SP_CORE_WORDS];
        from_bitmap(place->cpuset, local);
        for (int w = 0; w < SP_CORE_WORDS; w++)
            near[w] &= local[w];
        if (sp_machine_count(near) == 0)
            memcpy(near, allowed, SP_CORE_WORDS * sizeof *near);
    }
    hwloc_topology_destroy(topology);
}

/* Divides the cores of `set` into n shares, writes share `index` and returns its number
 * of cores; 0 if there are fewer cores than shares. */
static int affinity_divide(hwloc_topology_t topology, hwloc_const_bitmap_t set,
                           int index, int n, uint64_t share[SP_CORE_WORDS])
{
    hwloc_bitmap_t *shares = calloc((size_t)n, sizeof(hwloc_bitmap_t));
    hwloc_obj_t root;
    int cores = 0;

    if (!shares || hwloc_topology_restrict(topology, set, 0) != 0) {
        free(shares);
        return 0;
    }
    root = hwloc_get_root_obj(topology);
    if (hwloc_bitmap_weight(root->cpuset) >= n &&
        hwloc_distrib(topology, &root, 1, shares, (unsigned)n, INT_MAX, 0) == 0) {
        from_bitmap(shares[index], share);
        cores = sp_machine_count(share);
    }
    for (int i = 0; i < n; i++)
        hwloc_bitmap_free(shares[i]);
    free(shares);
    return cores;
}

int sp_affinity_share(const uint64_t set[SP_CORE_WORDS], int index, int n,
                      uint64_t share[SP_CORE_WORDS])
{
    hwloc_topology_t topology;
    hwloc_bitmap_t map;
    int cores;

    assert(0 <= index && index < n);
    memset(share, 0, SP_CORE_WORDS * sizeof *share);
    if (!open_topology(&topology, false))
        return 0;
    map = to_bitmap(set);
    cores = map ? affinity_divide(topology, map, index, n, share) : 0;
    hwloc_bitmap_free(map);
    hwloc_topology_destroy(topology);
    return cores;
}

int sp_affinity_memories(void)
{
    uint64_t allowed[SP_CORE_WORDS];
    hwloc_topology_t topology;
    hwloc_bitmap_t map;
    int n = 0;

    if (!open_topology(&topology, false))
        return 1;
    sp_machine_cores(allowed);
    map = to_bitmap(allowed);
    for (hwloc_obj_t node = NULL; map && (node = hwloc_get_next_obj_by_type(
                                              topology, HWLOC_OBJ_NUMANODE, node));)
        n += hwloc_bitmap_intersects(node->cpuset, map) != 0;
    hwloc_bitmap_free(map);
    hwloc_topology_destroy(topology);
    return n > 0 ? n : 1;
}

/* Counts the node's ranks that may use the same cores as this one, and this rank's
 * index among them. Sets of cores are compared by a hash; a collision would only make
 * shares smaller. */
static sp_status find_sharers(sp_comm *comm, const uint64_t set[SP_CORE_WORDS],
                              int *index, int *n)
{
    enum { AT_A_TIME = 64 };
    int64_t hash[AT_A_TIME], own = 0;

    for (int w = 0; w < SP_CORE_WORDS; w++)
        own = (int64_t)(((uint64_t)own ^ set[w]) * 0x9E3779B97F4A7C15u);
    *index = *n = 0;
    for (int first = 0; first < comm->local_size; first += AT_A_TIME) {
        const int mine = comm->local_rank - first;

        memset(hash, 0, sizeof hash);
        if (mine >= 0 && mine < AT_A_TIME)
            hash[mine] = own;
        SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_NODE, hash, AT_A_TIME, SP_I64, SP_SUM));
        for (int i = 0; i < AT_A_TIME && first + i < comm->local_size; i++) {
            *index += hash[i] == own && i < mine;
            *n += hash[i] == own;
        }
    }
    return SP_OK;
}

/* Writes the cores as text, such as "0-3 of 0-7". */
static void affinity_describe(hwloc_const_bitmap_t share, hwloc_const_bitmap_t allowed,
                              char *text, size_t bytes)
{
    size_t used;

    hwloc_bitmap_list_snprintf(text, bytes, share);
    used = strlen(text);
    snprintf(text + used, bytes - used, " of ");
    used = strlen(text);
    hwloc_bitmap_list_snprintf(text + used, bytes - used, allowed);
}

static bool bind_to(const uint64_t share[SP_CORE_WORDS],
                    const uint64_t allowed[SP_CORE_WORDS], char *text, size_t bytes)
{
    hwloc_topology_t topology;
    hwloc_bitmap_t to = to_bitmap(share), from = to_bitmap(allowed);
    bool is_bound = false;

    if (to && from && open_topology(&topology, false)) {
        is_bound = hwloc_set_cpubind(topology, to, HWLOC_CPUBIND_PROCESS) == 0;
        hwloc_topology_destroy(topology);
    }
    if (is_bound)
        affinity_describe(to, from, text, bytes);
    hwloc_bitmap_free(to);
    hwloc_bitmap_free(from);
    return is_bound;
}

sp_status sp_affinity_bind(sp_comm *comm, const char *pci, char *text, size_t bytes)
{
    const char *wish = sp_env("SP_BIND");
    uint64_t allowed[SP_CORE_WORDS], near[SP_CORE_WORDS], share[SP_CORE_WORDS];
    int index = 0, n = 1, cores;

    assert(bytes > 0);
    text[0] = 0;
    sp_machine_cores(allowed);
    sp_affinity_near(allowed, pci, near);
    SP_TRY(find_sharers(comm, near, &index, &n));
    if (wish && strcmp(wish, "no") == 0)
        return SP_OK;
    if (wish && *wish)
        sp_log_warn0("SP_BIND=%s: expected no: the ranks of a node divide its cores as "
                     "without it",
                     wish);
    cores = sp_affinity_share(near, index, n, share);
    if (cores > 0 && cores < sp_machine_count(allowed) &&
        bind_to(share, allowed, text, bytes) && cores < comm->cores)
        comm->cores = cores;
    return SP_OK;
}
