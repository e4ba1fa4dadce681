/* The classes and added fields of points, in as few bytes as possible: 2 for the class,
 * 1 or 4 for each field. A result is for the rows of a scan that one rank writes, or
 * for some points that travel to such ranks.
 *
 *     rows   | section 0 | section 1 | section 2 | ...   dealt to the writers in turn,
 *     rank     first       first + 1   first + 2         so that all have work at any
 *                                                        time
 */
#ifndef LABEL_RESULT_H
#define LABEL_RESULT_H

#include <pthread.h>

#include "label/label_model.h"
#include "label/label_raster.h"
#include "label/label_tally.h"

/* How many rows of a result have been placed, for a thread that waits for rows. */
typedef struct label_strips {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int64_t n;
    int64_t *left; /* [n] rows of each LABEL_STRIP that were not placed yet */
    bool is_complete, is_given_up; /* label_result_complete, _give_up was called */
} label_strips;

enum { LABEL_STRIP = 65536 };

/* The dealing of a scan's rows to the ranks that collect and write them. The same on
 * all ranks. */
typedef struct label_deal {
    int64_t n_points;   /* of the scan */
    int64_t section;    /* rows, at least 1 */
    int n_writers;      /* 1: the first one has all rows */
    int n_ranks, first; /* in all; the rank that is writer 0 */
} label_deal;

/* Deals the rows of a scan. section: as sp_scan_section says, 0: only one writer. */
label_deal label_deal_make(int64_t n_points, int64_t section, int n_ranks, int first);
/* The number of a rank among the writers; -1 if it does not write. */
int label_deal_writer(const label_deal *deal, int rank);
static inline int label_deal_rank(const label_deal *deal, int64_t row)
{
    if (deal->n_writers == 1) /* without divisions, for each point */
        return deal->first;
    return (deal->first + (int)(row / deal->section % deal->n_writers)) % deal->n_ranks;
}
/* The place of a row among its writer's rows. */
static inline int64_t label_deal_place(const label_deal *deal, int64_t row)
{
    if (deal->n_writers == 1)
        return row;
    return row / deal->section / deal->n_writers * deal->section + row % deal->section;
}

typedef struct label_result {
    const label_model *model; /* borrowed */
    label_tally
        *tally; /* counts the points that are put; borrowed; NULL: nothing does */
    label_raster *raster; /* counts them by cells; borrowed; NULL: nothing does */
    double min_confidence;
    int32_t doubtful; /* code of points below; SP_SCAN_NO_CLASS */
    bool has_kept;
    label_deal deal;
    int64_t n;                     /* rows, as label_deal_place has them */
    uint16_t *label;               /* [n] */
    void *value;                   /* [n][n_added] uint8 or float */
    size_t label_room, value_room; /* bytes of these */
    float *probability;            /* [n_classes] of the point at hand */
    uint64_t *total;               /* [n_classes] of all models */
    float agreement, entropy;      /* of the point at hand, if they are wanted */
    label_strips *strips;          /* NULL: it is not shared with a thread */
} label_result;

/* Makes a result without points. Local. SP_EMEM. Free in any case. */
sp_status label_result_open(label_result *result, const label_model *model,
                            const label_options *options);
void label_result_free(label_result *result);
/* Makes it one of n points, which have no class so far. SP_EMEM. */
sp_status label_result_size(label_result *result, int64_t n);
/* Makes it one of a writer's rows. writer -1: one without rows. SP_EMEM. */
sp_status label_result_deal(label_result *result, const label_deal *deal, int writer);
/* Labels a point from the sums of its probabilities [models][n_classes] (sp_merge.h).
 * mark: as in label_sample. */
void label_result_put(label_result *result, int64_t row, const uint64_t *sum,
                      uint32_t mark);
/* Copies the points of `from` to the rows [from->n] of result. SP_EDATA: the scan has
 * no such row. */
sp_status label_result_place(label_result *result, const label_result *from,
                             const uint64_t *row);
/* The bytes of the values of a point. */
size_t label_result_value_bytes(const label_result *result);

/* From here on a thread may read the rows, in any order: it waits for those that are
 * not placed. SP_EMEM. */
sp_status label_result_share(label_result *result);
/* All rows are final: those that were not placed have no class. */
void label_result_complete(label_result *result);
/* The rows that are not taken yet will never be: taking them fails. */
void label_result_give_up(label_result *result);
/* Waits for one of the two. */
void label_result_wait(label_result *result);

/* The result for sp_scan_write, on any thread. Rows that are taken together are of one
 * section. */
sp_scan_labels label_result_labels(const label_result *result);

#endif
