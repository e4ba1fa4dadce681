#include "api/api.h"
#include "config.h"
#include "h5/sp_h5.h"

const char *sp_version(void)
{
    return PACKAGE_VERSION;
}

void api_lock_files(void)
{
    sp_h5_lock();
}

void api_unlock_files(void)
{
    sp_h5_unlock();
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
