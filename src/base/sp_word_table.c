#include "base/sp_word_table.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* NAME is the most bytes of a name that the distance looks at, COLUMN the last column
 * where the help of a row may begin. */
enum { NAME = 64, LINE = 80, COLUMN = 24 };

static const sp_word_entry *row_of(sp_word_table words, int i)
{
    return (const sp_word_entry *)(const void *)((const char *)words.first +
                                                 (size_t)i * words.bytes);
}

const void *sp_word_table_find(sp_word_table words, const char *name)
{
    assert(name && words.n >= 0);
    for (int i = 0; i < words.n; i++)
        if (strcmp(row_of(words, i)->name, name) == 0)
            return row_of(words, i);
    return NULL;
}

const sp_word_entry *sp_word_table_nearest(sp_word_table words, const char *name)
{
    const sp_word_entry *best = row_of(words, 0);

    for (int i = 1; i < words.n; i++)
        if (sp_word_distance(name, row_of(words, i)->name) <
            sp_word_distance(name, best->name))
            best = row_of(words, i);
    return best;
}

static int width_of(const sp_word_entry *word)
{
    return (int)strlen(word->name) + (word->takes ? 1 + (int)strlen(word->takes) : 0);
}

void sp_word_table_print(sp_word_table words, FILE *to)
{
    int indent = 0;

    for (int i = 0; i < words.n; i++) {
        const int end = 2 + width_of(row_of(words, i)) + 2;

        indent = end > indent && end <= COLUMN ? end : indent;
    }
    for (int i = 0; i < words.n; i++) {
        const sp_word_entry *word = row_of(words, i);

        fprintf(to, "  %s%s%s", word->name, word->takes ? " " : "",
                word->takes ? word->takes : "");
        if (2 + width_of(word) + 2 > indent)
            fprintf(to, "\n%*s", indent, "");
        else
            fprintf(to, "%*s", indent - 2 - width_of(word), "");
        sp_word_wrap(to, indent, word->help);
    }
}

/* Words that mean the same to a user; some of them come from other programs. */
static const char *const same_words[] = {
    "|gpu|cuda|nvidia|device|",
    "|cpu|host|",
    "|none|off|no|constant|const|fixed|flat|",
    "|fp32|float|float32|single|full|32|",
    "|bf16|bfloat16|half|fp16|float16|mixed|amp|16|",
    "|adamw|adam|",
    "|sgd|momentum|nesterov|",
    "|poly|polynomial|power|linear|",
    "|cosine|annealing|",
    "|onecycle|one_cycle|1cycle|",
    "|step|multistep|",
    "|cross_entropy|ce|crossentropy|nll|xent|",
    "|true|on|yes|1|",
    "|false|off|no|0|",
    "|never|off|no|none|false|",
    "|skip|ignore|continue|",
    "|stop|error|raise|abort|fail|",
    "|conv|convolution|subm|conv3d|",
    "|bn|batchnorm|batch_norm|norm|",
    "|linear|dense|fc|",
    "|relu|activation|",
    "|lr|learning_rate|",
    "|epochs|n_epochs|max_epochs|",
};

static bool have_in(const char *group, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = group; (at = strchr(at, '|')) && at[1]; at++)
        if (strncasecmp(at + 1, word, n) == 0 && at[1 + n] == '|')
            return n > 0;
    return false;
}

static bool are_same(const char *a, const char *b)
{
    for (size_t i = 0; i < sizeof same_words / sizeof *same_words; i++)
        if (have_in(same_words[i], a) && have_in(same_words[i], b))
            return true;
    return false;
}

int sp_word_distance(const char *a, const char *b)
{
    int row[NAME + 1], n_b = (int)strnlen(b, NAME), n_a = (int)strlen(a);

    assert(a && b);
    if (are_same(a, b))
        return 0;
    if (n_a != n_b && n_a && n_b &&
        strncasecmp(a, b, (size_t)(n_a < n_b ? n_a : n_b)) == 0)
        return 1;
    for (int j = 0; j <= n_b; j++)
        row[j] = j;
    for (int i = 1; a[i - 1] && i < 2 * NAME; i++) {
        int diagonal = row[0];

        row[0] = i;
        for (int j = 1; j <= n_b; j++) {
            bool same =
                tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            int best = diagonal + !same;

            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[n_b];
}

void sp_word_wrap(FILE *to, int indent, const char *text)
{
    int column = indent;

    for (const char *at = text; *at;) {
        const int n = (int)strcspn(at, " \n");

        if (column > indent && column + 1 + n > LINE) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(to, "%s%.*s", column > indent ? " " : "", n, at);
        for (at += n; *at == ' ' || *at == '\n'; at++)
            if (*at == '\n') {
                fprintf(to, "\n%*s", at[1] == '\n' ? 0 : indent, "");
                column = indent;
            }
    }
    putc('\n', to);
}

/* ---- help ---- */

bool sp_usage_asked(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

void sp_usage_print(const sp_usage *usage, FILE *to)
{
    fprintf(to, "%s\n\n", usage->line);
    sp_word_wrap(to, 0, usage->text);
    putc('\n', to);
    if (usage->formats) {
        usage->formats(to);
        fputs("\noptions\n", to);
    }
    sp_word_table_print(usage->options, to);
}

/* ---- options ---- */

sp_status sp_option_whole(const sp_option *option, const char *text, char **end,
                          int64_t *value)
{
    char *behind;

    errno = 0;
    *value = strtoll(text, &behind, 10);
    if (behind == text || errno || *value < option->least || *value > option->most ||
        (!end && *behind))
        return SP_FAIL(SP_EUSAGE, "%s %s: expected a whole number in %lld .. %lld",
                       option->word.name, text, (long long)option->least,
                       (long long)option->most);
    if (end)
        *end = behind;
    return SP_OK;
}

sp_status sp_option_real(const sp_option *option, const char *text, double *value)
{
    const double most = option->most > 0 ? (double)option->most : INFINITY;
    char *end;

    *value = strtod(text, &end);
    if (end != text && !*end && isfinite(*value) &&
        (option->or_0 ? 0 <= *value && *value <= most : 0 < *value && *value < most))
        return SP_OK;
    if (option->most > 0)
        return SP_FAIL(SP_EUSAGE, "%s %s: expected a number %s 0 %s %lld",
                       option->word.name, text, option->or_0 ? "from" : "above",
                       option->or_0 ? "to" : "and below", (long long)option->most);
    return SP_FAIL(SP_EUSAGE, "%s %s: expected a number %s", option->word.name, text,
                   option->or_0 ? "of at least 0" : "above 0");
}

sp_status sp_option_alone(int argc, char **argv)
{
    assert(argc >= 2);
    return argc == 2 ? SP_OK
                     : SP_FAIL(SP_EUSAGE, "%s: expected nothing after it, found %s",
                               argv[1], argv[2]);
}

static sp_status read_word(int *to, const sp_option *option, const char *text)
{
    const size_t n = strlen(text);
    const char *at = option->word.takes;

    for (*to = (int)option->least;; ++*to) {
        const size_t length = strcspn(at, "|");

        if (length == n && memcmp(at, text, n) == 0)
            return SP_OK;
        at += length;
        if (*at++ == '\0')
            return SP_FAIL(SP_EUSAGE, "%s %s: expected %s", option->word.name, text,
                           option->word.takes);
    }
}

static sp_status names_read_value(void *to, const sp_option *option, const char *text)
{
    void *at = (char *)to + option->offset;

    switch (option->kind) {
    case SP_OPTION_WHOLE:
        return sp_option_whole(option, text, NULL, at);
    case SP_OPTION_REAL:
        return sp_option_real(option, text, at);
    case SP_OPTION_WORD:
        return read_word(at, option, text);
    case SP_OPTION_READ:
        return option->read(to, option, text);
    default:
        *(const char **)at = text;
        return SP_OK;
    }
}

/* Reads the option argv[*i], and moves *i to its value if that is the next word. */
static sp_status read_option(void *to, sp_word_table table, const char *program,
                             int argc, char **argv, int *i)
{
    const char *given = argv[*i];
    const char *equals = strchr(given, '='), *text;
    const int n = equals ? (int)(equals - given) : (int)strlen(given);
    const sp_option *option;
    char name[NAME]; /* longer than any option's name */

    snprintf(name, sizeof name, "%.*s", n, given);
    option = sp_word_table_find(table, name);
    if (!option)
        return SP_FAIL(SP_EUSAGE, "%s %s: unknown option %s; nearest: %s", program,
                       argv[0], given, sp_word_table_nearest(table, name)->name);
    if (option->only && !strstr(option->only, argv[0])) /* no name is part of another */
        return SP_FAIL(SP_EUSAGE, "%s %s: %s is an option of %s only", program, argv[0],
                       name, option->only);
    if (option->kind == SP_OPTION_HELP) /* --help=VALUE */
        return SP_FAIL(SP_EUSAGE, "%s takes no value", name);
    if (option->kind == SP_OPTION_FLAG) {
        *(bool *)((char *)to + option->offset) = true;
        return equals ? SP_FAIL(SP_EUSAGE, "%s takes no value", name) : SP_OK;
    }
    text = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!text || !*text)
        return SP_FAIL(SP_EUSAGE, "%s %s: %s needs a value", program, argv[0], name);
    return names_read_value(to, option, text);
}

sp_status sp_options_read(void *to, sp_word_table table, const char *program, int argc,
                          char **argv, int *n_words)
{
    bool is_over = false;

    assert(to && program && argc >= 1 && argv && n_words);
    *n_words = 0;
    for (int i = 1; i < argc; i++) {
        if (is_over || argv[i][0] != '-' || argv[i][1] == '\0')
            argv[++*n_words] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            is_over = true;
        else
            SP_TRY(read_option(to, table, program, argc, argv, &i));
    }
    return SP_OK;
}
