/* Writer of one JSON value in one line. The buffer is kept and only grows, so that
 * nothing is allocated once the longest line has been written. (The library jansson
 * does the reading.)
 *
 *     sp_json_begin(&json);
 *     sp_json_text(&json, "event", "step");
 *     sp_json_int(&json, "step", 12);
 *     sp_json_begin_array(&json, "iou");
 *     sp_json_double(&json, NULL, 0.5);        elements of an array have no key
 *     sp_json_end_array(&json);
 *     SP_TRY(sp_json_end(&json, &line));       {"event":"step","step":12,"iou":[0.5]}
 *
 * Floating-point numbers read back exactly; non-finite ones are written as null. Text
 * is escaped, and bytes that are not UTF-8 become \xNN, as in the log (sp_text.h). If
 * memory runs out, it is sp_json_end that fails. All functions are local.
 */
#ifndef SP_JSON_H
#define SP_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

/* A writer. The caller zeroes it before first use and destroys it at the end. */
typedef struct sp_json {
    char *text; /* [capacity] holds `length` bytes and a NUL */
    size_t length, capacity;
    bool is_short; /* memory ran out since sp_json_begin */
} sp_json;

/* sp_json_begin starts a new object in the buffer. sp_json_end closes it and lends the
 * caller the line, valid until the next begin; SP_EMEM. */
void sp_json_begin(sp_json *json);
sp_status sp_json_end(sp_json *json, const char **line);
void sp_json_destroy(sp_json *json);

/* Each function appends one member (with a key) or one element of an array (key NULL).
 * A text that is NULL is written as null. */
void sp_json_text(sp_json *json, const char *key, const char *value);
void sp_json_int(sp_json *json, const char *key, int64_t value);
void sp_json_bool(sp_json *json, const char *key, bool value);
void sp_json_double(sp_json *json, const char *key, double value); /* %.17g */
void sp_json_null(sp_json *json, const char *key);

/* Objects and arrays nest; each begin has its end. An end needs no key. */
void sp_json_begin_object(sp_json *json, const char *key);
void sp_json_end_object(sp_json *json);
void sp_json_begin_array(sp_json *json, const char *key);
void sp_json_end_array(sp_json *json);

#endif
