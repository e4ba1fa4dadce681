#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "data/sp_shard_internal.h"

/* ---- patterns ---- */

/* Adds the files of a pattern. */
static sp_status add_paths(sp_strings *paths, char **found, size_t n)
{
    qsort(found, n, sizeof *found, sp_by_text);
    for (size_t i = 0; i < n; i++)
        SP_TRY(sp_strings_add(paths, found[i]));
    return SP_OK;
}

/* True if the text names a file that exists, although its brackets or braces make it a
 * pattern too, as in "tile[1].h5". A shell that expands a pattern passes such names. */
static bool is_name(const char *pattern)
{
    return !strpbrk(pattern, "*?") && access(pattern, F_OK) == 0;
}

/* Tells glob to end with this error, unless the folder does not exist: files that cannot
 * be listed are not left out. */
static int is_unreadable(const char *folder, int error)
{
    (void)folder;
    errno = error;
    return error != ENOENT && error != ENOTDIR;
}

static sp_status add_pattern(sp_strings *paths, const char *pattern)
{
    glob_t found = {0};
    char *name = (char *)(uintptr_t)pattern;
    int failed;
    sp_status rc;

    if (is_name(pattern))
        return add_paths(paths, &name, 1);
    failed = glob(pattern, GLOB_NOSORT | GLOB_TILDE_CHECK | GLOB_BRACE, is_unreadable,
                  &found);
    if (failed == GLOB_NOSPACE)
        rc = SP_FAIL(SP_EMEM, "%s: no memory for its file names", pattern);
    else if (failed == GLOB_ABORTED)
        rc = SP_FAIL(SP_EIO, "%s: a folder cannot be read: %s", pattern,
                     strerror(errno));
    else if (failed || found.gl_pathc == 0)
        rc = SP_FAIL(SP_EDATA, "%s: no such file%s", *pattern ? pattern : "\"\"",
                     strpbrk(pattern, "*?[{") ? " (no match for the pattern)" : "");
    else
        rc = add_paths(paths, found.gl_pathv, found.gl_pathc);
    globfree(&found);
    return rc;
}

/* The parts of a name such as "DIR/NAME-00003-of-00016.h5". */
typedef struct family {
    const char *path;
    size_t stem; /* the length of "DIR/NAME" */
    int width;   /* the digits of each number */
    long member, members;
} family;

static bool parse_number(const char *at, int width, long *value)
{
    *value = 0;
    for (int i = 0; i < width; i++) {
        if (!isdigit((unsigned char)at[i]))
            return false;
        *value = 10 * *value + (at[i] - '0');
    }
    return true;
}

static bool is_family(const char *path, family *out)
{
    const char *of = NULL;
    size_t length = strlen(path);

    for (const char *at = path; (at = strstr(at, "-of-")); at++)
        of = at;
    if (!of || length < 3 || strcmp(path + length - 3, ".h5") != 0)
        return false;
    out->width = (int)(path + length - 3 - (of + 4));
    if (out->width < 1 || out->width > 9 || of - path < out->width + 1 ||
        of[-out->width - 1] != '-')
        return false;
    out->stem = (size_t)(of - path) - (size_t)out->width - 1;
    return parse_number(of - out->width, out->width, &out->member) &&
           parse_number(of + 4, out->width, &out->members);
}

static sp_status check_members(const char *path, const family *f)
{
    const size_t bytes = strlen(path) + 1;
    const int width = f->width < 9 ? f->width : 9;
    SP_FREED char *member = NULL;

    if (f->member >= f->members)
        return SP_FAIL(
            SP_EDATA,
            "%s: file %ld of a set of %ld, expected a number below the number of files",
            path, f->member, f->members);
    SP_TRY(SP_NEW(&member, bytes, path));
    for (long i = 0; i < f->members; i++) {
        snprintf(member, bytes, "%.*s-%0*ld-of-%0*ld.h5", (int)f->stem, path, width, i,
                 width, f->members);
        if (sp_file_is_absent(member))
            return SP_FAIL(SP_EDATA,
                           "%s: missing; it is one of the %ld files of the set of %s",
                           member, f->members, path);
    }
    return SP_OK;
}

/* By "DIR/NAME", then by the whole name. */
static int compare_families(const void *a, const void *b)
{
    const family *f = a, *g = b;
    const int order = strncmp(f->path, g->path, f->stem < g->stem ? f->stem : g->stem);

    if (order == 0 && f->stem != g->stem)
        return f->stem < g->stem ? -1 : 1;
    return order ? order : strcmp(f->path, g->path);
}

/* Checks each numbered set: f [n] in their order. */
static sp_status check_sorted(const family *f, int n)
{
    const family *first = f;

    for (int i = 0; i < n; i++) {
        if (i > 0 && f[i].stem == first->stem &&
            strncmp(first->path, f[i].path, f[i].stem) == 0) {
            if (f[i].members == first->members && f[i].width == first->width)
                continue;
            return SP_FAIL(SP_EDATA,
                           "%s and %s belong to two data sets of one name; name the "
                           "files of one of them",
                           first->path, f[i].path);
        }
        SP_TRY(check_members(f[i].path, &f[i]));
        first = &f[i];
    }
    return SP_OK;
}

/* Checks that each numbered set is complete, at its first file. Two sets of one name
 * and of different size would count samples twice, at any place in the list. */
static sp_status check_families(const sp_strings *paths)
{
    SP_FREED family *f = NULL;
    int n = 0;

    SP_TRY(SP_NEW(&f, paths->n, "file names"));
    for (int i = 0; i < paths->n; i++) {
        f[n].path = paths->at[i];
        n += is_family(paths->at[i], &f[n]);
    }
    qsort(f, (size_t)n, sizeof *f, compare_families);
    return check_sorted(f, n);
}

/* Leaves out the paths that lead to a file which an earlier one leads to: patterns that
 * overlap, and links. */
static sp_status drop_again(sp_strings *paths)
{
    const int n = paths->n;
    SP_FREED bool *is_again = NULL;
    int n_again, example[2];

    SP_TRY(SP_NEW(&is_again, n, "file names"));
    SP_TRY(sp_file_find_again(n, paths->at, is_again, &n_again, example));
    if (n_again > 0)
        sp_log_warn0("%s and %s are one file, which counts once (paths of a file that "
                     "another path leads to: %d of %d)",
                     paths->at[example[0]], paths->at[example[1]], n_again, n);
    paths->n = 0;
    for (int i = 0; i < n; i++)
        if (is_again[i])
            free(paths->at[i]);
        else
            paths->at[paths->n++] = paths->at[i];
    return SP_OK;
}

sp_status sp_shard_glob(const sp_strings *patterns, sp_strings *paths)
{
    assert(patterns && paths);
    *paths = (sp_strings){0};
    if (patterns->n == 0)
        return SP_FAIL(SP_EDATA, "no data files are named, expected at least one");
    for (int i = 0; i < patterns->n; i++)
        SP_TRY(add_pattern(paths, patterns->at[i]));
    SP_TRY(check_families(paths));
    return drop_again(paths);
}

/* ---- open files ---- */

/* The files that one data set keeps open: a quarter of those that the process may open,
 * since a run has two data sets, and sockets and libraries need some too. */
enum { MOST_OPEN = 256, FEWEST_OPEN = 2, SHARE = 4, MOST_KNOWN = 1 << 17 };

typedef struct open_file {
    int shard, fd, users;
    uint64_t last_use;
} open_file;

struct sp_shard_files {
    pthread_mutex_t lock;
    uint64_t clock;
    int n, most; /* slots in use, and the most there may be */
    open_file slot[MOST_OPEN];
    int *slot_of; /* [n_shards] the slot of a shard's open file; -1: it is not open */
    /* [n_known] the samples whose coordinates were found unique. Sample i has entry
     * i % n_known, which is 2^32 * (i / n_known + 1) + the checksum of the coordinates,
     * or is another sample's, or 0. So a large set needs no memory for each sample. */
    _Atomic uint64_t *known;
    int64_t n_known;
};

static int most_open(void)
{
    struct rlimit limit;
    rlim_t share;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return MOST_OPEN;
    share = limit.rlim_cur / SHARE;
    return share > MOST_OPEN     ? MOST_OPEN
           : share < FEWEST_OPEN ? FEWEST_OPEN
                                 : (int)share;
}

sp_status sp_shard_files_create(struct sp_shard_files **files, int n_shards,
                                int64_t n_samples)
{
    struct sp_shard_files *f = calloc(1, sizeof *f);

    assert(n_shards > 0 && n_samples >= 0);
    *files = f;
    if (f) {
        pthread_mutex_init(&f->lock, NULL);
        f->most = most_open();
        f->slot_of = malloc(((size_t)n_shards + 1) * sizeof *f->slot_of);
        f->n_known = sp_least(n_samples + 1, MOST_KNOWN);
        f->known = calloc((size_t)f->n_known, sizeof *f->known);
    }
    if (!f || !f->slot_of || !f->known) {
        sp_shard_files_destroy(f);
        *files = NULL;
        return SP_FAIL(SP_EMEM, "no memory for a table of %d files, %lld samples",
                       n_shards, (long long)n_samples);
    }
    for (int i = 0; i < n_shards; i++)
        f->slot_of[i] = -1;
    return SP_OK;
}

static void close_slot(open_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    *file = (open_file){.shard = -1, .fd = -1};
}

void sp_shard_files_destroy(struct sp_shard_files *files)
{
    if (!files)
        return;
    for (int i = 0; i < files->n; i++)
        close_slot(&files->slot[i]);
    pthread_mutex_destroy(&files->lock);
    free(files->slot_of);
    free(files->known);
    free(files);
}

/* Closes the files that nothing is being read from. True if there was one. */
static bool close_idle(struct sp_shard_files *files)
{
    bool is_any = false;

    for (int i = 0; i < files->n; i++) {
        open_file *file = &files->slot[i];

        if (file->users > 0 || file->fd < 0)
            continue;
        if (file->shard >= 0)
            files->slot_of[file->shard] = -1;
        close_slot(file);
        is_any = true;
    }
    return is_any;
}

static sp_status open_shard(struct sp_shard_files *files, const sp_shard *shard,
                            open_file *file)
{
    struct stat about;

    sp_liveness_file_begin();
    file->fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 && (errno == EMFILE || errno == ENFILE) && close_idle(files))
        file->fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    sp_liveness_file_end();
    if (file->fd < 0)
        return SP_FAIL(SP_EIO, "%s: %s", shard->path, strerror(errno));
    if (fstat(file->fd, &about) != 0)
        return SP_FAIL(SP_EIO, "%s: %s", shard->path, strerror(errno));
    if (about.st_size != shard->file_bytes)
        return SP_FAIL(SP_EIO,
                       "%s: has %lld bytes now, %lld when its index was read: changed "
                       "while in use",
                       shard->path, (long long)about.st_size,
                       (long long)shard->file_bytes);
    return SP_OK;
}

/* Finds a free slot, or closes the file of the one unused for longest; -1 if all files
 * are being read. */
static int find_slot(struct sp_shard_files *files)
{
    int oldest = -1;

    if (files->n < files->most)
        return files->n++;
    for (int i = 0; i < files->n; i++)
        if (files->slot[i].users == 0 &&
            (oldest < 0 || files->slot[i].last_use < files->slot[oldest].last_use))
            oldest = i;
    if (oldest >= 0 && files->slot[oldest].shard >= 0)
        files->slot_of[files->slot[oldest].shard] = -1;
    if (oldest >= 0)
        close_slot(&files->slot[oldest]);
    return oldest;
}

static sp_status acquire_locked(const sp_dataset *set, int shard,
                                sp_shard_handle *handle)
{
    struct sp_shard_files *files = set->files;
    open_file file = {.shard = shard, .fd = -1};
    int slot = files->slot_of[shard];
    sp_status rc;

    if (slot < 0) {
        rc = open_shard(files, &set->shard[shard], &file);
        if (rc != SP_OK) {
            close_slot(&file);
            return rc;
        }
        slot = find_slot(files);
        if (slot < 0) { /* more readers than slots: this one gets a file of its own */
            *handle = (sp_shard_handle){file.fd, -1};
            return SP_OK;
        }
        files->slot[slot] = file;
        files->slot_of[shard] = slot;
    }
    files->slot[slot].users++;
    files->slot[slot].last_use = ++files->clock;
    *handle = (sp_shard_handle){files->slot[slot].fd, slot};
    return SP_OK;
}

sp_status sp_shard_acquire(const sp_dataset *set, int shard, sp_shard_handle *handle)
{
    sp_status rc;

    assert(0 <= shard && shard < set->n_shards);
    pthread_mutex_lock(&set->files->lock);
    rc = acquire_locked(set, shard, handle);
    pthread_mutex_unlock(&set->files->lock);
    return rc;
}

void sp_shard_release(const sp_dataset *set, sp_shard_handle *handle)
{
    if (handle->slot < 0) {
        open_file file = {.fd = handle->fd};

        close_slot(&file);
        return;
    }
    pthread_mutex_lock(&set->files->lock);
    assert(set->files->slot[handle->slot].users > 0);
    set->files->slot[handle->slot].users--;
    pthread_mutex_unlock(&set->files->lock);
}

static uint64_t unique_mark(const struct sp_shard_files *files, int64_t sample,
                            uint32_t crc)
{
    return (uint64_t)(sample / files->n_known + 1) << 32 | crc;
}

bool sp_shard_is_unique(const sp_dataset *set, int64_t sample, uint32_t crc)
{
    struct sp_shard_files *files = set->files;

    assert(0 <= sample && sample < set->n_samples);
    return atomic_load_explicit(&files->known[sample % files->n_known],
                                memory_order_relaxed) ==
           unique_mark(files, sample, crc);
}

void sp_shard_set_unique(const sp_dataset *set, int64_t sample, uint32_t crc)
{
    struct sp_shard_files *files = set->files;

    assert(0 <= sample && sample < set->n_samples);
    atomic_store_explicit(&files->known[sample % files->n_known],
                          unique_mark(files, sample, crc), memory_order_relaxed);
}

void sp_shard_forget(const sp_dataset *set, int shard)
{
    struct sp_shard_files *files = set->files;
    int slot;

    assert(0 <= shard && shard < set->n_shards);
    pthread_mutex_lock(&files->lock);
    slot = files->slot_of[shard];
    /* The file stays open until its slot is needed, since another thread may be reading
     * it. */
    if (slot >= 0) {
        files->slot[slot].shard = -1;
        files->slot_of[shard] = -1;
    }
    pthread_mutex_unlock(&files->lock);
}
