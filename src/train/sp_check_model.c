#include "train/sp_check.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sp_file.h"
#include "checkpoint/sp_checkpoint.h"
#include "data/sp_recipe.h"
#include "h5/sp_h5.h"
#include "net/sp_graph.h"
#include "weights/sp_packed.h"

bool sp_check_is_model(const char *word)
{
    struct stat about;

    assert(word);
    return (stat(word, &about) == 0 && S_ISDIR(about.st_mode)) ||
           sp_file_begins(word, SP_H5_SIGNATURE, 8) || sp_packed_is(word);
}

/* Prints the network of the checkpoint's deck. A file of an older version does not say
 * how many columns and classes it has. */
static sp_status print_network(const sp_config *config, const sp_normalization *norm)
{
    SP_CLOSED_BY(sp_graph_destroy) sp_graph graph = {0};

    if (!norm->name || !norm->class_name) {
        puts("the file does not name its feature columns and classes");
        return SP_OK;
    }
    SP_TRY(sp_graph_build(&graph, config, norm->n_columns, norm->n_classes));
    sp_graph_print(&graph, stdout);
    return SP_OK;
}

static void print_inputs(const sp_normalization *norm)
{
    fputs("inputs:", stdout);
    for (int i = 0; norm->name && i < norm->n_columns; i++) {
        printf("%s %s", i ? "," : "", norm->name[i]);
        if (norm->mean)
            printf(" (mean %.6g, standard deviation %.6g)", norm->mean[i],
                   norm->std[i]);
    }
    putchar('\n');
}

static sp_status check_print_all(const char *path, const sp_checkpoint_state *state,
                                 const sp_normalization *norm)
{
    sp_config config;
    sp_status rc;

    if (!state->deck) {
        printf("%s: only weights, without a deck\n", path);
        return SP_OK;
    }
    printf("%s: step %lld, epoch %lld", path, (long long)state->step,
           (long long)sp_position_epochs(state->at));
    if (!isnan(state->best))
        printf(", best mIoU so far %.4f", state->best);
    putchar('\n');
    rc = sp_checkpoint_config(&config, state, path);
    if (rc == SP_OK)
        rc = print_network(&config, norm);
    if (rc == SP_OK)
        printf("voxels of the network: %g m\n", config.data.voxel_size);
    sp_config_destroy(&config);
    SP_TRY(rc);
    print_inputs(norm);
    sp_recipe_print(norm->recipe, norm->n_classes, norm->class_name, norm->class_code,
                    stdout);
    return SP_OK;
}

static sp_status check_packed(const char *path)
{
    SP_CLOSED_BY(sp_weights_model_close) sp_weights_model model;

    SP_TRY(sp_packed_read(&model, path));
    return check_print_all(path, &model.state, &model.norm);
}

sp_status sp_check_model(const char *model)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization norm = {0};
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;
    char path[PATH_MAX];

    assert(model);
    if (sp_packed_is(model))
        return check_packed(model);
    SP_TRY(sp_checkpoint_open_model(&file, model, SP_INTACT, path));
    SP_TRY(sp_checkpoint_read_open_state(file, &state, &norm));
    return check_print_all(path, &state, &norm);
}
