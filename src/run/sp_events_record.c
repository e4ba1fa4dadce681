#include "run/sp_events_record.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"

/* The wire types of protobuf. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, WIRE_BITS = 3 };

/* ---- protobuf ---- */

void sp_proto_bytes(sp_proto *to, const void *data, size_t bytes)
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

static void put_varint(sp_proto *to, uint64_t value)
{
    unsigned char byte;

    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        sp_proto_bytes(to, &byte, 1);
    }
    byte = (unsigned char)value;
    sp_proto_bytes(to, &byte, 1);
}

static void put_key(sp_proto *to, int field, int type)
{
    assert(field > 0);
    put_varint(to, (uint64_t)field << WIRE_BITS | (uint64_t)type);
}

/* Appends the lowest n bytes of a number, the lowest first. */
static void put_fixed(sp_proto *to, uint64_t bits, int n)
{
    unsigned char bytes[8];

    sp_put64(bytes, bits);
    sp_proto_bytes(to, bytes, (size_t)n);
}

void sp_proto_int(sp_proto *to, int field, int64_t value)
{
    assert(value >= 0);
    put_key(to, field, VARINT);
    put_varint(to, (uint64_t)value);
}

void sp_proto_double(sp_proto *to, int field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(to, field, FIXED64);
    put_fixed(to, bits, 8);
}

void sp_proto_float(sp_proto *to, int field, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(to, field, FIXED32);
    put_fixed(to, bits, 4);
}

void sp_proto_field(sp_proto *to, int field, const void *data, size_t bytes)
{
    put_key(to, field, BYTES);
    put_varint(to, bytes);
    sp_proto_bytes(to, data, bytes);
}

void sp_proto_text(sp_proto *to, int field, const char *text)
{
    sp_proto_field(to, field, text, strlen(text));
}

void sp_proto_nested(sp_proto *to, int field, const sp_proto *message)
{
    to->is_short = to->is_short || message->is_short;
    sp_proto_field(to, field, message->data, message->n);
}

/* Reads a varint and moves *at after it; false if there is no varint at *at. */
static bool get_varint(const unsigned char *data, size_t n, size_t *at, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at >= n)
            return false;
        *value |= (uint64_t)(data[*at] & 0x7f) << shift;
        if (data[(*at)++] < 0x80)
            return true;
    }
    return false;
}

bool sp_proto_find_int(const unsigned char *data, size_t n, int field, int64_t *value)
{
    uint64_t key, word;
    size_t at = 0;

    assert(data || n == 0);
    *value = 0;
    while (at < n) {
        if (!get_varint(data, n, &at, &key))
            return false;
        switch (key & ((1 << WIRE_BITS) - 1)) {
        case VARINT:
            if (!get_varint(data, n, &at, &word))
                return false;
            if (key >> WIRE_BITS == (uint64_t)field)
                *value = (int64_t)word;
            word = 0;
            break;
        case FIXED64:
            word = 8;
            break;
        case FIXED32:
            word = 4;
            break;
        case BYTES:
            if (!get_varint(data, n, &at, &word))
                return false;
            break;
        default:
            return false;
        }
        if (word > n - at)
            return false;
        at += word;
    }
    return true;
}

/* ---- records ---- */

/* The checksum as TFRecord files have it, so that the checksum of data that hold
 * checksums is no constant. */
static uint32_t masked(const void *data, size_t bytes)
{
    const uint32_t crc = sp_crc32c(0, data, bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

void sp_record_open(sp_proto *record)
{
    static const unsigned char head[SP_RECORD_HEAD];

    sp_proto_clear(record);
    sp_proto_bytes(record, head, sizeof head);
}

void sp_record_close(sp_proto *record)
{
    sp_proto head = {.data = record->data, .room = SP_RECORD_HEAD};
    const size_t bytes = record->n - SP_RECORD_HEAD;

    if (record->is_short)
        return;
    assert(record->n >= SP_RECORD_HEAD);
    put_fixed(&head, bytes, 8);
    put_fixed(&head, masked(record->data, 8), 4);
    put_fixed(record, masked(record->data + SP_RECORD_HEAD, bytes), SP_RECORD_TAIL);
}

sp_status sp_record_reader_open(sp_record_reader *reader, const char *path)
{
    struct stat st;

    *reader = (sp_record_reader){.fd = -1};
    SP_TRY(sp_file_open(path, O_RDWR | O_NOFOLLOW, &reader->fd));
    if (fstat(reader->fd, &st) != 0) {
        const int error = errno;

        sp_record_reader_close(reader);
        return SP_FAIL(SP_EIO, "%s: cannot read: %s", path, strerror(error));
    }
    reader->size = st.st_size;
    return SP_OK;
}

void sp_record_reader_close(sp_record_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->data);
    *reader = (sp_record_reader){.fd = -1};
}

static bool read_at(sp_record_reader *reader, void *to, size_t bytes, int64_t at)
{
    const ssize_t got = pread(reader->fd, to, bytes, at);

    if (got < 0)
        reader->error = errno;
    return got == (ssize_t)bytes;
}

bool sp_record_next(sp_record_reader *reader)
{
    const int64_t left = reader->size - reader->at - SP_RECORD_HEAD - SP_RECORD_TAIL;
    unsigned char head[SP_RECORD_HEAD];
    uint64_t bytes;

    if (left < 0 || !read_at(reader, head, sizeof head, reader->at))
        return false;
    bytes = sp_get64(head);
    reader->is_damaged = sp_get32(head + 8) != masked(head, 8);
    if (reader->is_damaged || bytes > (uint64_t)left)
        return false;
    reader->is_short =
        !sp_list_reserve(&reader->data, &reader->room, bytes + SP_RECORD_TAIL);
    if (reader->is_short || !read_at(reader, reader->data, bytes + SP_RECORD_TAIL,
                                     reader->at + SP_RECORD_HEAD))
        return false;
    reader->is_damaged = sp_get32(reader->data + bytes) != masked(reader->data, bytes);
    if (reader->is_damaged)
        return false;
    reader->n = bytes;
    reader->at += (int64_t)bytes + SP_RECORD_HEAD + SP_RECORD_TAIL;
    return true;
}

/* ---- files ---- */

int64_t sp_record_number(const char *path)
{
    const char *name = sp_file_name(path);
    const size_t n = strlen(name), end = strlen(SP_RECORD_SUFFIX);
    int64_t number;

    if (strncmp(name, SP_RECORD_PREFIX, strlen(SP_RECORD_PREFIX)) != 0 || n < end ||
        strcmp(name + n - end, SP_RECORD_SUFFIX) != 0 ||
        sscanf(name + strlen(SP_RECORD_PREFIX), "%12" SCNd64 ".", &number) != 1 ||
        number < 0)
        return -1;
    return number;
}
