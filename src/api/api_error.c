#include "api/api.h"
#include "config.h"

const char *sp_version(void)
{
    return PACKAGE_VERSION;
}

const sp_log_route *api_enter(sp_training *t)
{
    return sp_log_take_route(&t->route);
}

int api_leave(const sp_log_route *before, sp_status rc)
{
    sp_log_take_route(before);
    return rc;
}
