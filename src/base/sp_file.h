/* Files and folders. Every failure is SP_EIO, unless noted, with the path and the
 * system's text in the message. All functions are local and may be called by any
 * thread. */
#ifndef SP_FILE_H
#define SP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sp_error.h"

/* sp_file_replace writes to a temporary file first: the path, this text and the
 * writer's number. */
#define SP_FILE_TEMPORARY ".tmp-"

/* The ending of a file that is not complete yet (sp_file_rename). */
#define SP_FILE_UNFINISHED ".tmp"

/* The largest file that sp_file_read reads, in bytes. */
enum { SP_FILE_MOST = 1 << 30 };

/* Creates the folder and the missing ones above it. */
sp_status sp_file_make_folder(const char *path);
/* The same for the folder that holds path. */
sp_status sp_file_make_folder_of(const char *path);
/* Opens a file with the flags of open(2); a new file gets mode 0666 less the umask.
 * Anything but a regular file is refused, and the call never waits for a FIFO's writer;
 * with O_NOFOLLOW a symbolic link is refused too. The caller closes *fd. */
sp_status sp_file_open(const char *path, int flags, int *fd);
/* Closes the descriptor of a variable unless it is negative, for SP_CLOSED_BY. */
void sp_file_done(int *fd);
/* False if the path no longer leads to the file of the descriptor: somebody deleted or
 * replaced it. */
bool sp_file_is_at(const char *path, int fd);
/* Replaces the file's content so that at any instant, even after a crash, it is either
 * the old or the new one: the new content is written next to it (path.tmp-<writer>) and
 * flushed to disk, the file is renamed, and the folder is flushed. Processes that may
 * write the same file at the same time have different writer numbers. A symbolic link
 * at path or at the temporary name is replaced, not followed. */
sp_status sp_file_replace(const char *path, const char *data, size_t bytes, int writer);
/* The same without flushing, which takes milliseconds: for files that can be made
 * again, since a crash of the machine may leave the new name with a part of the
 * content. */
sp_status sp_file_replace_unflushed(const char *path, const char *data, size_t bytes,
                                    int writer);
/* Gives a complete file its name, replacing an older file or link, and flushes the folder.
 * SP_EIO: a pipe, device or folder has this name. */
sp_status sp_file_rename(const char *temporary, const char *path);
/* Appends n pieces to a file that was opened with O_APPEND, by one call, so that
 * readers see all of them or nothing. A disk that fills up accepts a part, which is cut
 * off again. *end becomes the file's length. */
struct iovec;
sp_status sp_file_append(int fd, const char *path, const struct iovec *piece, int n,
                         int64_t *end);
/* Appends a line (given without its newline), creates the file if it does not exist,
 * and flushes it to disk. If the file ends with half a line, which a killed writer
 * left, that line is ended first. A symbolic link is not followed. */
sp_status sp_file_append_line(const char *path, const char *line);
/* Forms dir/name in path [PATH_MAX], cut if it is too long (no run begins in such a
 * folder). Returns path. */
const char *sp_file_in(const char *dir, const char *name, char *path);
/* Forms a path to this program's executable in path [PATH_MAX]. It is /proc/self/exe
 * only if the file was replaced or removed, since under valgrind this link leads to
 * valgrind itself. Returns path. */
const char *sp_file_of_program(char *path);
/* The part of the path after its last slash. */
const char *sp_file_name(const char *path);
/* Overwrites an existing file, not atomically: a reader may for a moment find blanks
 * after the text. Used if the disk has no room for sp_file_replace. SP_EIO. */
sp_status sp_file_overwrite(const char *path, const char *data, size_t bytes);
/* True if the system says that there is no such file. False if it cannot tell, as
 * without permission for the folder: opening the file reports that. */
bool sp_file_is_absent(const char *path);
/* True if both paths lead to one file. */
bool sp_file_is_same(const char *a, const char *b);
/* Counts the paths that lead to the same file as an earlier one of them, and marks them
 * in is_again [n] (NULL: not wanted), which the caller has cleared. example: the
 * numbers of two such paths. SP_EMEM. */
sp_status sp_file_find_again(int n, char *const *path, bool *is_again, int *n_again,
                             int example[2]);
/* True if the path has one of these endings (separated by blanks, case ignored) after a
 * non-empty name. */
bool sp_file_ends_in(const char *path, const char *endings);
/* True if the path is a regular file that begins with these bytes, 16 at most. Opening
 * a pipe would wait for a writer. */
bool sp_file_begins(const char *path, const char *head, size_t bytes);
/* Reads a whole regular file into *data, malloc'd for the caller, with a NUL after it;
 * bytes may be NULL. SP_EDATA if the file has more than SP_FILE_MOST bytes; SP_EMEM. */
sp_status sp_file_read(const char *path, char **data, size_t *bytes);
/* Checks a file that the user names as input: SP_EDATA if it does not exist or is not a
 * regular file. Other errors are left to the call that opens it. */
sp_status sp_file_check_input(const char *path);
/* sp_file_read after this check. */
sp_status sp_file_read_input(const char *path, char **data, size_t *bytes);
/* Write or read all of these bytes at byte `at` of an open file; path is for messages.
 * A file that ends early is SP_EIO, since its size was known before. */
sp_status sp_file_write_at(int fd, const char *path, const void *data, size_t bytes,
                           int64_t at);
sp_status sp_file_read_at(int fd, const char *path, void *data, size_t bytes,
                          int64_t at);
/* Closes a stream that was written to. False, with errno: some of it was not written. */
bool sp_file_close(FILE *to);
/* Flushes the folder that holds path, so that a rename or a new name in it survives a
 * crash. */
sp_status sp_file_sync_folder_of(const char *path);

/* Calls `visit` for the path of each entry of the folder, in no order. A missing folder
 * is SP_OK; the first error of `visit` ends it. */
sp_status sp_file_each(const char *dir, sp_status (*visit)(const char *path, void *arg),
                       void *arg);
/* Deletes the regular files of a folder if `is_leftover` is true for their names;
 * links, folders and all else stay. A file that cannot be deleted is a warning. A
 * missing folder is SP_OK. */
sp_status sp_file_remove_if(const char *dir, bool (*is_leftover)(const char *name));

#endif
