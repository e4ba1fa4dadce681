#include "base/sp_env.h"

#include <stddef.h>

static char *(*read_variable)(const char *name);

void sp_env_read_by(char *(*get)(const char *name))
{
    read_variable = get;
}

const char *sp_env(const char *name)
{
    return read_variable ? read_variable(name) : NULL;
}
