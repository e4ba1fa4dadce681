#include "config.h"

#include "base/sp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAIL_IO(path, what)                                                            \
    SP_FAIL(SP_EIO, "%s: cannot %s: %s", path, what, strerror(errno))

sp_status sp_file_make_folder(const char *path)
{
    char part[PATH_MAX];
    struct stat st;

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", path, PATH_MAX);
    for (char *at = part + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            mkdir(part, 0777); /* what matters is whether the last one works */
            *at = '/';
        }
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
        return FAIL_IO(path, "make the folder");
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
    if (error && error != EINVAL) /* a file system without the notion */
        return FAIL_IO(path, "flush its folder");
    return SP_OK;
}

/* Everything or an errno. */
static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);

        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}

sp_status sp_file_replace(const char *path, const char *data, size_t bytes, int writer)
{
    char temporary[PATH_MAX];
    int fd, error = 0;

    if (snprintf(temporary, sizeof temporary, "%s.tmp-%d", path, writer) >=
        (int)sizeof temporary)
        return SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", path, PATH_MAX);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return FAIL_IO(temporary, "create");
    if (write_all(fd, data, bytes) != 0 || fsync(fd) != 0)
        error = errno;
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(temporary, path) != 0)
        error = errno;
    if (error) {
        unlink(temporary);
        errno = error;
        return FAIL_IO(path, "write");
    }
    SP_TRY(sp_file_sync_folder_of(path));
    return SP_OK;
}

/* Read to the end: what fstat says may be 0 (/proc) or old. */
sp_status sp_file_read(const char *path, char **data, size_t *bytes)
{
    size_t used = 0, capacity = 4096;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = malloc(capacity), *grown = text;
    ssize_t n = 1;
    int error;

    *data = NULL;
    while (fd >= 0 && grown && n > 0) {
        if (used + 1 == capacity) {
            grown = realloc(text, capacity * 2);
            text = grown ? grown : text;
            capacity = grown ? capacity * 2 : capacity;
            continue;
        }
        n = read(fd, text + used, capacity - used - 1);
        used += n > 0 ? (size_t)n : 0;
    }
    error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    if (fd >= 0 && grown && n == 0) {
        text[used] = 0;
        *data = text;
        if (bytes)
            *bytes = used;
        return SP_OK;
    }
    free(text);
    errno = error;
    if (fd >= 0 && !grown)
        return SP_FAIL(SP_EMEM, "%s: %zu bytes to read", path, capacity);
    return FAIL_IO(path, "read");
}
