/* Voxelized samples in a rank's temporary file. */
#include "vox/vox_set.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "compute/sp_backend.h"

enum { ARRAYS = 10 };

/* Lists the arrays of a sample in their order in the file. */
static void part_list_arrays(sp_sample *s, int c, void **array[ARRAYS],
                             size_t bytes[ARRAYS])
{
    size_t n = (size_t)s->n, p = (size_t)s->n_points, q = (size_t)s->n_context;

    array[0] = (void **)&s->coords, bytes[0] = n * 3 * sizeof *s->coords;
    array[1] = (void **)&s->features, bytes[1] = n * (size_t)c * sizeof *s->features;
    array[2] = (void **)&s->labels, bytes[2] = n * sizeof *s->labels;
    array[3] = (void **)&s->subvoxel, bytes[3] = n * 3 * sizeof *s->subvoxel;
    array[4] = (void **)&s->point_voxel, bytes[4] = p * sizeof *s->point_voxel;
    array[5] = (void **)&s->point_labels, bytes[5] = p * sizeof *s->point_labels;
    array[6] = (void **)&s->point_index, bytes[6] = p * sizeof *s->point_index;
    array[7] = (void **)&s->context_voxel, bytes[7] = q * sizeof *s->context_voxel;
    array[8] = (void **)&s->context_block, bytes[8] = q * sizeof *s->context_block;
    array[9] = (void **)&s->context_point, bytes[9] = q * sizeof *s->context_point;
}

/* Computes mean and squared differences in two passes over each column. This is
 * accurate for columns far from zero, such as times, and depends only on the sample. */
static void part_add_statistics(const sp_sample *s, int c, vox_part *part)
{
    for (int f = 0; f < c; f++) {
        double sum = 0, m2 = 0, most = 0, mean;

        for (int64_t i = 0; i < s->n; i++) {
            sum += s->features[i * c + f];
            most = fmax(most, s->features[i * c + f]);
        }
        mean = s->n ? sum / (double)s->n : 0;
        for (int64_t i = 0; i < s->n; i++) {
            double d = s->features[i * c + f] - mean;

            m2 += d * d;
        }
        part->mean[f] = mean;
        part->m2[f] = m2;
        part->most[f] = most;
    }
}

sp_status vox_part_write(int fd, const char *path, const sp_grid *grid, int n_features,
                         vox_part *part, int64_t *bytes)
{
    sp_sample s = grid->sample;
    void **array[ARRAYS];
    size_t size[ARRAYS];

    assert(fd >= 0 && part->at >= 0 && bytes);
    assert(n_features >= 0 && n_features <= VOX_MAX_FEATURES);
    part->n = s.n;
    part->n_points = s.n_points;
    part->n_context = s.n_context;
    for (int64_t i = 0; i < s.n; i++)
        part->n_labelled += s.labels[i] != SP_IGNORE;
    memcpy(part->cost, grid->cost, sizeof part->cost);
    memcpy(part->origin, s.origin, sizeof part->origin);
    part_add_statistics(&s, n_features, part);
    part_list_arrays(&s, n_features, array, size);
    *bytes = 0;
    for (int i = 0; i < ARRAYS; i++) {
        SP_TRY(sp_file_write_at(fd, path, *array[i], size[i], part->at + *bytes));
        *bytes += (int64_t)size[i];
    }
    return SP_OK;
}

sp_status vox_part_read(const char *path, const vox_part *part, int n_features,
                        sp_sample *s)
{
    void **array[ARRAYS];
    size_t size[ARRAYS];
    FILE *file = fopen(path, "rb");
    sp_status rc = SP_OK;

    assert(part->n >= 0 && part->n_points >= 0 && part->at >= 0);
    assert(n_features >= 0 && n_features <= VOX_MAX_FEATURES);
    *s = (sp_sample){
        .n = part->n, .n_points = part->n_points, .n_context = part->n_context};
    memcpy(s->origin, part->origin, sizeof s->origin);
    if (!file || fseeko(file, part->at, SEEK_SET) != 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot read: %s", path, strerror(errno));
    part_list_arrays(s, n_features, array, size);
    for (int i = 0; i < ARRAYS && rc == SP_OK; i++) {
        *array[i] = malloc(size[i] + 1);
        if (!*array[i])
            rc = SP_FAIL(SP_EMEM, "no memory for a sample of %" PRId64 " voxels", s->n);
        else if (fread(*array[i], 1, size[i], file) != size[i])
            rc = SP_FAIL(SP_EIO, "%s: ends early", path);
    }
    if (file)
        fclose(file);
    return rc;
}

void vox_part_free(sp_sample *s)
{
    void **array[ARRAYS];
    size_t size[ARRAYS];

    part_list_arrays(s, 0, array, size);
    for (int i = 0; i < ARRAYS; i++)
        free(*array[i]);
    *s = (sp_sample){0};
}
