#include "page/sp_html.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"

/* Makes room for n more bytes and a NUL. */
static bool reserve(sp_html *html, size_t n)
{
    char *more;

    if (html->is_short)
        return false;
    if (html->n + n + 1 <= html->room)
        return true;
    more = realloc(html->text, 2 * (html->n + n + 1));
    if (!more) {
        html->is_short = true;
        return false;
    }
    html->text = more;
    html->room = 2 * (html->n + n + 1);
    return true;
}

static void append(sp_html *html, const char *text, size_t n)
{
    if (!reserve(html, n))
        return;
    memcpy(html->text + html->n, text, n);
    html->n += n;
    html->text[html->n] = '\0';
}

void sp_html_raw(sp_html *html, const char *markup)
{
    assert(html && markup);
    append(html, markup, strlen(markup));
}

void sp_html_add(sp_html *html, const char *format, ...)
{
    va_list list;
    int n;

    va_start(list, format);
    n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (n < 0 || !reserve(html, (size_t)n))
        return;
    va_start(list, format);
    vsnprintf(html->text + html->n, (size_t)n + 1, format, list);
    va_end(list);
    html->n += (size_t)n;
}

static const char *entity(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

static void add_text(sp_html *html, const char *text, bool keeps_lines)
{
    /* A byte becomes at most four. */
    const size_t bytes = 4 * strlen(text) + 1;
    char *shown = malloc(bytes);

    if (!shown) {
        html->is_short = true;
        return;
    }
    sp_text_printable(shown, bytes, text, keeps_lines);
    for (const char *at = shown; *at; at++) {
        const char *instead = entity(*at);

        append(html, instead ? instead : at, instead ? strlen(instead) : 1);
    }
    free(shown);
}

void sp_html_text(sp_html *html, const char *text)
{
    assert(html && text);
    add_text(html, text, false);
}

void sp_html_lines(sp_html *html, const char *text)
{
    assert(html && text);
    add_text(html, text, true);
}

void sp_html_base64(sp_html *html, const void *bytes, size_t n)
{
    static const char digit[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *from = bytes;

    assert(bytes || n == 0);
    if (!reserve(html, (n + 2) / 3 * 4))
        return;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t three = (uint32_t)from[i] << 16 |
                               (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)from[i + 2] : 0);

        html->text[html->n++] = digit[three >> 18];
        html->text[html->n++] = digit[three >> 12 & 63];
        html->text[html->n++] = left > 1 ? digit[three >> 6 & 63] : '=';
        html->text[html->n++] = left > 2 ? digit[three & 63] : '=';
    }
    html->text[html->n] = '\0';
}

sp_status sp_html_end(sp_html *html, const char **text, size_t *n)
{
    assert(text && n);
    if (html->is_short || !html->text)
        return SP_FAIL(SP_EMEM, "no memory for a page of more than %zu bytes", html->n);
    *text = html->text;
    *n = html->n;
    return SP_OK;
}

void sp_html_destroy(sp_html *html)
{
    free(html->text);
    *html = (sp_html){0};
}
