/* Everything that a checkpoint says about its data reaches all ranks unchanged, and
 * comes back through a file; a part that is absent stays absent, whichever of them it
 * is. */
#include "fixtures/test.h"

#include "net/sp_graph.h"
#include "h5/sp_h5.h"
#include "net/sp_optim.h"
#include "data/sp_recipe.h"
#include "checkpoint/sp_checkpoint.h"

enum { COLUMNS = 2, CLASSES = 3, PARTS = 6 };

static char *names[] = {"intensity", "height"};
static char *classes[] = {"ground", "", "roof"}, *codes[] = {"2", "3:4:5", "6"};
static double means[] = {860, 1.5}, deviations[] = {400, 2}, weights[] = {1, 2, 0.5};
ON_RANKS(comm)

static char **copy_texts(char **from, int n)
{
    char **to = calloc((size_t)n, sizeof *to);

    for (int i = 0; i < n; i++)
        to[i] = strdup(from[i]);
    return to;
}

static double *copy_row(const double *from, int n)
{
    double *to = malloc((size_t)n * sizeof *to);

    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

static sp_recipe *make_recipe(void)
{
    char *sources[] = {"Intensity", SP_RECIPE_HEIGHT}, *formats[] = {"LAS"};
    double divisors[] = {255, 1};
    const sp_recipe recipe = {.voxel_size = 0.5,
                              .block = 50,
                              .n_columns = COLUMNS,
                              .column = names,
                              .source = sources,
                              .divisor = divisors,
                              .height_percentile = SP_RECIPE_PERCENTILE,
                              .n_formats = 1,
                              .format = formats,
                              .unit = "metre"};
    sp_recipe *copy;

    OK(sp_recipe_copy(&recipe, &copy));
    return copy;
}

/* The bits of `parts` are names, means and deviations, classes, codes, weights, recipe.
 * Codes go with classes. */
static sp_normalization make(int parts)
{
    sp_normalization n = {.n_columns = COLUMNS, .n_classes = CLASSES};

    if (parts & 1)
        n.name = copy_texts(names, COLUMNS);
    if (parts & 2) {
        n.mean = copy_row(means, COLUMNS);
        n.std = copy_row(deviations, COLUMNS);
    }
    if (parts & 4)
        n.class_name = copy_texts(classes, CLASSES);
    if ((parts & 12) == 12)
        n.class_code = copy_texts(codes, CLASSES);
    if (parts & 16)
        n.class_weight = copy_row(weights, CLASSES);
    if (parts & 32)
        n.recipe = make_recipe();
    return n;
}

static void check_texts(char **got, bool is_there, char **want, int n)
{
    assert_int_equal(got != NULL, is_there);
    for (int i = 0; is_there && i < n; i++)
        assert_string_equal(got[i], want[i]);
}

static void check_row(const double *got, bool is_there, const double *want, int n)
{
    assert_int_equal(got != NULL, is_there);
    if (is_there)
        assert_memory_equal(got, want, (size_t)n * sizeof *want);
}

static void check(const sp_normalization *n, int parts)
{
    check_texts(n->name, parts & 1, names, COLUMNS);
    check_row(n->mean, parts & 2, means, COLUMNS);
    check_row(n->std, parts & 2, deviations, COLUMNS);
    check_texts(n->class_name, parts & 4, classes, CLASSES);
    check_texts(n->class_code, (parts & 12) == 12, codes, CLASSES);
    check_row(n->class_weight, parts & 16, weights, CLASSES);
    assert_int_equal(n->recipe != NULL, (parts & 32) != 0);
    if (!n->recipe)
        return;
    assert_string_equal(n->recipe->source[0], "Intensity");
    assert_true(n->recipe->divisor[0] == 255 && n->recipe->block == 50);
    assert_string_equal(n->recipe->unit, "metre");
}

TEST(every_part_reaches_all)
{
    for (int parts = 0; parts < 1 << PARTS; parts++) {
        sp_normalization n = comm.rank == 0 ? make(parts) : (sp_normalization){0};

        OK(sp_normalization_bcast(&n, &comm));
        check(&n, parts);
        sp_normalization_destroy(&n);
        assert_true(!n.name && !n.mean && !n.class_weight && !n.recipe);
    }
}

/* Each part alone, and all but each. */
TEST(every_part_reads_back)
{
    const sp_checkpoint_arrays none = {0};
    const sp_graph graph = {0};
    sp_checkpoint_state set = {.step = 3, .samples_seen = 6, .seed = 1, .deck = ""};
    sp_checkpoint_state got;
    const char *path = "a.h5";

    if (comm.rank > 0) /* files know nothing of ranks */
        return;
    for (int parts = 0; parts < 1 << PARTS; parts++) {
        const int n_parts = __builtin_popcount((unsigned)parts);
        sp_normalization n, back;

        if (n_parts > 1 && n_parts < PARTS - 1)
            continue;
        n = make(parts);
        OK(sp_checkpoint_write(path, &graph, &set, &n, &none));
        OK(sp_checkpoint_read_state(path, &got, &back));
        check(&back, parts);
        sp_checkpoint_state_destroy(&got);
        sp_normalization_destroy(&back);
        sp_normalization_destroy(&n);
    }
}
