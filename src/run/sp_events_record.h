/* The parts of event files (sp_events.h) that do not depend on TensorBoard's messages:
 * protobuf fields, framed records, and the files of a folder. */
#ifndef SP_EVENTS_RECORD_H
#define SP_EVENTS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

/* All functions are local.
 *
 * ---- protobuf ---- A buffer that only grows; zeroed at first, `data` is the owner's
 * to free. If memory runs out, is_short stays set, through sp_proto_nested too. */
typedef struct sp_proto {
    unsigned char *data; /* [room] */
    size_t n, room;
    bool is_short;
} sp_proto;

/* Empties the buffer; its memory is kept. */
static inline void sp_proto_clear(sp_proto *message)
{
    message->n = 0;
    message->is_short = false;
}

/* Appends bytes unchanged, without a field's head. */
void sp_proto_bytes(sp_proto *to, const void *data, size_t bytes);
/* Each function appends the field of this number to a message; the value is copied.
 * Numbers of 0 are written too. */
void sp_proto_int(sp_proto *to, int field, int64_t value); /* not negative */
void sp_proto_double(sp_proto *to, int field, double value);
void sp_proto_float(sp_proto *to, int field, float value);
void sp_proto_field(sp_proto *to, int field, const void *data, size_t bytes);
void sp_proto_text(sp_proto *to, int field, const char *text);
void sp_proto_nested(sp_proto *to, int field, const sp_proto *message);
/* Finds the last value of an integer field; a missing one is 0. False: the bytes are no
 * message. */
bool sp_proto_find_int(const unsigned char *data, size_t n, int field, int64_t *value);

/* ---- records ---- */

enum { SP_RECORD_HEAD = 12, SP_RECORD_TAIL = 4 };

/* Empties the buffer and leaves room for the head; sp_record_close fills the head in
 * and appends the tail, unless memory ran out. */
void sp_record_open(sp_proto *record);
void sp_record_close(sp_proto *record);

typedef struct sp_record_reader {
    int fd;
    unsigned char *data; /* [n] the present record */
    size_t n, room;
    int64_t at, size; /* end of the present record; of the file */
    bool is_short;    /* memory ran out */
    int error;        /* errno of a failed read, or 0 */
    /* The reader stopped at a wrong checksum, not at a record that the file's end cuts.
     */
    bool is_damaged;
} sp_record_reader;

/* Opens a file at its first record, for writing too, and keeps its present size as the
 * end. Follows no link. Errors of sp_file_open; SP_EIO. To be closed, unless it
 * fails. */
sp_status sp_record_reader_open(sp_record_reader *reader, const char *path);
void sp_record_reader_close(sp_record_reader *reader);
/* Reads the next record into reader->data, which the next call overwrites. False at the
 * end, and if no complete record with the right checksums follows: is_short, error and
 * is_damaged give the reason. */
bool sp_record_next(sp_record_reader *reader);

/* ---- files ---- */

#define SP_RECORD_PREFIX "events.out.tfevents."
#define SP_RECORD_SUFFIX ".sptrain"

/* The number in the name of such a file; -1 for other files. */
int64_t sp_record_number(const char *path);

#endif
