/* Counts of labelled points. Sums are of whole numbers, the same on any number of
 * ranks. */
#ifndef LABEL_TALLY_H
#define LABEL_TALLY_H

#include "vox/vox_options.h"

enum { LABEL_CONFIDENCE_UNITS = 1 << 20 }; /* of a confidence of 1 */

typedef struct label_tally {
    int64_t n_points;           /* that got a prediction */
    int64_t n_doubtful;         /* below --min-confidence */
    int64_t confidence;         /* sum, in units */
    int64_t n[VOX_MAX_CLASSES]; /* points by predicted class, doubtful ones too */
} label_tally;

enum { LABEL_TALLY_WORDS = sizeof(label_tally) / sizeof(int64_t) };

static inline void label_tally_add(label_tally *t, int32_t label, float confidence,
                                   bool is_doubtful)
{
    t->n_points++;
    t->n_doubtful += is_doubtful;
    t->confidence +=
        (int64_t)((double)confidence * (double)LABEL_CONFIDENCE_UNITS + 0.5);
    t->n[label]++;
}

#endif
