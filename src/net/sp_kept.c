#include "net/sp_kept.h"

static bool always(const sp_config *config)
{
    (void)config;
    return true;
}

static bool in_adamw(const sp_config *config)
{
    return config->train.optimizer == SP_ADAMW;
}

static bool with_average(const sp_config *config)
{
    return config->train.ema > 0 || config->train.average_tail > 0;
}

const sp_kept_value sp_kept[SP_N_KEPT] = {
    [SP_KEPT_M] = {"/optim/m", always, false, false},
    [SP_KEPT_V] = {"/optim/v", in_adamw, false, false},
    [SP_KEPT_EMA] = {"/ema", with_average, true, false},
    [SP_KEPT_EMA_BUFFERS] = {"/ema_buffers", with_average, true, true}};

int64_t sp_kept_floats(const sp_graph *graph, int i)
{
    return sp_kept[i].is_of_buffers ? graph->n_buffer_floats : graph->n_floats;
}

int64_t sp_kept_total(const sp_config *config, const sp_graph *graph)
{
    int64_t n = 0;

    for (int i = 0; i < SP_N_KEPT; i++)
        n += sp_kept[i].is_kept(config) ? sp_kept_floats(graph, i) : 0;
    return n;
}
