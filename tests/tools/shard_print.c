/* shard_print PATTERN prints every sample of a data set as text, for comparison with
 * other readers. */
#include <inttypes.h>
#include <stdio.h>

#include "base/sp_log.h"
#include "base/sp_program.h"
#include "fixtures/shard_fixture.h"

static void print_sample(const sp_dataset *set, const sp_sample *s)
{
    printf("sample %" PRId64 " %s origin %.9g %.9g %.9g\n", s->id,
           set->has_names ? sp_dataset_name(set, s->id) : "-", s->origin[0], s->origin[1],
           s->origin[2]);
    for (int64_t i = 0; i < s->n; i++) {
        printf("%d %d %d %d", s->coords[3 * i], s->coords[3 * i + 1],
               s->coords[3 * i + 2], s->labels[i]);
        for (int c = 0; c < set->n_features; c++)
            printf(" %.9g", (double)s->features[i * set->n_features + c]);
        if (set->has_subvoxel)
            printf(" %d", s->subvoxel[3 * i]);
        printf("\n");
    }
    for (int64_t i = 0; i < s->n_points; i++)
        printf("point %u %d %" PRIu64 "\n", s->point_voxel[i], s->point_labels[i],
               s->point_index[i]);
}

static sp_status print(const char *pattern)
{
    sp_sample_request all = {.verify = true, .with_points = true};
    sp_sample s = {0};
    sp_dataset set;

    SP_TRY(fixture_open(&set, pattern));
    for (int64_t i = 0; i < set.n_samples; i++) {
        SP_TRY(sp_sample_read(&set, i, &all, &s));
        print_sample(&set, &s);
    }
    sp_sample_destroy(&s);
    sp_dataset_close(&set);
    return SP_OK;
}

int main(int argc, char **argv)
{
    sp_status rc;

    sp_program_begin("sptrain");
    sp_h5_child_main(argc, argv);
    rc = print(argc > 1 ? argv[1] : "");
    if (rc != SP_OK)
        sp_log_error(sp_error_last());
    return rc;
}
