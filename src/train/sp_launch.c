#include "train/sp_train.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "base/sp_word_table.h"
#include "comm/sp_affinity.h"
#include "comm/sp_launcher.h"
#include "compute/sp_backend.h"
#include "config.h"

static void print_launch_help(void)
{
    puts("usage: sptrain launch [-n N] [--dry-run] [COMMAND] [DECK] "
         "[SECTION.KEY=VALUE ...]\n");
    sp_word_wrap(
        stdout, 0,
        "Starts the ranks of this node by " SP_MPIEXEC
        ": one for each CUDA device that is visible, or, without devices or with "
        "run.device=cpu, for each NUMA node of the cores that this process may use. "
        "-n N: this number of ranks. --dry-run: only print the command line.");
}

/* The number of ranks, and the noun for the things that were counted. */
static int count_ranks(int n_words, char **words, const char **what)
{
    int n = sp_backend_visible_devices();

    for (int i = 0; i < n_words; i++)
        if (strcmp(words[i], "run.device=cpu") == 0)
            n = 0;
    *what = n > 0 ? "CUDA device" : "NUMA node";
    return n > 0 ? n : sp_affinity_memories();
}

/* Prints the words as a shell would read them. */
static sp_status print_line(char *const *line)
{
    for (; *line; line++) {
        const bool is_plain =
            **line && !(*line)[strspn(*line, "abcdefghijklmnopqrstuvwxyz"
                                             "ABCDEFGHIJKLMNOPQRSTUVW"
                                             "XYZ0123456789/._-=,+:")];
        SP_FREED char *quoted = NULL;

        SP_TRY(SP_NEW(&quoted, 4 * strlen(*line) + 3, "a command line"));
        sp_text_quote(quoted, *line);
        printf("%s%c", is_plain ? *line : quoted, line[1] ? ' ' : '\n');
    }
    return SP_OK;
}

/* Executes the launcher: the one that configure found, else the PATH's of this name. */
static sp_status execute_line(char **line)
{
    const char *slash = strrchr(line[0], '/');

    fflush(stdout);
    execv(line[0], line);
    if (slash)
        execvp(slash + 1, line);
    return SP_FAIL(SP_EUSAGE,
                   "launch: %s: %s; install the launcher of the MPI that "
                   "the program was built with",
                   line[0], strerror(errno));
}

static sp_status read_number(const char *text, int *n)
{
    char *end = NULL;
    const long value = text ? strtol(text, &end, 10) : 0;

    if (!text || !*text || *end || value < 1 || value > INT_MAX)
        return SP_FAIL(SP_EUSAGE, "launch -n %s: expected a number of ranks",
                       text ? text : "");
    *n = (int)value;
    return SP_OK;
}

typedef struct launch_options {
    int n; /* ranks; 0: counted */
    bool is_dry, is_help;
} launch_options;

/* *next is the first word that is the program's. */
static sp_status read_options(int argc, char **argv, launch_options *options, int *next)
{
    for (*next = 1; *next < argc && argv[*next][0] == '-'; ++*next) {
        const char *word = argv[*next];

        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            options->is_help = true;
        else if (strcmp(word, "--dry-run") == 0)
            options->is_dry = true;
        else if (strcmp(word, "-n") == 0 || strcmp(word, "-np") == 0) {
            ++*next;
            SP_TRY(read_number(*next < argc ? argv[*next] : NULL, &options->n));
        } else
            return SP_FAIL(SP_EUSAGE,
                           "launch %s: expected -n N or --dry-run, then the words of "
                           "sptrain",
                           word);
    }
    return SP_OK;
}

sp_status sp_launch(int argc, char **argv)
{
    static char mpiexec[] = SP_MPIEXEC, ranks[] = "-n", bind[] = "--bind-to",
                no[] = "none", more[] = "--oversubscribe", number[16], own[PATH_MAX];
    launch_options options = {0};
    const char *what = NULL;
    int next, at = 0;
    SP_FREED char **line = NULL;

    SP_TRY(read_options(argc, argv, &options, &next));
    if (options.is_help) {
        print_launch_help();
        return SP_OK;
    }
    if (sp_launcher_is_task())
        return SP_FAIL(SP_EUSAGE,
                       "launch: a launcher has started this process already; "
                       "leave out the word launch, or the launcher");
    SP_TRY(sp_launcher_check_hosts(1));
    if (strcmp(mpiexec, "no") == 0)
        return SP_FAIL(SP_EUSAGE, "launch: configure found no launcher of MPI");
    if (options.n == 0)
        options.n = count_ranks(argc - next, argv + next, &what);
    SP_TRY(SP_NEW(&line, (size_t)(argc - next) + 8, "a command line"));
    snprintf(number, sizeof number, "%d", options.n);
    line[at++] = mpiexec;
    /* Open MPI would bind one rank or two to a core each, and refuse more ranks than cores,
     * which the program itself judges by run.oversubscribe. */
    if (SP_IS_OPENMPI) {
        line[at++] = bind;
        line[at++] = no;
        line[at++] = more;
    }
    line[at++] = ranks;
    line[at++] = number;
    sp_file_of_program(own);
    line[at++] = own;
    memcpy(line + at, argv + next, (size_t)(argc - next) * sizeof *line);
    if (options.is_dry)
        SP_TRY(print_line(line));
    else if (what)
        sp_log_info("launch: %d rank%s, one for each %s", options.n,
                    sp_plural(options.n), what);
    return options.is_dry ? SP_OK : execute_line(line);
}
