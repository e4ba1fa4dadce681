#include "base/sp_file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/sp_fault.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"

enum { LEAST_READ = 4096 /* bytes, of a file that is read as a whole */ };

#define FAIL_IO(path, what)                                                            \
    SP_FAIL(SP_EIO, "%s: cannot %s: %s", path, what, strerror(errno))

sp_status sp_file_make_folder(const char *path)
{
    char part[PATH_MAX];
    struct stat st;
    int why = 0; /* errno for the first folder that is missing */

    assert(path && *path);
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", path, PATH_MAX);
    for (char *at = part + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            /* only the last one must succeed; the others may exist */
            if (mkdir(part, 0777) != 0 && errno != EEXIST && !why)
                why = errno;
            *at = '/';
        }
    if (mkdir(part, 0777) != 0 && errno != EEXIST) {
        errno = errno == ENOENT && why ? why : errno;
        return FAIL_IO(path, "make the folder");
    }
    if (stat(part, &st) != 0 || !S_ISDIR(st.st_mode))
        return SP_FAIL(SP_EIO, "%s: not a folder", path);
    return SP_OK;
}

sp_status sp_file_make_folder_of(const char *path)
{
    char folder[PATH_MAX];
    char *slash;

    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return SP_OK;
    *slash = 0;
    return sp_file_make_folder(folder);
}

sp_status sp_file_write_at(int fd, const char *path, const void *data, size_t bytes,
                           int64_t at)
{
    const char *from = data;
    size_t done = 0;

    assert(path && (data || bytes == 0));
    while (done < bytes) {
        ssize_t put;

        sp_liveness_file_begin();
        put = pwrite(fd, from + done, bytes - done, (off_t)at + (off_t)done);
        sp_liveness_file_end();
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return FAIL_IO(path, "write");
        done += (size_t)put;
    }
    return SP_OK;
}

sp_status sp_file_read_at(int fd, const char *path, void *data, size_t bytes,
                          int64_t at)
{
    char *to = data;
    size_t done = 0;

    assert(path && (data || bytes == 0));
    while (done < bytes) {
        ssize_t got;

        sp_liveness_file_begin();
        sp_fault_at_last_step("file");
        got = pread(fd, to + done, bytes - done, (off_t)at + (off_t)done);
        sp_liveness_file_end();
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return FAIL_IO(path, "read");
        if (got == 0)
            return SP_FAIL(SP_EIO,
                           "%s: ends at byte %lld, expected %zu bytes at %lld: it "
                           "shrank while in use",
                           path, (long long)at + (long long)done, bytes, (long long)at);
        done += (size_t)got;
    }
    return SP_OK;
}

bool sp_file_close(FILE *to)
{
    const bool is_bad = ferror(to);

    return fclose(to) == 0 && !is_bad;
}

sp_status sp_file_sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    char *slash;
    int fd, error;

    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0; /* "/" stays */
    fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return FAIL_IO(path, "open its folder");
    error = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    errno = error;
    if (error && error != EINVAL) /* EINVAL: this file system cannot flush folders */
        return FAIL_IO(path, "flush its folder");
    return SP_OK;
}

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode) ? "a folder" : "a device, pipe or socket";
}

sp_status sp_file_open(const char *path, int flags, int *fd)
{
    struct stat st;

    assert(path && fd);
    /* With O_NONBLOCK the opening of a FIFO without a writer does not wait for ever.
     * The flag changes nothing for a regular file. */
    sp_liveness_file_begin();
    *fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0666);
    sp_liveness_file_end();
    if (*fd < 0 && errno == ELOOP && flags & O_NOFOLLOW)
        return SP_FAIL(SP_EIO, "%s: a symbolic link, which is not followed here", path);
    if (*fd < 0)
        return FAIL_IO(path, "open");
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
        return SP_OK;
    close(*fd);
    *fd = -1;
    return SP_FAIL(SP_EIO, "%s: %s, expected a regular file", path,
                   file_kind(st.st_mode));
}

void sp_file_done(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

sp_status sp_file_check_input(const char *path)
{
    struct stat st;

    assert(path);
    if (stat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? SP_FAIL(SP_EDATA, "%s: %s", path, strerror(errno))
                   : SP_OK;
    return S_ISREG(st.st_mode) ? SP_OK
                               : SP_FAIL(SP_EDATA, "%s: %s, expected a regular file",
                                         path, file_kind(st.st_mode));
}

bool sp_file_is_at(const char *path, int fd)
{
    struct stat held, found;

    if (stat(path, &found) != 0)
        return errno != ENOENT;
    return fstat(fd, &held) == 0 && held.st_dev == found.st_dev &&
           held.st_ino == found.st_ino;
}

/* Creates a new file. A file that a killed writer left, or a link that somebody else
 * put there, is unlinked first, which removes the link and not the file that it leads
 * to. */
static int create_anew(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, 0666);

    if (fd < 0 && errno == EEXIST && unlink(path) == 0)
        fd = open(path, flags, 0666);
    return fd;
}

static sp_status replace(const char *path, const char *data, size_t bytes, int writer,
                         bool is_flushed)
{
    char temporary[PATH_MAX];
    int fd, error = 0;

    assert(path && (data || bytes == 0));
    if (snprintf(temporary, sizeof temporary, "%s" SP_FILE_TEMPORARY "%d", path,
                 writer) >= (int)sizeof temporary)
        return SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", path, PATH_MAX);
    fd = create_anew(temporary);
    if (fd < 0)
        return FAIL_IO(temporary, "create");
    if (sp_file_write_at(fd, temporary, data, bytes, 0) != SP_OK ||
        (is_flushed && fsync(fd) != 0))
        error = errno ? errno : EIO;
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(temporary, path) != 0)
        error = errno;
    if (error) {
        unlink(temporary);
        errno = error;
        return FAIL_IO(path, "write");
    }
    return is_flushed ? sp_file_sync_folder_of(path) : SP_OK;
}

static sp_status replace_counted(const char *path, const char *data, size_t bytes,
                                 int writer, bool is_flushed)
{
    sp_status rc;

    sp_liveness_file_begin();
    rc = replace(path, data, bytes, writer, is_flushed);
    sp_liveness_file_end();
    return rc;
}

sp_status sp_file_replace(const char *path, const char *data, size_t bytes, int writer)
{
    return replace_counted(path, data, bytes, writer, true);
}

sp_status sp_file_replace_unflushed(const char *path, const char *data, size_t bytes,
                                    int writer)
{
    return replace_counted(path, data, bytes, writer, false);
}

sp_status sp_file_overwrite(const char *path, const char *data, size_t bytes)
{
    SP_CLOSED_BY(sp_file_done) int fd = -1;
    SP_FREED char *text = NULL;
    struct stat st;
    size_t whole;

    SP_TRY(sp_file_open(path, O_WRONLY | O_NOFOLLOW, &fd));
    whole =
        fstat(fd, &st) == 0 && (size_t)st.st_size > bytes ? (size_t)st.st_size : bytes;
    SP_TRY(SP_NEW(&text, whole, path));
    memset(text, ' ', whole); /* over the rest of a longer text */
    memcpy(text, data, bytes);
    SP_TRY(sp_file_write_at(fd, path, text, whole, 0));
    if (ftruncate(fd, (off_t)bytes) != 0 || fsync(fd) != 0)
        return FAIL_IO(path, "write");
    return SP_OK;
}

sp_status sp_file_rename(const char *temporary, const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return SP_FAIL(SP_EIO, "%s: is no regular file, and is not replaced", path);
    if (rename(temporary, path) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot rename it to %s: %s", temporary, path,
                       strerror(errno));
    return sp_file_sync_folder_of(path);
}

sp_status sp_file_append(int fd, const char *path, const struct iovec *piece, int n,
                         int64_t *end)
{
    ssize_t bytes = 0, written;

    assert(fd >= 0 && path && piece && n >= 1 && end);
    for (int i = 0; i < n; i++)
        bytes += (ssize_t)piece[i].iov_len;
    *end = lseek(fd, 0, SEEK_END);
    sp_liveness_file_begin();
    do
        written = writev(fd, piece, n);
    while (written < 0 && errno == EINTR);
    sp_liveness_file_end();
    if (written != bytes) {
        const int error = written < 0 ? errno : ENOSPC;

        if (ftruncate(fd, *end) != 0)
            sp_log_warn("%s: a part that was written could not be cut off: %s", path,
                        strerror(errno));
        errno = error;
        return FAIL_IO(path, "write");
    }
    *end += written;
    return SP_OK;
}

sp_status sp_file_append_line(const char *path, const char *line)
{
    struct iovec piece[3] = {
        {"\n", 1}, {(void *)(uintptr_t)line, strlen(line)}, {"\n", 1}};
    int64_t end;
    char last = '\n';
    sp_status rc;
    int fd;

    assert(path && !strchr(line, '\n'));
    SP_TRY(sp_file_open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, &fd));
    end = lseek(fd, 0, SEEK_END);
    if (end > 0 && pread(fd, &last, 1, end - 1) != 1)
        last = 0;
    piece[0].iov_len = last != '\n';
    rc = sp_file_append(fd, path, piece, 3, &end);
    if (rc == SP_OK && fsync(fd) != 0)
        rc = FAIL_IO(path, "write");
    if (close(fd) != 0 && rc == SP_OK)
        rc = FAIL_IO(path, "write");
    return rc;
}

/* Reads to the end instead of the size that fstat gives, since that may be 0 (/proc) or
 * out of date. */
static sp_status file_read_all(int fd, const char *path, char **data, size_t *bytes)
{
    size_t room = 0;
    ssize_t n;

    for (*bytes = 0; *bytes <= SP_FILE_MOST; *bytes += (size_t)n) {
        if (!sp_list_reserve(data, &room, *bytes + LEAST_READ))
            return SP_FAIL(SP_EMEM, "%s: no memory for %zu bytes", path, room);
        n = read(fd, *data + *bytes, room - *bytes - 1);
        if (n < 0)
            return FAIL_IO(path, "read");
        if (n == 0) {
            (*data)[*bytes] = 0;
            return SP_OK;
        }
    }
    return SP_FAIL(SP_EDATA, "%s: more than %d bytes", path, SP_FILE_MOST);
}

bool sp_file_ends_in(const char *path, const char *endings)
{
    const size_t n = strlen(path);

    for (const char *at = endings; *at; at += strspn(at, " ")) {
        const size_t m = strcspn(at, " ");

        if (n > m && strncasecmp(path + n - m, at, m) == 0)
            return true;
        at += m;
    }
    return false;
}

bool sp_file_begins(const char *path, const char *head, size_t bytes)
{
    char found[16];
    struct stat about;
    ssize_t n;
    int fd;

    assert(bytes <= sizeof found);
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : pread(fd, found, bytes, 0);
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)bytes && memcmp(found, head, bytes) == 0;
}

const char *sp_file_in(const char *dir, const char *name, char *path)
{
    snprintf(path, PATH_MAX, "%s/%s", dir, name);
    return path;
}

const char *sp_file_of_program(char *path)
{
    static const char link[] = "/proc/self/exe";
    ssize_t n;

    assert(path);
    n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    return access(path, X_OK) == 0 ? path : strcpy(path, link);
}

const char *sp_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool sp_file_is_absent(const char *path)
{
    assert(path);
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool sp_file_is_same(const char *a, const char *b)
{
    struct stat s, t;

    assert(a && b);
    return strcmp(a, b) == 0 || (stat(a, &s) == 0 && stat(b, &t) == 0 &&
                                 s.st_dev == t.st_dev && s.st_ino == t.st_ino);
}

typedef struct numbered {
    struct stat about;
    int number;
} numbered;

static int by_inode(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    const struct stat *s = &x->about, *t = &y->about;

    if (s->st_dev != t->st_dev)
        return s->st_dev < t->st_dev ? -1 : 1;
    if (s->st_ino != t->st_ino)
        return s->st_ino < t->st_ino ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Some file systems number all files alike, so their sizes and times count too. */
static bool is_same_file(const struct stat *s, const struct stat *t)
{
    return s->st_dev == t->st_dev && s->st_ino == t->st_ino && s->st_ino != 0 &&
           s->st_size == t->st_size && s->st_mtim.tv_sec == t->st_mtim.tv_sec &&
           s->st_mtim.tv_nsec == t->st_mtim.tv_nsec;
}

sp_status sp_file_find_again(int n, char *const *path, bool *is_again, int *n_again,
                             int example[2])
{
    SP_FREED numbered *all = NULL;
    int found = 0;

    assert(n >= 0 && n_again && example);
    *n_again = 0;
    SP_TRY(SP_NEW(&all, n, "paths"));
    for (int i = 0; i < n; i++)
        if (stat(path[i], &all[found].about) == 0)
            all[found++].number = i;
    qsort(all, (size_t)found, sizeof *all, by_inode);
    for (int i = 1; i < found; i++)
        if (is_same_file(&all[i - 1].about, &all[i].about)) {
            example[0] = all[i - 1].number;
            example[1] = all[i].number;
            if (is_again)
                is_again[all[i].number] = true;
            ++*n_again;
        }
    return SP_OK;
}

sp_status sp_file_read(const char *path, char **data, size_t *bytes)
{
    SP_CLOSED_BY(sp_file_done) int fd = -1;
    size_t used = 0;
    sp_status rc;

    assert(path && data);
    *data = NULL;
    SP_TRY(sp_file_open(path, O_RDONLY, &fd));
    rc = file_read_all(fd, path, data, &used);
    if (rc != SP_OK) {
        free(*data);
        *data = NULL;
    } else if (bytes) {
        *bytes = used;
    }
    return rc;
}

sp_status sp_file_read_input(const char *path, char **data, size_t *bytes)
{
    *data = NULL;
    SP_TRY(sp_file_check_input(path));
    return sp_file_read(path, data, bytes);
}

sp_status sp_file_each(const char *dir, sp_status (*visit)(const char *path, void *arg),
                       void *arg)
{
    DIR *folder = opendir(dir);
    char path[PATH_MAX];
    struct dirent *entry;
    sp_status rc = SP_OK;

    assert(dir && visit);
    if (!folder)
        return errno == ENOENT ? SP_OK : FAIL_IO(dir, "list");
    while (rc == SP_OK && (entry = readdir(folder))) {
        if (snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) >=
            (int)sizeof path)
            rc = SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", path,
                         PATH_MAX);
        else
            rc = visit(path, arg);
    }
    closedir(folder);
    return rc;
}

typedef bool is_leftover_fn(const char *name);

static sp_status remove_leftover(const char *path, void *is_leftover)
{
    is_leftover_fn *const *is = is_leftover;
    struct stat st;

    if ((*is)(sp_file_name(path)) && lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
        unlink(path) != 0)
        sp_log_warn0("%s: cannot delete it: %s", path, strerror(errno));
    return SP_OK;
}

sp_status sp_file_remove_if(const char *dir, bool (*is_leftover)(const char *name))
{
    assert(is_leftover);
    return sp_file_each(dir, remove_leftover, &is_leftover);
}
