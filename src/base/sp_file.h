/* Files and folders, with errors that say which: SP_EIO, path and the system's text. */
#ifndef SP_FILE_H
#define SP_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/sp_error.h"

/* sp_file_replace writes to the path with this and the writer's number behind it. */
#define SP_FILE_TEMPORARY ".tmp-"

/* Bytes that sp_file_read takes at most. */
enum { SP_FILE_MOST = 1 << 30 };

/* The folder and those above it, as far as they are missing. */
sp_status sp_file_make_folder(const char *path);
/* The same for the folder that holds path. */
sp_status sp_file_make_folder_of(const char *path);
/* Open a file with the flags of open(2); a new one gets mode 0666 less the umask. What
 * is no regular file is refused and never waited for; with O_NOFOLLOW a symbolic link
 * is refused too. The caller closes *fd. */
sp_status sp_file_open(const char *path, int flags, int *fd);
/* Replace the file's content so that at any instant, a crash included, it is the old or
 * the new: written beside it (as path.tmp-<writer>), flushed to disk, renamed, the
 * folder flushed. Processes that may write the same file at the same time have
 * different writer numbers. A link at path or at the temporary name is replaced, not
 * followed. */
sp_status sp_file_replace(const char *path, const char *data, size_t bytes, int writer);
/* Add a line (without its newline) to the file, or make it; behind half a line that a
 * killed writer left begins a new one. Flushed to disk. A link is not followed. */
sp_status sp_file_append_line(const char *path, const char *line);
/* The whole regular file, malloc'd, a NUL added; bytes may be NULL. SP_EDATA for one of
 * more than SP_FILE_MOST bytes. */
sp_status sp_file_read(const char *path, char **data, size_t *bytes);
/* Make a rename or a new name in the folder that holds path last through a crash. */
sp_status sp_file_sync_folder_of(const char *path);

/* Delete the regular files of a folder whose names `is_leftover` claims; links, folders
 * and all else stay. One that cannot be deleted is a warning; no folder is SP_OK. */
sp_status sp_file_remove_if(const char *dir, bool (*is_leftover)(const char *name));

#endif
