/* spvox scene: synthetic labelled scenes as shards. */
#include "vox/vox.h"

#include <assert.h>
#include <stddef.h>

#include "base/sp_log.h"
#include "base/sp_word_table.h"
#include "scan/scene/sp_scene.h"

/* The options of spvox scene; extent 0 and seed -1 if they are not given. */
typedef struct arguments {
    sp_scene_options scene;
    const char *out;
    int64_t samples, shards, seed;
} arguments;

#define AT(member) .offset = offsetof(arguments, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"--out", "PREFIX", "writes PREFIX-00000-of-0000N.h5 ..."}, SP_OPTION_TEXT, AT(out)},
{{"--samples", "N", "number of scenes"}, SP_OPTION_WHOLE, AT(samples), 1, INT32_MAX},
{{"--extent", "M", "edge of a scene in metre, 4 to 1000"},
 SP_OPTION_REAL, AT(scene.extent)},
{{"--seed", "S", "whole number >= 0"}, SP_OPTION_WHOLE, AT(seed), 0, INT64_MAX},
{{"--shards", "N", "number of files (1); each is written by one rank"},
 SP_OPTION_WHOLE, AT(shards), 1, 99999},
{{"--voxel-size", "M", "edge of a voxel in metre (0.5)"},
 SP_OPTION_REAL, AT(scene.voxel_size)},
{{"--points", NULL, "store the point map, point labels and point index"},
 SP_OPTION_FLAG, AT(scene.with_points)},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

const sp_usage vox_scene_usage = {
    .line = "usage: spvox scene --out PREFIX --samples N --extent M --seed S [OPTIONS]",
    .text =
        "Makes labelled airborne-like scenes: terrain, buildings with roofs, trees, "
        "vehicles and power lines, seen by a scanner with occlusion, noise and "
        "intensity. Sample i depends on seed, extent and voxel size only, whatever the "
        "number of samples, shards or ranks.",
    .options = SP_WORD_ROWS(option_table),
};

static sp_status read_arguments(int argc, char **argv, arguments *a)
{
    int n_words;

    *a = (arguments){.shards = 1, .seed = -1};
    SP_TRY(
        sp_options_read(a, SP_WORD_TABLE(option_table), "spvox", argc, argv, &n_words));
    if (n_words > 0)
        return SP_FAIL(SP_EUSAGE, "scene: %s: no such argument is expected", argv[1]);
    if (!a->out || !a->samples || a->scene.extent == 0 || a->seed < 0)
        return SP_FAIL(SP_EUSAGE, "scene: --%s is missing; see spvox scene --help",
                       !a->out                ? "out"
                       : !a->samples          ? "samples"
                       : a->scene.extent == 0 ? "extent"
                                              : "seed");
    a->scene.seed = (uint64_t)a->seed;
    if (a->scene.voxel_size == 0)
        a->scene.voxel_size = 0.5;
    return SP_OK;
}

sp_status vox_scene(int argc, char **argv, sp_comm *comm)
{
    arguments a;
    double begin = sp_now_s();

    assert(argc >= 1 && argv && comm);
    SP_TRY(read_arguments(argc, argv, &a));
    SP_TRY(sp_scene_write(&a.scene, a.out, a.samples, (int)a.shards, comm));
    sp_log_info("wrote out=%s samples=%lld shards=%lld seconds=%.1f", a.out,
                (long long)a.samples, (long long)a.shards, sp_now_s() - begin);
    return SP_OK;
}
