#include "report/sp_html.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"

/* Opens the stream before its first use; false: there is no memory. */
static bool is_ready(sp_html *html)
{
    if (!html->to && !html->is_short)
        html->to = open_memstream(&html->text, &html->n);
    html->is_short = html->is_short || !html->to;
    return !html->is_short;
}

void sp_html_raw(sp_html *html, const char *markup)
{
    assert(html && markup);
    if (is_ready(html))
        fputs(markup, html->to);
}

void sp_html_add(sp_html *html, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    if (is_ready(html))
        vfprintf(html->to, format, list);
    va_end(list);
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

    html->is_short = html->is_short || !shown;
    if (shown)
        sp_text_printable(shown, bytes, text, keeps_lines);
    for (const char *at = shown; is_ready(html) && *at; at++) {
        const char *instead = entity(*at);

        if (instead)
            fputs(instead, html->to);
        else
            putc(*at, html->to);
    }
    free(shown);
}

void sp_html_text(sp_html *html, const char *text)
{
    assert(html && text);
    add_text(html, text, false);
}

void sp_html_put(sp_html *html, const char *before, const char *text,
                 const char *behind)
{
    sp_html_raw(html, before);
    sp_html_text(html, text);
    sp_html_raw(html, behind);
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
    for (size_t i = 0; is_ready(html) && i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t three = (uint32_t)from[i] << 16 |
                               (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)from[i + 2] : 0);

        putc(digit[three >> 18], html->to);
        putc(digit[three >> 12 & 63], html->to);
        putc(left > 1 ? digit[three >> 6 & 63] : '=', html->to);
        putc(left > 2 ? digit[three & 63] : '=', html->to);
    }
}

sp_status sp_html_end(sp_html *html, const char **text, size_t *n)
{
    assert(text && n);
    if (!is_ready(html) || fflush(html->to) != 0 || ferror(html->to))
        return SP_FAIL(SP_EMEM, "no memory for a page of more than %zu bytes", html->n);
    *text = html->text;
    *n = html->n;
    return SP_OK;
}

void sp_html_destroy(sp_html *html)
{
    if (html->to)
        fclose(html->to);
    free(html->text);
    *html = (sp_html){0};
}
