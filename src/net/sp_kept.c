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

const sp_kept_value sp_kept[SP_N_KEPT] = {
    [SP_KEPT_M] = {"/optim/m", always}, [SP_KEPT_V] = {"/optim/v", in_adamw}};

int sp_kept_count(const sp_config *config)
{
    int n = 0;

    for (int i = 0; i < SP_N_KEPT; i++)
        n += sp_kept[i].is_kept(config);
    return n;
}
