/* What a reader of one scan format provides; only sp_scan*.c include this.
 *
 * open() fills the table of fields and either sets data_at and n_points, when the
 * records lie in the file as they are, or the format has a fill() that makes records
 * (from text, from a compressed file, from two files at once):
 *
 *     record  | x | y | z | intensity | flags | ...        record_bytes
 *     field     at ---------^          kind, size, bits, scale
 */
#ifndef SP_SCAN_FORMAT_H
#define SP_SCAN_FORMAT_H

#include <stddef.h>
#include <stdio.h>

#include "scan/sp_scan.h"

enum {
    SP_SCAN_NAME = 64,
    SP_SCAN_LINE = 1 << 20, /* bytes of a line of text at most */
    SP_SCAN_FIELDS = 4096,  /* numbers of a point at most */
    SP_SCAN_ROOM = 64 << 20 /* bytes of the buffers of a block of points */
};

typedef struct sp_scan_field {
    char name[SP_SCAN_NAME];
    int at;            /* byte in the record */
    char kind;         /* 'i' signed, 'u' unsigned, 'f' float */
    int size;          /* bytes */
    int shift, bits;   /* of an unsigned field; bits 0: all of it */
    bool is_swapped;   /* byte order is not this machine's */
    double scale, add; /* value = raw * scale + add */
} sp_scan_field;

typedef struct sp_scan_format {
    const char *name;
    sp_status (*open)(sp_scan *scan, const sp_scan_options *options);
    /* Up to max records to `to`; *n is 0 at the end. NULL: records lie in the file. */
    sp_status (*fill)(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n);
    sp_status (*rewind)(sp_scan *scan); /* NULL: nothing but scan->row to set */
    void (*close)(sp_scan *scan);       /* NULL: nothing of its own */
    bool is_count_claimed; /* by the header alone: the file's size does not bound it */
} sp_scan_format;

struct sp_scan {
    char *path;
    char title[64]; /* format as people say it */
    const sp_scan_format *format;
    int fd;
    int64_t file_bytes;
    int64_t n_points; /* -1: unknown */
    int64_t data_at;  /* first record, where they lie in the file */
    int record_bytes;
    int n_fields;
    sp_scan_field *field;
    int axis[3], label;        /* fields; label -1: none */
    int n_selected, *selected; /* fields */
    int64_t row;               /* next record */
    unsigned char *record;     /* [record_capacity] records being decoded */
    int64_t record_capacity;
    void *own; /* of the format */
};

/* Lines of text, read one at a time from a stream of its own. Zero at first. */
typedef struct sp_scan_lines {
    FILE *stream;
    char *line; /* the last one read, without its end */
    size_t capacity;
    int64_t number; /* of the last one read, from 1 */
} sp_scan_lines;

extern const sp_scan_format sp_scan_las, sp_scan_laz, sp_scan_laz_here, sp_scan_kitti,
    sp_scan_ply, sp_scan_ply_lists, sp_scan_pcd, sp_scan_text, sp_scan_npy;

/* Append a field of the machine's byte order, scale 1; returned to be changed. NULL:
 * memory. */
sp_scan_field *sp_scan_add(sp_scan *scan, const char *name, int at, char kind,
                           int size);
/* Index of a field, -1. "scalar_" and case do not matter. */
int sp_scan_find(const sp_scan *scan, const char *name);
/* Name the fields by a list of columns ("-" or an empty name: nothing). SP_EUSAGE. */
sp_status sp_scan_name_columns(sp_scan *scan, const char *columns);
/* Exactly `bytes` at `at`; SP_EDATA "ends at byte" where the file is shorter. */
sp_status sp_scan_pread(sp_scan *scan, void *to, size_t bytes, int64_t at);
/* Open a regular file and find its size; nothing else is a scan, and a pipe would wait
 * for a writer for ever. *fd is -1 where there is no such file; SP_EDATA for another
 * kind, SP_EIO where it cannot be opened. */
sp_status sp_scan_open_regular(const char *path, int *fd, int64_t *bytes);
/* A header's number of points, each of at least `least` bytes from byte `at` on, is
 * believed as far as the file can hold them. */
sp_status sp_scan_check_size(const sp_scan *scan, int64_t count, int64_t least,
                             int64_t at);

/* ---- lines ---- */
sp_status sp_scan_lines_open(const sp_scan *scan, sp_scan_lines *lines);
void sp_scan_lines_close(sp_scan_lines *lines);
/* The next line; *got is false at the end. SP_EDATA for a line that is longer than
 * SP_SCAN_LINE or holds a zero byte. */
sp_status sp_scan_lines_next(const sp_scan *scan, sp_scan_lines *lines, bool *got);
/* To byte `at`, where line number + 1 begins. */
sp_status sp_scan_lines_seek(const sp_scan *scan, sp_scan_lines *lines, int64_t at,
                             int64_t number);
/* Up to n numbers divided by blanks and tabs: how many there are before anything else,
 * n + 1 where something follows them. */
int sp_scan_numbers(const char *line, double *to, int n);

bool sp_scan_is_big_endian(void);
uint16_t sp_scan_le16(const unsigned char *at);
uint32_t sp_scan_le32(const unsigned char *at);
uint64_t sp_scan_le64(const unsigned char *at);
double sp_scan_lef64(const unsigned char *at);

#endif
