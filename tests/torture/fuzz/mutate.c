#include "torture/fuzz/mutate.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mutate_check(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

blob blob_read(const char *path)
{
    FILE *from = fopen(path, "rb");
    blob all;
    long end;

    mutate_check(from && fseek(from, 0, SEEK_END) == 0, path);
    end = ftell(from);
    rewind(from);
    all = (blob){malloc((size_t)end + 1), (size_t)end};
    mutate_check(all.at && fread(all.at, 1, all.n, from) == all.n, path);
    fclose(from);
    return all;
}

void blob_write(const char *path, blob data)
{
    FILE *to = fopen(path, "wb");

    mutate_check(to && fwrite(data.at, 1, data.n, to) == data.n, path);
    mutate_check(fclose(to) == 0, path);
}

blob blob_copy(blob data)
{
    blob m = {malloc(data.n + 1), data.n};

    mutate_check(m.at, "out of memory");
    memcpy(m.at, data.at, data.n);
    return m;
}

blob blob_of_text(const char *text)
{
    return blob_copy((blob){(unsigned char *)(uintptr_t)text, strlen(text)});
}

uint64_t mutate_next(uint64_t *rng)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t mutate_below(uint64_t *rng, size_t n)
{
    return n ? (size_t)(mutate_next(rng) % n) : 0;
}

/* ---- numbers ---- */

static const uint64_t integers[] = {
    0,          1,
    2,          127,
    128,        255,
    32767,      32768,
    65535,      65536,
    1000000,    INT32_MAX,
    1ull << 31, UINT32_MAX,
    1ull << 32, 1ull << 40,
    1ull << 61, 1ull << 62,
    INT64_MAX,  1ull << 63,
    UINT64_MAX, UINT64_MAX - 1,
};
static const double reals[] = {
    0,       -0.0,  1,        -1,        0.5,          1e-320,
    -1e-320, 1e300, -1e300,   1e-9,      1e9,          1e18,
    1e19,    NAN,   INFINITY, -INFINITY, 4294967296.0, 9223372036854775808.0,
};
enum {
    N_INTEGERS = sizeof integers / sizeof *integers,
    N_REALS = sizeof reals / sizeof *reals
};

void mutate_number(void *to, char kind, int size, uint64_t *rng)
{
    uint64_t whole = integers[mutate_below(rng, N_INTEGERS)];
    double real = reals[mutate_below(rng, N_REALS)];
    float half = (float)real;

    if (kind == 'f' && size == 8)
        memcpy(to, &real, 8);
    else if (kind == 'f' && size == 4)
        memcpy(to, &half, 4);
    else
        memcpy(to, &whole, (size_t)(size < 8 ? size : 8));
}

void mutate_field(blob *m, const field *fields, size_t n, uint64_t *rng)
{
    const field *f = &fields[mutate_below(rng, n)];
    unsigned char number[8], old[8];

    if ((size_t)f->at + (size_t)f->size > m->n)
        return;
    memcpy(old, m->at + f->at, (size_t)f->size);
    mutate_number(number, f->kind, f->size, rng);
    memcpy(m->at + f->at, number, (size_t)f->size);
    if (mutate_below(rng, 3) > 0 || f->kind == 'f')
        return;
    memcpy(m->at + f->at, old, (size_t)f->size); /* close to the old value */
    m->at[f->at] = (unsigned char)(m->at[f->at] + mutate_below(rng, 9) - 4);
}

/* ---- bytes ---- */

static void flip_bits(blob *m, uint64_t *rng, size_t most)
{
    for (size_t k = 1 + mutate_below(rng, most); k > 0; k--)
        m->at[mutate_below(rng, m->n)] ^= (unsigned char)(1u << mutate_below(rng, 8));
}

static void replace_bytes(blob *m, uint64_t *rng)
{
    for (size_t k = 1 + mutate_below(rng, 8); k > 0; k--)
        m->at[mutate_below(rng, m->n)] = (unsigned char)mutate_next(rng);
}

/* Overwrites a sector or a part of one with zeros, ones or random bytes. */
static void replace_run(blob *m, uint64_t *rng)
{
    size_t n = 1 + mutate_below(rng, 512), from = mutate_below(rng, m->n);
    int kind = (int)mutate_below(rng, 3);

    for (size_t i = from; i < from + n && i < m->n; i++)
        m->at[i] = kind == 0 ? 0 : kind == 1 ? 255 : (unsigned char)mutate_next(rng);
}

static void copy_run(blob *m, uint64_t *rng)
{
    size_t n = 1 + mutate_below(rng, 64);

    if (m->n > n)
        memmove(m->at + mutate_below(rng, m->n - n),
                m->at + mutate_below(rng, m->n - n), n);
}

static void write_number(blob *m, uint64_t *rng)
{
    size_t size = (size_t)1 << mutate_below(rng, 4);
    unsigned char number[8];

    mutate_number(number, size >= 4 && mutate_below(rng, 4) == 0 ? 'f' : 'u', (int)size,
                  rng);
    if (m->n > size)
        memcpy(m->at + mutate_below(rng, m->n - size), number, size);
}

static void append(blob *m, uint64_t *rng)
{
    size_t more = 1 + mutate_below(rng, 2048);

    m->at = realloc(m->at, m->n + more + 1);
    mutate_check(m->at, "out of memory");
    for (; more > 0; more--)
        m->at[m->n++] = (unsigned char)mutate_next(rng);
}

void mutate_bytes(blob *m, uint64_t *rng)
{
    size_t how = m->n ? mutate_below(rng, 8) : 7;

    switch (how) {
    case 0:
        flip_bits(m, rng, 8);
        break;
    case 1:
        flip_bits(m, rng, 1);
        break;
    case 2:
        replace_bytes(m, rng);
        break;
    case 3:
        replace_run(m, rng);
        break;
    case 4:
        copy_run(m, rng);
        break;
    case 5:
        write_number(m, rng);
        break;
    case 6:
        m->n = mutate_below(rng, m->n);
        break;
    default:
        append(m, rng);
        break;
    }
}

/* ---- words ---- */

/* Words that are hostile to readers of any text. */
/* clang-format off */
static const char *const hostile[] = {
    "-1", "0", "1", "255", "65536", "2147483647", "2147483648", "4294967295",
    "4294967296", "4611686018427387904", "9223372036854775807", "18446744073709551615",
    "99999999999999999999", "1e308", "1e999", "-1e-320", "0x", "0xffffffffffffffff",
    "1L", "1.", ".", "-", "+-1", "nan", "-nan", "inf", "1e", "\"\"", "\"", "\"\\\"",
    "'", "%n%s%n", "\xff\xfe", "\n", "\r\n", "\n\n\n", "\t", " ", "\x1b[2J", "\\u0000",
    "x y z"};
/* clang-format on */
enum { N_HOSTILE = sizeof hostile / sizeof *hostile, MANY = 4000 };

static bool is_of_word(unsigned char c)
{
    return c > ' ' && !strchr("=;:,(){}[]\"'", c);
}

static const char *any_word(const vocabulary *words, uint64_t *rng)
{
    size_t n = words ? words->n : 0, i = mutate_below(rng, n + N_HOSTILE);

    return i < n ? words->at[i] : hostile[i - n];
}

/* Replaces n bytes at `at` by others, which may lie in m itself. */
static ptrdiff_t splice(blob *m, size_t at, size_t n, const char *text, size_t length)
{
    blob made = {malloc(m->n + length + 1), m->n - n + length};

    mutate_check(made.at, "out of memory");
    memcpy(made.at, m->at, at);
    memcpy(made.at + at, text, length);
    memcpy(made.at + at + length, m->at + at + n, m->n - at - n);
    free(m->at);
    *m = made;
    return (ptrdiff_t)length - (ptrdiff_t)n;
}

static void find_word(const blob *m, size_t end, size_t at, size_t *from, size_t *to)
{
    for (*from = at; *from > 0 && is_of_word(m->at[*from - 1]);)
        --*from;
    for (*to = at; *to < end && is_of_word(m->at[*to]);)
        ++*to;
}

static void find_line(const blob *m, size_t end, size_t at, size_t *from, size_t *to)
{
    for (*from = at; *from > 0 && m->at[*from - 1] != '\n';)
        --*from;
    for (*to = at; *to < end && m->at[*to] != '\n';)
        ++*to;
    *to += *to < end;
}

/* Repeats a word of the text at its place, up to MANY times. */
static ptrdiff_t repeat(blob *m, size_t from, size_t to, uint64_t *rng)
{
    size_t n = to - from, times = 1 + mutate_below(rng, MANY);
    char *text;
    ptrdiff_t moved;

    times = mutate_below(rng, 2) ? times : 2;
    if (n == 0 || n * times > 200000)
        return 0;
    text = malloc(n * times);
    mutate_check(text, "out of memory");
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * n, m->at + from, n);
    moved = splice(m, from, 0, text, n * times);
    free(text);
    return moved;
}

/* Puts another line of the text in place of this one. */
static ptrdiff_t exchange(blob *m, size_t end, size_t from, size_t to, uint64_t *rng)
{
    size_t a, b;

    find_line(m, end, mutate_below(rng, end), &a, &b);
    return splice(m, from, to - from, (const char *)m->at + a, b - a);
}

ptrdiff_t mutate_words(blob *m, size_t end, const vocabulary *words, uint64_t *rng)
{
    const char *word = any_word(words, rng);
    size_t at, from, to, how = mutate_below(rng, 8);

    end = end < m->n ? end : m->n;
    at = mutate_below(rng, end);
    if (how < 4) {
        find_word(m, end, at, &from, &to);
        if (how < 2)
            return splice(m, from, to - from, word, strlen(word));
        return how == 2 ? splice(m, at, 0, word, strlen(word))
                        : repeat(m, from, to, rng);
    }
    find_line(m, end, at, &from, &to);
    if (how == 4)
        return splice(m, from, to - from, "", 0);
    if (how == 5)
        return repeat(m, from, to, rng);
    if (how == 6)
        return exchange(m, end, from, to, rng);
    if (at < end) /* a single character */
        m->at[at] = isdigit(m->at[at]) ? (unsigned char)('0' + mutate_below(rng, 10))
                                       : (unsigned char)(' ' + mutate_below(rng, 95));
    return 0;
}
