/* The index of one shard as bytes, but what it has of each sample. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "data/sp_shard_internal.h"

static void wire_sizes(sp_wire *wire, sp_dataset *set)
{
    sp_wire_bytes(wire, &set->n_samples, sizeof set->n_samples);
    sp_wire_bytes(wire, &set->n_voxels, sizeof set->n_voxels);
    sp_wire_bytes(wire, &set->n_points, sizeof set->n_points);
    sp_wire_bytes(wire, &set->voxel_size, sizeof set->voxel_size);
    sp_wire_bytes(wire, &set->n_classes, sizeof set->n_classes);
    sp_wire_bytes(wire, &set->ignore_label, sizeof set->ignore_label);
    sp_wire_bytes(wire, &set->n_features, sizeof set->n_features);
    sp_wire_flag(wire, &set->has_labels);
    sp_wire_flag(wire, &set->has_subvoxel);
    sp_wire_flag(wire, &set->has_points);
    sp_wire_flag(wire, &set->has_cost);
    sp_wire_bytes(wire, set->costs.bits, sizeof set->costs.bits);
    sp_wire_flag(wire, &set->has_names);
    sp_wire_flag(wire, &set->has_blocks);
    sp_wire_bytes(wire, &set->name.n_bytes, sizeof set->name.n_bytes);
    sp_wire_bytes(wire, &set->scan.n_bytes, sizeof set->scan.n_bytes);
}

static void wire_file(sp_wire *wire, sp_shard *shard)
{
    static const char *const name[SP_EXTENTS] = {
        "/coords",      "/features",      "/labels",        "/origin",
        "/subvoxel",    "/crc32c",        "/point_voxel",   "/point_labels",
        "/point_index", "/context_voxel", "/context_block", "/context_point"};

    sp_wire_text(wire, &shard->path);
    sp_wire_bytes(wire, &shard->first_sample, sizeof shard->first_sample);
    sp_wire_bytes(wire, &shard->n_samples, sizeof shard->n_samples);
    sp_wire_bytes(wire, &shard->file_bytes, sizeof shard->file_bytes);
    for (int i = 0; i < SP_EXTENTS; i++) {
        sp_extent *extent = sp_shard_extent(shard, i);

        /* All members are sent but the pointers after the numbers. */
        sp_wire_bytes(wire, extent, offsetof(sp_extent, name));
        sp_h5_chunks_wire(wire, &extent->chunks);
        extent->name = name[i];
    }
}

void sp_wire_shard(sp_wire *wire, sp_dataset *set)
{
    assert(wire->is_reading ? !set->shard : set->n_shards == 1);
    if (wire->is_reading) {
        set->shard = calloc(1, sizeof *set->shard);
        set->n_shards = set->shard ? 1 : 0;
        if (!set->shard)
            wire->rc = SP_FAIL(SP_EMEM, "no memory for the data index");
    }
    if (wire->rc != SP_OK)
        return;
    wire_file(wire, set->shard);
    wire_sizes(wire, set);
    sp_wire_texts(wire, &set->class_name, set->n_classes);
    sp_wire_texts(wire, &set->class_code, set->n_classes);
    sp_wire_texts(wire, &set->feature_name, set->n_features);
    sp_wire_array(wire, (void **)&set->feature_mean, set->n_features, sizeof(double));
    sp_wire_array(wire, (void **)&set->feature_std, set->n_features, sizeof(double));
    sp_recipe_wire(wire, &set->recipe);
}
