/* The data of the library: pointers, names and arrays that it refuses. */
#include "fixtures/test.h"

#include "../examples/scene.h"

#define NAMED(call, text) FAILS(call, SP_EUSAGE, text)

TEST(a_missing_pointer_is_named)
{
    const sp_data_about about = scene_about();
    const int64_t sizes[] = {1};
    sp_data *data = (sp_data *)8;
    sp_comm *comm;

    OK(sp_comm_create_self(&comm));
    NAMED(sp_data_open_shards(NULL, comm, 0, NULL), "data is NULL");
    NAMED(sp_data_open_shards(&data, NULL, 0, NULL), "comm is NULL");
    assert_null(data);
    NAMED(sp_data_open_shards(&data, comm, 1, NULL), "pattern 0 is NULL");
    NAMED(sp_data_create_arrays(&data, NULL, 0, NULL), "about is NULL");
    NAMED(sp_data_create_arrays(&data, &about, 1, NULL), "samples is NULL");
    NAMED(sp_data_create_gathered(&data, NULL, &about, 0, NULL), "comm is NULL");
    NAMED(sp_data_create_gathered(&data, comm, &about, 1, NULL), "samples");
    NAMED(sp_data_create_source(&data, &about, 1, sizes, NULL, NULL), "read is NULL");
    NAMED(sp_data_create_source(&data, &about, 1, NULL, scene_read, NULL), "n_voxels");
    NAMED(sp_data_create_source(&data, &about, INT64_MAX / 4, sizes, scene_read, NULL),
          "n_samples is 2305843009213693951, expected 0 to");
    assert_null(data);
    assert_int_equal(sp_data_n_samples(NULL) + sp_data_n_voxels(NULL), 0);
    NAMED(sp_data_write_shard(NULL, "a.h5"), "data is NULL");
    OK(sp_data_create_source(&data, &about, 1, sizes, scene_read, NULL));
    NAMED(sp_data_write_shard(data, NULL), "path is NULL");
    sp_data_destroy(data);
    sp_comm_destroy(comm);
}

/* A checkpoint of a larger one could not be read: its deck has the size as a key. */
TEST(voxels_beyond_the_range_of_decks_are_refused)
{
    sp_data_about about = scene_about();
    const int64_t size = 1;
    sp_data *data;

    about.voxel_size = 1e9;
    assert_int_equal(sp_data_create_source(&data, &about, 1, &size, scene_read, NULL),
                     SP_OK);
    sp_data_destroy(data);
    about.voxel_size = 1.1e9;
    NAMED(sp_data_create_source(&data, &about, 1, &size, scene_read, NULL),
          "voxel_size is 1.1e+09");
}

/* A shard with such names could not be read. */
TEST(names_are_there_and_differ)
{
    const char *const absent[SCENE_CLASSES] = {"a", NULL, "b"};
    const char *const same[SCENE_CLASSES] = {"a", "b", "a"};
    sp_data_about about = scene_about();
    const int64_t size = 1;
    sp_data *data;

    about.class_names = absent;
    NAMED(sp_data_create_source(&data, &about, 1, &size, scene_read, NULL),
          "class_names[1] is NULL");
    about.class_names = same;
    NAMED(sp_data_create_source(&data, &about, 1, &size, scene_read, NULL),
          "class_names has \"a\" twice");
}

TEST(wrong_arrays_are_named)
{
    const sp_data_about about = scene_about();
    int32_t coords[6] = {0, 0, 0, 0, 0, 0}, labels[2] = {0, 1};
    float features[4] = {0};
    const sp_sample_arrays sample = {2, coords, features, labels};
    /* times 24 bytes a row this is 24 more than 2^64 */
    const sp_sample_arrays endless = {(INT64_C(1) << 61) + 1, coords, features, labels};
    sp_data_about other = about;
    sp_comm *comm;
    sp_data *data;

    FAILS(sp_data_create_arrays(&data, &about, 1, &sample), SP_EDATA,
          "row 1 repeats the coordinates (0, 0, 0)");
    assert_null(data);
    coords[5] = 1 << 19;
    FAILS(sp_data_create_arrays(&data, &about, 1, &sample), SP_EDATA,
          "row 1: z = 524288");
    coords[5] = 1;
    features[1] = NAN;
    FAILS(sp_data_create_arrays(&data, &about, 1, &sample), SP_EDATA,
          "row 0: noise is nan");
    features[1] = 0;
    labels[1] = SCENE_CLASSES;
    FAILS(sp_data_create_arrays(&data, &about, 1, &sample), SP_EDATA,
          "row 1: label 3, expected 0 to 2");
    labels[1] = SP_NO_LABEL;
    OK(sp_data_create_arrays(&data, &about, 1, &sample));
    assert_int_equal(sp_data_n_voxels(data), 2);
    sp_data_destroy(data);
    OK(sp_comm_create_self(&comm));
    NAMED(sp_data_create_arrays(&data, &about, 1, &endless),
          "expected 0 to 2147483647");
    NAMED(sp_data_create_gathered(&data, comm, &about, 1, &endless),
          "2305843009213693953 voxels, expected 0 to 2147483647");
    other.n_features = INT32_MAX;
    NAMED(sp_data_create_gathered(&data, comm, &other, 1, &sample), "1 to 4096");
    sp_comm_destroy(comm);
}
