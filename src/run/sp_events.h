/* Event files of TensorBoard, written without it.
 *
 *     DIR/events.out.tfevents.<seconds>.<host>.sptrain      one for each start of a run
 *
 *     record   u64 length | u32 crc of length | bytes | u32 crc of bytes; little-endian
 *     bytes    a protobuf message Event: wall_time, step, and one of
 *                file_version "brain.Event:2"       the first record of a file
 *                session_log START                  steps from here on are new
 *                summary: values, each a tag with a scalar, a text or a picture
 *
 * The framing is as in TFRecord files (crc: CRC-32C, rotated by 15 bits and added to
 * 0xa282ead8); the messages are as in tensorboard/compat/proto/event.proto and
 * summary.proto. A record is written by one call, so a killed process leaves whole
 * records, or at worst a torn last one, which readers ignore and sp_events_cut removes.
 *
 * Local; only rank 0 has event files. Scalars allocate nothing once a record with the
 * same number of them has been written. With a NULL file the functions do nothing.
 * Failures of the file system are SP_EIO with path and the system's text. */
#ifndef SP_EVENTS_H
#define SP_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

typedef struct sp_events sp_events;

/* Prepares the folder for a run that continues after `step`: removes the records of
 * later steps, and a torn last record; a file without remaining records is deleted.
 * Files with other names are kept. A missing folder is SP_OK. */
sp_status sp_events_cut(const char *dir, int64_t step);

/* Makes a new file in the folder, which is made too, for steps from first_step on.
 * *events is NULL after a failure. SP_EMEM. */
sp_status sp_events_create(sp_events **events, const char *dir, const char *host,
                           int64_t first_step);
void sp_events_destroy(sp_events *events);

/* Begins a record with values of this step; time_s: seconds since 1970. */
void sp_events_begin(sp_events *events, int64_t step, double time_s);
/* Appends a value. Its tag is "group/name", in printable form; TensorBoard shows the
 * values of a group together. The scalar is rounded to float32; one that is not finite
 * is left out. The text is shown unchanged, line by line, and not as Markdown. The
 * picture is a PNG file. */
void sp_events_scalar(sp_events *events, const char *group, const char *name,
                      double value);
void sp_events_text(sp_events *events, const char *group, const char *name,
                    const char *text);
void sp_events_picture(sp_events *events, const char *group, const char *name,
                       int width, int height, const void *png, size_t bytes);
/* Writes the record, if it has any value. SP_EMEM, SP_EIO: the file is as before. */
sp_status sp_events_end(sp_events *events);
/* Flushes the file to disk. */
sp_status sp_events_sync(sp_events *events);

#endif
