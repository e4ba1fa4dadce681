/* Feature columns that are vectors. */
#include <strings.h>

#include "base/sp_text.h"
#include "data/sp_recipe.h"

/* The usual names of the parts of a normal, and of a position; its z may be missing.
 * Both are mirrored and turned with the sample, a position is also scaled and shifted,
 * about the training set's mean. Nothing else knows the names. */
static const struct {
    const char *part[3];
    bool is_position;
} words[] = {{{"nx", "ny", "nz"}, false},
             {{"normal_x", "normal_y", "normal_z"}, false},
             {{"x", "y", "z"}, true}};
enum { WORDS = sizeof words / sizeof *words };
_Static_assert((int)WORDS <= SP_MOST_VECTORS, "each may be found");

static const char *plain(const char *name)
{
    return strncasecmp(name, "scalar_", 7) == 0 ? name + 7 : name;
}

/* The name and the divisor of a column's source. */
static const char *source_of(const sp_recipe *r, const char *column, double *divisor)
{
    const int i = r ? sp_text_find(r->n_columns, r->column, column) : -1;

    *divisor = 1;
    if (i < 0)
        return plain(column);
    *divisor = r->divisor[i];
    return plain(r->source[i]);
}

/* The column with a source of this name, or -1. */
static int find(const sp_recipe *r, int n, char *const *name, const char *word,
                double *divisor)
{
    for (int i = 0; i < n; i++)
        if (strcasecmp(source_of(r, name[i], divisor), word) == 0)
            return i;
    return -1;
}

sp_vectors sp_recipe_vectors(const sp_recipe *r, int n, char *const *name)
{
    sp_vectors vectors = {.lone = -1};

    for (int k = 0; name && k < WORDS; k++) {
        sp_vector v = {.is_position = words[k].is_position, .divisor = {1, 1, 1}};
        const int x = find(r, n, name, words[k].part[0], &v.divisor[0]);
        const int y = find(r, n, name, words[k].part[1], &v.divisor[1]);

        v.x = x;
        v.y = y;
        v.z = find(r, n, name, words[k].part[2], &v.divisor[2]);
        if (x >= 0 && y >= 0)
            vectors.at[vectors.n++] = v;
        else if (x >= 0 || y >= 0)
            vectors.lone = x >= 0 ? x : y;
    }
    return vectors;
}
