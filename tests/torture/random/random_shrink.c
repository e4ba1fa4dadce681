/* Makes a failing case smaller: draws become plain as long as the same way still finds
 * a fault. First all of them, then halves, quarters, down to single ones. */
#include <stdlib.h>
#include <string.h>

#include "torture/random/random.h"

enum { MOST_TRIES = 70 };

typedef struct shrinking {
    const rnd_case *failed;
    rnd_options options; /* the failed case's, with its way alone */
    char way[2];
    char (*name)[NAME_SIZE]; /* [n] draws that are not plain yet */
    int n, tries;
} shrinking;

/* Gives the names but for `n_left_out` of them from `from` on, separated by commas. */
static char *names_without(const shrinking *s, int from, int n_left_out)
{
    char *text = calloc((size_t)s->n * NAME_SIZE + 1, 1), *to = text;

    for (int i = 0; i < s->n; i++)
        if (i < from || i >= from + n_left_out)
            to += sprintf(to, "%s%s", to > text ? "," : "", s->name[i]);
    return text;
}

/* Tells whether the case with these draws alone fails in the same way. */
static bool still_fails(shrinking *s, const char *takes)
{
    FREED rnd_case *c = malloc(sizeof *c);
    bool is_same;

    s->tries++;
    rnd_case_draw(c, &s->options, s->failed->index, takes, NULL);
    snprintf(c->folder, sizeof c->folder, "%.480s-try", s->failed->folder);
    rnd_remove(c->folder);
    is_same = !rnd_case_run(c) && c->way == s->failed->way;
    rnd_remove(c->folder);
    return is_same;
}

/* Tries to leave out each run of `size` names. */
static void leave_out_runs(shrinking *s, int size)
{
    for (int at = 0; at < s->n && s->tries < MOST_TRIES;) {
        const int m = at + size <= s->n ? size : s->n - at;
        FREED char *takes = names_without(s, at, m);

        if (still_fails(s, takes)) {
            memmove(s->name[at], s->name[at + m],
                    (size_t)(s->n - at - m) * sizeof *s->name);
            s->n -= m;
        } else {
            at += m;
        }
    }
}

void rnd_shrink(const rnd_case *failed, char **takes)
{
    shrinking s = {
        .failed = failed, .options = *failed->options, .way = {failed->way, 0}};

    s.name = calloc(MOST_DRAWS, sizeof *s.name);
    if (strchr(RANDOM_WAYS, failed->way))
        s.options.ways = s.way;
    for (int i = 0; i < failed->n_draws; i++)
        if (!failed->draw[i].is_plain)
            memcpy(s.name[s.n++], failed->draw[i].name, NAME_SIZE);
    for (int size = s.n; size > 0 && s.n > 0; size = size > 1 ? (size + 1) / 2 : 0)
        leave_out_runs(&s, size);
    *takes = names_without(&s, 0, 0);
    free(s.name);
}
