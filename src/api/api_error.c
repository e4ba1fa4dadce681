#include "api/api.h"
#include "config.h"

const char *sp_version(void)
{
    return PACKAGE_VERSION;
}

api_caller api_enter(sp_training *t)
{
    return (api_caller){sp_log_set_route(&t->route),
                        sp_loops_begin(t->device.backend.threads)};
}

int api_leave(api_caller before, sp_status rc)
{
    sp_loops_end(before.loops);
    sp_log_set_route(before.route);
    return rc;
}
