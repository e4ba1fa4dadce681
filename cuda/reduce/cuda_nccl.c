#include "base/sp_env.h"
#include "cuda/reduce/cuda_nccl.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIBRARY "libnccl.so.2"
#ifndef SP_CUDA_ROOT
#define SP_CUDA_ROOT "/usr/local/cuda"
#endif

/* ---- places of the library ---- */

/* Tries folder/libnccl.so.2; an empty folder means the loader's path. */
static void *open_in(const char *folder, char *path, size_t size)
{
    snprintf(path, size, "%s%s" LIBRARY, folder, *folder ? "/" : "");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Opens the library in the first folder that matches the pattern and has it. */
static void *open_among(const char *pattern, char *path, size_t size)
{
    void *library = NULL;
    glob_t found;

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; !library && i < found.gl_pathc; i++)
            library = open_in(found.gl_pathv[i], path, size);
    globfree(&found);
    return library;
}

static void *open_below(const char *root, const char *const *below, char *path,
                        size_t size)
{
    void *library = NULL;
    char pattern[1024];

    for (int i = 0; root && *root && !library && below[i]; i++) {
        snprintf(pattern, sizeof pattern, "%.400s/%s", root, below[i]);
        library = open_among(pattern, path, size);
    }
    return library;
}

/* An installed toolkit has lib64; a toolkit among Python's packages lies beside nccl.
 */
static void *nccl_search(char *path, size_t size)
{
    static const char *const of_toolkit[] = {"lib64", "lib", "targets/*/lib",
                                             "../nccl/lib", NULL};
    static const char *const of_python[] = {
        "lib/python3*/site-packages/nvidia/nccl/lib",
        "lib/python3*/dist-packages/nvidia/nccl/lib", NULL};
    void *library = open_in("", path, size);

    if (!library)
        library = open_below(sp_env("CUDA_HOME"), of_toolkit, path, size);
    if (!library)
        library = open_below(SP_CUDA_ROOT, of_toolkit, path, size);
    if (!library)
        library = open_below(sp_env("VIRTUAL_ENV"), of_python, path, size);
    if (!library)
        library = open_below("/usr/local", of_python, path, size);
    return library;
}

static sp_status open_library(sp_nccl *nccl, void **library)
{
    const char *named = sp_env("SP_NCCL_LIB");
    struct stat st;

    if (!named || !*named) {
        *library = nccl_search(nccl->path, sizeof nccl->path);
        return *library
                   ? SP_OK
                   : SP_FAIL(SP_EMPI, "NCCL: no " LIBRARY " in the loader's path, in "
                                      "$CUDA_HOME, " SP_CUDA_ROOT " or $VIRTUAL_ENV; "
                                      "SP_NCCL_LIB=FILE names it");
    }
    if (stat(named, &st) == 0 && S_ISDIR(st.st_mode)) {
        *library = open_in(named, nccl->path, sizeof nccl->path);
    } else {
        snprintf(nccl->path, sizeof nccl->path, "%s", named);
        *library = dlopen(nccl->path, RTLD_NOW | RTLD_LOCAL);
    }
    return *library ? SP_OK : SP_FAIL(SP_EMPI, "NCCL: SP_NCCL_LIB: %s", dlerror());
}

/* ---- entry points ---- */

typedef struct entry {
    const char *name;
    size_t at; /* offset of its field in sp_nccl */
    bool is_optional;
} entry;

#define ENTRY(field, name, is_optional)                                                \
    {                                                                                  \
        name, offsetof(sp_nccl, field), is_optional                                    \
    }

static const entry entries[] = {
    ENTRY(get_version, "ncclGetVersion", false),
    ENTRY(get_unique_id, "ncclGetUniqueId", false),
    ENTRY(comm_init_rank_config, "ncclCommInitRankConfig", false),
    ENTRY(comm_split, "ncclCommSplit", false),
    ENTRY(comm_finalize, "ncclCommFinalize", false),
    ENTRY(comm_destroy, "ncclCommDestroy", false),
    ENTRY(comm_abort, "ncclCommAbort", false),
    ENTRY(comm_get_async_error, "ncclCommGetAsyncError", false),
    ENTRY(get_error_string, "ncclGetErrorString", false),
    ENTRY(get_last_error, "ncclGetLastError", false),
    ENTRY(group_start, "ncclGroupStart", false),
    ENTRY(group_end, "ncclGroupEnd", false),
    ENTRY(all_reduce, "ncclAllReduce", false),
    ENTRY(mem_alloc, "ncclMemAlloc", true),
    ENTRY(mem_free, "ncclMemFree", true),
    ENTRY(comm_register, "ncclCommRegister", true),
    ENTRY(comm_deregister, "ncclCommDeregister", true),
};

enum { N_ENTRIES = sizeof entries / sizeof *entries };

/* Runs before the other entry points are looked up: an old library lacks some of them,
 * and its version says more than their names. */
static sp_status check_version(sp_nccl *nccl)
{
    int v = 0, major, minor;

    if (nccl->get_version(&v) != SP_NCCL_SUCCESS)
        return SP_FAIL(SP_EMPI, "NCCL: %s does not tell its version", nccl->path);
    major = v < 10000 ? v / 1000 : v / 10000;
    minor = v < 10000 ? v % 1000 / 100 : v % 10000 / 100;
    nccl->version = v;
    if (v < SP_NCCL_LEAST)
        return SP_FAIL(SP_EMPI, "NCCL: %s is version %d.%d.%d; 2.18 or later is needed",
                       nccl->path, major, minor, v % 100);
    return SP_OK;
}

static sp_status find_entries(sp_nccl *nccl, void *library)
{
    for (int i = 0; i < N_ENTRIES; i++) {
        void *found = dlsym(library, entries[i].name);

        memcpy((char *)nccl + entries[i].at, &found, sizeof found);
        if (!found && !entries[i].is_optional)
            return SP_FAIL(SP_EMPI, "NCCL: %s lacks %s; 2.18 or later is needed",
                           nccl->path, entries[i].name);
        if (i == 0)
            SP_TRY(check_version(nccl));
    }
    return SP_OK;
}

sp_status sp_nccl_load(const sp_nccl **nccl)
{
    static sp_nccl loaded;
    static bool is_loaded;
    void *library = NULL;

    *nccl = &loaded;
    if (is_loaded)
        return SP_OK;
    SP_TRY(open_library(&loaded, &library));
    SP_TRY(find_entries(&loaded, library));
    is_loaded = true;
    return SP_OK;
}
