#include "base/sp_serial.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

/* The least size of a text: its length and the flag that it is present. */
enum { TEXT_BYTES = 9 };

static bool is_short(sp_serial *serial, size_t bytes)
{
    if (bytes <= serial->size - serial->at)
        return false;
    serial->rc = SP_FAIL(SP_EDATA, "a message between processes ends too early");
    return true;
}

void sp_serial_bytes(sp_serial *serial, void *data, size_t bytes)
{
    const size_t end = serial->size + bytes;

    assert(bytes == 0 || data);
    assert(serial->at <= serial->size);
    if (serial->rc != SP_OK || bytes == 0)
        return;
    if (serial->is_reading) {
        if (is_short(serial, bytes))
            return;
        memcpy(data, serial->data + serial->at, bytes);
        serial->at += bytes;
    } else if (sp_list_reserve(&serial->data, &serial->room, end > 4096 ? end : 4096)) {
        memcpy(serial->data + serial->size, data, bytes);
        serial->size = end;
    } else
        serial->rc = SP_FAIL(SP_EMEM, "no memory for a message of %zu bytes", end);
}

void sp_serial_flag(sp_serial *serial, bool *flag)
{
    unsigned char byte = serial->is_reading ? 0 : *flag;

    sp_serial_bytes(serial, &byte, 1);
    if (byte > 1 && serial->rc == SP_OK)
        serial->rc =
            SP_FAIL(SP_EDATA, "a message between processes has a flag of %d", byte);
    if (serial->is_reading)
        *flag = byte == 1;
}

static bool can_hold(sp_serial *serial, int64_t n, size_t least)
{
    if (n >= 0 && (size_t)n <= (serial->size - serial->at) / least)
        return true;
    serial->rc = SP_FAIL(SP_EDATA, "a message between processes cannot hold %lld parts",
                         (long long)n);
    return false;
}

/* Writes or reads whether something is there that *data leads to; false: it is not, or
 * nothing more can be done. */
static bool serial_follows(sp_serial *serial, void **data)
{
    bool is_there = !serial->is_reading && *data;

    sp_serial_flag(serial, &is_there);
    if (serial->is_reading)
        *data = NULL;
    return is_there && serial->rc == SP_OK;
}

/* Allocates room to read into; false: out of memory. */
static bool make(sp_serial *serial, void **data, size_t n, size_t bytes)
{
    if (!serial->is_reading || (*data = calloc(n, bytes)))
        return true;
    serial->rc = SP_FAIL(SP_EMEM, "no memory for a message");
    return false;
}

bool sp_serial_struct(sp_serial *serial, void **data, size_t bytes)
{
    assert(data && bytes > 0);
    return serial_follows(serial, data) && make(serial, data, 1, bytes);
}

void sp_serial_count(sp_serial *serial, int64_t *n, size_t least)
{
    assert(n && (serial->is_reading || *n >= 0));
    sp_serial_bytes(serial, n, sizeof *n);
    if (serial->is_reading && (serial->rc != SP_OK || !can_hold(serial, *n, least)))
        *n = 0;
}

void sp_serial_array(sp_serial *serial, void **data, int64_t count, size_t size)
{
    size_t bytes;

    assert(data && size > 0);
    if (!serial_follows(serial, data))
        return;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes)) {
        serial->rc = SP_FAIL(
            SP_EDATA, "a message between processes has an array of impossible size");
        return;
    }
    if (!(serial->is_reading && is_short(serial, bytes)) &&
        make(serial, data, 1, bytes + 1))
        sp_serial_bytes(serial, *data, bytes);
}

void sp_serial_text(sp_serial *serial, char **text)
{
    int64_t length = !serial->is_reading && *text ? (int64_t)strlen(*text) : 0;

    sp_serial_bytes(serial, &length, sizeof length);
    sp_serial_array(serial, (void **)text, length, 1);
}

void sp_serial_texts(sp_serial *serial, char ***texts, int64_t n)
{
    assert(texts && (serial->is_reading || n >= 0));
    if (!serial_follows(serial, (void **)texts) ||
        (serial->is_reading && !can_hold(serial, n, TEXT_BYTES)) ||
        !make(serial, (void **)texts, (size_t)n + 1, sizeof **texts))
        return;
    for (int64_t i = 0; i < n; i++) {
        sp_serial_text(serial, &(*texts)[i]);
        if (serial->rc == SP_OK && !(*texts)[i])
            serial->rc = SP_FAIL(
                SP_EDATA, "a message between processes lacks text %lld", (long long)i);
    }
}
