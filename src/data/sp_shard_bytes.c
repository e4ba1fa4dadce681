/* The index of one shard as bytes, but what it has of each sample. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "data/sp_shard_internal.h"

static void serialize_sizes(sp_serial *serial, sp_dataset *set)
{
    sp_serial_bytes(serial, &set->n_samples, sizeof set->n_samples);
    sp_serial_bytes(serial, &set->n_voxels, sizeof set->n_voxels);
    sp_serial_bytes(serial, &set->n_points, sizeof set->n_points);
    sp_serial_bytes(serial, &set->voxel_size, sizeof set->voxel_size);
    sp_serial_bytes(serial, &set->n_classes, sizeof set->n_classes);
    sp_serial_bytes(serial, &set->ignore_label, sizeof set->ignore_label);
    sp_serial_bytes(serial, &set->n_features, sizeof set->n_features);
    sp_serial_flag(serial, &set->has_labels);
    sp_serial_flag(serial, &set->has_subvoxel);
    sp_serial_flag(serial, &set->has_points);
    sp_serial_flag(serial, &set->has_cost);
    sp_serial_bytes(serial, set->costs.bits, sizeof set->costs.bits);
    sp_serial_flag(serial, &set->has_names);
    sp_serial_flag(serial, &set->has_blocks);
    sp_serial_bytes(serial, &set->name.n_bytes, sizeof set->name.n_bytes);
    sp_serial_bytes(serial, &set->scan.n_bytes, sizeof set->scan.n_bytes);
}

static void serialize_file(sp_serial *serial, sp_shard *shard)
{
    static const char *const name[SP_EXTENTS] = {
        "/coords",      "/features",      "/labels",        "/origin",
        "/subvoxel",    "/crc32c",        "/point_voxel",   "/point_labels",
        "/point_index", "/context_voxel", "/context_block", "/context_point"};

    sp_serial_text(serial, &shard->path);
    sp_serial_bytes(serial, &shard->first_sample, sizeof shard->first_sample);
    sp_serial_bytes(serial, &shard->n_samples, sizeof shard->n_samples);
    sp_serial_bytes(serial, &shard->file_bytes, sizeof shard->file_bytes);
    for (int i = 0; i < SP_EXTENTS; i++) {
        sp_extent *extent = sp_shard_extent(shard, i);

        sp_serial_bytes(serial, extent, offsetof(sp_extent, is_swapped));
        sp_serial_flag(serial, &extent->is_swapped);
        sp_serial_bytes(serial, &extent->chunks, sizeof extent->chunks);
        extent->name = name[i];
    }
}

void sp_shard_serialize(sp_serial *serial, sp_dataset *set)
{
    assert(serial->is_reading ? !set->shard : set->n_shards == 1);
    if (serial->is_reading) {
        set->shard = calloc(1, sizeof *set->shard);
        set->n_shards = set->shard ? 1 : 0;
        if (!set->shard)
            serial->rc = SP_FAIL(SP_EMEM, "no memory for the data index");
    }
    if (serial->rc != SP_OK)
        return;
    serialize_file(serial, set->shard);
    serialize_sizes(serial, set);
    sp_serial_texts(serial, &set->class_name, set->n_classes);
    sp_serial_texts(serial, &set->class_code, set->n_classes);
    sp_serial_texts(serial, &set->feature_name, set->n_features);
    sp_serial_array(serial, (void **)&set->feature_mean, set->n_features,
                    sizeof(double));
    sp_serial_array(serial, (void **)&set->feature_std, set->n_features,
                    sizeof(double));
    sp_recipe_serialize(serial, &set->recipe);
}
