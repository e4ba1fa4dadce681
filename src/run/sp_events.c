#include "run/sp_events.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "base/sp_text.h"

/* ---- protobuf ---- */

/* The wire types of protobuf. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, WIRE_BITS = 3 };

/* A message, in a buffer that only grows; zeroed at first, `data` is the owner's to
 * free. If memory runs out, is_short stays set, through proto_nested too. The functions
 * that append a field copy its value; numbers of 0 are written too. */
typedef struct proto {
    unsigned char *data; /* [room] */
    size_t n, room;
    bool is_short;
} proto;

/* Empties the buffer; its memory is kept. */
static void proto_clear(proto *message)
{
    message->n = 0;
    message->is_short = false;
}

/* Appends bytes unchanged, without a field's head. */
static void proto_bytes(proto *to, const void *data, size_t bytes)
{
    assert(data || bytes == 0);
    if (!sp_list_reserve(&to->data, &to->room, to->n + bytes)) {
        to->is_short = true;
        return;
    }
    if (bytes > 0)
        memcpy(to->data + to->n, data, bytes);
    to->n += bytes;
}

static void put_varint(proto *to, uint64_t value)
{
    unsigned char byte;

    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        proto_bytes(to, &byte, 1);
    }
    byte = (unsigned char)value;
    proto_bytes(to, &byte, 1);
}

static void put_key(proto *to, int field, int type)
{
    assert(field > 0);
    put_varint(to, (uint64_t)field << WIRE_BITS | (uint64_t)type);
}

/* Appends the lowest n bytes of a number, the lowest first. */
static void put_fixed(proto *to, uint64_t bits, int n)
{
    unsigned char bytes[8];

    sp_put64(bytes, bits);
    proto_bytes(to, bytes, (size_t)n);
}

static void proto_int(proto *to, int field, int64_t value)
{
    assert(value >= 0);
    put_key(to, field, VARINT);
    put_varint(to, (uint64_t)value);
}

static void proto_double(proto *to, int field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(to, field, FIXED64);
    put_fixed(to, bits, 8);
}

static void proto_float(proto *to, int field, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(to, field, FIXED32);
    put_fixed(to, bits, 4);
}

static void proto_field(proto *to, int field, const void *data, size_t bytes)
{
    put_key(to, field, BYTES);
    put_varint(to, bytes);
    proto_bytes(to, data, bytes);
}

static void proto_text(proto *to, int field, const char *text)
{
    proto_field(to, field, text, strlen(text));
}

static void proto_nested(proto *to, int field, const proto *message)
{
    to->is_short = to->is_short || message->is_short;
    proto_field(to, field, message->data, message->n);
}

/* ---- records ---- */

enum { RECORD_HEAD = 12, RECORD_TAIL = 4 };
#define RECORD_PREFIX "events.out.tfevents."
#define RECORD_SUFFIX ".sptrain"

/* The checksum as TFRecord files have it, so that the checksum of data that hold
 * checksums is no constant. */
static uint32_t masked(const void *data, size_t bytes)
{
    const uint32_t crc = sp_crc32c(0, data, bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Empties the buffer and leaves room for the head; record_close fills the head in and
 * appends the tail, unless memory ran out. */
static void record_open(proto *record)
{
    static const unsigned char head[RECORD_HEAD];

    proto_clear(record);
    proto_bytes(record, head, sizeof head);
}

static void record_close(proto *record)
{
    proto head = {.data = record->data, .room = RECORD_HEAD};
    const size_t bytes = record->n - RECORD_HEAD;

    if (record->is_short)
        return;
    assert(record->n >= RECORD_HEAD);
    put_fixed(&head, bytes, 8);
    put_fixed(&head, masked(record->data, 8), 4);
    put_fixed(record, masked(record->data + RECORD_HEAD, bytes), RECORD_TAIL);
}

/* The number in the name of such a file; -1 for other files. */
static int64_t record_number(const char *path)
{
    const char *name = sp_file_name(path);
    const size_t n = strlen(name), end = strlen(RECORD_SUFFIX);
    int64_t number;

    if (strncmp(name, RECORD_PREFIX, strlen(RECORD_PREFIX)) != 0 || n < end ||
        strcmp(name + n - end, RECORD_SUFFIX) != 0 ||
        sscanf(name + strlen(RECORD_PREFIX), "%12" SCNd64 ".", &number) != 1 ||
        number < 0)
        return -1;
    return number;
}

/* ---- events ---- */

/* Field numbers of the messages, and values of their enums. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7,
    SESSION_STATUS = 1,
    SESSION_START = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SCALAR = 2,
    VALUE_IMAGE = 4,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    METADATA_PLUGIN = 1,
    PLUGIN_NAME = 1,
    TENSOR_TYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRING = 8,
    TYPE_STRING = 7,
    IMAGE_HEIGHT = 1,
    IMAGE_WIDTH = 2,
    IMAGE_COLORS = 3,
    IMAGE_FILE = 4,
    COLORS_RGB = 3
};

enum { TAG = 4096 };

struct sp_events {
    int fd;
    char path[PATH_MAX];
    proto record; /* head, Event, tail */
    proto values; /* of the summary */
    proto value, part;
    int64_t step;
    double time_s;
    bool is_gone; /* the file was deleted; the user has been informed */
};

/* ---- writing ---- */

/* Writes the record, framed. */
static sp_status write_record(sp_events *e)
{
    int64_t end;

    record_close(&e->record);
    if (e->record.is_short)
        return SP_FAIL(SP_EMEM, "%s: no memory for a record of more than %zu bytes",
                       e->path, e->record.n);
    return sp_file_append(e->fd, e->path, &(struct iovec){e->record.data, e->record.n},
                          1, &end);
}

static void begin_record(sp_events *e, int64_t step, double time_s)
{
    record_open(&e->record);
    proto_double(&e->record, EVENT_TIME, time_s);
    proto_int(&e->record, EVENT_STEP, step);
}

/* The first records of a file. */
static sp_status events_write_head(sp_events *e, int64_t first_step)
{
    const double now = (double)time(NULL);

    begin_record(e, 0, now);
    proto_text(&e->record, EVENT_VERSION, "brain.Event:2");
    SP_TRY(write_record(e));
    proto_clear(&e->part);
    proto_int(&e->part, SESSION_STATUS, SESSION_START);
    begin_record(e, first_step, now);
    proto_nested(&e->record, EVENT_SESSION, &e->part);
    return write_record(e);
}

static sp_status note_number(const char *path, void *last)
{
    *(int64_t *)last = sp_most(record_number(path), *(int64_t *)last);
    return SP_OK;
}

/* Creates the file. Readers read files in the order of their names, so the number is
 * above every existing file's, whatever the clock says. */
static sp_status events_create_file(sp_events *e, const char *dir, const char *host)
{
    int64_t number, last = 0;

    SP_TRY(sp_file_make_folder(dir));
    SP_TRY(sp_file_each(dir, note_number, &last));
    number = sp_most((int64_t)time(NULL), last + 1);
    if (snprintf(e->path, sizeof e->path,
                 "%s/" RECORD_PREFIX "%010" PRId64 ".%.60s" RECORD_SUFFIX, dir, number,
                 host) >= (int)sizeof e->path)
        return SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", dir, PATH_MAX);
    return sp_file_open(e->path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW,
                        &e->fd);
}

sp_status sp_events_create(sp_events **events, const char *dir, const char *host,
                           int64_t first_step)
{
    sp_events *e;
    sp_status rc;

    assert(dir && host && first_step >= 0);
    *events = NULL;
    SP_TRY(SP_NEW(&e, 1, "an event file"));
    e->fd = -1;
    rc = events_create_file(e, dir, host);
    if (rc == SP_OK)
        rc = events_write_head(e, first_step);
    if (rc == SP_OK)
        *events = e;
    else
        sp_events_destroy(e);
    return rc;
}

void sp_events_destroy(sp_events *e)
{
    if (!e)
        return;
    if (e->fd >= 0)
        close(e->fd);
    free(e->record.data);
    free(e->values.data);
    free(e->value.data);
    free(e->part.data);
    free(e);
}

sp_status sp_events_sync(sp_events *e)
{
    if (e && fsync(e->fd) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot flush: %s", e->path, strerror(errno));
    return SP_OK;
}

/* ---- values ---- */

void sp_events_begin(sp_events *e, int64_t step, double time_s)
{
    assert(step >= 0);
    if (!e)
        return;
    proto_clear(&e->values);
    e->step = step;
    e->time_s = time_s;
}

/* A tag is a protobuf string, which must be UTF-8; names come from data files. */
static void begin_value(sp_events *e, const char *group, const char *name)
{
    char tag[TAG], shown[TAG];

    snprintf(tag, sizeof tag, "%s/%s", group, name);
    proto_clear(&e->value);
    proto_text(&e->value, VALUE_TAG,
               sp_text_printable(shown, sizeof shown, tag, false));
}

static void end_value(sp_events *e)
{
    proto_nested(&e->values, SUMMARY_VALUE, &e->value);
}

void sp_events_scalar(sp_events *e, const char *group, const char *name, double value)
{
    if (!e || !isfinite(value))
        return;
    begin_value(e, group, name);
    proto_float(&e->value, VALUE_SCALAR, (float)value);
    end_value(e);
}

/* Appends the text with four spaces before each line, which make Markdown leave it
 * unchanged. Control characters become text. */
static void events_add_quoted(proto *to, int field, const char *text)
{
    proto quoted = {0};
    char line[TAG], shown[4 * TAG];

    while (*text) {
        const size_t n = strcspn(text, "\n");

        snprintf(line, sizeof line, "%.*s", (int)(n < TAG ? n : TAG - 1), text);
        sp_text_printable(shown, sizeof shown, line, false);
        proto_bytes(&quoted, "    ", 4);
        proto_bytes(&quoted, shown, strlen(shown));
        proto_bytes(&quoted, "\n", 1);
        text += n + (text[n] == '\n');
    }
    proto_nested(to, field, &quoted);
    free(quoted.data);
}

void sp_events_text(sp_events *e, const char *group, const char *name, const char *text)
{
    proto plugin = {0};

    if (!e)
        return;
    begin_value(e, group, name);
    proto_clear(&e->part);
    proto_int(&e->part, TENSOR_TYPE, TYPE_STRING);
    proto_nested(&e->part, TENSOR_SHAPE, &plugin); /* empty: a single text */
    events_add_quoted(&e->part, TENSOR_STRING, text);
    proto_nested(&e->value, VALUE_TENSOR, &e->part);
    proto_text(&plugin, PLUGIN_NAME, "text");
    proto_clear(&e->part);
    proto_nested(&e->part, METADATA_PLUGIN, &plugin);
    proto_nested(&e->value, VALUE_METADATA, &e->part);
    free(plugin.data);
    end_value(e);
}

void sp_events_picture(sp_events *e, const char *group, const char *name, int width,
                       int height, const void *png, size_t bytes)
{
    if (!e)
        return;
    assert(width > 0 && height > 0 && png);
    begin_value(e, group, name);
    proto_clear(&e->part);
    proto_int(&e->part, IMAGE_HEIGHT, height);
    proto_int(&e->part, IMAGE_WIDTH, width);
    proto_int(&e->part, IMAGE_COLORS, COLORS_RGB);
    proto_field(&e->part, IMAGE_FILE, png, bytes);
    proto_nested(&e->value, VALUE_IMAGE, &e->part);
    end_value(e);
}

sp_status sp_events_end(sp_events *e)
{
    if (!e || (e->values.n == 0 && !e->values.is_short))
        return SP_OK;
    if (!e->is_gone && !sp_file_is_at(e->path, e->fd)) {
        e->is_gone = true;
        sp_log_warn0("%s: deleted or replaced, events are lost until the next start",
                     e->path);
    }
    begin_record(e, e->step, e->time_s);
    proto_nested(&e->record, EVENT_SUMMARY, &e->values);
    return write_record(e);
}

/* ---- cutting ---- */

typedef enum record_state { RECORD_WHOLE, RECORD_TORN, RECORD_DAMAGED } record_state;

/* Reads the record at byte `at`, with its checksum after it; `left` bytes of the file
 * follow there. */
static sp_status record_read(int fd, const char *path, int64_t at, int64_t left,
                             proto *to, record_state *state)
{
    unsigned char head[RECORD_HEAD];
    uint64_t bytes;

    *state = RECORD_TORN;
    if (left < RECORD_HEAD + RECORD_TAIL)
        return SP_OK;
    SP_TRY(sp_file_read_at(fd, path, head, sizeof head, at));
    bytes = sp_get64(head);
    if (sp_get32(head + 8) != masked(head, 8)) {
        *state = RECORD_DAMAGED;
        return SP_OK;
    }
    if (bytes > (uint64_t)(left - RECORD_HEAD - RECORD_TAIL))
        return SP_OK;
    if (!sp_list_reserve(&to->data, &to->room, bytes + RECORD_TAIL))
        return SP_FAIL(SP_EMEM, "%s: no memory for a record", path);
    SP_TRY(sp_file_read_at(fd, path, to->data, bytes + RECORD_TAIL, at + RECORD_HEAD));
    to->n = bytes;
    *state = sp_get32(to->data + bytes) == masked(to->data, bytes) ? RECORD_WHOLE
                                                                   : RECORD_DAMAGED;
    return SP_OK;
}

/* The step of a record, which begin_record has written after the time; -1: no step. */
static int64_t record_step(const proto *record)
{
    uint64_t step = 0;
    size_t at = 1 + sizeof(double);
    int shift = 0;

    if (record->n <= at || record->data[0] != (EVENT_TIME << WIRE_BITS | FIXED64) ||
        record->data[at] != (EVENT_STEP << WIRE_BITS | VARINT))
        return -1;
    do {
        if (++at >= record->n || shift >= 63)
            return -1;
        step |= (uint64_t)(record->data[at] & 0x7f) << shift;
        shift += 7;
    } while (record->data[at] >= 0x80);
    return (int64_t)step;
}

/* Finds the end of the records up to `step`; *n: their number. */
static sp_status find_end(int fd, const char *path, int64_t size, int64_t step,
                          int64_t *end, int *n)
{
    proto record = {0};
    record_state state = RECORD_WHOLE;
    sp_status rc = SP_OK;

    *end = 0;
    for (*n = 0; rc == SP_OK; ++*n) {
        rc = record_read(fd, path, *end, size - *end, &record, &state);
        if (rc != SP_OK || state != RECORD_WHOLE || record_step(&record) < 0 ||
            record_step(&record) > step)
            break;
        *end += (int64_t)record.n + RECORD_HEAD + RECORD_TAIL;
    }
    free(record.data);
    if (rc == SP_OK && state == RECORD_DAMAGED)
        sp_log_warn0("%s: damaged at byte %" PRId64 ": what follows is cut off", path,
                     *end);
    return rc;
}

static sp_status cut_file(const char *path, int64_t step)
{
    struct stat st;
    int64_t end;
    int fd, n;
    sp_status rc = SP_OK;

    SP_TRY(sp_file_open(path, O_RDWR | O_NOFOLLOW, &fd));
    if (fstat(fd, &st) != 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot read: %s", path, strerror(errno));
    if (rc == SP_OK)
        rc = find_end(fd, path, st.st_size, step, &end, &n);
    if (rc == SP_OK && n > 1 && end < st.st_size && ftruncate(fd, end) != 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot cut: %s", path, strerror(errno));
    close(fd);
    /* The first record holds the version and no value. */
    if (rc == SP_OK && n <= 1 && unlink(path) != 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot delete: %s", path, strerror(errno));
    return rc;
}

static sp_status cut_named(const char *path, void *step)
{
    return record_number(path) < 0 ? SP_OK : cut_file(path, *(int64_t *)step);
}

sp_status sp_events_cut(const char *dir, int64_t step)
{
    assert(dir && step >= 0);
    return sp_file_each(dir, cut_named, &step);
}
