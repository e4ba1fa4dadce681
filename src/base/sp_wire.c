#include "base/sp_wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

/* The least size of a text: its length and the flag that it is present. */
enum { TEXT_BYTES = 9 };

static bool is_short(sp_wire *wire, size_t bytes)
{
    if (bytes <= wire->size - wire->at)
        return false;
    wire->rc = SP_FAIL(SP_EDATA, "a message between processes ends too early");
    return true;
}

void sp_wire_bytes(sp_wire *wire, void *data, size_t bytes)
{
    const size_t end = wire->size + bytes;

    assert(bytes == 0 || data);
    assert(wire->at <= wire->size);
    if (wire->rc != SP_OK || bytes == 0)
        return;
    if (wire->is_reading) {
        if (is_short(wire, bytes))
            return;
        memcpy(data, wire->data + wire->at, bytes);
        wire->at += bytes;
    } else if (sp_list_reserve(&wire->data, &wire->room, end > 4096 ? end : 4096)) {
        memcpy(wire->data + wire->size, data, bytes);
        wire->size = end;
    } else
        wire->rc = SP_FAIL(SP_EMEM, "no memory for a message of %zu bytes", end);
}

void sp_wire_flag(sp_wire *wire, bool *flag)
{
    unsigned char byte = wire->is_reading ? 0 : *flag;

    sp_wire_bytes(wire, &byte, 1);
    if (byte > 1 && wire->rc == SP_OK)
        wire->rc =
            SP_FAIL(SP_EDATA, "a message between processes has a flag of %d", byte);
    if (wire->is_reading)
        *flag = byte == 1;
}

static bool can_hold(sp_wire *wire, int64_t n, size_t least)
{
    if (n >= 0 && (size_t)n <= (wire->size - wire->at) / least)
        return true;
    wire->rc = SP_FAIL(SP_EDATA, "a message between processes cannot hold %lld parts",
                       (long long)n);
    return false;
}

/* Writes or reads whether something is there that *data leads to; false: it is not, or
 * nothing more can be done. */
static bool wire_follows(sp_wire *wire, void **data)
{
    bool is_there = !wire->is_reading && *data;

    sp_wire_flag(wire, &is_there);
    if (wire->is_reading)
        *data = NULL;
    return is_there && wire->rc == SP_OK;
}

/* Allocates room to read into; false: out of memory. */
static bool make(sp_wire *wire, void **data, size_t n, size_t bytes)
{
    if (!wire->is_reading || (*data = calloc(n, bytes)))
        return true;
    wire->rc = SP_FAIL(SP_EMEM, "no memory for a message");
    return false;
}

bool sp_wire_struct(sp_wire *wire, void **data, size_t bytes)
{
    assert(data && bytes > 0);
    return wire_follows(wire, data) && make(wire, data, 1, bytes);
}

void sp_wire_count(sp_wire *wire, int64_t *n, size_t least)
{
    assert(n && (wire->is_reading || *n >= 0));
    sp_wire_bytes(wire, n, sizeof *n);
    if (wire->is_reading && (wire->rc != SP_OK || !can_hold(wire, *n, least)))
        *n = 0;
}

void sp_wire_array(sp_wire *wire, void **data, int64_t count, size_t size)
{
    size_t bytes;

    assert(data && size > 0);
    if (!wire_follows(wire, data))
        return;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes)) {
        wire->rc = SP_FAIL(
            SP_EDATA, "a message between processes has an array of impossible size");
        return;
    }
    if (!(wire->is_reading && is_short(wire, bytes)) && make(wire, data, 1, bytes + 1))
        sp_wire_bytes(wire, *data, bytes);
}

void sp_wire_text(sp_wire *wire, char **text)
{
    int64_t length = !wire->is_reading && *text ? (int64_t)strlen(*text) : 0;

    sp_wire_bytes(wire, &length, sizeof length);
    sp_wire_array(wire, (void **)text, length, 1);
}

void sp_wire_texts(sp_wire *wire, char ***texts, int64_t n)
{
    assert(texts && (wire->is_reading || n >= 0));
    if (!wire_follows(wire, (void **)texts) ||
        (wire->is_reading && !can_hold(wire, n, TEXT_BYTES)) ||
        !make(wire, (void **)texts, (size_t)n + 1, sizeof **texts))
        return;
    for (int64_t i = 0; i < n; i++) {
        sp_wire_text(wire, &(*texts)[i]);
        if (wire->rc == SP_OK && !(*texts)[i])
            wire->rc = SP_FAIL(SP_EDATA, "a message between processes lacks text %lld",
                               (long long)i);
    }
}
