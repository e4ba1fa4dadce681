/* Draws by name: independent of each other and of their order. */
#include <stdarg.h>
#include <string.h>

#include "torture/random/random.h"

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int rnd_below(uint64_t *stream, int n)
{
    return (int)(mix(*stream += 0x9e3779b97f4a7c15u) % (uint64_t)n);
}

uint64_t rnd_stream(const rnd_case *c, const char *name, int number)
{
    uint64_t h = mix(c->seed + 1) ^ mix((uint64_t)c->index + 0x5851f42d4c957f2du);

    for (; *name; name++)
        h = mix(h + (unsigned char)*name);
    return mix(h + (uint64_t)number);
}

/* Tells whether a list of names, separated by commas, has this one. */
static bool has_name(const char *list, const char *name)
{
    const size_t n = strlen(name);

    while (list && *list) {
        const size_t length = strcspn(list, ",");

        if (length == n && memcmp(list, name, n) == 0)
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

static bool is_taken(const rnd_case *c, const char *name)
{
    return (!c->takes || has_name(c->takes, name)) && !has_name(c->plain, name);
}

static void record(rnd_case *c, const char *name, bool is_plain)
{
    rnd_draw *d = &c->draw[c->n_draws];

    for (int i = 0; i < c->n_draws; i++)
        if (strcmp(c->draw[i].name, name) == 0)
            return;
    if (c->n_draws == MOST_DRAWS)
        return;
    snprintf(d->name, sizeof d->name, "%s", name);
    d->is_plain = is_plain;
    c->n_draws++;
}

int rnd_pick(rnd_case *c, int n, const char *format, ...)
{
    char name[NAME_SIZE];
    uint64_t stream;
    int choice;
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    stream = rnd_stream(c, name, 0);
    choice = is_taken(c, name) ? rnd_below(&stream, n) : 0;
    record(c, name, choice == 0);
    return choice;
}

bool rnd_chance(rnd_case *c, int percent, const char *format, ...)
{
    char name[NAME_SIZE];
    uint64_t stream;
    bool is_so;
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    stream = rnd_stream(c, name, 0);
    is_so = is_taken(c, name) && rnd_below(&stream, 100) < percent;
    record(c, name, !is_so);
    return is_so;
}

void rnd_append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

const char *rnd_environment(const char *name, const char *plain)
{
    const char *value = getenv(name);

    return value && *value ? value : plain;
}

char rnd_first_way(const rnd_case *c)
{
    return RANDOM_WAYS[c->index % N_WAYS];
}

bool rnd_fault(rnd_case *c, char way, const char *format, ...)
{
    va_list args;

    if (c->way)
        return false;
    c->way = way;
    va_start(args, format);
    vsnprintf(c->fault, sizeof c->fault, format, args);
    va_end(args);
    return false;
}
