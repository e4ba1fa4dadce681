#include "base/sp_json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_text.h"

enum { FIRST_CAPACITY = 4096, NUMBER = 32 };

static void json_append(sp_json *json, const char *text, size_t bytes)
{
    const size_t needed = json->length + bytes + 1;

    if (!sp_list_reserve(&json->text, &json->capacity,
                         needed > FIRST_CAPACITY ? needed : FIRST_CAPACITY)) {
        json->is_short = true;
        return;
    }
    memcpy(json->text + json->length, text, bytes);
    json->length += bytes;
    json->text[json->length] = 0;
}

static void append_quoted(sp_json *json, const char *text)
{
    const char *at = text;
    char escape[8];

    json_append(json, "\"", 1);
    while (*at) {
        size_t n = sp_text_character(at);

        if (*at == '"' || *at == '\\') {
            snprintf(escape, sizeof escape, "\\%c", *at);
            json_append(json, escape, 2);
        } else if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*at);
            json_append(json, escape, 6);
        } else if (n == 2 && (unsigned char)at[0] == 0xc2 &&
                   /* C1 control character: a terminal would act on it */
                   (unsigned char)at[1] < 0xa0) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)at[1]);
            json_append(json, escape, 6);
        } else if (n == 0) { /* told apart, since names of classes are keys */
            snprintf(escape, sizeof escape, "\\\\x%02x", (unsigned char)*at);
            json_append(json, escape, 5);
        } else
            json_append(json, at, n);
        at += n ? n : 1;
    }
    json_append(json, "\"", 1);
}

/* Appends a comma if one is due, and the key. */
static void json_append_key(sp_json *json, const char *key)
{
    char last = json->length ? json->text[json->length - 1] : '{';

    if (last != '{' && last != '[')
        json_append(json, ",", 1);
    if (key) {
        append_quoted(json, key);
        json_append(json, ":", 1);
    }
}

static void append_value(sp_json *json, const char *key, const char *value)
{
    json_append_key(json, key);
    json_append(json, value, strlen(value));
}

void sp_json_begin(sp_json *json)
{
    json->length = 0;
    json->is_short = false;
    json_append(json, "{", 1);
}

sp_status sp_json_end(sp_json *json, const char **line)
{
    assert(line && (json->length > 0 || json->is_short));
    json_append(json, "}", 1);
    if (json->is_short)
        return SP_FAIL(SP_EMEM, "no memory for a JSON line of more than %zu bytes",
                       json->capacity);
    *line = json->text;
    return SP_OK;
}

void sp_json_destroy(sp_json *json)
{
    free(json->text);
    memset(json, 0, sizeof *json);
}

void sp_json_text(sp_json *json, const char *key, const char *value)
{
    json_append_key(json, key);
    if (value)
        append_quoted(json, value);
    else
        json_append(json, "null", 4);
}

void sp_json_int(sp_json *json, const char *key, int64_t value)
{
    char number[NUMBER];

    snprintf(number, sizeof number, "%" PRId64, value);
    append_value(json, key, number);
}

void sp_json_bool(sp_json *json, const char *key, bool value)
{
    append_value(json, key, value ? "true" : "false");
}

void sp_json_double(sp_json *json, const char *key, double value)
{
    char number[NUMBER];

    snprintf(number, sizeof number, "%.17g", value);
    append_value(json, key, isfinite(value) ? number : "null");
}

void sp_json_null(sp_json *json, const char *key)
{
    append_value(json, key, "null");
}

void sp_json_begin_object(sp_json *json, const char *key)
{
    append_value(json, key, "{");
}
void sp_json_end_object(sp_json *json)
{
    json_append(json, "}", 1);
}
void sp_json_begin_array(sp_json *json, const char *key)
{
    append_value(json, key, "[");
}
void sp_json_end_array(sp_json *json)
{
    json_append(json, "]", 1);
}
