#include "base/sp_process.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

bool sp_process_read(long pid, sp_process *p)
{
    char path[64], text[512], *begin, *end;
    FILE *file;
    size_t n;

    assert(p);
    *p = (sp_process){.pid = pid};
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    /* "12 (a name) S 11 ...": the name may have any characters. */
    begin = strchr(text, '(');
    end = strrchr(text, ')');
    if (!begin || !end)
        return false;
    snprintf(p->name, sizeof p->name, "%.*s", (int)(end - begin - 1), begin + 1);
    return sscanf(end + 1, " %c %ld %*d %ld", &p->state, &p->parent, &p->session) == 3;
}
