/* Feature columns that are vectors. */
#include <strings.h>

#include "base/sp_text.h"
#include "recipe/sp_recipe.h"

/* The usual names of the x and y of a normal. */
static const char *const words[][2] = {{"nx", "ny"}, {"normal_x", "normal_y"}};
enum { WORDS = sizeof words / sizeof *words };
_Static_assert((int)WORDS <= SP_MOST_NORMALS, "each pair may be found");

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

sp_normals sp_recipe_normals(const sp_recipe *r, int n, char *const *name)
{
    sp_normals normals = {.lone = -1};

    for (int k = 0; name && k < WORDS; k++) {
        double x_divisor = 1, y_divisor = 1;
        const int x = find(r, n, name, words[k][0], &x_divisor);
        const int y = find(r, n, name, words[k][1], &y_divisor);

        if (x >= 0 && y >= 0) {
            normals.at[normals.n].x = x;
            normals.at[normals.n].y = y;
            normals.at[normals.n++].ratio = y_divisor / x_divisor;
        } else if (x >= 0 || y >= 0) {
            normals.lone = x >= 0 ? x : y;
        }
    }
    return normals;
}
