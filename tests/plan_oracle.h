/* A plan checked against its definition: a hash search over coordinates. */
#ifndef PLAN_ORACLE_H
#define PLAN_ORACLE_H

#include "sp_plan.h"

/* Fails the test at the first difference: levels, order, tiles, every pair and its
 * place. */
void oracle_check(const sp_plan_spec *spec, const int32_t *coords,
                  const int32_t *sample_row, int n_samples, const sp_plan *plan);
/* Both plans are the same in every number. */
void oracle_same(const sp_plan *a, const sp_plan *b);

/* Adds a map, and levels up to those it names. */
void oracle_map(sp_plan_spec *spec, int level_in, int level_out, int kernel,
                int is_swapped);
/* n distinct voxels of a bumpy surface around `at`, in shuffled order; keyed by seed.
 */
void oracle_surface(int32_t *coords, int32_t n, const int32_t at[3], uint32_t seed);
/* n distinct voxels anywhere in [lo, hi). */
void oracle_scatter(int32_t *coords, int32_t n, int32_t lo, int32_t hi, uint32_t seed);

#endif
