#include "report/sp_page.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"

enum { TAG = 64, DEPTH = 12 };

/* ---- values ---- */

static void page_set(sp_page *page, json_t *to, const char *key, json_t *value)
{
    if (json_object_set_new_nocheck(to, key, value) != 0)
        page->is_short = true;
}

static json_t *page_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *page_text(const char *text)
{
    return text && *text ? json_string_nocheck(text) : json_null();
}

void sp_page_put(sp_page *page, json_t *to, const char *keys, ...)
{
    va_list list;
    char key[TAG], type;

    assert(page && keys);
    va_start(list, keys);
    for (int n; sscanf(keys, "%63s %%%c%n", key, &type, &n) == 2; keys += n)
        page_set(page, to, key,
                 type == 's'   ? page_text(va_arg(list, const char *))
                 : type == 'd' ? page_number(va_arg(list, int))
                               : page_number(va_arg(list, double)));
    assert(!*keys);
    va_end(list);
}

json_t *sp_page_add(sp_page *page, json_t *to, const char *list, const json_t *object)
{
    json_t *element = object ? json_copy((json_t *)object) : json_object();

    if (!json_object_get(to, list))
        page_set(page, to, list, json_array());
    if (json_array_append_new(json_object_get(to, list), element) == 0)
        return element;
    page->is_short = true;
    return NULL;
}

sp_status sp_page_open(sp_page *page)
{
    *page = (sp_page){json_object(), false};
    return page->values ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a page");
}

void sp_page_close(sp_page *page)
{
    json_decref(page->values);
}

/* ---- writing a value ---- */

static const char *page_entity(char c)
{
    return c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&quot;"
           : c == '\'' ? "&#39;"
                       : NULL;
}

/* Returns false without memory. */
static bool page_write_text(FILE *to, const char *text, bool keeps_lines)
{
    /* A byte becomes at most four. */
    const size_t bytes = 4 * strlen(text) + 1;
    char *shown = malloc(bytes);

    if (shown)
        sp_text_printable(shown, bytes, text, keeps_lines);
    for (const char *at = shown; at && *at; at++)
        if (page_entity(*at))
            fputs(page_entity(*at), to);
        else
            putc(*at, to);
    free(shown);
    return shown != NULL;
}

/* Quotes a text as RFC 4180 does. Line breaks become blanks. A text that a spreadsheet
 * would read as a formula gets an apostrophe before it. */
static void page_write_csv(FILE *to, const char *text)
{
    fputs(*text && strchr("=+-@\t\r", *text) ? "\"'" : "\"", to);
    for (; *text; text++)
        fprintf(to, *text == '"' ? "\"%c" : "%c",
                *text == '\n' || *text == '\r' ? ' ' : *text);
    putc('"', to);
}

static void page_write_count(FILE *to, double value)
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", value);

    for (int i = 0; i < n; i++)
        fprintf(to, "%s%c",
                i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-' ? "&#8239;" : "",
                digits[i]);
}

static void page_write_time(FILE *to, double s)
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

static void page_write_number(FILE *to, const char *format, double value)
{
    if (strcmp(format, "csv") == 0)
        fprintf(to, isfinite(value) ? "%.17g" : "", value);
    else if (strcmp(format, "plural") == 0)
        fputs(sp_plural(value), to);
    else if (strcmp(format, "bar") == 0)
        fprintf(to, "%.1f%%", isfinite(value) ? 100 * fmin(fmax(value, 0), 1) : 0);
    else if (*format == '%' && isfinite(value))
        fprintf(to, format, value);
    else if (strcmp(format, "count") == 0 && fabs(value) <= 1e15)
        page_write_count(to, value);
    else if (strcmp(format, "time") == 0 && value >= 0 && value <= 1e9)
        page_write_time(to, value);
    else
        fputs("&ndash;", to);
}

/* ---- filling ---- */

typedef struct filling {
    const char *form;
    FILE *to;
    const json_t *element[DEPTH]; /* from the page to the innermost */
    int depth;
    int n_hidden; /* sections around the place that are not shown */
    bool is_short;
} filling;

static const json_t *page_find(const filling *f, const char *name)
{
    int depth = *name == '@' ? 0 : f->depth;

    name += *name == '@';
    for (; strncmp(name, "../", 3) == 0 && depth > 0; name += 3)
        depth--;
    return json_object_get(f->element[depth], name);
}

static void page_fill_value(filling *f, char *name)
{
    char *blank = strchr(name, ' ');
    const char *format = blank ? blank + 1 : "";
    const json_t *value;

    if (blank)
        *blank = '\0';
    value = page_find(f, name);
    if (strcmp(format, "csv") == 0 && json_is_string(value))
        page_write_csv(f->to, json_string_value(value));
    else if (*format && strcmp(format, "lines") != 0)
        page_write_number(f->to, format,
                          json_is_number(value) ? json_number_value(value) : NAN);
    else if (json_is_number(value))
        fprintf(f->to, "%.9g", json_number_value(value));
    else if (json_is_string(value) &&
             !page_write_text(f->to, json_string_value(value), *format))
        f->is_short = true;
}

static const char *page_fill_part(filling *f, const char *at);

/* Fills a section, which begins at `at`; returns the place after its end. */
static const char *page_fill_section(filling *f, char kind, const char *name,
                                     const char *at)
{
    const json_t *value = kind == '=' ? NULL : page_find(f, name);
    const bool is_there = value && !json_is_null(value) &&
                          !(json_is_array(value) && !json_array_size(value));
    const size_t n =
        kind == '#' && is_there && json_is_array(value) ? json_array_size(value) : 1;
    const char *end = at;

    f->n_hidden += is_there == (kind == '^');
    f->depth += kind == '#';
    assert(f->depth < DEPTH);
    for (size_t i = 0; i < n; i++) {
        if (kind == '#')
            f->element[f->depth] =
                json_is_array(value) ? json_array_get(value, i) : value;
        end = page_fill_part(f, at);
    }
    f->depth -= kind == '#';
    f->n_hidden -= is_there == (kind == '^');
    return end;
}

/* Fills what {{>name}} stands for. */
static void page_fill_named(filling *f, const char *name)
{
    char tag[TAG + 8];
    const char *at;

    snprintf(tag, sizeof tag, "{{=%s}}\n", name);
    at = strstr(f->form, tag);
    assert(at);
    page_fill_part(f, at + strlen(tag));
}

/* Fills the template from `at` to the end of a section; returns the place after it. */
static const char *page_fill_part(filling *f, const char *at)
{
    for (const char *tag; (tag = strstr(at, "{{"));) {
        char name[TAG], kind;

        if (!f->n_hidden)
            fwrite(at, 1, (size_t)(tag - at), f->to);
        at = strstr(tag, "}}") + 2;
        assert(at - tag < TAG);
        snprintf(name, sizeof name, "%.*s", (int)(at - tag) - 4, tag + 2);
        kind = *name;
        if (*at == '\n' && strchr("/#?^=>", kind))
            at++;
        if (kind == '/')
            return at;
        if (strchr("#?^=", kind))
            at = page_fill_section(f, kind, name + 1, at);
        else if (!f->n_hidden && kind == '>')
            page_fill_named(f, name + 1);
        else if (!f->n_hidden)
            page_fill_value(f, name);
    }
    fputs(at, f->to);
    return at + strlen(at);
}

sp_status sp_page_fill(const sp_page *page, const char *form, char **text, size_t *n)
{
    filling f = {
        .form = form, .to = open_memstream(text, n), .element = {page->values}};
    bool is_short = page->is_short || !f.to;

    assert(form && text && n);
    if (f.to) {
        page_fill_part(&f, form);
        is_short = ferror(f.to) || is_short;
        is_short = fclose(f.to) != 0 || is_short || f.is_short;
    }
    return is_short ? SP_FAIL(SP_EMEM, "no memory for a page") : SP_OK;
}
