#include "base/sp_program.h"

#include <stdlib.h>

#include "base/sp_env.h"
#include "base/sp_log.h"

void sp_program_begin(const char *name)
{
    sp_env_read_by(getenv);
    sp_log_program(name);
}
