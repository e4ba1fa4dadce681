/* The pairs of files that spvox compare compares. */
#include "vox/vox_compare.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"

/* Endings of files that hold a class for each point. Scans of KITTI (.bin) have them
 * beside, in .label, which is compared itself. */
#define CLASS_FILES ".las .laz .ply .pcd .label .npy .txt .xyz .pts .csv"

/* Paths relative to a folder. */
typedef struct file_list {
    int n;
    char **path;
} file_list;

static void file_list_free(file_list *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->path[i]);
    free(list->path);
}

static sp_status file_list_add(file_list *list, const char *path)
{
    if (!sp_list_grow(&list->path, list->n, sizeof *list->path) ||
        !(list->path[list->n] = strdup(path)))
        return SP_FAIL(SP_EMEM, "no memory for the names of files");
    list->n++;
    return SP_OK;
}

/* Adds the files below root/folder; folder is "" or ends in a slash. */
static sp_status file_list_walk(file_list *list, const char *root, const char *folder)
{
    char path[PATH_MAX], inside[PATH_MAX];
    struct dirent **entry = NULL;
    int n;
    sp_status rc = SP_OK;

    snprintf(path, sizeof path, "%s/%s", root, folder);
    n = scandir(path, &entry, NULL, alphasort);
    if (n < 0)
        return SP_FAIL(SP_EIO, "%s: %m", path);
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        struct stat st;

        if (rc == SP_OK && name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s%s", root, folder, name) <
                (int)sizeof path &&
            snprintf(inside, sizeof inside, "%s%s", folder, name) <
                (int)sizeof inside - 1 &&
            stat(path, &st) == 0) {
            if (S_ISDIR(st.st_mode))
                rc = file_list_walk(list, root, strcat(inside, "/"));
            else if (sp_file_ends_in(name, CLASS_FILES))
                rc = file_list_add(list, inside);
        }
        free(entry[i]);
    }
    free(entry);
    return rc;
}

/* Bytes of the path before the ending of its name. */
static size_t stem_bytes(const char *path)
{
    const char *dot = strrchr(sp_file_name(path), '.');

    return dot ? (size_t)(dot - path) : strlen(path);
}

/* By the path before the ending, so that files that differ in it only are neighbours. */
static int by_stem(const void *a, const void *b)
{
    const char *const x = *(char *const *)a, *const y = *(char *const *)b;
    const size_t n_x = stem_bytes(x), n_y = stem_bytes(y);
    const int order = memcmp(x, y, n_x < n_y ? n_x : n_y);

    return order ? order : (n_x > n_y) - (n_x < n_y);
}

/* The number of files of the list, sorted by_stem, whose stem is before the path's. */
static int file_list_find(const file_list *list, const char *path)
{
    int low = 0, high = list->n;

    while (low < high) {
        const int middle = low + (high - low) / 2;

        if (by_stem(&list->path[middle], &path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds the file of B, in a list sorted by_stem, for a file of A: the same path, else
 * the same with another ending. */
static sp_status find_partner(const char *a, const char *path, const char *b,
                              const file_list *list, int *found)
{
    const int first = file_list_find(list, path);
    int end = first;

    for (; end < list->n && by_stem(&list->path[end], &path) == 0; end++)
        if (strcmp(list->path[end], path) == 0) {
            *found = end;
            return SP_OK;
        }
    *found = first;
    if (end == first)
        return SP_FAIL(SP_EDATA, "%s/%s: %s has no file of this name with classes", a,
                       path, b);
    if (end > first + 1)
        return SP_FAIL(SP_EDATA,
                       "%s/%s: %s has %d files of this name: give the two files", a,
                       path, b, end - first);
    return SP_OK;
}

static char *join_path(const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);

    if (path)
        snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

/* Sorts in_b. */
static sp_status pair_folders(const char *a, const char *b, const file_list *in_a,
                              const file_list *in_b, vox_file_pair *pair, int *n)
{
    SP_FREED bool *is_used = NULL;
    int found = 0, n_left = 0;

    SP_TRY(SP_NEW(&is_used, in_b->n, "names"));
    if (in_b->n > 0)
        qsort(in_b->path, (size_t)in_b->n, sizeof *in_b->path, by_stem);
    for (int i = 0; i < in_a->n; i++) {
        SP_TRY(find_partner(a, in_a->path[i], b, in_b, &found));
        is_used[found] = true;
        pair[*n] = (vox_file_pair){.a = join_path(a, in_a->path[i]),
                                   .b = join_path(b, in_b->path[found]),
                                   .name = strdup(in_a->path[i])};
        ++*n;
        if (!pair[i].a || !pair[i].b || !pair[i].name)
            return SP_FAIL(SP_EMEM, "no memory for names");
    }
    for (int i = 0; i < in_b->n; i++)
        n_left += !is_used[i];
    if (n_left > 0)
        sp_log_warn0("%s: %d of %d files have no partner in %s and are not compared", b,
                     n_left, in_b->n, a);
    return SP_OK;
}

static sp_status list_folders(const char *a, const char *b, vox_file_pair **pair,
                              int *n)
{
    SP_CLOSED_BY(file_list_free) file_list in_a = {0};
    SP_CLOSED_BY(file_list_free) file_list in_b = {0};

    SP_TRY(file_list_walk(&in_a, a, ""));
    SP_TRY(file_list_walk(&in_b, b, ""));
    if (in_a.n == 0)
        return SP_FAIL(SP_EDATA, "%s: no files with classes (%s)", a, CLASS_FILES);
    SP_TRY(SP_NEW(pair, in_a.n, "names"));
    return pair_folders(a, b, &in_a, &in_b, *pair, n);
}

static sp_status compare_is_folder(const char *path, bool *is)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return SP_FAIL(errno == ENOENT || errno == ENOTDIR ? SP_EDATA : SP_EIO,
                       "%s: %m", path);
    *is = S_ISDIR(st.st_mode);
    return SP_OK;
}

sp_status vox_compare_list(const char *a, const char *b, vox_file_pair **pair, int *n)
{
    bool is_folder_a = false, is_folder_b = false;

    *pair = NULL;
    *n = 0;
    SP_TRY(compare_is_folder(a, &is_folder_a));
    SP_TRY(compare_is_folder(b, &is_folder_b));
    if (is_folder_a != is_folder_b)
        return SP_FAIL(
            SP_EUSAGE, "%s is a %s, %s a %s: expected two files or two folders", a,
            is_folder_a ? "folder" : "file", b, is_folder_b ? "folder" : "file");
    if (is_folder_a)
        return list_folders(a, b, pair, n);
    SP_TRY(SP_NEW(pair, 1, "names"));
    *n = 1;
    **pair = (vox_file_pair){strdup(a), strdup(b), strdup(sp_file_name(a))};
    return (*pair)->a && (*pair)->b && (*pair)->name
               ? SP_OK
               : SP_FAIL(SP_EMEM, "no memory for names");
}

void vox_compare_free(vox_file_pair *pair, int n)
{
    for (int i = 0; i < n; i++) {
        free(pair[i].a);
        free(pair[i].b);
        free(pair[i].name);
    }
    free(pair);
}
