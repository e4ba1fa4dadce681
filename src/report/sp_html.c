#include "report/sp_html.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
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

/* ---- conversions ---- */

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

static void put_text(sp_html *html, const char *text, bool keeps_lines)
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

void sp_html_lines(sp_html *html, const char *text)
{
    assert(html && text);
    put_text(html, text, true);
}

static void put_count(FILE *to, double value)
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", value);

    for (int i = 0; i < n; i++)
        fprintf(to, "%s%c",
                i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-' ? "&#8239;" : "",
                digits[i]);
}

static void put_seconds(FILE *to, double s)
{
    if (s < 1e-3)
        fprintf(to, "%.3g &micro;s", s * 1e6);
    else if (s < 0.1)
        fprintf(to, "%.3g ms", s * 1e3);
    else if (s < 100)
        fprintf(to, "%.3g s", s);
    else if (s < 3600)
        fprintf(to, "%d min %02d s", (int)s / 60, (int)s % 60);
    else
        fprintf(to, "%d h %02d min", (int)s / 3600, (int)s / 60 % 60);
}

static void put_number(FILE *to, const char *conversion, double value)
{
    const char last = conversion[strlen(conversion) - 1];
    const bool is_count = strcmp(conversion, "%g") == 0;

    if ((!isfinite(value) && last != 'g') ||
        (last == 'e' && (value < 0 || value > 1e9)) ||
        (is_count && !(fabs(value) <= 1e15)))
        fputs("&ndash;", to);
    else if (is_count)
        put_count(to, value);
    else if (last == 'e')
        put_seconds(to, value);
    else
        fprintf(to, conversion, value);
}

/* Writes the next argument, and returns the text after its conversion at `at`. */
static const char *put_argument(sp_html *html, const char *at, va_list *list)
{
    char conversion[16];
    const size_t n = 1 + strcspn(at + 1, "%sdxcfge");

    assert(at[n] && n + 2 <= sizeof conversion);
    snprintf(conversion, sizeof conversion, "%.*s", (int)n + 1, at);
    if (at[n] == '%')
        putc('%', html->to);
    else if (at[n] == 's' && at[1] == '-')
        fputs(va_arg(*list, const char *), html->to);
    else if (at[n] == 's')
        put_text(html, va_arg(*list, const char *), false);
    else if (strchr("fge", at[n]))
        put_number(html->to, conversion, va_arg(*list, double));
    else if (strstr(conversion, PRId64))
        fprintf(html->to, conversion, va_arg(*list, int64_t));
    else
        fprintf(html->to, conversion, va_arg(*list, int));
    return at + n + 1;
}

void sp_html_add(sp_html *html, const char *format, ...)
{
    va_list list;

    assert(html && format);
    va_start(list, format);
    for (const char *at = format; is_ready(html) && *at;) {
        const size_t n = strcspn(at, "%");

        fwrite(at, 1, n, html->to);
        at += n;
        if (*at)
            at = put_argument(html, at, &list);
    }
    va_end(list);
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
