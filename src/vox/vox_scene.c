/* spvox scene: synthetic labelled scenes as shards. */
#include "vox/vox.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sp_log.h"
#include "scan/sp_scene.h"

static const char help[] =
    "Usage: spvox scene --out PREFIX --samples N --extent M --seed S [OPTIONS]\n"
    "\n"
    "Makes labelled airborne-like scenes: terrain, buildings with roofs, trees, "
    "vehicles and\n"
    "power lines, seen by a scanner with occlusion, noise and intensity. Sample i "
    "depends on\n"
    "seed, extent and voxel size only, whatever the number of samples, shards or "
    "ranks.\n"
    "\n"
    "  --out PREFIX     writes PREFIX-00000-of-0000N.h5 ...\n"
    "  --samples N      number of scenes\n"
    "  --extent M       edge of a scene in metre, 4 to 1000\n"
    "  --seed S         whole number >= 0\n"
    "  --shards N       number of files (1); each is written by one rank\n"
    "  --voxel-size M   edge of a voxel in metre (0.5)\n"
    "  --points         store the point map, point labels and point index\n"
    "  --help           this text\n";

/* The options of spvox scene. */
typedef struct arguments {
    sp_scene_options scene;
    const char *out;
    int64_t samples, shards, seed;
    bool has_extent, has_seed, wants_help;
} arguments;

static sp_status read_whole(const char *option, const char *text, int64_t lo,
                            int64_t hi, int64_t *value)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < lo || v > hi)
        return SP_FAIL(SP_EUSAGE,
                       "scene: --%s %s: expected a whole number from %lld to %lld",
                       option, text, (long long)lo, (long long)hi);
    *value = v;
    return SP_OK;
}

static sp_status read_metres(const char *option, const char *text, double *value)
{
    char *end;

    *value = strtod(text, &end);
    if (end == text || *end || !(*value > 0 && *value < 1e9))
        return SP_FAIL(SP_EUSAGE, "scene: --%s %s: expected a length in metre", option,
                       text);
    return SP_OK;
}

static sp_status read_option(arguments *a, int option, const char *text)
{
    switch (option) {
    case 'o':
        a->out = text;
        return SP_OK;
    case 'n':
        return read_whole("samples", text, 1, INT32_MAX, &a->samples);
    case 'k':
        return read_whole("shards", text, 1, 99999, &a->shards);
    case 's':
        a->has_seed = true;
        return read_whole("seed", text, 0, INT64_MAX, &a->seed);
    case 'e':
        a->has_extent = true;
        return read_metres("extent", text, &a->scene.extent);
    case 'v':
        return read_metres("voxel-size", text, &a->scene.voxel_size);
    case 'p':
        a->scene.with_points = true;
        return SP_OK;
    default:
        a->wants_help = true;
        return SP_OK;
    }
}

static sp_status read_arguments(int argc, char **argv, arguments *a)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},
        {"samples", required_argument, NULL, 'n'},
        {"extent", required_argument, NULL, 'e'},
        {"seed", required_argument, NULL, 's'},
        {"shards", required_argument, NULL, 'k'},
        {"points", no_argument, NULL, 'p'},
        {"voxel-size", required_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int option;

    *a = (arguments){.scene = {.voxel_size = 0.5}, .shards = 1};
    optind = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return SP_FAIL(SP_EUSAGE, "scene: %s %s; see spvox scene --help",
                           argv[optind - 1],
                           option == ':' ? "needs a value" : "is no option");
        SP_TRY(read_option(a, option, optarg));
    }
    if (a->wants_help)
        return SP_OK;
    if (optind < argc)
        return SP_FAIL(SP_EUSAGE, "scene: %s: no such argument is expected",
                       argv[optind]);
    if (!a->out || !a->samples || !a->has_extent || !a->has_seed)
        return SP_FAIL(SP_EUSAGE, "scene: --%s is missing; see spvox scene --help",
                       !a->out          ? "out"
                       : !a->samples    ? "samples"
                       : !a->has_extent ? "extent"
                                        : "seed");
    a->scene.seed = (uint64_t)a->seed;
    return SP_OK;
}

sp_status vox_scene(int argc, char **argv, sp_comm *comm)
{
    arguments a;
    double begin = sp_now_s();

    SP_TRY(read_arguments(argc, argv, &a));
    if (a.wants_help) {
        if (comm->rank == 0)
            fputs(help, stdout);
        return SP_OK;
    }
    SP_TRY(sp_scene_write(&a.scene, a.out, a.samples, (int)a.shards, comm));
    sp_log_info("wrote out=%s samples=%lld shards=%lld seconds=%.1f", a.out,
                (long long)a.samples, (long long)a.shards, sp_now_s() - begin);
    return SP_OK;
}
