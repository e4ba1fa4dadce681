/* Augmentation of colours (augment.color_*). Local; pure functions of their arguments.
 *
 *     names of columns --sp_colors_find--> columns, value of full colour (white)
 *     features of voxels --sp_color_change--> other colours, before they are normalized
 *
 * With white w, 255 or 1 by the columns' scale, the published changes in their order
 * (MinkowskiEngine's and Pointcept's ChromaticAutoContrast, ChromaticTranslation,
 * ChromaticJitter and RandomColorDrop), x being a column of a voxel:
 *   contrast  x = (1 - b) x + b w (x - lo) / (hi - lo), lo and hi being the column's
 *             extremes in the sample; b is color_blend, or uniform in [0, 1). A column
 *             that is constant is left as it is (the originals divide by 0).
 *   shift     x = clip(x + w r), r uniform in [-color_shift, color_shift), one for each
 *             column of a sample
 *   jitter    x = clip(x + w r), r normal with deviation color_jitter
 *   drop      x = 0
 * clip keeps x within [0, w]. The originals change points, of which one stands for a
 * voxel; here the colours of voxels, means of their points, are changed. */
#ifndef SP_COLOR_H
#define SP_COLOR_H

#include "data/sp_shard.h"

enum { SP_MOST_COLORS = 8 };

/* The columns that are colours. */
typedef struct sp_colors {
    int n;
    int column[SP_MOST_COLORS];
    double white; /* the value of full colour */
} sp_colors;

/* The changes of one sample in one epoch. */
typedef struct sp_color {
    double blend; /* share of stretched contrast; 0: unchanged */
    bool is_shifted, is_dropped;
    float shift[SP_MOST_COLORS]; /* of white */
    double jitter;               /* of white; 0: no noise */
    uint64_t seed, epoch, sample;
} sp_color;

/* Finds the colours among columns [n] of the set: those that augment.color_columns
 * names, else those with a source of the words in sp_color.c, such as red, green and
 * blue. n is 0 if the deck changes no colours. SP_EUSAGE with the key's place and the
 * data's columns if there are no colours, or if white is neither given nor known. */
sp_status sp_colors_find(const sp_config *config, const sp_dataset *set,
                         const int *columns, int n, sp_colors *colors);
/* Draws the changes, keyed by (seed, epoch, sample). */
sp_color sp_color_draw(const sp_config *config, uint64_t seed, uint64_t epoch,
                       int64_t sample);
/* Changes the colours among features [n][c]. */
void sp_color_change(const sp_color *color, const sp_colors *colors, float *features,
                     int64_t n, int c);

#endif
