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
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "base/sp_text.h"
#include "run/sp_events_record.h"

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
    sp_proto record; /* head, Event, tail */
    sp_proto values; /* of the summary */
    sp_proto value, part;
    int64_t step;
    double time_s;
    bool is_gone; /* the file was deleted; the user has been informed */
};

/* ---- writing ---- */

/* Writes the record, framed. */
static sp_status write_record(sp_events *e)
{
    int64_t end;

    sp_record_close(&e->record);
    if (e->record.is_short)
        return SP_FAIL(SP_EMEM, "%s: no memory for a record of more than %zu bytes",
                       e->path, e->record.n);
    return sp_file_append(e->fd, e->path, &(struct iovec){e->record.data, e->record.n},
                          1, &end);
}

static void begin_record(sp_events *e, int64_t step, double time_s)
{
    sp_record_open(&e->record);
    sp_proto_double(&e->record, EVENT_TIME, time_s);
    sp_proto_int(&e->record, EVENT_STEP, step);
}

/* The first records of a file. */
static sp_status events_write_head(sp_events *e, int64_t first_step)
{
    const double now = (double)time(NULL);

    begin_record(e, 0, now);
    sp_proto_text(&e->record, EVENT_VERSION, "brain.Event:2");
    SP_TRY(write_record(e));
    sp_proto_clear(&e->part);
    sp_proto_int(&e->part, SESSION_STATUS, SESSION_START);
    begin_record(e, first_step, now);
    sp_proto_nested(&e->record, EVENT_SESSION, &e->part);
    return write_record(e);
}

static sp_status note_number(const char *path, void *last)
{
    *(int64_t *)last = sp_most(sp_record_number(path), *(int64_t *)last);
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
                 "%s/" SP_RECORD_PREFIX "%010" PRId64 ".%.60s" SP_RECORD_SUFFIX, dir,
                 number, host) >= (int)sizeof e->path)
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
    sp_proto_clear(&e->values);
    e->step = step;
    e->time_s = time_s;
}

/* A tag is a protobuf string, which must be UTF-8; names come from data files. */
static void begin_value(sp_events *e, const char *group, const char *name)
{
    char tag[TAG], shown[TAG];

    snprintf(tag, sizeof tag, "%s/%s", group, name);
    sp_proto_clear(&e->value);
    sp_proto_text(&e->value, VALUE_TAG,
                  sp_text_printable(shown, sizeof shown, tag, false));
}

static void end_value(sp_events *e)
{
    sp_proto_nested(&e->values, SUMMARY_VALUE, &e->value);
}

void sp_events_scalar(sp_events *e, const char *group, const char *name, double value)
{
    if (!e || !isfinite(value))
        return;
    begin_value(e, group, name);
    sp_proto_float(&e->value, VALUE_SCALAR, (float)value);
    end_value(e);
}

/* Appends the text with four spaces before each line, which make Markdown leave it
 * unchanged. Control characters become text. */
static void events_add_quoted(sp_proto *to, int field, const char *text)
{
    sp_proto quoted = {0};
    char line[TAG], shown[4 * TAG];

    while (*text) {
        const size_t n = strcspn(text, "\n");

        snprintf(line, sizeof line, "%.*s", (int)(n < TAG ? n : TAG - 1), text);
        sp_text_printable(shown, sizeof shown, line, false);
        sp_proto_bytes(&quoted, "    ", 4);
        sp_proto_bytes(&quoted, shown, strlen(shown));
        sp_proto_bytes(&quoted, "\n", 1);
        text += n + (text[n] == '\n');
    }
    sp_proto_nested(to, field, &quoted);
    free(quoted.data);
}

void sp_events_text(sp_events *e, const char *group, const char *name, const char *text)
{
    sp_proto plugin = {0};

    if (!e)
        return;
    begin_value(e, group, name);
    sp_proto_clear(&e->part);
    sp_proto_int(&e->part, TENSOR_TYPE, TYPE_STRING);
    sp_proto_nested(&e->part, TENSOR_SHAPE, &plugin); /* empty: a single text */
    events_add_quoted(&e->part, TENSOR_STRING, text);
    sp_proto_nested(&e->value, VALUE_TENSOR, &e->part);
    sp_proto_text(&plugin, PLUGIN_NAME, "text");
    sp_proto_clear(&e->part);
    sp_proto_nested(&e->part, METADATA_PLUGIN, &plugin);
    sp_proto_nested(&e->value, VALUE_METADATA, &e->part);
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
    sp_proto_clear(&e->part);
    sp_proto_int(&e->part, IMAGE_HEIGHT, height);
    sp_proto_int(&e->part, IMAGE_WIDTH, width);
    sp_proto_int(&e->part, IMAGE_COLORS, COLORS_RGB);
    sp_proto_field(&e->part, IMAGE_FILE, png, bytes);
    sp_proto_nested(&e->value, VALUE_IMAGE, &e->part);
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
    sp_proto_nested(&e->record, EVENT_SUMMARY, &e->values);
    return write_record(e);
}

/* ---- cutting ---- */

/* Finds the end of the records up to `step`; *n: their number. */
static int64_t find_end(sp_record_reader *reader, int64_t step, int *n)
{
    int64_t end = 0, of_step;

    for (*n = 0; sp_record_next(reader); ++*n) {
        if (!sp_proto_find_int(reader->data, reader->n, EVENT_STEP, &of_step) ||
            of_step > step)
            break;
        end = reader->at;
    }
    return end;
}

static sp_status cut_file(const char *path, int64_t step)
{
    sp_record_reader reader;
    int64_t end;
    int n;
    sp_status rc = SP_OK;

    SP_TRY(sp_record_reader_open(&reader, path));
    end = find_end(&reader, step, &n);
    if (reader.is_damaged)
        sp_log_warn0("%s: damaged at byte %" PRId64 ": what follows is cut off", path,
                     reader.at);
    if (reader.is_short)
        rc = SP_FAIL(SP_EMEM, "%s: no memory for a record", path);
    else if (reader.error)
        rc = SP_FAIL(SP_EIO, "%s: cannot read: %s", path, strerror(reader.error));
    else if (n > 1 && end < reader.size && ftruncate(reader.fd, end) != 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot cut: %s", path, strerror(errno));
    sp_record_reader_close(&reader);
    /* The first record holds the version and no value. */
    if (rc == SP_OK && n <= 1 && unlink(path) != 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot delete: %s", path, strerror(errno));
    return rc;
}

static sp_status cut_named(const char *path, void *step)
{
    return sp_record_number(path) < 0 ? SP_OK : cut_file(path, *(int64_t *)step);
}

sp_status sp_events_cut(const char *dir, int64_t step)
{
    assert(dir && step >= 0);
    return sp_file_each(dir, cut_named, &step);
}
