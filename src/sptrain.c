/* sptrain: command line, start of the ranks, exit status. */
#include "config.h"

#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_openmp.h"
#include "base/sp_program.h"
#include "base/sp_signal.h"
#include "base/sp_thread.h"
#include "base/sp_word_table.h"
#include "comm/sp_launcher.h"
#include "comm/sp_world.h"
#include "compute/sp_backend.h"
#include "h5/sp_h5.h"
#include "health/sp_crash_recorder.h"
#include "health/sp_start.h"
#include "label/label.h"
#include "net/sp_graph.h"
#include "report/sp_folds.h"
#include "report/sp_report.h"
#include "train/sp_check.h"
#include "train/sp_train.h"
#include "train/sp_wgmma_probe.h"
#include "weights/sp_weights.h"

SP_OPENMP_HIDE_AT_START;

/* One command, or one option that is a command by itself. */
typedef struct sptrain_entry {
    sp_word_entry word;
    sp_status (*run)(const sp_command *command);
    bool is_stoppable;     /* run answers requests to stop (base/sp_signal.h) */
    bool has_help;         /* it answers --help itself */
    const sp_usage *usage; /* what its --help prints; NULL: the general help */
    sp_status (*answer)(int argc, char **argv); /* instead of run: needs no ranks */
    /* Instead of run: gets the words after the command, which are not a deck. */
    sp_status (*run_words)(int argc, char **argv, sp_comm *comm);
} sptrain_entry;

static sp_status print_status(int argc, char **argv)
{
    const bool is_watching = argc == 4 && strcmp(argv[3], "--watch") == 0;

    if (argc != 3 && !is_watching)
        return SP_FAIL(SP_EUSAGE,
                       "status: expected one run folder, and at most --watch after it");
    return is_watching ? sp_run_watch(argv[2]) : sp_run_print_status(argv[2], stdout);
}

static sp_status print_model(int argc, char **argv)
{
    return argc == 3 ? sp_check_model(argv[2])
                     : SP_FAIL(SP_EUSAGE, "check %s: a model takes no keys, found %s",
                               argv[2], argv[3]);
}

typedef struct report_arguments {
    const char *out;
    bool is_quiet, is_folds;
} report_arguments;

#define AT(member) .offset = offsetof(report_arguments, member)
static const sp_option report_options[] = {
    {{"-o", "FILE.html", "the report (RUN/report.html)"}, SP_OPTION_TEXT, AT(out)},
    {{"--out", "FILE.html", "the same"}, SP_OPTION_TEXT, AT(out)},
    {{"--folds", NULL,
      "print the pooled confusion of a cross-validation (data.folds); each RUN is a "
      "fold"},
     SP_OPTION_FLAG,
     AT(is_folds)},
    {{"--quiet", NULL, "print nothing about what was skipped or written"},
     SP_OPTION_FLAG,
     AT(is_quiet)},
    SP_OPTION_HELP_ROW,
};

static const sp_usage report_usage = {
    .line = "usage: sptrain report RUN... [-o FILE.html]\n"
            "       sptrain report --folds RUN...",
    .text = "Writes one HTML file about the runs in these run folders, with curves, "
            "classes, confusions, times, ranks and pictures, and the classes as CSV "
            "beside it. It needs nothing else: neither a network nor a server.",
    .options = SP_WORD_ROWS(report_options),
};

static sp_status write_report(int argc, char **argv)
{
    report_arguments a = {0};
    char own[PATH_MAX];
    int n;

    SP_TRY(sp_options_read(&a, SP_WORD_TABLE(report_options), "sptrain", argc - 1,
                           argv + 1, &n));
    if (a.is_folds && (n == 0 || a.out))
        return SP_FAIL(SP_EUSAGE, "report --folds: expected RUN..., found %s",
                       n == 0 ? "no run folder" : "-o, which it does not take");
    if (a.is_folds)
        return sp_folds_print(n, argv + 2);
    if (n == 0 || (n > 1 && !a.out))
        return SP_FAIL(SP_EUSAGE, "report: expected RUN... -o FILE.html, found %s%s",
                       n == 0 ? "no run folder" : "several run folders",
                       a.out ? "" : " and no FILE.html");
    /* It replaces an existing file, which may by mistake be a file of the run. */
    if (a.out && !sp_file_ends_in(a.out, ".html"))
        return SP_FAIL(SP_EUSAGE, "report: -o %s: expected a name that ends in .html",
                       a.out);
    snprintf(own, sizeof own, "%s/report.html", argv[2]);
    SP_TRY(sp_report_write(a.out ? a.out : own, n, argv + 2, a.is_quiet));
    if (!a.is_quiet)
        sp_log_info("%s: %d run%s", a.out ? a.out : own, n, sp_plural(n));
    return SP_OK;
}

static sp_status launch_ranks(int argc, char **argv)
{
    return sp_launch(argc - 1, argv + 1);
}

static sp_status sptrain_print_version(int argc, char **argv)
{
    int cuda = sp_backend_cuda_version();

    SP_TRY(sp_option_alone(argc, argv));
    puts(PACKAGE_STRING);
    printf("MPI: %s\nHDF5: %s\n", sp_comm_library(), sp_h5_library());
    if (cuda)
        printf("CUDA toolkit: %d.%d\n", cuda / 1000, cuda % 1000 / 10);
    else
        puts("CUDA: not compiled in");
    return SP_OK;
}

static sp_status print_keys(int argc, char **argv)
{
    SP_TRY(sp_option_alone(argc, argv));
    sp_deck_print_keys(stdout);
    sp_word_wrap(
        stdout, 0,
        "\nnet.layers is a list ( ) of groups { }, one for each layer, with its "
        "name, its op, the fields of the op (those in brackets may be left out), "
        "and from: the name of the layer that it reads, or [\"a\", \"b\"] for "
        "several. Without from a layer reads the one before it; \"input\" stands "
        "for the features. The last layer must have as many channels as there are "
        "classes.\n");
    sp_graph_print_ops(stdout);
    return SP_OK;
}

static sp_status sptrain_print_help(int argc, char **argv);

static const sptrain_entry commands[] = {
    {{"train", NULL,
      "train, evaluate, checkpoint; continues where an earlier run stopped"},
     .run = sp_train,
     .is_stoppable = true},
    {{"eval", NULL, "evaluate run.checkpoint on data.val exactly"},
     .run = sp_eval,
     .is_stoppable = true},
    {{"predict", NULL, "write predictions for data.val"},
     .run = sp_predict,
     .is_stoppable = true},
    {{"label", "MODEL SCAN... --out DIR",
      "write scans with predicted classes; label --help lists its options"},
     .run_words = sp_label,
     .is_stoppable = true,
     .usage = &sp_label_usage},
    {{"calibrate", "RUN",
      "find the temperature of a model's probabilities on its data.val, and how far "
      "its "
      "classes' features lie apart, and store both in its checkpoint"},
     .run_words = sp_calibrate,
     .is_stoppable = true},
    {{"check", NULL,
      "print network, batch and memory estimate; train nothing. check MODEL, a run "
      "folder or a checkpoint, prints its network and how scans became samples"},
     .run = sp_check},
    {{"preflight", NULL, "print what each rank got, and measured rates"},
     .run = sp_preflight},
    {{"launch", "[-n N] ARGS...",
      "start one rank for each CUDA device, or each NUMA node, of this node; launch "
      "--help lists its options"},
     .answer = launch_ranks,
     .has_help = true},
    {{"status", "DIR [--watch]",
      "print the state of the run in DIR and what each rank did "
      "last; --watch: show it while it runs"},
     .answer = print_status},
    {{"weights", "list|import|export FILE ...",
      "take weights from files of other programs, write them for other programs, or "
      "write a packed model; weights --help lists its options"},
     .answer = sp_weights_answer,
     .has_help = true},
    {{"report", "RUN... [-o FILE.html]",
      "write one HTML file about the runs in these folders"},
     .answer = write_report,
     .usage = &report_usage},
};
static const sptrain_entry options[] = {
    {{"--keys", NULL,
      "print every key of a deck with type, default, range and "
      "meaning"},
     .answer = print_keys},
    {{"--help", NULL, "print this text"}, .answer = sptrain_print_help},
    {{"--version", NULL, "print the version and the libraries"},
     .answer = sptrain_print_version},
};

static sp_status sptrain_print_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("usage: sptrain [COMMAND] [DECK] [SECTION.KEY=VALUE ...]\n"
         "       mpirun -np 8 sptrain train input/default.deck batch.size=8\n");
    sp_word_wrap(stdout, 0,
                 "Trains sparse 3D convolutional networks that label point clouds; one "
                 "process per GPU or per share of the cores.\n\ncommands");
    sp_word_table_print(SP_WORD_TABLE(commands), stdout);
    puts("\noptions");
    sp_word_table_print(SP_WORD_TABLE(options), stdout);
    sp_word_wrap(stdout, 0,
                 "\nWithout DECK, input/default.deck is looked up in the working "
                 "folder, the program's folder, the source folder and the "
                 "installed data folder.\nexit status: 0 finished, 2 usage or "
                 "deck, 3 input data, 4 file system, 5 memory, 6 peer or transport "
                 "lost, 7 device, 8 numbers, 75 stopped on request (run again).");
    return SP_OK;
}

static sp_status print_usage(int argc, char **argv)
{
    const sptrain_entry *entry = sp_word_table_find(SP_WORD_TABLE(commands), argv[1]);

    assert(argc > 2 && entry);
    sp_usage_print(entry->usage, stdout);
    return SP_OK;
}

/* Finds a command or an option that needs no ranks; NULL: not found. A command without
 * its own help prints the general help. */
static const sptrain_entry *find_answer(int argc, char **argv)
{
    static const sptrain_entry model = {{"check", "MODEL", ""}, .answer = print_model};
    static const sptrain_entry help = {{"--help", NULL, ""},
                                       .answer = sptrain_print_help};
    static const sptrain_entry usage = {{"--help", NULL, ""}, .answer = print_usage};
    const char *word = argc < 2 ? "" : argv[1];
    const sptrain_entry *entry = sp_word_table_find(SP_WORD_TABLE(options), word);

    if (sp_usage_asked(argc < 2 ? argc : 2, argv))
        return &help;
    if (!entry)
        entry = sp_word_table_find(SP_WORD_TABLE(commands), word);
    if (entry && !entry->has_help && sp_usage_asked(argc, argv))
        return entry->usage ? &usage : &help;
    if (entry && entry->run == sp_check && argc > 2 && sp_check_is_model(argv[2]))
        return &model;
    return entry && entry->answer ? entry : NULL;
}

static sp_status give_answer(const sptrain_entry *entry, int argc, char **argv)
{
    SP_TRY(entry->answer(argc, argv));
    return sp_log_written();
}

/* True for a word that names a deck: it is neither a command nor an override. */
static bool looks_like_path(const char *word)
{
    return strchr(word, '/') || strchr(word, '.') || access(word, F_OK) == 0;
}

/* Fails for an unknown word, and for a command after other words. A word that is far
 * from all commands was probably meant as a deck. */
static sp_status fail_unknown(const char *word)
{
    enum { NEAR = 2 };
    const char *nearest = sp_word_table_nearest(SP_WORD_TABLE(commands), word)->name;

    if (strcmp(word, nearest) == 0)
        return SP_FAIL(SP_EUSAGE,
                       "%s: a command is the first word, and one is all: sptrain "
                       "[COMMAND] [DECK] [SECTION.KEY=VALUE ...]",
                       word);
    if (sp_word_distance(word, nearest) > NEAR)
        return SP_FAIL(SP_EUSAGE,
                       "%s: no such command, and no deck of this name (sptrain --help "
                       "lists the commands)",
                       word);
    return SP_FAIL(SP_EUSAGE,
                   "%s: no such command or deck; did you mean \"%s\"? (sptrain --help "
                   "lists the commands)",
                   word, nearest);
}

/* Splits argv after the program's name into entry, deck path and overrides, in place.
 */
static sp_status sptrain_parse(int argc, char **argv, const sptrain_entry **entry,
                               sp_command *command)
{
    int i = 1;

    *entry = i < argc ? sp_word_table_find(SP_WORD_TABLE(commands), argv[i]) : NULL;
    i += *entry != NULL;
    if (!*entry)
        *entry = &commands[0];
    command->name = (*entry)->word.name;
    /* A deck may lie in a folder such as lr=0.1. */
    if (i < argc && argv[i][0] != '-' &&
        (!strchr(argv[i], '=') || access(argv[i], F_OK) == 0)) {
        if (!looks_like_path(argv[i]))
            return fail_unknown(argv[i]);
        command->deck = argv[i++];
    }
    command->overrides = argv + i;
    command->n_overrides = argc - i;
    for (; i < argc; i++)
        if (sp_word_table_find(SP_WORD_TABLE(commands), argv[i]))
            return fail_unknown(argv[i]);
        else if (argv[i][0] == '-' || !strchr(argv[i], '='))
            return SP_FAIL(SP_EUSAGE, "%s: expected SECTION.KEY=VALUE; %s", argv[i],
                           access(argv[i], F_OK) == 0 ? "the deck comes before all keys"
                                                      : "see sptrain --help");
    return SP_OK;
}

static sp_status sptrain_read_config(int argc, char **argv, const sptrain_entry **entry,
                                     sp_command *command, sp_config *config, char *path)
{
    SP_TRY(sptrain_parse(argc, argv, entry, command));
    if (!command->deck) {
        SP_TRY(sp_deck_find_default(path));
        command->deck = path;
        command->is_default_deck = true;
    }
    return sp_config_read(config, command->deck, command->n_overrides,
                          command->overrides);
}

static void print_error(const sp_comm *comm)
{
    if (comm->rank == 0)
        sp_log_error(sp_error_last());
}

/* True if a launcher has started several ranks. Rank 0 then answers for all of them,
 * which would print the same and write the same files at the same time. PMIx has no
 * variable for the number of ranks; Slurm, which starts ranks by it, has one. */
static bool is_one_of_many(void)
{
    const char *n = getenv("PMI_SIZE");

    n = n ? n : getenv("OMPI_COMM_WORLD_SIZE");
    n = n || !getenv("PMIX_RANK") ? n : getenv("SLURM_NTASKS");
    return n && atoi(n) > 1;
}

/* Collective: *is_answer says whether rank 0 has found an answer, which it gives. */
static sp_status answer_by_rank_0(int argc, char **argv, sp_comm *comm, bool *is_answer)
{
    const sptrain_entry *entry = comm->rank == 0 ? find_answer(argc, argv) : NULL;
    sp_status rc = SP_OK;

    *is_answer = entry != NULL;
    SP_TRY(sp_comm_bcast(comm, is_answer, sizeof *is_answer, 0));
    if (*is_answer)
        sp_start_over();
    if (entry)
        rc = give_answer(entry, argc, argv);
    return *is_answer ? sp_comm_agree(comm, rc) : SP_OK;
}

/* Warns of a variable with a name that differs from one that the program reads only by
 * one letter, its end or case. Others that begin with SP_ may be another program's.
 */
static void warn_of_variables(void)
{
    static const sp_word_entry known[] = {{.name = "SP_BIND"},
                                          {.name = "SP_CPU_ISA"},
                                          {.name = "SP_EARLY_LAUNCH"},
                                          {.name = "SP_NCCL_LIB"},
                                          {.name = "SP_NODE_MEMORY"},
                                          {.name = "SP_PEER_MEMORY"},
                                          {.name = "SP_RANKS_PER_NODE"},
                                          {.name = "SP_START_S"},
                                          {.name = "SP_TILES"},
                                          {.name = "SP_TRACE"},
                                          {.name = "SP_TRIAL_S"},
                                          {.name = "SP_UCX_DISCONNECT"},
                                          {.name = "SP_WAIT"}};

    for (char **at = environ; *at; at++) {
        const char *nearest;
        char name[32] = "";

        if (sscanf(*at, "%31[^=]", name) != 1 || strncmp(name, "SP_", 3) != 0)
            continue;
        nearest = sp_word_table_nearest(SP_WORD_TABLE(known), name)->name;
        if (strcmp(name, nearest) != 0 && sp_word_distance(name, nearest) <= 1)
            sp_log_warn0("%s in the environment has no effect; did you mean %s?", name,
                         nearest);
    }
}

static sp_status sptrain_run(int argc, char **argv, sp_comm *comm)
{
    const sptrain_entry *entry =
        argc > 1 ? sp_word_table_find(SP_WORD_TABLE(commands), argv[1]) : NULL;
    sp_config config = {0};
    sp_command command = {.config = &config, .comm = comm};
    char path[PATH_MAX] = "";
    bool is_answer;
    sp_status rc = answer_by_rank_0(argc, argv, comm, &is_answer);

    if (rc != SP_OK)
        print_error(comm);
    if (rc != SP_OK || is_answer)
        return rc;
    warn_of_variables();
    sp_openmp_warn();
    if (!entry || entry->run == sp_train)
        rc = sp_launcher_check_hosts(comm->size);
    if (rc != SP_OK) {
        print_error(comm);
        return rc;
    }
    if (entry && entry->run_words)
        return entry->run_words(argc - 1, argv + 1, comm);
    /* Every rank parses its own command line (all are the same), but only rank 0 reads
     * files: the other ranks need not have the deck. */
    if (comm->rank == 0)
        rc = sptrain_read_config(argc, argv, &entry, &command, &config, path);
    else
        sptrain_parse(argc, argv, &entry, &command);
    rc = sp_config_bcast(&config, comm, rc);
    if (rc != SP_OK)
        print_error(comm);
    else
        rc = entry->run(&command);
    sp_config_destroy(&config);
    return rc;
}

static bool has_finished;

/* Ends with a failure if a library has called exit(), which must not look like success
 * to a launcher. */
static void refuse_early_end(void)
{
    int code = sp_exit_requested();

    if (has_finished)
        return;
    if (!code)
        fputs("sptrain: error: a library ended the process before the program was "
              "finished\n",
              stderr);
    _exit(code ? code : SP_EMPI);
}

/* Without a command the program trains. */
static bool sptrain_is_stoppable(int argc, char **argv)
{
    const sptrain_entry *entry =
        argc > 1 ? sp_word_table_find(SP_WORD_TABLE(commands), argv[1]) : NULL;

    return !entry || entry->is_stoppable;
}

/* Time limit of MPI's finalization in seconds, since a peer's host may be gone; and of
 * the other ranks' wait before it for rank 0, which ends the commands of run.after_save
 * (sp_run_close). */
enum { FINALIZE_S = 30, COMMANDS_S = 1200 };

int main(int argc, char **argv)
{
    const sptrain_entry *entry = find_answer(argc, argv);
    sp_comm comm = {0};
    sp_status rc;

    sp_program_begin("sptrain");
    sp_signal_begin();
    sp_h5_child_main(argc, argv);
    sp_wgmma_probe_main(argc, argv);
    sp_crash_recorder_main(argc, argv);
    if (entry && sp_launcher_rank() > 0)
        return SP_OK; /* torchrun's rank 0 answers for all */
    if (entry && !is_one_of_many())
        return sp_log_answered(give_answer(entry, argc, argv));
    sp_thread_wait_asleep(argv);
    atexit(refuse_early_end);
    if (sptrain_is_stoppable(argc,
                             argv)) /* a request to stop may come while MPI starts */
        sp_signal_install();
    rc = sp_world_join(sp_start_limit_s());
    if (rc == SP_OK) {
        sp_start_watch("sptrain");
        rc = sp_comm_open(&comm, &argc, &argv);
    }
    sp_signal_started();
    if (rc != SP_OK) {
        sp_log_error(sp_error_last());
        has_finished = true;
        return rc;
    }
    sp_log_open(comm.rank, comm.size, comm.host, comm.local_rank, NULL);
    /* Initializes HDF5, which registers an exit handler. Handlers run in reverse order,
     * so the one registered next runs before HDF5's; otherwise HDF5 would be shut down
     * while another thread still uses it. */
    sp_h5_library();
    atexit(refuse_early_end);
    rc = sptrain_run(argc, argv, &comm);
    sp_start_over();
    sp_log_close();
    if (rc == SP_OK || rc == SP_ELIMIT) { /* all ranks end alike */
        sp_signal_leave_after(COMMANDS_S, rc);
        sp_comm_barrier(&comm);
    }
    sp_signal_leave_after(FINALIZE_S, rc);
    sp_comm_close(&comm);
    sp_world_leave();
    has_finished = true;
    return rc;
}
