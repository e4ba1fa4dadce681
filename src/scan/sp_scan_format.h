/* The interface that one scan format implements; only sp_scan*.c include it. Each
 * format describes itself by one sp_scan_format in its own file; the table of all of
 * them is in sp_scan_format.c, which recognizes files, writes classes and lists the
 * formats for help texts and messages.
 *
 * open() fills the table of fields. Then either the records lie in the file unchanged,
 * and open() sets data_at, record_bytes and n_points (checked by sp_scan_check_size),
 * or the format has a fill() that makes records (from text, from a compressed file,
 * from two files at once):
 *
 *     record  | x | y | z | intensity | flags | ...        record_bytes
 *     field     at ---------^          kind, size, bits, scale
 *
 * Fields named x, y and z are the coordinates; the label is found by the user's option
 * or by one of the names in label_names of sp_scan.c; all others are attributes. A
 * format's state between calls is `own`. sp_scan_npy.c is the shortest model. */
#ifndef SP_SCAN_FORMAT_H
#define SP_SCAN_FORMAT_H

#include <stddef.h>
#include <stdio.h>

#include "scan/sp_scan.h"

enum {
    SP_SCAN_NAME = 64,
    SP_SCAN_HEAD = 128,     /* bytes at a file's beginning that identify its format */
    SP_SCAN_LINE = 1 << 20, /* most bytes of a line of text */
    SP_SCAN_FIELDS = 4096,  /* most numbers of a point */
    SP_SCAN_ROOM = 64 << 20 /* bytes that the buffers of one block of points may have */
};

/* One field of a record: its place, its type and how its value is scaled. */
typedef struct sp_scan_field {
    char name[SP_SCAN_NAME];
    int at;            /* first byte in the record */
    char kind;         /* 'i' signed, 'u' unsigned, 'f' float */
    int size;          /* bytes */
    int shift, bits;   /* part of an unsigned field that counts; bits 0: all of it */
    double scale, add; /* value = raw * scale + add */
    bool is_big;       /* its highest byte comes first */
    int wide_at; /* a byte of the record that is the value if it is above 31; 0: no */
    /* The stored number that means "no value", which is read as NaN: of floats no_data,
     * of integers the bits. */
    bool has_no_data;
    double no_data;
    uint64_t no_data_bits;
    char copy_kind; /* the type that the file names, for copies: numbers in text */
    int copy_size;  /* have 8 bytes in the record; size 0: no name */
} sp_scan_field;

struct sp_scan_format;

/* The part of a copy that is written: all of it, or by one of several writers a part,
 * or the copy from all parts. */
typedef struct sp_scan_part {
    const struct sp_scan_format *format; /* of the copy */
    FILE *to;          /* the file that is written, which the caller opens and closes */
    const char *name;  /* of that file */
    int n, k;          /* writers, 0: one has all; which one this is */
    char *const *path; /* [n] the files that they wrote; NULL: the part k is written */
} sp_scan_part;

/* A file of columns that is being written (sp_scan_write_file). */
typedef struct sp_scan_writing sp_scan_writing;

/* One format. Members not marked NULL are required. */
typedef struct sp_scan_format {
    const char *name;
    const char *endings; /* usual endings of its files, in any case: ".txt .xyz" */
    const char *help;    /* a description of such files, for help texts */
    /* True for a file that begins with `head`, which has zeros after the file's end.
     * NULL: the endings decide. */
    bool (*is_ours)(const unsigned char head[SP_SCAN_HEAD]);
    size_t own_bytes; /* of scan->own, which is zeroed before open(); 0: not used */
    sp_status (*open)(sp_scan *scan);
    /* Writes max records to `to`, which the file has if it says how many it has. *n,
     * which is max, becomes less if it ends before. NULL: the records lie in the
     * file. */
    sp_status (*fill)(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n);
    sp_status (*rewind)(sp_scan *scan); /* NULL: setting scan->row suffices */
    /* Limits reading to the rows *first .. *end - 1, and moves these to rows where it
     * can begin, equal rows to equal ones; *is_able: false if it can only begin at row
     * 0. NULL: reading can begin at any row if `rewind` is NULL, else at row 0. */
    sp_status (*limit)(sp_scan *scan, int64_t *first, int64_t *end, bool *is_able);
    /* Closes and frees all that `own` holds, which is there. NULL: it has nothing. */
    void (*close)(sp_scan *scan);
    /* n_points comes from the header, and more than a byte of the file for each is not
     * certain: a compressed file may claim more points than it holds */
    bool is_count_claimed;
    /* Writes the scan with other classes, or what the part says, if the format has a
     * `section`. Closing reports whether putc and its like failed. NULL: the format is
     * not written. */
    sp_status (*write)(sp_scan *scan, const sp_scan_labels *labels,
                       const sp_scan_part *part);
    /* sp_scan_write_file calls them: they write what comes before the points, and a
     * number of the kind and size of its column. An integer of eight bytes is given as
     * its bits. `after` is the character after the number: a blank, or a newline after
     * a point's last one. */
    void (*put_head)(const sp_scan_writing *writing);
    void (*put_number)(FILE *to, double x, char kind, int size, char after);
    /* As sp_scan_section, of a copy in the format `as`. NULL: one writer has all. */
    int64_t (*section)(sp_scan *scan, const struct sp_scan_format *as);
    /* Checks whether these fields fit. NULL: any do. */
    sp_status (*check_added)(const sp_scan *scan, int n, const sp_scan_added *added);
    /* The largest code that fits, for copies of this scan. NULL: any does. */
    int32_t (*most_code)(const sp_scan *scan);
    const char *written;      /* ending of a file that is written so */
    const char *written_help; /* the content of such a file, for help texts */
    int32_t no_class;         /* code of a point without a class */
    bool is_dense; /* each record holds a point: NaN coordinates are damage */
} sp_scan_format;

/* Lines of text, read one at a time through a stream of their own. All zero before
 * sp_scan_lines_open. */
typedef struct sp_scan_lines {
    FILE *stream;
    char *line; /* the last line read, without its end */
    size_t capacity;
    char end;       /* of a line: a newline, or a single carriage return */
    int64_t number; /* number of the last line read, from 1 */
    /* The first byte of the points, and the number of lines before it. */
    int64_t begin_at, begin_number;
} sp_scan_lines;

struct sp_scan {
    char *path;
    char title[64]; /* the format's name for messages */
    /* The units of x and y, and of z, as the records name them; NULL: they do not. */
    const char *unit, *z_unit;
    bool is_geocentric;        /* see sp_scan_is_geocentric */
    int epsg;                  /* see sp_scan_epsg */
    char *note[SP_SCAN_NOTES]; /* see sp_scan_note */
    bool has_extent;           /* the header claims the next two, low <= high */
    double low[3], high[3];
    const sp_scan_format *format;
    sp_scan_options options; /* see sp_scan_open */
    int fd;
    int64_t file_bytes;
    int64_t n_points; /* -1: not known */
    int64_t data_at;  /* byte of the first record, if records lie in the file */
    int record_bytes;
    int n_fields;
    sp_scan_field *field;
    int axis[3], label;        /* numbers of fields; label -1: not in the file */
    int n_selected, *selected; /* numbers of fields */
    /* The selected attributes are for a copy: they may be not finite, and an integer of
     * eight bytes is stored as its bits (a double holds 53). */
    bool is_copied;
    int64_t row;                /* number of the next record */
    int64_t first_row, end_row; /* of sp_scan_limit; end_row -1: no limit */
    unsigned char *record;      /* [record_capacity] buffer of records to decode */
    int64_t record_capacity;
    /* The file that the labels are read from, if it is not the scan's, else NULL. */
    const char *label_path;
    /* Another scan with the labels of this one's points, or NULL, and its buffers. */
    sp_scan *beside;
    sp_scan_points beside_points;
    sp_scan_lines lines; /* of formats with text; sp_scan_close closes them */
    void *own;           /* private to the format; sp_scan_close frees it */
};

/* The formats; sp_scan_las, the one of `las`, is at the end of sp_scan_las.c. The first
 * that fits a file counts, so formats known by their first bytes come before formats
 * known by name. */
#define SP_SCAN_FORMATS(X)      X(las) X(laz) X(ept) X(ply) X(npy) X(pcd) X(kitti) X(text)
#define SP_SCAN_DECLARE(format) extern const sp_scan_format sp_scan_##format;
SP_SCAN_FORMATS(SP_SCAN_DECLARE)
SP_SCAN_DECLARE(ply_lists) /* PLY files that have lists to skip, see sp_scan_ply.c */

/* The format of a file by its first bytes, else by the ending of its name. SP_EDATA
 * lists the endings that are known. */
sp_status sp_scan_recognize(const char *path, const unsigned char head[SP_SCAN_HEAD],
                            const sp_scan_format **format);

/* Appends a field, and gives it this name. SP_EMEM. */
sp_status sp_scan_add(sp_scan *scan, const char *name, sp_scan_field field);
/* Number of the field of this name, -1 if it does not exist. Case and the prefix
 * "scalar_" do not matter. */
int sp_scan_find(const sp_scan *scan, const char *name);
/* Does a column of this name hold a coordinate, by the letters x, y, z or by a word
 * such as Easting? */
bool sp_scan_is_axis(const char *name);
/* The number of the column that is the axis 0 to 2, among n names; -1 if no name, or
 * more than one, is this axis. */
int sp_scan_find_axis(int axis, int n, const char *const *names);
/* Sets scan->unit from the names of the axes, if the file has no unit, and names their
 * fields x, y and z. SP_EUSAGE: a unit that scans do not have; SP_EDATA: two units. */
sp_status sp_scan_find_unit(sp_scan *scan);
/* Names the fields by the columns of the options; "-", "_" or an empty name leaves a
 * field without a name. Without such a list three are x, y and z, and others are
 * refused. SP_EUSAGE. */
sp_status sp_scan_name_columns(sp_scan *scan);
/* Keeps a remark about the scan for sp_scan_note; without memory it is lost. */
void sp_scan_keep_note(sp_scan *scan, sp_scan_note_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads exactly `bytes` bytes at byte `at`. SP_EDATA "ends at byte": the file is
 * shorter. */
sp_status sp_scan_pread(sp_scan *scan, void *to, size_t bytes, int64_t at);
/* Reads the records from scan->row on, at most max, which the caller counts. */
sp_status sp_scan_records(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n);
/* Opens the file scan->path, which must be a regular one, and finds its size. Other
 * kinds of file are refused: opening a pipe would wait for a writer for ever. scan->fd
 * is -1, with SP_OK, if there is no such file. SP_EDATA: another kind of file;
 * SP_EIO: it cannot be opened. */
sp_status sp_scan_open_regular(sp_scan *scan);
/* Checks a header's number of points against the file's size: each point needs at least
 * `least` bytes from byte `at` on. SP_EDATA. */
sp_status sp_scan_check_size(const sp_scan *scan, int64_t count, int64_t least,
                             int64_t at);

/* ---- labels in a second file (sp_scan_beside.c) ---- */

/* Opens NAME.labels.ply beside NAME.ply, if it exists, as scan->beside. SP_EDATA: it has
 * other points or no label; errors of opening a scan. */
sp_status sp_scan_beside_open(sp_scan *scan);
/* Limits scan->beside, if it is there, as the scan was limited. */
sp_status sp_scan_beside_limit(sp_scan *scan, int part, int n_parts);
/* Reads the labels of the n points that were read last from scan->beside, if it is
 * there. SP_EDATA: a point is elsewhere in it; errors of reading. */
sp_status sp_scan_beside_next(sp_scan *scan, const sp_scan_points *points, int64_t n);
void sp_scan_beside_close(sp_scan *scan);

/* ---- lines ---- */
sp_status sp_scan_lines_open(sp_scan *scan);
void sp_scan_lines_close(sp_scan_lines *lines);
/* Reads the next line; *got is false at the end. SP_EDATA: a line is longer than
 * SP_SCAN_LINE or holds a zero byte. */
sp_status sp_scan_lines_next(sp_scan *scan, bool *got);
/* Goes to byte `at`, where line number + 1 begins. */
sp_status sp_scan_lines_seek(sp_scan *scan, int64_t at, int64_t number);
/* Notes that the points begin with the next line; rewind, as sp_scan_format.rewind,
 * goes back to it. */
void sp_scan_lines_begin(sp_scan *scan);
sp_status sp_scan_lines_rewind(sp_scan *scan);
/* Reads a number of the text `at` into a field of eight bytes, the lowest first: 'f', a
 * double; 'i' or 'u', an integer that fits `size` bytes. Returns the text after it;
 * NULL: there is no such number. */
const char *sp_scan_number(const char *at, char kind, int size, unsigned char to[8]);

/* ---- writing ---- */

/* The columns of a file that is written from a scan: x, y, z, all its attributes but
 * the label and the fields to add. */
typedef struct sp_scan_columns {
    int n;
    const char *name[SP_SCAN_FIELDS]; /* borrowed from the scan */
    char kind[SP_SCAN_FIELDS];
    int size[SP_SCAN_FIELDS];
} sp_scan_columns;

/* Calls `put` with blocks of points. Their codes are final: no_class, or not negative.
 * `value` is [n][n_added]. */
typedef sp_status sp_scan_put_points(void *arg, const sp_scan_points *points,
                                     const int32_t *code, const float *value);
sp_status sp_scan_each_block(sp_scan *scan, const sp_scan_labels *labels,
                             int32_t no_class, sp_scan_put_points *put, void *arg);
struct sp_scan_writing {
    FILE *to;
    const sp_scan_format *format;
    const sp_scan_labels *labels;
    sp_scan_columns columns;
};
/* Writes a file of columns, as sp_scan_format.write: for each point its position, its
 * attributes, the added fields and its code. SP_EDATA, and what reading says. */
sp_status sp_scan_write_file(sp_scan *scan, const sp_scan_labels *labels,
                             const sp_scan_part *part);
/* The bits of a number of `bytes` bytes. */
uint64_t sp_scan_bits(const unsigned char *from, int bytes, bool is_big);
/* Writes a name as one word of printable characters. It may come from a hostile file,
 * and a newline in it would add lines to the header. */
void sp_scan_put_name(FILE *to, const char *name);
/* Writes the low `bytes` bytes of a number, the lowest first; ferror reports a
 * failure. */
void sp_scan_put(FILE *to, uint64_t bits, int bytes);

#endif
