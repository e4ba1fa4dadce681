/* Feature columns that are vectors. */
#include <strings.h>

#include "base/sp_text.h"
#include "recipe/sp_recipe.h"

/* The usual names of the x and y of a normal, and of the x, y and z of a position. A
 * row of two names mirrors and turns with its sample; one of three is also scaled, all
 * of it about the training set's mean (is_position). Nothing else knows the names. */
static const char *const words[][3] = {
    {"nx", "ny"}, {"normal_x", "normal_y"}, {"x", "y", "z"}};
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

/* The column whose source has this name; -1: there is none. */
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
        const bool is_position = words[k][2] != NULL;
        double x_divisor = 1, y_divisor = 1, z_divisor;
        const int x = find(r, n, name, words[k][0], &x_divisor);
        const int y = find(r, n, name, words[k][1], &y_divisor);
        const int z = is_position ? find(r, n, name, words[k][2], &z_divisor) : -1;

        if (x >= 0 && y >= 0)
            vectors.at[vectors.n++] = (sp_vector){.x = x,
                                                  .y = y,
                                                  .z = z,
                                                  .ratio = y_divisor / x_divisor,
                                                  .is_position = is_position};
        else if (x >= 0 || y >= 0)
            vectors.lone = x >= 0 ? x : y;
    }
    return vectors;
}
