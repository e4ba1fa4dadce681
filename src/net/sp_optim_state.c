#include "net/sp_optim_state.h"

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

const sp_optim_state sp_optim_states[SP_N_OPTIM_STATES] = {
    [SP_OPTIM_STATE_M] = {"/optim/m", always, false, false},
    [SP_OPTIM_STATE_V] = {"/optim/v", in_adamw, false, false},
    [SP_OPTIM_STATE_EMA] = {"/ema", with_average, true, false},
    [SP_OPTIM_STATE_EMA_BUFFERS] = {"/ema_buffers", with_average, true, true}};

int64_t sp_optim_state_floats(const sp_graph *graph, int i)
{
    return sp_optim_states[i].is_of_buffers ? graph->n_buffer_floats : graph->n_floats;
}

int64_t sp_optim_state_total(const sp_config *config, const sp_graph *graph)
{
    int64_t n = 0;

    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        n += sp_optim_states[i].is_kept(config) ? sp_optim_state_floats(graph, i) : 0;
    return n;
}
