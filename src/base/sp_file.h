/* Files and folders, with errors that say which: SP_EIO, path and the system's text. */
#ifndef SP_FILE_H
#define SP_FILE_H

#include <stddef.h>

#include "base/sp_error.h"

/* The folder and those above it, as far as they are missing. */
sp_status sp_file_make_folder(const char *path);
/* The same for the folder that holds path. */
sp_status sp_file_make_folder_of(const char *path);
/* Replace the file's content so that at any instant, a crash included, it is the old or
 * the new: written beside it (as path.tmp-<writer>), flushed to disk, renamed, the
 * folder flushed. Processes that may write the same file at the same time have
 * different writer numbers. */
sp_status sp_file_replace(const char *path, const char *data, size_t bytes, int writer);
/* The whole file, malloc'd, a NUL added; bytes may be NULL. */
sp_status sp_file_read(const char *path, char **data, size_t *bytes);
/* Make a rename or a new name in the folder that holds path last through a crash. */
sp_status sp_file_sync_folder_of(const char *path);

#endif
