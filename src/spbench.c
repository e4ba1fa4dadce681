/* spbench: command line, start of the ranks, exit status. */
#include <limits.h>
#include <string.h>

#include "base/sp_fault.h"
#include "base/sp_log.h"
#include "base/sp_openmp.h"
#include "base/sp_program.h"
#include "base/sp_signal.h"
#include "base/sp_thread.h"
#include "base/sp_word_table.h"
#include "bench/bench.h"
#include "comm/sp_world.h"
#include "config.h"
#include "h5/sp_h5.h"
#include "health/sp_start.h"
#include "train/sp_wgmma_probe.h"

SP_OPENMP_HIDE_AT_START;

typedef struct spbench_entry {
    sp_word_entry word;
    sp_status (*run)(bench *b);
    bool has_deck, has_ranks;
    bool has_device; /* false: CPU only */
    bool has_own;    /* the command itself calls bench_device_open, if at all */
} spbench_entry;

/* clang-format off */
static const spbench_entry commands[] = {
/* name, function, has_deck, has_ranks, has_device, has_own */
{{"ops", NULL, "time every operation, forward and both gradients, by channels and "
  "voxels"},
 bench_ops, false, false, true, false},
{{"plan", NULL, "time the coordinate pyramid and the kernel maps of one sample"},
 bench_plan, false, false, true, false},
{{"step", NULL, "time whole training steps of a deck: loader, plan, network, loss, "
  "update"},
 bench_step, true, true, true, true},
{{"eval", NULL, "time whole passes of an evaluation over data.val of a deck"},
 bench_eval, true, true, true, true},
{{"voxels", NULL, "write --out FILE: a shard of --shape, --voxels and --samples, or "
  "all rows of --shard as plain arrays"},
 bench_voxels_write, false, false, false, true},
{{"io", NULL, "time reading shards, compared with plain pread of the same bytes"},
 bench_io, false, false, false, false},
{{"reduce", NULL, "time an all-reduce by size, and the buckets of the deck's "
  "network; on devices also sums as small as a batch norm's, by every way there is"},
 bench_reduce, true, true, true, true},
{{"roofline", NULL, "count what each layer of a step moves and multiplies on a GPU, "
  "and predict its time there; needs no GPU"},
 bench_roofline, true, false, false, true},
};
/* clang-format on */

/* ---- options ---- */

static sp_status spbench_read_list(void *to, const sp_option *option, const char *text)
{
    bench_list *list = (bench_list *)(void *)((char *)to + option->offset);
    char *end = (char *)text;

    list->n = 0;
    for (const char *at = text; list->n < BENCH_LIST; at = end + 1) {
        SP_TRY(sp_option_whole(option, at, &end, &list->at[list->n++]));
        if (*end != ',')
            break;
    }
    if (*end)
        return SP_FAIL(SP_EUSAGE, "%s %s: expected at most %d whole numbers: N,N,...",
                       option->word.name, text, BENCH_LIST);
    return SP_OK;
}

#define AT(member) .offset = offsetof(bench_options, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"--json", NULL, "print one JSON object a line: name, n, pairs, c_in, c_out, ms, "
  "gflops, gbytes_s, ceiling, ratio, limit, spread, wall_ms, cpu_ms, ..."},
 SP_OPTION_FLAG, AT(is_json)},
{{"--quick", NULL, "small sizes and few repeats, in a few seconds"},
 SP_OPTION_FLAG, AT(is_quick)},
{{"--device", "cuda|cpu", "of ops, plan, step, eval and reduce (cpu; with a deck its "
  "run.device). On a device times are those between two events of its stream"},
 SP_OPTION_WORD, AT(device), SP_DEVICE_CUDA},
{{"--precision", "fp32|tf32|bf16", "precision (fp32; with a deck its train.precision)"},
 SP_OPTION_WORD, AT(precision), SP_FP32},
{{"--wgmma", NULL, "use wgmma for wide bf16 convolutions, as run.wgmma of a deck"},
 SP_OPTION_FLAG, AT(is_wgmma)},
{{"--threads", "N", "threads of the backend (1); with 1 times are the thread's CPU "
  "time, with more wall time"},
 SP_OPTION_WHOLE, AT(threads), 1, 1024},
{{"--repeats", "N", "most repeats of a timing (9); it stops after 2 s"},
 SP_OPTION_WHOLE, AT(repeats), 1, 101},
{{"--shape", "S", "shape of the voxels that are made: terrain, surface (a room), "
  "random or lidar"},
 SP_OPTION_TEXT, AT(shape), .only = "ops, plan, io, voxels"},
{{"--voxels", "N,...", "numbers of voxels (10000,100000; io and voxels: one, 10000)"},
 SP_OPTION_READ, AT(voxels), 1, 1 << 24, .read = spbench_read_list,
 .only = "ops, plan, io, voxels"},
{{"--channels", "N,...", "ops: numbers of channels (16,32,64,96,128,256)"},
 SP_OPTION_READ, AT(channels), 1, 4096, .read = spbench_read_list, .only = "ops"},
{{"--shard", "FILE", "take the voxels of a shard instead"},
 SP_OPTION_TEXT, AT(shard), .only = "ops, plan, io, voxels"},
{{"--sample", "I", "number of the sample in --shard (0)"},
 SP_OPTION_WHOLE, AT(sample), 0, INT32_MAX, .only = "ops, plan, io, voxels"},
{{"--out", "FILE", "voxels: the file to write"},
 SP_OPTION_TEXT, AT(out), .only = "voxels"},
{{"--code", "FILE", "roofline, which needs it: the table that make check-code "
  "writes, such as tests/results/code-sm_90.txt"},
 SP_OPTION_TEXT, AT(code), .only = "roofline"},
{{"--samples", "N", "voxels: samples of the shard (1)"},
 SP_OPTION_WHOLE, AT(samples), 1, 4096, .only = "voxels"},
{{"--layers", NULL, "step: time every operation of every layer too, within the step"},
 SP_OPTION_FLAG, AT(is_by_layer), .only = "step"},
{{"--in-line", NULL, "step: on a device no two operations run at the same time, as "
  "with --layers"},
 SP_OPTION_FLAG, AT(is_in_line), .only = "step"},
{{"--training", NULL, "eval: time the forward pass of a training over the same batches too"},
 SP_OPTION_FLAG, AT(is_beside_training), .only = "eval"},
{{"--cold", NULL, "io: ask the system to forget the files before each reading"},
 SP_OPTION_FLAG, AT(is_cold), .only = "io"},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

/* Rank 0 answers for all ranks that a launcher has started. */
static sp_status spbench_print_version(int argc, char **argv)
{
    if (sp_start_rank() > 0)
        return SP_OK;
    SP_TRY(sp_option_alone(argc, argv));
    puts("spbench (" PACKAGE_NAME ") " PACKAGE_VERSION);
    return sp_log_written();
}

static sp_status spbench_print_help(void)
{
    if (sp_start_rank() > 0)
        return SP_OK;
    puts("usage: spbench ops | plan | io | voxels [OPTION ...]\n"
         "       spbench step | eval | roofline [OPTION ...] [DECK] "
         "[SECTION.KEY=VALUE ...]\n"
         "       mpirun -np 2 spbench reduce [OPTION ...] [DECK] "
         "[SECTION.KEY=VALUE ...]\n");
    sp_word_wrap(
        stdout, 0,
        "Times what sptrain is made of, and compares each with a ceiling of this "
        "machine that is measured in the same run, between the repeats: the "
        "multiply-add peak of the vector code in use, a stream through memory, "
        "plain pread, or one plain all-reduce. A matrix product of a BLAS is not "
        "among them, since the program links no BLAS.\n\ncommands");
    sp_word_table_print(SP_WORD_TABLE(commands), stdout);
    puts("\noptions");
    sp_word_table_print(SP_WORD_TABLE(option_table), stdout);
    puts("");
    sp_word_wrap(stdout, 0,
                 "Without DECK it is looked up as by sptrain. The exit status is as "
                 "for sptrain: 0, 2 usage or deck, 3 data, 4 files, 5 memory, 6 "
                 "peers, 7 device; 8 is a rate above its ceiling.");
    return sp_log_written();
}

/* Reads the words that are not options: the deck, then overrides. */
static sp_status read_words(const spbench_entry *v, char **word, int n, sp_command *c)
{
    if (n > 0 && !v->has_deck)
        return SP_FAIL(SP_EUSAGE, "%s: spbench %s takes no such argument", word[0],
                       v->word.name);
    if (n > 0 && !strchr(word[0], '=')) {
        c->deck = *word++;
        n--;
    }
    c->overrides = word;
    c->n_overrides = n;
    for (int i = 0; i < n; i++)
        if (!strchr(word[i], '='))
            return SP_FAIL(SP_EUSAGE, "%s: expected SECTION.KEY=VALUE", word[i]);
    return SP_OK;
}

static sp_status spbench_parse(int argc, char **argv, const spbench_entry **v,
                               bench_options *to)
{
    int n_words;

    if (argc < 2)
        return SP_FAIL(SP_EUSAGE, "no command given (spbench --help lists them)");
    *v = sp_word_table_find(SP_WORD_TABLE(commands), argv[1]);
    if (!*v)
        return SP_FAIL(
            SP_EUSAGE, "%s: no such command; did you mean \"%s\"? (spbench --help)",
            argv[1], sp_word_table_nearest(SP_WORD_TABLE(commands), argv[1])->name);
    to->command.name = (*v)->word.name;
    SP_TRY(sp_options_read(to, SP_WORD_TABLE(option_table), "spbench", argc - 1,
                           argv + 1, &n_words));
    SP_TRY(read_words(*v, argv + 2, n_words, &to->command));
    if (((*v)->run == bench_io || (*v)->run == bench_voxels_write) && to->voxels.n > 1)
        return SP_FAIL(SP_EUSAGE, "--voxels: spbench %s takes one number",
                       (*v)->word.name);
    if (!(*v)->has_device && to->device == SP_DEVICE_CUDA)
        return SP_FAIL(SP_EUSAGE, "--device cuda: spbench %s times the CPU",
                       (*v)->word.name);
    return SP_OK;
}

static void set_defaults(bench_options *o)
{
    const bool is_quick = o->is_quick;

    if (o->threads == 0)
        o->threads = 1;
    if (o->repeats == 0)
        o->repeats = is_quick ? 5 : 9;
    if (o->voxels.n == 0)
        o->voxels =
            is_quick ? (bench_list){1, {3000}} : (bench_list){2, {10000, 100000}};
    if (o->channels.n == 0)
        o->channels = is_quick ? (bench_list){2, {16, 32}}
                               : (bench_list){6, {16, 32, 64, 96, 128, 256}};
    if (o->samples == 0)
        o->samples = 1;
}

/* ---- running ---- */

/* Reads the deck as sptrain does, with device, precision and threads of the options. */
static sp_status spbench_read_config(const spbench_entry *v, bench_options *o,
                                     sp_config *config, char *path)
{
    if (!o->command.deck) {
        SP_TRY(sp_deck_find_default(path));
        o->command.deck = path;
    }
    SP_TRY(sp_config_read(config, o->command.deck, o->command.n_overrides,
                          o->command.overrides));
    if (!v->has_device && config->run.device == SP_DEVICE_CUDA)
        return SP_FAIL(SP_EUSAGE, "run.device = \"cuda\": spbench %s times the CPU",
                       v->word.name);
    if (!v->has_device)
        config->run.device = SP_DEVICE_CPU;
    else if (o->device != BENCH_NONE)
        config->run.device = (sp_device_kind)o->device;
    if (o->precision != BENCH_NONE)
        config->train.precision = (sp_precision)o->precision;
    if (o->is_wgmma)
        config->run.wgmma = SP_WGMMA_ON;
    config->run.threads = (int)o->threads;
    return SP_OK;
}

static sp_status spbench_run(const spbench_entry *v, bench_options *o, sp_comm *comm)
{
    sp_config config = {0};
    char path[PATH_MAX] = "";
    bench b = {0};
    sp_status rc = SP_OK, closed;

    sp_openmp_warn();
    o->command.config = &config;
    o->command.comm = comm;
    if (v->has_deck) {
        rc = comm->rank == 0 ? spbench_read_config(v, o, &config, path) : SP_OK;
        rc = sp_config_bcast(&config, comm, rc);
    }
    if (rc == SP_OK)
        rc = sp_comm_agree(comm, bench_open(&b, o, comm));
    sp_fault_open(comm->rank);
    if (rc == SP_OK && !v->has_own)
        rc = sp_comm_agree(comm, bench_device_open(&b, NULL));
    if (rc == SP_OK)
        rc = v->run(&b);
    if (rc != SP_OK && !b.is_reported && comm->rank == 0)
        sp_log_error(sp_error_last());
    closed = bench_close(&b);
    if (rc == SP_OK && closed != SP_OK) {
        sp_log_error(sp_error_last());
        rc = closed;
    }
    sp_config_destroy(&config);
    return rc;
}

static sp_status run_ranks(int argc, char **argv, const spbench_entry *v,
                           bench_options *o)
{
    sp_comm comm = {0};
    sp_status rc;

    rc = sp_world_join(sp_start_limit_s());
    if (rc == SP_OK) {
        sp_start_watch("spbench");
        rc = sp_comm_open(&comm, &argc, &argv);
        sp_signal_started();
    }
    if (rc == SP_OK) {
        sp_log_open(comm.rank, comm.size, comm.host, comm.local_rank, NULL);
        sp_start_together(comm.rank);
        rc = spbench_run(v, o, &comm);
        sp_log_close();
    } else {
        sp_log_error(sp_error_last());
    }
    sp_comm_close(&comm);
    sp_world_leave();
    sp_start_over();
    return rc;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    bench_options o = {.device = BENCH_NONE, .precision = BENCH_NONE};
    const spbench_entry *v = NULL;
    sp_comm comm;
    sp_status rc;

    sp_program_begin("spbench");
    sp_signal_begin();
    sp_h5_child_main(argc, argv);
    sp_wgmma_probe_main(argc, argv);
    if (strcmp(word, "--version") == 0)
        return sp_log_answered(spbench_print_version(argc, argv));
    if (sp_usage_asked(argc, argv))
        return sp_log_answered(spbench_print_help());
    sp_thread_wait_asleep(argv); /* parse moves the words of argv */
    rc = spbench_parse(argc, argv, &v, &o);
    if (rc != SP_OK)
        return sp_start_rank() > 0 ? rc : sp_log_answered(rc);
    set_defaults(&o);
    if (v->has_ranks)
        return run_ranks(argc, argv, v, &o);
    /* One process measures, or writes --out, whatever a launcher has started. */
    if (sp_start_rank() > 0)
        return SP_OK;
    sp_comm_open_self(&comm);
    rc = spbench_run(v, &o, &comm);
    sp_comm_close(&comm);
    sp_world_leave();
    return rc;
}
