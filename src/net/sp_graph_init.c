/* Initial weights and running statistics of a graph. */
#include "base/sp_rng.h"
#include "net/sp_graph.h"

#include <assert.h>
#include <string.h>

/* FNV-1a hash of a parameter's name, which identifies its random stream. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static void start_normal(const sp_param *p, uint64_t seed, float *to)
{
    sp_rng r = sp_rng_open(seed, SP_RNG_INIT, hash_name(p->name), 0);
    double std = sqrt(2.0 / p->fan_out), two[2];

    for (int64_t i = 0; i < p->count; i++) {
        if (i % 2 == 0)
            sp_rng_normal2(&r, (uint64_t)i / 2, two);
        to[i] = (float)(std * two[i % 2]);
    }
}

void sp_graph_init_params(const sp_graph *graph, uint64_t seed, float *flat)
{
    assert(graph->n_floats == 0 || flat);
    /* the padding is zeroed too */
    memset(flat, 0, (size_t)graph->n_floats * sizeof *flat);
    for (int i = 0; i < graph->n_params; i++) {
        const sp_param *p = &graph->param[i];

        if (p->fan_out)
            start_normal(p, seed, flat + p->offset);
        else
            for (int64_t j = 0; j < p->count; j++)
                flat[p->offset + j] = p->start;
    }
}

void sp_graph_init_buffers(const sp_graph *graph, float *flat)
{
    assert(graph->n_buffer_floats == 0 || flat);
    memset(flat, 0, (size_t)graph->n_buffer_floats * sizeof *flat);
    for (int i = 0; i < graph->n_buffers; i++)
        for (int64_t j = 0; j < graph->buffer[i].count; j++)
            flat[graph->buffer[i].offset + j] = graph->buffer[i].start;
}
