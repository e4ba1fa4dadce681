/* The extents of scans, kept in a text file between runs (--index), so that a scan
 * without an extent in its header is read for it only once.
 *
 *     sptrain-index 1
 *     BYTES SECONDS.NANOSECONDS POINTS LOW_X LOW_Y HIGH_X HIGH_Y PATH
 *
 * A line counts only if length and time of the file are the same. Local; rank 0 uses
 * it. */
#ifndef LABEL_INDEX_H
#define LABEL_INDEX_H

#include "label/label_options.h"

typedef struct label_index_entry {
    char stamp[64]; /* length and time of the file */
    int64_t n_points;
    vox_extent extent;
    char *path;    /* absolute */
    bool is_found; /* by this run, so no earlier entry of the path counts */
} label_index_entry;

/* All zero: empty. */
typedef struct label_index {
    int64_t n, n_read;        /* entries; those of the file, which come first, sorted */
    label_index_entry *entry; /* [n] */
    bool is_changed;
} label_index;

/* Reads the file; NULL, or a file that does not exist: the index is empty. SP_EDATA: it
 * is not an index; SP_EIO; SP_EMEM. Free in any case. */
sp_status label_index_read(label_index *index, const char *path);
void label_index_free(label_index *index);
/* Gives the number and the extent of a scan's points: of the index, of its header, or
 * by reading all of it. n_points -1: the header does not count, and the scan was not
 * read. Errors of reading the scan. */
sp_status label_index_find(label_index *index, sp_scan *scan, int64_t *n_points,
                           vox_extent *extent);
/* Writes the file if something has changed, and sorts the entries, so that no search
 * follows; path NULL does nothing. SP_EIO; SP_EMEM. */
sp_status label_index_write(label_index *index, const char *path);
/* Words the length and the time of a file. False: it is no regular file. */
bool label_index_stamp(const char *path, char text[64]);

#endif
