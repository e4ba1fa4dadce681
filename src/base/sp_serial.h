/* Data as bytes between processes of this program on machines of one kind. The same
 * sequence of calls writes a buffer that grows and reads a given one, so that the two
 * cannot differ. The input may come from a broken process: nothing is allocated that
 * the buffer does not hold.
 */
#ifndef SP_SERIAL_H
#define SP_SERIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

/* The buffer and the position in it. The caller zeroes it to write, and sets data, size
 * and is_reading to read. */
typedef struct sp_serial {
    unsigned char *data; /* the bytes; malloc'd by writing, for the caller to free */
    /* the bytes that are written, or that there are to read; the bytes that a writer
     * has allocated; the byte that is read next */
    size_t size, room, at;
    bool is_reading;
    sp_status rc; /* the first failure; later calls do nothing */
} sp_serial;

/* Writes these bytes, or reads the same number. SP_EDATA if fewer are left; SP_EMEM. */
void sp_serial_bytes(sp_serial *serial, void *data, size_t bytes);
/* A flag; SP_EDATA if the byte is neither 0 nor 1. */
void sp_serial_flag(sp_serial *serial, bool *flag);
/* A number of things that each need at least `least` bytes: SP_EDATA if a buffer that
 * is read cannot hold that many. */
void sp_serial_count(sp_serial *serial, int64_t *n, size_t least);
/* A struct of `bytes` bytes that may be absent: true if its content follows. When read
 * it is calloc'd, or NULL if absent. */
bool sp_serial_struct(sp_serial *serial, void **data, size_t bytes);
/* Texts and arrays that are read are malloc'd; NULL stays NULL. One zero byte more ends
 * an array. */
void sp_serial_text(sp_serial *serial, char **text);
void sp_serial_texts(sp_serial *serial, char ***texts, int64_t n);
void sp_serial_array(sp_serial *serial, void **data, int64_t count, size_t size);

#endif
