/* Views of a sample: the ways a model may look at it; their mean is formed (test-time
 * augmentation). A view is an augmentation without chance, so that
 *
 *     sp_voxelize(sample, &views.at[v], factor, ...)  -->  voxels of view v, and
 *                                                          row_of: the view's voxel of
 *                                                          each stored voxel
 *
 * makes the view's sample by the same code as the training's samples. Views are the
 * ones that the augmentation has trained the model for, in a fixed order:
 *
 *     augment.rotate_z   turns by 0, 90, 180 and 270 degrees about z, if
 *                        augment.rotate_max is 180
 *     augment.flip       x mirrored; without turns also y, and both
 *     augment.scale      1, then the least and the greatest factor; with /subvoxel only
 *
 * Turns change fastest, then mirrors, then scales. The first view is always the sample
 * as stored. Turns and mirrors move whole voxels, so they lose nothing. Features are
 * unchanged, except normals and positions, which move as in the training.
 */
#ifndef SP_VIEW_H
#define SP_VIEW_H

#include "data/sp_voxel.h"

enum { SP_MAX_VIEWS = 24, SP_VIEWS_TEXT = 512 };

typedef struct sp_views {
    int n;          /* views that are made, at least 1 */
    int n_possible; /* views that the augmentation allows */
    sp_augment at[SP_MAX_VIEWS];
} sp_views;

/* The first `wanted` >= 1 views of the augmentation in config, or all if it allows
 * fewer. Pure. */
sp_views sp_views_make(const sp_config *config, bool has_subvoxel, int wanted);
/* The same; logs the views if `wanted` is above 1, and if they are fewer. */
sp_views sp_views_choose(const sp_config *config, bool has_subvoxel, int wanted);
/* True if a view is scaled: several stored voxels may then become one. */
bool sp_views_are_scaled(const sp_views *views);
/* Lists the views as "8: 0, 90, 180, 270, 0 x, 90 x, 180 x, 270 x": degrees, mirrored
 * axes, and *0.95 if a view is scaled. */
void sp_views_print(const sp_views *views, char text[SP_VIEWS_TEXT]);

#endif
