#include "torture/fuzz/checkpoint_seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "train/sp_check.h"
#include "fixtures/closed_by.h"
#include "fixtures/shard_fixture.h"
#include "torture/fuzz/mutate.h"

enum { CLASSES = 4, COLUMNS = 3 };

static const char deck[] =
    "data : { train = [\"" SEED_SHARD "\"]; val = [\"" SEED_SHARD "\"]; };\n"
    "batch : { size = 2; eval_size = 2; };\n"
    "net : { layers = (\n"
    "  { name = \"conv1\"; op = \"conv\"; out = 3; kernel = 2; },\n"
    "  { name = \"bn1\"; op = \"batchnorm\"; }, { name = \"relu1\"; op = \"relu\"; },\n"
    "  { name = \"conv2\"; op = \"conv\"; out = 4; kernel = 1; bias = true; } ); };\n"
    "train : { epochs = 1; warmup_steps = 0; };\n"
    "run : { dir = \"" SEED_RUN "\"; checkpoint_every = 1; keep = 9; threads = 1;\n"
    "  device = \"cpu\"; watchdog_s = 0; };\n";

typedef struct verb {
    const char *name;
    sp_status (*run)(const sp_command *command);
} verb;

sp_status seed_sptrain(const char *name, const char *path, int n, char **overrides)
{
    static const verb verbs[] = {{"train", sp_train},
                                 {"eval", sp_eval},
                                 {"predict", sp_predict},
                                 {"check", sp_check}};
    sp_comm comm;
    sp_config config = {0};
    sp_command command = {.name = name,
                          .deck = path,
                          .n_overrides = n,
                          .overrides = overrides,
                          .config = &config,
                          .comm = &comm};
    sp_status rc;

    sp_comm_open_self(&comm);
    rc = sp_config_bcast(&config, &comm, sp_config_read(&config, path, n, overrides));
    if (rc != SP_OK)
        sp_log_error(sp_error_last());
    for (size_t i = 0; rc == SP_OK && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i].name, name) == 0) {
            rc = verbs[i].run(&command);
            break;
        }
    sp_config_destroy(&config);
    sp_comm_close(&comm);
    return rc;
}

/* Runs in a child, whose threads and state end with it. */
static void run_command(const char *name, int n, char **overrides)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        mutate_check(freopen("seed.out", "w", stdout) &&
                         freopen("seed.err", "w", stderr),
                     "seed.out");
        _exit(seed_sptrain(name, SEED_DECK, n, overrides));
    }
    mutate_check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, name);
}

void seed_run(void)
{
    static const int64_t voxels[] = {30, 0, 20, 1};
    static const fixture f = {.n_samples = 4,
                              .voxels = voxels,
                              .n_classes = CLASSES,
                              .n_features = COLUMNS,
                              .has_points = true,
                              .has_moments = true,
                              .has_recipe = true,
                              .seed = 7};
    char *logits[] = {"run.logits=true"};

    if (access(SEED_CHECKPOINT, R_OK) == 0)
        return;
    mutate_check(fixture_write(&f, SEED_SHARD) == SP_OK, SEED_SHARD);
    blob_write(SEED_DECK, (blob){(unsigned char *)(uintptr_t)deck, sizeof deck - 1});
    run_command("train", 0, NULL);
    run_command("predict", 1, logits);
}

void seed_graph(sp_graph *graph)
{
    CLOSED_BY(sp_config_destroy) sp_config config;

    mutate_check(sp_config_read(&config, SEED_DECK, 0, NULL) == SP_OK &&
                     sp_graph_build(graph, &config, COLUMNS, CLASSES) == SP_OK,
                 sp_error_last()->message);
}
