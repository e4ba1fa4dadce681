/* A collection for which rank 0 has no memory to choose samples leaves its pictures
 * out, says so and does not end the command. */
#include "fixtures/test.h"

#include <stdarg.h>

#include "data/sp_loader.h"
#include "fixtures/wrapped.h"
#include "train/sp_sample_pictures.h"
#include "train/sp_session.h"

enum { CLASSES = 2, VOXELS = 3 };
static bool must_fail;    /* the next calloc finds no memory */
static char warning[256]; /* the last one; "": none */
static int n_warnings;

/* NOLINTBEGIN: names given by the linker */
WRAPPED(void *, calloc, size_t n, size_t size)
{
    const bool fails = must_fail;

    must_fail = false;
    return fails ? NULL : __real_calloc(n, size);
}

WRAPPED(void, sp_log_warn0, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(warning, sizeof warning, format, args);
    va_end(args);
    n_warnings++;
}
/* NOLINTEND */

/* Gives the collection a sample that would be drawn. */
static void add_sample(sp_sample_pictures *pictures)
{
    static int32_t labels[VOXELS] = {0, 1, 1};
    static const int32_t prediction[VOXELS] = {0, 1, 0}, row_of[VOXELS] = {0, 1, 2};
    static const int64_t id = 0, row_of_at[2] = {0, VOXELS};
    const sp_sample sample = {.n = VOXELS, .labels = labels};
    const sp_batch batch = {.n_samples = 1,
                            .sample_id = &id,
                            .sample = &sample,
                            .row_of = row_of,
                            .row_of_at = row_of_at};

    sp_sample_pictures_add(pictures, &batch, prediction);
}

TEST(pictures_left_out_for_want_of_memory_are_told)
{
    static char *const name[CLASSES];
    const sp_dataset set = {0};
    sp_session session = {0};
    sp_sample_pictures *pictures;
    CLOSED_BY(sp_comm_close) sp_comm comm;

    sp_comm_open_self(&comm);
    session.comm = &comm;
    OK(sp_sample_pictures_write(NULL, &session, &set));
    assert_int_equal(n_warnings, 0);

    sp_sample_pictures_create(&pictures, CLASSES, name);
    n_warnings = 0; /* a build without libpng has warned and has no collection */
    add_sample(pictures);
    must_fail = true;
    OK(sp_sample_pictures_write(pictures, &session, &set));
    assert_false(must_fail);
    assert_int_equal(n_warnings, 1);
    assert_string_equal(warning, "no pictures of samples: no memory to choose them");
    sp_sample_pictures_destroy(pictures);
}
