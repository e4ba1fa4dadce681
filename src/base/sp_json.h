/* Writer of one JSON value in one line, into a buffer that is kept and only grows:
 * after the longest line was written it allocates nothing. (Reading is left to
 * jansson.)
 *
 *     sp_json_begin(&json);
 *     sp_json_text(&json, "event", "step");
 *     sp_json_int(&json, "step", 12);
 *     sp_json_begin_array(&json, "iou");
 *     sp_json_double(&json, NULL, 0.5);        elements of an array have no key
 *     sp_json_end_array(&json);
 *     SP_TRY(sp_json_end(&json, &line));       {"event":"step","step":12,"iou":[0.5]}
 *
 * Floating-point numbers read back exactly; non-finite ones are null. Text is escaped,
 * bytes that are not UTF-8 become '?'. Want of memory shows at sp_json_end.
 */
#ifndef SP_JSON_H
#define SP_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero before first use. */
typedef struct sp_json {
    char *text; /* [capacity], length bytes of it and a NUL in use */
    size_t length, capacity;
    bool is_short; /* of memory */
} sp_json;

/* Begin a new object in the buffer; end it and borrow the line, valid until the next
 * begin. SP_EMEM. */
void sp_json_begin(sp_json *json);
sp_status sp_json_end(sp_json *json, const char **line);
void sp_json_destroy(sp_json *json);

/* One member (key) or element (key NULL). */
void sp_json_text(sp_json *json, const char *key, const char *value); /* NULL: null */
void sp_json_int(sp_json *json, const char *key, int64_t value);
void sp_json_bool(sp_json *json, const char *key, bool value);
void sp_json_double(sp_json *json, const char *key, double value); /* %.17g */
void sp_json_float(sp_json *json, const char *key, float value);   /* %.9g */
void sp_json_null(sp_json *json, const char *key);

void sp_json_begin_object(sp_json *json, const char *key);
void sp_json_end_object(sp_json *json);
void sp_json_begin_array(sp_json *json, const char *key);
void sp_json_end_array(sp_json *json);

#ifdef __cplusplus
}
#endif
#endif
