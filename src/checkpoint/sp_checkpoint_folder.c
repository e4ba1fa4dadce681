/* The folder of a run's checkpoints: the file to continue from, and the files
 * to keep. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "checkpoint/sp_checkpoint.h"
#include "data/sp_shard.h"
#include "h5/sp_h5.h"

enum { LOOKS = 100 }; /* at a folder while a run replaces files in it */

static void name_step(char *name, size_t size, int64_t step)
{
    snprintf(name, size, "step-%09lld.h5", (long long)step);
}

/* Step in a name such as "step-000000012.h5"; -1 for any other name, such as
 * "step-12.h5" of somebody's copy: prune would count it as one of the newest, and
 * delete a file of the run's own for it. */
static int64_t checkpoint_step_of(const char *name)
{
    const bool is_step = strncmp(name, "step-", 5) == 0;
    const int64_t step = is_step ? strtoll(name + 5, NULL, 10) : -1;
    char own[64];

    name_step(own, sizeof own, step);
    return step >= 0 && strcmp(name, own) == 0 ? step : -1;
}

/* Reads the whole folder, or fails: with a part of the names prune could delete the
 * newest files, and a run would continue from an old one. */
static sp_status read_steps(DIR *folder, const char *dir, int64_t **steps, int *n)
{
    struct dirent *entry;

    while ((void)(errno = 0), (entry = readdir(folder))) {
        int64_t step = checkpoint_step_of(entry->d_name);

        if (step < 0)
            continue;
        if (!sp_list_grow(steps, *n, sizeof **steps))
            return SP_FAIL(SP_EMEM, "%s: no memory for its %d names", dir, *n + 1);
        (*steps)[(*n)++] = step;
    }
    if (errno)
        return SP_FAIL(SP_EIO, "%s: cannot list it: %s", dir, strerror(errno));
    return SP_OK;
}

/* Lists the steps of the folder's files, newest first; malloc'd, NULL after a failure.
 * An absent folder has no steps. */
static sp_status list_steps(const char *dir, int64_t **steps, int *n)
{
    DIR *folder = opendir(dir);
    sp_status rc;

    *steps = NULL;
    *n = 0;
    if (!folder && errno == ENOENT)
        return SP_OK;
    if (!folder)
        return SP_FAIL(SP_EIO, "%s: cannot list it: %s", dir, strerror(errno));
    rc = read_steps(folder, dir, steps, n);
    closedir(folder);
    if (rc != SP_OK) {
        free(*steps);
        *steps = NULL;
        return rc;
    }
    if (*n)
        qsort(*steps, (size_t)*n, sizeof **steps, sp_by_int64_falling);
    return SP_OK;
}

static void path_of_step(char path[PATH_MAX], const char *dir, int64_t step)
{
    char name[64];

    name_step(name, sizeof name, step);
    sp_file_in(dir, name, path);
}

/* Opens a file that a run on this data set may continue from; `on` NULL: any run. */
static sp_status check_for(sp_h5 *file, const char *path, const sp_dataset *on)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};

    SP_TRY(sp_checkpoint_read_open_state(file, &state, NULL));
    return state.data_hash == on->hash
               ? sp_checkpoint_check_place(path, &state, on->n_samples)
               : SP_OK;
}

static sp_status open_for(sp_h5 **file, const char *path, const sp_dataset *on)
{
    sp_status rc;

    SP_TRY(sp_checkpoint_open(file, path, on ? SP_FINITE : SP_INTACT));
    rc = on ? check_for(*file, path, on) : SP_OK;
    if (rc != SP_OK) {
        sp_h5_close(*file);
        *file = NULL;
    }
    return rc;
}

/* True if the system is at fault, which says nothing of the file. */
static bool is_of_system(sp_status rc)
{
    return rc == SP_EIO || rc == SP_EMEM;
}

/* Decides what a failure to open a checkpoint means for the search. A damaged one is
 * named and skipped. One that the system cannot read may be intact, with unknown
 * content: with an older one in its place the run would undo the steps between them,
 * and an evaluation would use other weights. */
static sp_status skip_damaged(const char *path, sp_status rc)
{
    if (is_of_system(rc))
        return SP_FAIL(rc,
                       "%s (start again when %s can be read, or rename it to go on "
                       "without it)",
                       sp_error_last()->message, path);
    sp_log_warn0("damaged checkpoint skipped: %s", sp_error_last()->message);
    return SP_OK;
}

/* The inode number of the file with this name; 0: no such file. */
static ino_t file_at(const char *path)
{
    struct stat about;

    return lstat(path, &about) == 0 ? about.st_ino : 0;
}

/* Opens the first file of the folder that verifies: step by step from the newest one,
 * best.h5 before or after them. *is_late: a run that goes on in this folder has deleted
 * or replaced the file that was to be opened, and the folder must be listed again. */
static sp_status checkpoint_look(sp_h5 **file, const char *dir, bool is_best_first,
                                 const sp_dataset *on, char *path, int *n_damaged,
                                 bool *is_late)
{
    int64_t *steps;
    int n;
    sp_status rc = SP_OK;

    *n_damaged = 0;
    *is_late = false;
    SP_TRY(list_steps(dir, &steps, &n));
    for (int i = 0; i <= n && !*file && !*is_late && rc == SP_OK; i++) {
        const int k = is_best_first ? i - 1 : i;
        const bool is_best = k < 0 || k == n;
        ino_t before;

        if (is_best)
            sp_file_in(dir, "best.h5", path);
        else
            path_of_step(path, dir, steps[k]);
        if (is_best && sp_file_is_absent(path))
            continue;
        before = file_at(path);
        rc = open_for(file, path, on);
        *is_late = rc == SP_EDATA && (before == 0 || file_at(path) != before);
        if (rc != SP_OK && !*is_late)
            rc = skip_damaged(path, rc);
        *n_damaged += !*file;
    }
    free(steps);
    return *is_late ? SP_OK : rc;
}

static sp_status checkpoint_find(sp_h5 **file, const char *dir, bool is_best_first,
                                 const sp_dataset *on, char *path, int *n_damaged)
{
    bool is_late = true;

    *file = NULL;
    for (int i = 0; i < LOOKS && is_late; i++)
        SP_TRY(
            checkpoint_look(file, dir, is_best_first, on, path, n_damaged, &is_late));
    if (is_late)
        return SP_FAIL(SP_EIO,
                       "%s: a run replaces its checkpoints faster than one can be "
                       "opened; raise its run.keep, or wait for its end",
                       dir);
    if (!*file)
        path[0] = 0;
    return SP_OK;
}

sp_status sp_checkpoint_find(sp_h5 **file, const char *dir, const sp_dataset *on,
                             char *path, int *n_damaged)
{
    assert(file && dir && path && n_damaged);
    return checkpoint_find(file, dir, false, on, path, n_damaged);
}

sp_status sp_checkpoint_open_run(sp_h5 **file, const char *run_dir, const char *advice,
                                 char *path)
{
    char dir[PATH_MAX + sizeof "/checkpoints"];
    int n_damaged;

    assert(file && run_dir && advice && path);
    snprintf(dir, sizeof dir, "%s/checkpoints", run_dir);
    SP_TRY(checkpoint_find(file, dir, true, NULL, path, &n_damaged));
    return *file ? SP_OK : SP_FAIL(SP_EUSAGE, "%s: no checkpoint; %s", dir, advice);
}

sp_status sp_checkpoint_open_model(sp_h5 **file, const char *model,
                                   sp_checkpoint_demand demand, char *path)
{
    struct stat about;

    assert(file && model && path);
    if (stat(model, &about) == 0 && S_ISDIR(about.st_mode))
        return sp_checkpoint_open_run(file, model, "name a run that has one, or a file",
                                      path);
    snprintf(path, PATH_MAX, "%s", model);
    return sp_checkpoint_open_weights(file, model, demand);
}

/* Renames a checkpoint to the first of .old, .old2, .old3, ... that is free: files that
 * were set aside before are kept. */
static sp_status set_aside(const char *path)
{
    char old[PATH_MAX + 32], number[16] = "";

    for (int i = 2;; i++) {
        snprintf(old, sizeof old, "%s.old%s", path, number);
        if (sp_file_is_absent(old))
            break;
        snprintf(number, sizeof number, "%d", i);
    }
    if (rename(path, old) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot rename it to %s: %s", path, old,
                       strerror(errno));
    return SP_OK;
}

sp_status sp_checkpoint_set_newer_aside(const char *dir, int64_t step, int *n)
{
    char path[PATH_MAX];
    SP_FREED int64_t *steps = NULL;
    int all;

    assert(step >= 0 && n);
    SP_TRY(list_steps(dir, &steps, &all));
    for (*n = 0; *n < all && steps[*n] > step; ++*n) {
        path_of_step(path, dir, steps[*n]);
        SP_TRY(set_aside(path));
    }
    return SP_OK;
}

sp_status sp_checkpoint_check_best(const char *dir, int64_t step, bool *has_best)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization norm = {0};
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;
    char path[PATH_MAX];
    sp_status rc;

    assert(step >= 0 && has_best);
    snprintf(path, sizeof path, "%s/best.h5", dir);
    *has_best = false;
    if (sp_file_is_absent(path))
        return SP_OK;
    rc = sp_checkpoint_open(&file, path, SP_FINITE);
    if (rc == SP_OK)
        rc = sp_checkpoint_read_open_state(file, &state, &norm);
    if (is_of_system(rc))
        return skip_damaged(path, rc);
    *has_best = rc == SP_OK && state.step <= step;
    if (rc != SP_OK)
        sp_log_warn0("a checkpoint that cannot be continued was renamed to *.old: %s",
                     sp_error_last()->message);
    else if (!*has_best)
        sp_log_info("%s: of a later step (%lld), renamed to *.old", path,
                    (long long)state.step);
    return *has_best ? SP_OK : set_aside(path);
}

/* True for "step-000000012.h5.tmp" and "best.h5.tmp": their writer was killed before it
 * renamed them. */
static bool is_unfinished(const char *name)
{
    char whole[64] = "";

    if (sp_file_ends_in(name, SP_FILE_UNFINISHED))
        snprintf(whole, sizeof whole, "%.*s",
                 (int)(strlen(name) - strlen(SP_FILE_UNFINISHED)), name);
    return strcmp(whole, "best.h5") == 0 || checkpoint_step_of(whole) >= 0;
}

sp_status sp_checkpoint_remove_unfinished(const char *dir)
{
    return sp_file_remove_if(dir, is_unfinished);
}

sp_status sp_checkpoint_prune(const char *dir, int keep)
{
    char path[PATH_MAX];
    int64_t *steps;
    int n;

    assert(dir && *dir);
    SP_TRY(sp_checkpoint_remove_unfinished(dir));
    SP_TRY(list_steps(dir, &steps, &n));
    for (int i = keep > 0 ? keep : 1; i < n; i++) {
        path_of_step(path, dir, steps[i]);
        if (unlink(path) != 0)
            sp_log_warn0("%s: cannot delete it: %s", path, strerror(errno));
    }
    free(steps);
    return SP_OK;
}
