/* HTML in memory, made from templates. If memory runs out, sp_html_end fails. All
 * functions are local. */
#ifndef SP_HTML_H
#define SP_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/sp_error.h"

/* The caller zeroes it before first use and destroys it at the end. */
typedef struct sp_html {
    FILE *to;   /* open_memstream; NULL: nothing was added yet */
    char *text; /* [n] and a NUL, as of the last sp_html_end */
    size_t n;
    bool is_short; /* memory ran out */
} sp_html;

/* Appends a template: markup of the program's own, with conversions of printf, so that
 * the compiler checks the arguments.
 *     %s    any text, which a browser shows as text, between tags as well as within an
 *           attribute in double quotes. Characters that control a terminal or the
 *           direction of text become \xNN (sp_text_printable), so that nothing hides
 *     %-s   markup of the program's own, unchanged
 *     %.2f  a number; a dash if it is not finite
 *     %g    a count, with thin spaces between thousands; a dash if it is not finite
 *     %e    seconds, as "1 h 02 min" or "3.4 s"; a dash if they are not finite
 * All other conversions (of int, int64_t and double) are printf's. */
void sp_html_add(sp_html *html, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends markup unchanged. */
void sp_html_raw(sp_html *html, const char *markup);
/* Appends text as %s does, with its newlines. */
void sp_html_lines(sp_html *html, const char *text);
/* Appends bytes in base64, for a data: address. */
void sp_html_base64(sp_html *html, const void *bytes, size_t n);
/* Lends the whole text, valid until the next call; SP_EMEM. */
sp_status sp_html_end(sp_html *html, const char **text, size_t *n);
void sp_html_destroy(sp_html *html);

#endif
