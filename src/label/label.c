#include "label/label.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "label/label_scan.h"
#include "label/label_table.h"

/* Rank 0: the keys of the command line. The run folder, with lock and heartbeat, is in
 * DIR. */
static sp_status read_config(sp_config *config, const label_options *o)
{
    const size_t bytes = strlen(o->out) + sizeof "run.dir=\"/.sptrain\"" + 64;
    SP_FREED char **word = NULL;
    SP_FREED char *dir = NULL;

    SP_TRY(SP_NEW(&word, o->n_overrides, "the command line"));
    SP_TRY(SP_NEW(&dir, bytes, "the command line"));
    if (o->n_tasks > 1)
        snprintf(dir, bytes, "run.dir=%s/.sptrain/task-%d-of-%d", o->out, o->task,
                 o->n_tasks);
    else
        snprintf(dir, bytes, "run.dir=%s/.sptrain", o->out);
    if (o->n_overrides)
        memcpy(word, o->overrides, (size_t)o->n_overrides * sizeof *word);
    word[o->n_overrides] = dir;
    return sp_config_read(config, NULL, o->n_overrides + 1, word);
}

static void report(const label_work *w, int n_done)
{
    const label_times *t = &w->times;
    const double all = sp_now_s() - t->begun_s;

    sp_log_info("labelled scans=%d finished_before=%d points=%" PRId64
                " blocks=%" PRId64 " reused=%" PRId64
                " seconds=%.1f network_s=%.1f network_share=%.3f read_s=%.1f "
                "merge_s=%.1f write_s=%.1f wait_s=%.1f out=%s%s",
                w->n_scans, n_done, w->n_done, w->n_blocks[0], w->n_blocks[1], all,
                w->net->busy_s, all > 0 ? w->net->busy_s / all : 0, t->read_s,
                t->merge_s, t->write_s, t->wait_s, w->files->dir,
                w->comm->size > 1 ? " (times of rank 0)" : "");
}

/* Makes the n_left outputs that are missing; n_done are finished. *has_begun: the folder
 * of unfinished work is open. */
static sp_status make_outputs(label_work *w, int n_left, int n_done, bool *has_begun)
{
    label_model *m = w->model;
    sp_session *s = &m->infer.session;

    SP_TRY(sp_session_open_folder(s));
    *has_begun = true;
    SP_TRY(sp_comm_agree(s->comm,
                         s->comm->rank == 0 ? label_files_begin(w->files) : SP_OK));
    SP_TRY(label_net_open(w->net, m, (int)w->options->views));
    SP_TRY(sp_comm_agree(s->comm, label_work_open(w)));
    sp_log_info("labelling %d scan%s by %s on %d rank%s: %s", n_left, sp_plural(n_left),
                m->infer.path, s->comm->size, sp_plural(s->comm->size),
                m->infer.device.text);
    for (int k = 0; k < m->members.n; k++)
        sp_log_info("averaging with %s", sp_members_path(&m->members, k));
    SP_TRY(label_scan_all(w));
    SP_TRY(vox_codes_tell_missing(w->codes, &w->vox, s->comm, "they have no class"));
    SP_TRY(sp_comm_allreduce(s->comm, SP_SCOPE_WORLD, w->n_blocks, 2, SP_I64, SP_SUM));
    report(w, n_done);
    return SP_OK;
}

/* Opens the work on the outputs, makes them, and closes it. */
static sp_status work_on_outputs(label_model *m, label_files *f, const label_options *o,
                                 int n_left, int n_done)
{
    sp_comm *comm = m->infer.session.comm;
    SP_FREED label_work *w = NULL;
    label_net net = {0};
    bool has_begun = false;
    sp_status rc;

    SP_TRY(sp_comm_agree(comm, SP_NEW(&w, 1, "a scan")));
    *w = (label_work){.model = m, .net = &net, .files = f, .options = o, .comm = comm};
    rc = make_outputs(w, n_left, n_done, &has_begun);
    label_work_free(w); /* nothing is written any more by this rank */
    label_net_close(&net);
    rc = sp_comm_agree(comm, rc);
    if (has_begun && comm->rank == 0)
        label_files_end(f);
    return rc;
}

static sp_status label(label_model *m, const sp_command *command, label_options *o)
{
    label_files files = {0};
    int n_done = 0, n_mine = 0;
    sp_status rc = label_model_open(m, command, o);

    if (rc == SP_OK)
        rc = label_files_open(&files, m, o);
    for (int i = o->task; rc == SP_OK && i < files.n; i += o->n_tasks) {
        n_done += files.file[i].is_done;
        n_mine += !files.file[i].is_skipped;
    }
    if (rc == SP_OK && n_done == n_mine)
        sp_log_info(
            "%s: %d output%s made by the same model and options before: nothing "
            "is left to do",
            files.dir, n_done, n_done == 1 ? " was" : "s were");
    else if (rc == SP_OK)
        rc = work_on_outputs(m, &files, o, n_mine - n_done, n_done);
    if (rc == SP_OK && o->summary && m->infer.session.comm->rank == 0)
        rc = label_table_write(&files, m, o->summary);
    if (rc == SP_OK)
        rc = label_files_report_skipped(&files, m->infer.session.comm);
    label_files_close(&files);
    return rc;
}

static sp_status run(const sp_command *command, label_options *o)
{
    SP_FREED label_model *m = NULL;
    const sp_status rc = sp_comm_agree(command->comm, SP_NEW(&m, 1, "a model"));

    if (rc == SP_OK)
        return label_model_close(m, label(m, command, o));
    if (command->comm->rank == 0)
        sp_log_error(sp_error_last());
    return rc;
}

/* Reads the words of the command and the keys among them. Collective, agreed. */
static sp_status label_read(label_options **o, sp_config *config, int argc, char **argv,
                            sp_comm *comm)
{
    sp_status rc = SP_NEW(o, 1, "options");

    if (rc == SP_OK)
        rc = label_options_read(*o, argc, argv);
    SP_TRY(sp_comm_agree(comm, rc));
    return sp_config_bcast(config, comm,
                           comm->rank == 0 ? read_config(config, *o) : SP_OK);
}

sp_status sp_label(int argc, char **argv, sp_comm *comm)
{
    SP_FREED label_options *o = NULL;
    SP_CLOSED_BY(sp_config_destroy) sp_config config = {0};
    sp_command command = {
        .name = "label", .deck = "command line", .config = &config, .comm = comm};
    sp_status rc;

    assert(argc >= 1 && argv && comm);
    /* A scan has threads of its own, whose heaps would keep what they freed. */
    sp_machine_bound_heap();
    rc = label_read(&o, &config, argc, argv, comm);
    if (rc == SP_OK) {
        if (o->views == 0)
            o->views = config.eval.views;
        command.overrides = o->overrides;
        command.n_overrides = o->n_overrides;
        rc = run(&command, o);
    } else if (comm->rank == 0) {
        sp_log_error(sp_error_last());
    }
    if (o)
        label_options_free(o);
    return rc;
}
