#include "predict/sp_scans.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

/* A sample while they are sorted. */
typedef struct place {
    const char *scan;
    int64_t number, sample;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    int order = strcmp(x->scan, y->scan);

    if (order == 0)
        order = (x->number > y->number) - (x->number < y->number);
    return order ? order : (x->sample > y->sample) - (x->sample < y->sample);
}

static const char *path_of(const sp_dataset *set, int64_t sample)
{
    return set->shard[sp_dataset_shard_of(set, sample)].path;
}

/* Refuses a set with a file that does not record blocks, and names that file. */
static sp_status refuse(const sp_dataset *set)
{
    int i = 0;

    while (i + 1 < set->n_shards && set->shard[i].context_voxel.type_size > 0)
        i++;
    return SP_FAIL(SP_EDATA,
                   "%s:/context_voxel is absent, expected for eval.merge: convert the "
                   "scans by spvox convert with --points, --block and --overlap, or "
                   "leave eval.merge out",
                   set->shard[i].path);
}

static sp_status sort(sp_scans *scans, place *at)
{
    const sp_dataset *set = scans->set;
    const int64_t n = set->n_samples;

    for (int64_t i = 0; i < n; i++)
        at[i] = (place){sp_dataset_scan(set, i), set->block[i].number, i};
    qsort(at, (size_t)n, sizeof *at, by_place);
    for (int64_t i = 0, scan = -1; i < n; i++) {
        const bool is_new = i == 0 || strcmp(at[i].scan, at[i - 1].scan) != 0;

        if (!is_new && at[i].number == at[i - 1].number)
            return SP_FAIL(SP_EDATA,
                           "%s and %s both have block %lld of scan \"%s\": eval.merge "
                           "expects each block once",
                           path_of(set, at[i - 1].sample), path_of(set, at[i].sample),
                           (long long)at[i].number, at[i].scan);
        scan += is_new;
        scans->order[i] = at[i].sample;
        scans->scan[at[i].sample] = scan;
    }
    return SP_OK;
}

/* The first place in the order that is not before this block of this scan. */
static int64_t lower_bound(const sp_scans *scans, int64_t scan, int64_t number)
{
    int64_t lo = 0, hi = scans->set->n_samples;

    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2, sample = scans->order[mid];
        const int64_t theirs = scans->scan[sample];

        if (theirs < scan ||
            (theirs == scan && scans->set->block[sample].number < number))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Any block with a number within the sample's range may have its points. If blocks are
 * stored in their order, as spvox writes them, the last of these is the latest. */
static void find_ends(sp_scans *scans)
{
    const sp_dataset *set = scans->set;
    bool is_sorted = true;
    int64_t most = 0;

    for (int64_t i = 1; i < set->n_samples; i++)
        is_sorted = is_sorted &&
                    (scans->scan[scans->order[i]] != scans->scan[scans->order[i - 1]] ||
                     scans->order[i] > scans->order[i - 1]);
    for (int64_t i = 0; i < set->n_samples; i++) {
        const sp_block *b = &set->block[i];
        const int64_t from = lower_bound(scans, scans->scan[i], b->first);
        const int64_t to = lower_bound(scans, scans->scan[i], b->last + 1);

        for (int64_t k = is_sorted ? to - 1 : from; k < to; k++)
            most = scans->order[k] + 1 > most ? scans->order[k] + 1 : most;
        scans->end[i] = most;
    }
}

sp_status sp_scans_create(sp_scans *scans, const sp_dataset *set)
{
    const int64_t n = set->n_samples;
    SP_FREED place *at = NULL;

    assert(set && set->n_samples >= 0);
    *scans = (sp_scans){.set = set};
    if (!set->has_blocks)
        return refuse(set);
    SP_TRY(SP_NEW(&scans->order, n, "the blocks of samples"));
    SP_TRY(SP_NEW(&scans->scan, n, "the blocks of samples"));
    SP_TRY(SP_NEW(&scans->end, n, "the blocks of samples"));
    SP_TRY(SP_NEW(&at, n, "the blocks of samples"));
    SP_TRY(sort(scans, at));
    find_ends(scans);
    return SP_OK;
}

void sp_scans_destroy(sp_scans *scans)
{
    free(scans->order);
    free(scans->scan);
    free(scans->end);
    *scans = (sp_scans){0};
}

/* The sample that is block `number` of the scan of `sample`; -1: not in the set. */
static int64_t find(const sp_scans *scans, int64_t sample, int64_t number)
{
    const int64_t at = lower_bound(scans, scans->scan[sample], number);
    int64_t found;

    assert(0 <= sample && sample < scans->set->n_samples);
    if (at == scans->set->n_samples)
        return -1;
    found = scans->order[at];
    return scans->scan[found] == scans->scan[sample] &&
                   scans->set->block[found].number == number
               ? found
               : -1;
}

/* Fails unless `owner`, a block that has points in the sample's margin, lists the
 * sample in its range. Otherwise its points would be finished before this sample has
 * come. */
static sp_status check_range(const sp_scans *scans, const sp_sample *s, int64_t owner)
{
    const sp_dataset *set = scans->set;
    const sp_block *theirs = &set->block[owner];
    const int64_t number = set->block[s->id].number;
    const sp_shard *shard = &set->shard[sp_dataset_shard_of(set, s->id)];

    if (theirs->first <= number && number <= theirs->last)
        return SP_OK;
    return SP_FAIL(SP_EDATA,
                   "%s:/context_block: sample %lld: block %lld has points of block "
                   "%lld: /block_number says that they are in blocks "
                   "%lld to %lld",
                   shard->path, (long long)(s->id - shard->first_sample),
                   (long long)number, (long long)theirs->number,
                   (long long)theirs->first, (long long)theirs->last);
}

sp_status sp_scans_owners(const sp_scans *scans, const sp_sample *s, int64_t *owners)
{
    const sp_dataset *set = scans->set;
    int64_t last = -1, owner = -1;

    assert(s->n_context == 0 || set->has_blocks);
    for (int64_t i = 0; i < s->n_context; i++) {
        if (s->context_block[i] != last) {
            last = s->context_block[i];
            owner = find(scans, s->id, last);
            if (owner >= 0)
                SP_TRY(check_range(scans, s, owner));
        }
        owners[i] = owner;
        if (owner < 0)
            continue;
        if (owner == s->id || s->context_point[i] >= sp_dataset_points(set, owner))
            return SP_FAIL(
                SP_EDATA,
                "%s:/context_point: sample %lld: point %lld of the margin is row %u of "
                "block %lld, which %s: expected a row of another block",
                set->shard[sp_dataset_shard_of(set, s->id)].path,
                (long long)(s->id -
                            set->shard[sp_dataset_shard_of(set, s->id)].first_sample),
                (long long)i, s->context_point[i], (long long)last,
                owner == s->id ? "the sample is itself" : "has fewer points");
    }
    return SP_OK;
}

int64_t sp_scans_waiting(const sp_scans *scans, int64_t batch)
{
    const sp_dataset *set = scans->set;
    int64_t most = 0, points = 0, begun = 0, done = 0;

    assert(batch >= 1);
    for (int64_t passed = 0; passed < set->n_samples; passed += batch) {
        const int64_t next = sp_least(passed + batch, set->n_samples);

        /* A block that passes has points of later blocks, up to its `last`. */
        for (int64_t i = passed; i < next; i++)
            for (; begun < set->n_samples && begun < scans->end[i]; begun++)
                points += sp_dataset_points(set, begun);
        most = sp_most(most, points);
        for (; done < next && scans->end[done] <= next; done++)
            points -= sp_dataset_points(set, done);
    }
    return most;
}
