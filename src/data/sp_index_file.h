/* The index file of a folder, SP_INDEX_FILE (input/SCHEMA): what opening a data set needs
 * of each shard in the folder, so that it starts no child, opens no shard and reads no
 * table of a shard.
 *
 *     spvox index: shards --sp_h5_open_each, sp_shard_header--> parts --> index file
 *     start:       index file --size and time of each shard are compared--> parts
 *
 * A shard that has changed since, that the file does not have, or whose folder has no such
 * file, is opened as always. The result is the same. */
#ifndef SP_INDEX_FILE_H
#define SP_INDEX_FILE_H

#include <limits.h>

#include "data/sp_shard.h"

#define SP_INDEX_FILE "spvox.index"

/* The shards of an index file that was written, and those that cannot be in one, because
 * each start looks through their features for what rounding loses. */
typedef struct sp_indexed {
    char path[PATH_MAX];
    int n_files, n_left_out;
    int64_t n_samples, n_bytes;
} sp_indexed;

/* True if both paths are in one folder, by their texts. */
bool sp_index_is_beside(const char *a, const char *b);
/* Writes the index file of a folder with the shards paths[0 .. n-1], which are in it.
 * Local. SP_EDATA: a shard is damaged; SP_EIO, SP_EMEM. */
sp_status sp_index_file_write(char *const *paths, int n, sp_indexed *indexed);

/* The index file that is open; zero it to begin. */
typedef struct sp_index_reader {
    char *beside; /* a shard in the folder; NULL: not looked for yet */
    int fd;
    int64_t n;
    struct sp_index_entry *entry; /* [n] by name; NULL: the folder has no such file */
    char *stale;                  /* the first shard that has changed since */
    int n_stale;
} sp_index_reader;

/* Reads the part of a shard, an empty set, from the index file of its folder. False: it
 * must be opened; a damaged index file is a warning. */
bool sp_index_reader_read(sp_index_reader *reader, const char *path, sp_dataset *part);
/* Warns of shards that have changed, and closes. */
void sp_index_reader_end(sp_index_reader *reader);

#endif
