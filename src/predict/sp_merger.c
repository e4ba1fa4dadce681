#include "predict/sp_merger.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

/* The sums of a sample's points, on its owner. */
struct sp_merger_home {
    int64_t n_points;
    void *payload; /* NULL until the sample itself has come */
    size_t payload_bytes;
    uint64_t sum[]; /* [n_points][n_classes] */
};

/* The head of a parcel. It is followed by
 *     uint64 [n_voxels][n_classes]   sums over the views
 *     uint32 [n_voxels]              weights
 *     uint32 [n_points]              the voxel of each point
 *     uint32 [n_points]              its row among the points of the sample; not in the
 *                                    sample's own parcel, which has all rows in order
 *     payload, at a multiple of 8    in the sample's own parcel */
typedef struct parcel {
    int64_t sample; /* the sample that owns the points */
    int64_t n_voxels, n_points, payload_bytes;
    int64_t is_own;
} parcel;

/* ---- start and end ---- */

sp_status sp_merger_open(sp_merger *m, const sp_dataset *set, int n_classes,
                         sp_comm *comm, sp_merger_done *done, void *arg)
{
    const size_t homes = (size_t)(set->n_samples / comm->size + 1);
    sp_status rc;

    assert(comm && set->n_samples >= 0);
    assert(n_classes >= 1 && done);
    *m = (sp_merger){.comm = comm,
                     .n_classes = n_classes,
                     .done = done,
                     .arg = arg,
                     .next = comm->rank};
    rc = sp_scans_create(&m->scans, set);
    if (rc == SP_OK)
        rc = SP_NEW(&m->to, comm->size, "the samples to merge");
    if (rc == SP_OK)
        rc = SP_NEW(&m->home, homes, "the samples to merge");
    return sp_comm_agree(comm, rc);
}

static void free_home(struct sp_merger_home **home)
{
    if (*home)
        free((*home)->payload);
    free(*home);
    *home = NULL;
}

void sp_merger_destroy(sp_merger *m)
{
    const sp_dataset *set = m->scans.set;

    for (int64_t i = 0; m->home && i <= set->n_samples / m->comm->size; i++)
        free_home(&m->home[i]);
    for (int r = 0; m->to && r < m->comm->size; r++)
        sp_gather_buffer_destroy(&m->to[r]);
    free(m->home);
    free(m->to);
    free(m->weight);
    free(m->point);
    free(m->voxel);
    free(m->place);
    free(m->owner);
    sp_gather_buffer_destroy(&m->received);
    sp_scans_destroy(&m->scans);
    memset(m, 0, sizeof *m);
}

int64_t sp_merger_bytes(const sp_scans *scans, int n_classes, int64_t batch,
                        int n_ranks)
{
    assert(n_classes >= 1 && n_ranks >= 1);
    return sp_scans_waiting(scans, batch) / n_ranks * (8 * (int64_t)n_classes + 12);
}

/* ---- the rank that computed a sample ---- */

static sp_status make_room(sp_merger *m, const sp_sample *s)
{
    const size_t n = (size_t)s->n;
    const size_t points = (size_t)sp_most(s->n_points, s->n_context);

    if (sp_list_reserve(&m->weight, &m->room[0], n * sizeof *m->weight) &&
        sp_list_reserve(&m->place, &m->room[1], n * sizeof *m->place) &&
        sp_list_reserve(&m->point, &m->room[2], points * sizeof *m->point) &&
        sp_list_reserve(&m->voxel, &m->room[3], points * sizeof *m->voxel) &&
        sp_list_reserve(&m->owner, &m->room[4], points * sizeof *m->owner))
        return SP_OK;
    return SP_FAIL(SP_EMEM, "no memory to merge a sample of %lld voxels",
                   (long long)s->n);
}

/* Adds a parcel of n points, with their voxels in m->voxel and their rows in m->point.
 * Only voxels that have one of the points go along. */
static sp_status send(sp_merger *m, const sp_sample *s, const uint64_t *voxel_sum,
                      int64_t sample, int64_t n, const void *payload,
                      size_t payload_bytes)
{
    const size_t row = (size_t)m->n_classes * sizeof *voxel_sum;
    parcel head = {sample, 0, n, (int64_t)payload_bytes, sample == s->id};
    const int64_t n_rows = head.is_own ? 0 : n;
    uint32_t *weight, *voxel;
    size_t numbers, bytes;
    uint64_t *sum;
    void *to;

    for (int64_t i = 0; i < s->n; i++)
        m->place[i] = -1;
    for (int64_t i = 0; i < n; i++)
        if (m->place[m->voxel[i]] < 0)
            m->place[m->voxel[i]] = (int32_t)head.n_voxels++;
    numbers = (size_t)(head.n_voxels + n + n_rows) * sizeof *voxel;
    bytes = sizeof head + (size_t)head.n_voxels * row + sp_multiple(numbers, 8) +
            payload_bytes;
    SP_TRY(sp_gather_buffer_add(&m->to[sample % m->comm->size], bytes, &to));
    memcpy(to, &head, sizeof head);
    sum = (uint64_t *)((char *)to + sizeof head);
    weight = (uint32_t *)(sum + head.n_voxels * m->n_classes);
    voxel = weight + head.n_voxels;
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = m->place[m->voxel[i]];

        voxel[i] = (uint32_t)place;
        weight[place] = m->weight[m->voxel[i]];
        memcpy(sum + place * m->n_classes,
               voxel_sum + (int64_t)m->voxel[i] * m->n_classes, row);
    }
    if (n_rows)
        memcpy(voxel + n, m->point, (size_t)n_rows * sizeof *m->point);
    if (payload_bytes)
        memcpy((char *)weight + sp_multiple(numbers, 8), payload, payload_bytes);
    return SP_OK;
}

/* Sends the points of the margin, block by block; a block's points are marked as sent
 * by -1. */
static sp_status send_context(sp_merger *m, const sp_sample *s,
                              const uint64_t *voxel_sum)
{
    SP_TRY(sp_scans_owners(&m->scans, s, m->owner));
    for (int64_t first = 0; first < s->n_context; first++) {
        const int64_t owner = m->owner[first];
        int64_t n = 0;

        if (owner < 0)
            continue;
        for (int64_t i = first; i < s->n_context; i++)
            if (m->owner[i] == owner) {
                m->voxel[n] = s->context_voxel[i];
                m->point[n++] = s->context_point[i];
                m->owner[i] = -1;
            }
        SP_TRY(send(m, s, voxel_sum, owner, n, NULL, 0));
    }
    return SP_OK;
}

sp_status sp_merger_add(sp_merger *m, const sp_sample *s, const uint64_t *voxel_sum,
                        const void *payload, size_t payload_bytes)
{
    const sp_dataset *set = m->scans.set;

    assert(payload || payload_bytes == 0);
    assert(0 <= s->id && s->id < set->n_samples);
    assert(voxel_sum || s->n == 0);
    SP_TRY(make_room(m, s));
    sp_merge_weigh(s, set->voxel_size, &set->block[s->id], m->weight);
    if (s->n_points)
        memcpy(m->voxel, s->point_voxel, (size_t)s->n_points * sizeof *m->voxel);
    SP_TRY(send(m, s, voxel_sum, s->id, s->n_points, payload, payload_bytes));
    return send_context(m, s, voxel_sum);
}

/* ---- the owner of a sample ---- */

static sp_status find_home(sp_merger *m, int64_t sample, struct sp_merger_home **home)
{
    struct sp_merger_home **at = &m->home[sample / m->comm->size];
    const int64_t n = sp_dataset_points(m->scans.set, sample);

    assert(sample % m->comm->size == m->comm->rank && sample >= m->next);
    if (!*at) {
        *at = calloc(1, sizeof **at +
                            (size_t)n * (size_t)m->n_classes * sizeof *(*at)->sum);
        if (!*at)
            return SP_FAIL(SP_EMEM, "no memory to merge %lld points of %d classes",
                           (long long)n, m->n_classes);
        (*at)->n_points = n;
    }
    *home = *at;
    return SP_OK;
}

static sp_status keep_payload(struct sp_merger_home *home, const char *from,
                              size_t bytes)
{
    assert(!home->payload);
    home->payload = malloc(bytes + 1);
    if (!home->payload)
        return SP_FAIL(SP_EMEM, "no memory for %zu bytes of a sample", bytes);
    memcpy(home->payload, from, bytes);
    home->payload_bytes = bytes;
    return SP_OK;
}

/* Adds a parcel that has come. */
static sp_status take(sp_merger *m, const char *record)
{
    const parcel *p = (const parcel *)record;
    const uint64_t *sum = (const uint64_t *)(record + sizeof *p);
    const uint32_t *weight = (const uint32_t *)(sum + p->n_voxels * m->n_classes);
    const uint32_t *voxel = weight + p->n_voxels, *rows = voxel + p->n_points;
    const int64_t numbers = p->n_voxels + p->n_points * (p->is_own ? 1 : 2);
    struct sp_merger_home *home;

    SP_TRY(find_home(m, p->sample, &home));
    assert(!p->is_own || p->n_points <= home->n_points);
    sp_merge_points(sum, m->n_classes, weight, p->n_points, voxel,
                    p->is_own ? NULL : rows, home->sum);
    if (!p->is_own)
        return SP_OK;
    return keep_payload(
        home, (const char *)weight + sp_multiple((size_t)numbers * sizeof *weight, 8),
        (size_t)p->payload_bytes);
}

/* Hands over the next sample of this rank. */
static sp_status finish_next(sp_merger *m)
{
    struct sp_merger_home **at = &m->home[m->next / m->comm->size], *home;
    sp_merger_sample sample = {.id = m->next};
    sp_status rc;

    SP_TRY(find_home(m, m->next, &home));
    assert(home->payload); /* each sample was added before it has passed */
    sample.n_points = home->n_points;
    sample.sum = home->sum;
    sample.payload = home->payload;
    sample.payload_bytes = home->payload_bytes;
    rc = m->done(m->arg, &sample);
    free_home(at);
    m->next += m->comm->size;
    return rc;
}

sp_status sp_merger_exchange(sp_merger *m, int64_t n_passed)
{
    const int64_t n = m->scans.set->n_samples;
    char *record;

    assert(m->n_passed <= n_passed && n_passed <= n);
    m->n_passed = n_passed;
    SP_TRY(sp_gather_buffer_exchange(&m->received, m->to, m->comm));
    for (int r = 0; r < m->comm->size; r++)
        sp_gather_buffer_clear(&m->to[r]);
    while ((record = sp_gather_buffer_next(&m->received, NULL)))
        SP_TRY(take(m, record));
    while (m->next < n && m->scans.end[m->next] <= n_passed)
        SP_TRY(finish_next(m));
    return SP_OK;
}
