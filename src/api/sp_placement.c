#include "api/sp_placement.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules ---- */

sp_status sp_placement_choose(sp_place *place, const sp_doubles *devices,
                              bool may_share)
{
    const int seen = place->n_visible;
    int index = place->local_rank;

    assert(seen >= 0 && index >= 0);
    place->device = -1;
    if (seen == 0) {
        char why[256];

        sp_backend_why_none(why, sizeof why);
        return SP_FAIL(SP_EDEVICE, "no usable CUDA device for run.device: %s", why);
    }
    if (seen == 1) { /* the launcher chose; the deck's device numbers do not apply */
        place->device = 0;
        return SP_OK;
    }
    if (devices->n > 0) {
        if (index >= devices->n && !may_share)
            return SP_FAIL(SP_EUSAGE,
                           "run.devices names %d devices, the node %s runs %d ranks",
                           devices->n, place->host, place->local_size);
        index = (int)devices->at[index % devices->n];
        if (index >= seen)
            return SP_FAIL(SP_EUSAGE,
                           "run.devices names device %d, the process sees %d (0 to %d)",
                           index, seen, seen - 1);
    } else if (may_share) {
        index %= seen;
    }
    if (index >= seen)
        return SP_FAIL(
            SP_EDEVICE,
            "%d ranks on %s, which has %d CUDA devices: start at most %d ranks "
            "a node, or set run.oversubscribe = true",
            place->local_size, place->host, seen, seen);
    place->device = index;
    return SP_OK;
}

/* True if two ranks are on one GPU: they have the same device, or parts of it that
 * count as devices (MIG), each with a UUID of its own at the address of the whole. */
static bool is_one_gpu(const sp_place *a, const sp_place *b)
{
    return a->node == b->node && (strcmp(a->what.uuid, b->what.uuid) == 0 ||
                                  strcmp(a->what.pci, b->what.pci) == 0);
}

sp_status sp_placement_check(const sp_place *places, int n, bool may_share,
                             bool *is_shared)
{
    assert(n >= 0 && (places || n == 0) && is_shared);
    *is_shared = false;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const sp_place *first = &places[a], *second = &places[b];
            if (!is_one_gpu(first, second))
                continue;
            *is_shared = true;
            if (!may_share && strcmp(first->what.uuid, second->what.uuid) == 0)
                return SP_FAIL(
                    SP_EDEVICE,
                    "ranks %d and %d on %s have the same device, %s %s: start "
                    "one rank a device, or set run.oversubscribe = true",
                    first->rank, second->rank, first->host, first->what.name,
                    first->what.uuid);
        }
    return SP_OK;
}

const char *sp_placement_advice(const sp_place *places, int n)
{
    assert(places || n == 0);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (places[a].node == places[b].node && places[a].n_visible == 1 &&
                places[b].n_visible == 1 && !is_one_gpu(&places[a], &places[b]))
                return "each rank sees one device only; if the batch system hides the "
                       "others from it, no sum can use the links between devices: let "
                       "every rank see all devices of its node (srun --gpu-bind=none; "
                       "no CUDA_VISIBLE_DEVICES a rank)";
    return "";
}

void sp_placement_idle(const sp_place *places, int n, char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; i < n && !text[0]; i++) {
        const int idle = places[i].n_visible - places[i].local_size;

        if (idle > 0 && places[i].n_visible > 1)
            snprintf(text, bytes,
                     "%d of the %d CUDA devices on host %s %s idle: `sptrain launch`, "
                     "or mpirun -n %d, uses all of a node",
                     idle, places[i].n_visible, places[i].host,
                     idle == 1 ? "is" : "are", places[i].n_visible);
    }
}

/* ---- the ranks of a run ---- */

static int read_numa_node(const char *pci)
{
    char path[96];
    int node = -1;
    FILE *file;

    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", pci);
    file = fopen(path, "r");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &node) != 1)
        node = -1;
    fclose(file);
    return node;
}

static sp_status placement_find_place(sp_place *mine, const sp_comm *comm,
                                      const sp_doubles *devices, bool may_share)
{
    memset(mine, 0, sizeof *mine);
    mine->rank = comm->rank;
    mine->node = comm->node;
    mine->local_rank = comm->local_rank;
    mine->local_size = comm->local_size;
    mine->numa_node = -1;
    snprintf(mine->host, sizeof mine->host, "%s", comm->host);
    mine->n_visible = sp_backend_visible_devices();
    SP_TRY(sp_placement_choose(mine, devices, may_share));
    SP_TRY(sp_backend_device(mine->device, &mine->what));
    mine->numa_node = read_numa_node(mine->what.pci);
    return SP_OK;
}

/* Gathers the places of all ranks on every rank. Collective. */
static sp_status share_places(sp_placement *placement, sp_comm *comm,
                              const sp_place *mine)
{
    const size_t bytes = (size_t)comm->size * sizeof *mine;
    void *all = NULL;
    sp_status rc;

    placement->n = comm->size;
    SP_TRY(sp_comm_gather(comm, mine, sizeof *mine, &all, NULL));
    rc = sp_comm_bcast_array(comm, &all, bytes, 0);
    placement->place = all;
    return rc;
}

sp_status sp_placement_make(sp_placement *placement, sp_comm *comm,
                            const sp_doubles *devices, bool may_share)
{
    sp_place mine;

    assert(comm && devices);
    memset(placement, 0, sizeof *placement);
    SP_TRY(sp_comm_agree(comm, placement_find_place(&mine, comm, devices, may_share)));
    SP_TRY(share_places(placement, comm, &mine));
    return sp_comm_agree(comm, sp_placement_check(placement->place, placement->n,
                                                  may_share, &placement->is_shared));
}

void sp_placement_destroy(sp_placement *placement)
{
    free(placement->place);
    memset(placement, 0, sizeof *placement);
}
