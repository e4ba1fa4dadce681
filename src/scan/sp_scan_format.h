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

enum { SP_SCAN_NAME = 64, SP_SCAN_LINE = 65536 };

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

extern const sp_scan_format sp_scan_las, sp_scan_laz, sp_scan_kitti, sp_scan_ply,
    sp_scan_ply_lists, sp_scan_pcd, sp_scan_text, sp_scan_npy;

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
/* A stream of its own on the file, at byte `at`. */
sp_status sp_scan_stream(sp_scan *scan, int64_t at, FILE **stream);
/* The records lie in the file: compare their size with the file's. */
sp_status sp_scan_check_size(const sp_scan *scan);
/* n numbers divided by blanks, tabs, commas or semicolons; number of them read. */
int sp_scan_numbers(const char *line, double *to, int n);

bool sp_scan_is_big_endian(void);
uint16_t sp_scan_le16(const unsigned char *at);
uint32_t sp_scan_le32(const unsigned char *at);
uint64_t sp_scan_le64(const unsigned char *at);
double sp_scan_lef64(const unsigned char *at);

#endif
