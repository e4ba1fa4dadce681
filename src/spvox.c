/* spvox: from raw scans to voxel shards, and from predictions back to scans. Starts the
 * ranks, calls the command, and ends all ranks with one exit status. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/sp_log.h"
#include "base/sp_openmp.h"
#include "base/sp_program.h"
#include "base/sp_signal.h"
#include "base/sp_word_table.h"
#include "comm/sp_world.h"
#include "h5/sp_h5.h"
#include "health/sp_start.h"
#include "report/sp_live.h"
#include "vox/vox.h"

SP_OPENMP_HIDE_AT_START;

typedef struct command {
    sp_word_entry word;
    const sp_usage *usage;
    sp_status (*run)(int argc, char **argv, sp_comm *comm);
    bool is_stoppable; /* run answers requests to stop (base/sp_signal.h) */
} command;

static const command commands[] = {
    {{"convert", NULL, "turn scans into shards"},
     &vox_convert_usage,
     vox_convert,
     true},
    {{"scene", NULL, "make labelled synthetic scenes as shards"},
     &vox_scene_usage,
     vox_scene,
     true},
    {{"info", NULL, "print what shards hold"}, &vox_info_usage, vox_info, false},
    {{"index", NULL, "write an index file beside shards, for a fast start"},
     &vox_index_usage,
     vox_index,
     false},
    {{"bank", NULL, "collect objects of rare classes for augment.paste"},
     &vox_bank_usage,
     vox_bank,
     true},
    {{"apply", NULL, "write predicted classes onto a scan"},
     &vox_apply_usage,
     vox_apply,
     true},
    {{"compare", NULL, "compare the classes of two scans or two folders of scans"},
     &vox_compare_usage,
     vox_compare,
     true},
    {{"view", NULL, "draw a shard, predictions or a scan as a PNG picture"},
     &vox_view_usage,
     vox_view,
     false},
};

static void spvox_print_help(FILE *to)
{
    fputs("usage: spvox COMMAND [OPTIONS] [FILE...]\n"
          "       mpirun -np N spvox COMMAND ...\n\n",
          to);
    sp_word_wrap(to, 0,
                 "Turns raw scans into voxel shards, in parallel over ranks, and "
                 "predictions back into scans.\n");
    sp_word_table_print(SP_WORD_TABLE(commands), to);
    sp_word_wrap(to, 0,
                 "\n"
                 "spvox COMMAND --help lists a command's options. spvox --version "
                 "prints the version.");
}

static sp_status run_command(int argc, char **argv, sp_comm *comm)
{
    const command *c;

    if (argc < 2) {
        if (comm->rank == 0)
            spvox_print_help(stderr);
        return SP_FAIL(SP_EUSAGE, "no command given");
    }
    c = sp_word_table_find(SP_WORD_TABLE(commands), argv[1]);
    if (!c)
        return SP_FAIL(
            SP_EUSAGE, "%s: no such command; did you mean \"%s\"? (spvox --help)",
            argv[1], sp_word_table_nearest(SP_WORD_TABLE(commands), argv[1])->name);
    SP_TRY(c->run(argc - 1, argv + 1, comm));
    return sp_log_written();
}

/* The command that argv names; NULL: no such command. */
static const command *spvox_command_of(int argc, char **argv)
{
    return argc > 1 ? sp_word_table_find(SP_WORD_TABLE(commands), argv[1]) : NULL;
}

/* Answers --help and --version without MPI, so that they work even if ranks cannot
 * start. Rank 0 answers for all. */
static bool answers_at_once(int argc, char **argv, sp_status *rc)
{
    const command *c = spvox_command_of(argc, argv);
    const bool is_version = argc > 1 && strcmp(argv[1], "--version") == 0;

    if (!is_version && !sp_usage_asked(argc, argv))
        return false;
    *rc = SP_OK;
    if (sp_start_rank() > 0)
        return true;
    if (is_version)
        *rc = sp_option_alone(argc, argv);
    if (is_version && *rc == SP_OK)
        printf("spvox %s\n", PACKAGE_VERSION);
    else if (c)
        sp_usage_print(c->usage, stdout);
    else if (!is_version)
        spvox_print_help(stdout);
    return true;
}

int main(int argc, char **argv)
{
    const command *c;
    sp_comm comm = {0};
    sp_status rc;

    sp_program_begin("spvox");
    sp_signal_begin();
    sp_h5_child_main(argc, argv);
    if (answers_at_once(argc, argv, &rc))
        return sp_log_answered(rc == SP_OK ? sp_log_written() : rc);
    c = spvox_command_of(argc, argv);
    if (c && c->is_stoppable) /* a request to stop may come while MPI starts */
        sp_signal_install();
    rc = sp_world_join(sp_start_limit_s());
    if (rc == SP_OK) {
        sp_start_watch("spvox");
        rc = sp_comm_open(&comm, &argc, &argv);
    }
    sp_signal_started();
    if (rc == SP_OK)
        rc = sp_log_open(comm.rank, comm.size, comm.host, comm.local_rank, NULL);
    if (rc == SP_OK)
        rc = sp_live_open(SP_PROGRESS_AUTO, &comm);
    if (rc != SP_OK) {
        sp_log_error(sp_error_last());
        sp_comm_close(&comm);
        sp_world_leave();
        return rc;
    }
    sp_openmp_warn();
    sp_start_together(comm.rank);
    rc = sp_comm_agree(&comm, run_command(argc, argv, &comm));
    if (rc == SP_ELIMIT) /* a request is not an error */
        sp_log_info("%s", sp_error_last()->message);
    else if (rc != SP_OK && rc != SP_EBELOW && comm.rank == comm.failed_rank)
        sp_log_error(sp_error_last());
    sp_log_close();
    sp_comm_close(&comm);
    sp_world_leave();
    sp_start_over();
    return rc;
}
