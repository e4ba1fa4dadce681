#include "base/sp_text.h"

#include <assert.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

size_t sp_text_character(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;

    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* overlong forms, surrogates, and codes beyond U+10FFFF */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return n;
}

/* True if the character of n bytes controls a terminal instead of being shown. U+2028,
 * U+2029, U+202A to U+202E and U+2066 to U+2069 break lines or reverse their direction.
 */
static bool is_command(const unsigned char *s, size_t n)
{
    if (n == 1)
        return (s[0] < 0x20 && s[0] != '\t') || s[0] == 0x7f;
    if (n == 2)
        return s[0] == 0xc2 && s[1] < 0xa0;
    return n == 3 && s[0] == 0xe2 &&
           ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) ||
            (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
}

char *sp_text_printable(char *to, size_t bytes, const char *text, bool keeps_lines)
{
    size_t used = 0, n;

    assert(to && text && bytes > 0);
    for (; *text; text += n) {
        const unsigned char *s = (const unsigned char *)text;
        char shown[16] = "\\n";
        size_t length = 2;

        n = sp_text_character(text);
        if (n > 0 && (!is_command(s, n) || (*s == '\n' && keeps_lines))) {
            memcpy(shown, text, n);
            length = n;
        } else if (*s != '\n') {
            length = 0;
            n = n ? n : 1;
            for (size_t i = 0; i < n; i++)
                length += (size_t)snprintf(shown + length, sizeof shown - length,
                                           "\\x%02x", s[i]);
        }
        if (used + length >= bytes)
            break;
        memcpy(to + used, shown, length);
        used += length;
    }
    to[used] = '\0';
    return to;
}

/* Number of characters of valid UTF-8: its bytes that do not continue one. */
static int count_characters(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

int sp_text_width(int n, char *const *text, int least)
{
    char shown[4 * SP_TEXT_WIDEST + 1];
    int width = least;

    for (int i = 0; i < n; i++) {
        const int own =
            count_characters(sp_text_printable(shown, sizeof shown, text[i], false));

        width = own > width ? own : width;
    }
    return width < SP_TEXT_WIDEST ? width : SP_TEXT_WIDEST;
}

char *sp_text_cell(char *to, size_t bytes, const char *text, int width)
{
    int missing = width - count_characters(sp_text_printable(to, bytes, text, false));
    size_t used = strlen(to);

    for (; missing > 0 && used + 1 < bytes; missing--)
        to[used++] = ' ';
    to[used] = '\0';
    return to;
}

char *sp_text_quote(char *to, const char *text)
{
    *to++ = '\'';
    for (; *text; text++)
        to = stpcpy(to, *text == '\'' ? "'\\''" : (const char[2]){*text, 0});
    return stpcpy(to, "'");
}

bool sp_text_is_ascii(const char *text, size_t bytes)
{
    assert(text);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == 0)
            return true;
        else if (text[i] < ' ' || text[i] > '~')
            return false;
    return false;
}

/* Puts the calling thread into the C locale, which needs no memory in the usual C
 * libraries, and returns the locale that it had. */
static locale_t text_begin_numbers(locale_t *plain)
{
    *plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(*plain);
}

static void text_end_numbers(locale_t before, locale_t plain)
{
    uselocale(before);
    if (plain)
        freelocale(plain);
}

double sp_text_to_number(const char *text, char **end)
{
    locale_t plain, before = text_begin_numbers(&plain);
    const double value = strtod(text, end);

    text_end_numbers(before, plain);
    return value;
}

void sp_text_from_number(char *to, size_t bytes, int digits, double value)
{
    locale_t plain, before = text_begin_numbers(&plain);

    snprintf(to, bytes, "%.*g", digits, value);
    text_end_numbers(before, plain);
}

int sp_text_find(int n, char *const *name, const char *wanted)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name[i], wanted) == 0)
            return i;
    return -1;
}

bool sp_text_twice(int n, char *const *name, const char **twice)
{
    const char **sorted = malloc(((size_t)n + 1) * sizeof *sorted);

    *twice = NULL;
    if (!sorted)
        return false;
    memcpy(sorted, name, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, sp_by_text);
    for (int i = 1; i < n && !*twice; i++)
        *twice = strcmp(sorted[i - 1], sorted[i]) == 0 ? sorted[i] : NULL;
    free(sorted);
    return true;
}
