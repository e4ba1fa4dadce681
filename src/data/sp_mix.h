/* Mixing of two samples of a training (augment.mix). Local; pure functions of their
 * arguments.
 *
 *     deck, (seed, epoch, sample) --sp_mix_draw--> partner, sector, angles
 *         partner --> what the sampler and the memory count; what the loader reads
 *     two stored samples --sp_mix_voxelize--> the voxels of one
 *
 * mix3d (Nekrasov et al., "Mix3D: Out-of-Context Data Augmentation for 3D Scenes", 3DV
 * 2021): both samples are augmented, each with draws of its own, and united. It differs
 * from the authors' program in this:
 *   - Boxes are laid middle on middle in x and y, lowest on lowest voxel in z. There
 *     each cloud is centred, then moved by up to half of its extent in each axis.
 *   - If voxels of both coincide, one is left, since coordinates are unique in a
 *     sample. It is what rows that meet become in sp_voxelize: the mean of the features
 *     of both, and a label that both have or only one has; of two different labels it
 *     is SP_IGNORE. There the first point defines a voxel.
 *   - Partners are drawn for each sample, so that a batch keeps its number of samples;
 *     there neighbours in the batch are united.
 *
 * polarmix (Xiao et al., "PolarMix: A General Data Augmentation Technique for LiDAR
 * Point Clouds", NeurIPS 2022): scans are mixed as stored, then augmented as one.
 *   - With probability 1/2 the half of the azimuths on one side of a line, which is
 *     drawn as in the authors' program, is the partner's; the paper says a sector.
 *   - The partner's voxels of augment.mix_classes are pasted unchanged, turned by an
 *     angle uniform in [0, 2 pi/3), and by one in [2 pi/3, 4 pi/3).
 * It differs in this:
 *   - Without /subvoxel the angles are those multiples of 90 degrees that are nearest.
 *   - Voxels that coincide are merged as above. A voxel pasted unchanged that came with
 *     the exchange already does not count twice.
 *   - A turned copy is left out if the mixed sample would have more rows than both
 *     samples have together, so that memory can be bounded before anything is read.
 * The azimuth is about the sensor (augment.mix_sensor), the origin of a mobile scan's
 * coordinates. If that is outside of either sample's box, it is about the middles of
 * the boxes, which are then laid upon each other, lowest on lowest voxel. The partner
 * is moved by whole voxels. Rows that would leave the coordinate range are left out.
 * Vectors (sp_vectors) turn with a pasted copy: positions about the same point as the
 * voxels.
 *
 * lasermix (Kong et al., "LaserMix for Semi-Supervised LiDAR Semantic Segmentation",
 * CVPR 2023, in arXiv 2022; as mmdet3d trains with labels): augment.mix_inclination is
 * divided into equal bands, whose number is drawn from augment.mix_bands. A row's
 * inclination is the angle atan2(z, sqrt(x^2 + y^2)) of its place about the sensor.
 * Bands are counted from above; the second, fourth, ... are the partner's. A row above
 * or below all bands is in the first or last one. Sensors are laid upon each other, and
 * the mixed scan is augmented as one. A sample that is more than 1000 m from the sensor
 * in an axis is refused: its coordinates are others.
 *
 * laserpolarmix is lasermix or polarmix, each with probability 1/2 for a sample.
 *
 * The partner is any other sample, each with the same probability; the only sample of a
 * set is its own partner. A sample or a partner without voxels, or one that cannot be
 * read and is skipped, leaves the sample unmixed. */
#ifndef SP_MIX_H
#define SP_MIX_H

#include "data/sp_shard.h"
#include "data/sp_voxel.h"

enum { SP_MOST_BANDS = 64 }; /* of lasermix */

/* How one sample is mixed in one epoch. */
typedef struct sp_mix {
    sp_mixing kind;  /* SP_MIX_NONE: not mixed; never SP_MIX_LASERPOLAR */
    int64_t partner; /* -1: not mixed */
    uint64_t seed, epoch, sample;
    /* The next three are of polarmix. */
    bool is_swapped;
    /* Positions (x, y) with x sin(begin) + y cos(begin) < 0 are the partner's. */
    double begin;
    double turn[2]; /* the angles of the copies; multiples of pi/2 without subvoxel */
    int n_bands;    /* of lasermix */
} sp_mix;

/* The parts of a training that mixing needs. All is borrowed. */
typedef struct sp_mixer {
    const sp_config *config;
    const sp_dataset *set;
    const bool *is_pasted; /* [set->n_classes] from sp_mix_classes; NULL: no class */
    const sp_vectors *vectors;
    const sp_colors *colors; /* NULL: colours are unchanged */
    double factor;           /* as sp_voxelize */
    int n_columns;
    const double *mean, *std;
} sp_mixer;

/* Draws how a sample of n_samples is mixed, from streams keyed by (train.seed, epoch,
 * sample). */
sp_mix sp_mix_draw(const sp_config *config, bool has_subvoxel, int64_t n_samples,
                   uint64_t epoch, int64_t sample);
/* The same with augment.mix_p 1. */
sp_mix sp_mix_draw_always(const sp_config *config, bool has_subvoxel, int64_t n_samples,
                          uint64_t epoch, int64_t sample);
/* The seed of the draws of a sample's partner: as the sample's own, but others. */
uint64_t sp_mix_partner_seed(uint64_t seed);
/* The work of the mixed sample, from the work of its two samples as stored: about its
 * share of each. Balancing uses it; memory counts both. Pure. */
int64_t sp_mix_cost(const sp_mix *mix, int64_t own, int64_t partner);
/* Finds the words of a key in the set's classes: their names, or numbers. *is_named
 * [set->n_classes] is malloc'd, NULL if there is no word. Errors as below. */
sp_status sp_mix_find_classes(const sp_config *config, const char *key,
                              const sp_strings *words, const sp_dataset *set,
                              bool **is_named);
/* Finds augment.mix_classes in the set's classes; *is_pasted is malloc'd, NULL if
 * nothing is pasted. SP_EDATA with the key's place, the word and the classes; SP_EMEM.
 */
sp_status sp_mix_classes(const sp_config *config, const sp_dataset *set,
                         bool **is_pasted);
/* Voxelizes `own` mixed with `partner`, and augmented as sp_augment_draw says.
 * Allocates out's arrays in the arena, but row_of, which is NULL; gives other memory
 * back. The voxels are at most own->n + partner->n, own's first. Both have voxels.
 * Errors as sp_voxelize; SP_EUSAGE: lasermix of a sample that is not about a sensor. */
sp_status sp_mix_voxelize(const sp_mixer *mixer, const sp_mix *mix,
                          const sp_sample *own, const sp_sample *partner,
                          sp_arena *arena, sp_voxels *out);

#endif
