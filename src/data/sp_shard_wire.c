#include <stdlib.h>
#include <string.h>

#include "data/sp_shard_internal.h"

static bool make_room(sp_wire *wire, size_t bytes)
{
    size_t room = wire->room ? wire->room : 4096;
    unsigned char *data;

    while (room - wire->size < bytes)
        room *= 2;
    if (room == wire->room)
        return true;
    data = realloc(wire->data, room);
    if (!data) {
        wire->rc = SP_FAIL(SP_EMEM, "no memory for a data index of %zu bytes", room);
        return false;
    }
    wire->data = data;
    wire->room = room;
    return true;
}

static bool is_short(sp_wire *wire, size_t bytes)
{
    if (bytes <= wire->size - wire->at)
        return false;
    wire->rc = SP_FAIL(SP_EDATA, "data index ends too early");
    return true;
}

void sp_wire_bytes(sp_wire *wire, void *data, size_t bytes)
{
    if (wire->rc != SP_OK || bytes == 0)
        return;
    if (wire->is_reading) {
        if (is_short(wire, bytes))
            return;
        memcpy(data, wire->data + wire->at, bytes);
        wire->at += bytes;
    } else if (make_room(wire, bytes)) {
        memcpy(wire->data + wire->size, data, bytes);
        wire->size += bytes;
    }
}

/* Allocates only what the buffer holds. One byte more ends texts. */
void sp_wire_array(sp_wire *wire, void **data, int64_t count, size_t size)
{
    bool is_there = *data != NULL;
    size_t bytes;

    sp_wire_bytes(wire, &is_there, sizeof is_there);
    if (wire->is_reading)
        *data = NULL;
    if (wire->rc != SP_OK || !is_there)
        return;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes)) {
        wire->rc = SP_FAIL(SP_EDATA, "data index has an array of impossible size");
        return;
    }
    if (wire->is_reading &&
        (is_short(wire, bytes) || !(*data = calloc(1, bytes + 1)))) {
        if (wire->rc == SP_OK)
            wire->rc = SP_FAIL(SP_EMEM, "no memory for the data index");
        return;
    }
    sp_wire_bytes(wire, *data, bytes);
}

void sp_wire_text(sp_wire *wire, char **text)
{
    int64_t length = !wire->is_reading && *text ? (int64_t)strlen(*text) : 0;

    sp_wire_bytes(wire, &length, sizeof length);
    sp_wire_array(wire, (void **)text, length, 1);
}

void sp_wire_texts(sp_wire *wire, char ***texts, int64_t n)
{
    bool is_there = !wire->is_reading && *texts;

    sp_wire_bytes(wire, &is_there, sizeof is_there);
    if (wire->is_reading)
        *texts = NULL;
    if (wire->rc != SP_OK || !is_there)
        return;
    if (wire->is_reading) {
        /* a text takes more than a byte */
        if (n < 0 || is_short(wire, (size_t)n))
            return;
        *texts = calloc((size_t)n + 1, sizeof **texts);
        if (!*texts) {
            wire->rc = SP_FAIL(SP_EMEM, "no memory for the data index");
            return;
        }
    }
    for (int64_t i = 0; i < n; i++)
        sp_wire_text(wire, &(*texts)[i]);
}

static void wire_sizes(sp_wire *wire, sp_dataset *set)
{
    sp_wire_bytes(wire, &set->n_samples, sizeof set->n_samples);
    sp_wire_bytes(wire, &set->n_voxels, sizeof set->n_voxels);
    sp_wire_bytes(wire, &set->n_points, sizeof set->n_points);
    sp_wire_bytes(wire, &set->voxel_size, sizeof set->voxel_size);
    sp_wire_bytes(wire, &set->n_classes, sizeof set->n_classes);
    sp_wire_bytes(wire, &set->ignore_label, sizeof set->ignore_label);
    sp_wire_bytes(wire, &set->n_features, sizeof set->n_features);
    sp_wire_bytes(wire, &set->has_labels, sizeof set->has_labels);
    sp_wire_bytes(wire, &set->has_subvoxel, sizeof set->has_subvoxel);
    sp_wire_bytes(wire, &set->has_points, sizeof set->has_points);
    sp_wire_bytes(wire, &set->has_cost, sizeof set->has_cost);
    sp_wire_bytes(wire, &set->has_names, sizeof set->has_names);
}

void sp_wire_shard(sp_wire *wire, sp_dataset *set)
{
    sp_shard *shard;
    char *path;

    if (wire->is_reading) {
        set->shard = calloc(1, sizeof *set->shard);
        set->n_shards = set->shard ? 1 : 0;
        if (!set->shard)
            wire->rc = SP_FAIL(SP_EMEM, "no memory for the data index");
    }
    if (wire->rc != SP_OK)
        return;
    shard = set->shard;
    path = shard->path;
    sp_wire_bytes(wire, shard, sizeof *shard);
    shard->path = wire->is_reading ? NULL : path;
    sp_wire_text(wire, &shard->path);
    wire_sizes(wire, set);
    sp_wire_texts(wire, &set->class_name, set->n_classes);
    sp_wire_texts(wire, &set->class_code, set->n_classes);
    sp_wire_texts(wire, &set->feature_name, set->n_features);
    sp_wire_array(wire, (void **)&set->feature_mean, set->n_features, sizeof(double));
    sp_wire_array(wire, (void **)&set->feature_std, set->n_features, sizeof(double));
    sp_wire_array(wire, (void **)&set->offset, set->n_samples + 1, sizeof(int64_t));
    sp_wire_array(wire, (void **)&set->point_offset, set->n_samples + 1,
                  sizeof(int64_t));
    sp_wire_array(wire, (void **)&set->cost, set->n_samples,
                  SP_COST_COLUMNS * sizeof(int64_t));
    sp_wire_texts(wire, &set->name, set->n_samples);
}
