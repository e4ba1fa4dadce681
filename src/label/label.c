#include "label/label.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "label/label_scan.h"
#include "label/label_table.h"

/* Rank 0: the keys of the command line. The run folder, with lock and heartbeat, is in
 * DIR. */
static sp_status read_config(sp_config *config, const label_options *o)
{
    char **word = calloc((size_t)o->n_overrides + 1, sizeof *word);
    size_t bytes = strlen(o->out) + sizeof "run.dir=\"/.sptrain\"" + 64;
    char *dir = malloc(bytes);
    sp_status rc;

    if (!word || !dir) {
        rc = SP_FAIL(SP_EMEM, "no memory for the command line");
    } else {
        if (o->n_tasks > 1)
            snprintf(dir, bytes, "run.dir=%s/.sptrain/task-%d-of-%d", o->out, o->task,
                     o->n_tasks);
        else
            snprintf(dir, bytes, "run.dir=%s/.sptrain", o->out);
        if (o->n_overrides)
            memcpy(word, o->overrides, (size_t)o->n_overrides * sizeof *word);
        word[o->n_overrides] = dir;
        rc = sp_config_read(config, NULL, o->n_overrides + 1, word);
    }
    free(dir);
    free(word);
    return rc;
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

/* Makes the n_left outputs that are missing; n_done are finished. */
static sp_status make_outputs(label_model *m, label_files *f, const label_options *o,
                              int n_left, int n_done)
{
    sp_session *s = &m->infer.session;
    label_work *w = calloc(1, sizeof *w);
    label_net net = {0};
    bool has_begun = false;
    sp_status rc = w ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a scan");

    SP_TRY_GOTO(rc, sp_comm_agree(s->comm, rc), end);
    *w = (label_work){
        .model = m, .net = &net, .files = f, .options = o, .comm = s->comm};
    SP_TRY_GOTO(rc, sp_session_open_folder(s), end);
    has_begun = true;
    rc = s->comm->rank == 0 ? label_files_begin(f) : SP_OK;
    SP_TRY_GOTO(rc, sp_comm_agree(s->comm, rc), end);
    SP_TRY_GOTO(rc, label_net_open(&net, m, (int)o->views), end);
    SP_TRY_GOTO(rc, sp_comm_agree(s->comm, label_work_open(w)), end);
    sp_log_info("labelling %d scan%s by %s on %d rank%s: %s", n_left, sp_plural(n_left),
                m->infer.path, s->comm->size, sp_plural(s->comm->size),
                m->infer.device.text);
    for (int k = 0; k < m->members.n; k++)
        sp_log_info("averaging with %s", sp_members_path(&m->members, k));
    SP_TRY_GOTO(rc, label_scan_all(w), end);
    SP_TRY_GOTO(
        rc, vox_codes_tell_missing(w->codes, &w->vox, s->comm, "they have no class"),
        end);
    SP_TRY_GOTO(
        rc, sp_comm_allreduce(s->comm, SP_SCOPE_WORLD, w->n_blocks, 2, SP_I64, SP_SUM),
        end);
    report(w, n_done);
end:
    if (w)
        label_work_free(w); /* nothing is written any more by this rank */
    label_net_close(&net);
    free(w);
    rc = sp_comm_agree(s->comm, rc);
    if (has_begun && s->comm->rank == 0)
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
        rc = make_outputs(m, &files, o, n_mine - n_done, n_done);
    if (rc == SP_OK && o->summary && m->infer.session.comm->rank == 0)
        rc = label_table_write(&files, m, o->summary);
    if (rc == SP_OK)
        rc = label_files_report_skipped(&files, m->infer.session.comm);
    label_files_close(&files);
    return rc;
}

static sp_status run(const sp_command *command, label_options *o)
{
    label_model *m = calloc(1, sizeof *m);
    sp_status rc = m ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a model");

    rc = sp_comm_agree(command->comm, rc);
    if (rc == SP_OK)
        rc = label_model_close(m, label(m, command, o));
    else if (command->comm->rank == 0)
        sp_log_error(sp_error_last());
    free(m);
    return rc;
}

sp_status sp_label(int argc, char **argv, sp_comm *comm)
{
    label_options *o = calloc(1, sizeof *o);
    sp_config config = {0};
    sp_command command = {
        .name = "label", .deck = "command line", .config = &config, .comm = comm};
    sp_status rc = o ? label_options_read(o, argc, argv)
                     : SP_FAIL(SP_EMEM, "no memory for options");

    assert(argc >= 1 && argv && comm);
    /* A scan has threads of its own, whose heaps would keep what they freed. */
    sp_machine_bound_heap();
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        rc = sp_config_bcast(&config, comm,
                             comm->rank == 0 ? read_config(&config, o) : SP_OK);
    if (rc != SP_OK && comm->rank == 0)
        sp_log_error(sp_error_last());
    if (rc != SP_OK)
        goto end;
    if (o->views == 0)
        o->views = config.eval.views;
    command.overrides = o->overrides;
    command.n_overrides = o->n_overrides;
    rc = run(&command, o);
end:
    sp_config_destroy(&config);
    if (o)
        label_options_free(o);
    free(o);
    return rc;
}
