/* A page: a template and the values that fill it. All functions are local. If memory
 * runs out, sp_page_fill fails.
 *
 *     {{name}}          text, escaped (below), or a number
 *     {{name %.4f}}     a number as printf writes it; also {{name count}} with thin
 *                       spaces between thousands, {{name time}} of seconds as "1 h 02
 *                       min" and {{name bar}} in percent, within 0 to 100. A dash if
 *                       it is not finite, a bar of 0
 *     {{name plural}}   "s" unless the number is 1
 *     {{name lines}}    text with its newlines
 *     {{name csv}}      a number with all digits, or nothing; text in quotes
 *     {{#name}}..{{/}}  once for each element of a list, with the element's values
 *     {{?name}}..{{/}}  if there is such a value: no null, no empty list
 *     {{^name}}..{{/}}  if there is no such value
 *     {{=name}}..{{/}}  a part that {{>name}} shows elsewhere
 *
 * Names are those of the innermost element, "../name" of the one around it, "@name" of
 * the page. A newline after the tag of a section is left out.
 *
 * A browser shows any text as text, between tags as well as within an attribute in
 * double quotes. Characters that control a terminal or the direction of text become
 * \xNN (sp_text_printable), so that nothing hides. */
#ifndef SP_PAGE_H
#define SP_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/sp_error.h"

typedef struct json_t json_t;

typedef struct sp_page {
    json_t *values;
    bool is_short; /* memory ran out */
} sp_page;

/* A page without values; SP_EMEM. */
sp_status sp_page_open(sp_page *page);
void sp_page_close(sp_page *page);
/* Puts values into an element: keys "name %s loss %f" take a text and a double, %d an
 * int. NULL, an empty text and a number that is not finite become null. */
void sp_page_put(sp_page *page, json_t *to, const char *keys, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends an element to the list of this name, with the values of an object unless it
 * is NULL. The element is the page's. */
json_t *sp_page_add(sp_page *page, json_t *to, const char *list, const json_t *object);
/* Fills the template. *text [*n] is malloc'd; SP_EMEM. */
sp_status sp_page_fill(const sp_page *page, const char *form, char **text, size_t *n);

#endif
