/* HTML in memory. Foreign text is added only by sp_html_text, which escapes it. If
 * memory runs out, sp_html_end fails. All functions are local. */
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

/* Appends markup of the program's own, in the manner of printf. No text of others may
 * be an argument. */
void sp_html_add(sp_html *html, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends a longer piece of markup unchanged. */
void sp_html_raw(sp_html *html, const char *markup);
/* Appends any text so that a browser shows it as text, between tags as well as within
 * an attribute in double quotes. Characters that control a terminal or the direction of
 * text are shown as \xNN (sp_text_printable), so that nothing hides. sp_html_lines
 * keeps newlines. sp_html_put appends the text between two pieces of markup.
 */
void sp_html_text(sp_html *html, const char *text);
void sp_html_put(sp_html *html, const char *before, const char *text,
                 const char *behind);
void sp_html_lines(sp_html *html, const char *text);
/* Appends bytes in base64, for a data: address. */
void sp_html_base64(sp_html *html, const void *bytes, size_t n);
/* Lends the whole text, valid until the next call; SP_EMEM. */
sp_status sp_html_end(sp_html *html, const char **text, size_t *n);
void sp_html_destroy(sp_html *html);

#endif
