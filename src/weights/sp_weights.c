#include "weights/sp_weights.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_word_table.h"
#include "checkpoint/sp_checkpoint.h"
#include "h5/sp_h5.h"
#include "weights/sp_packed.h"
#include "weights/sp_weights_import.h"
#include "weights/sp_weights_model.h"

typedef enum packing { PACK_FP32, PACK_BF16 } packing;

typedef struct weights_options {
    sp_layout_kind layout;
    sp_layout_axes axes;
    const char *names, *deck, *out, *prefix;
    packing precision;
    bool is_partial, is_packed;
} weights_options;

#define AT(member) .offset = offsetof(weights_options, member)
static const sp_option option_rows[] = {
    {{"--layout", SP_LAYOUT_WORDS, "how the file lays out convolutions (ours)"},
     SP_OPTION_WORD,
     AT(layout),
     .only = "import, export"},
    {{"--axes", "xyz|zyx", "order of spconv's index columns (xyz; detectors have zyx)"},
     SP_OPTION_WORD,
     AT(axes),
     .only = "import, export"},
    {{"--names", "NAMES",
      "how the file names layers: " SP_NAMING_WORDS
      ", or the path of a map file (ours)"},
     SP_OPTION_TEXT,
     AT(names),
     .only = "import, export"},
    {{"--prefix", "TEXT", "what the file has before all names (import: it is found)"},
     SP_OPTION_TEXT,
     AT(prefix),
     .only = "import, export"},
    {{"--deck", "DECK", "the deck that has the network"},
     SP_OPTION_TEXT,
     AT(deck),
     .only = "import, export"},
    {{"-o", "FILE", "the file to write: .h5, .safetensors or .spm"},
     SP_OPTION_TEXT,
     AT(out),
     .only = "import, export"},
    {{"--out", "FILE", "the same"}, SP_OPTION_TEXT, AT(out), .only = "import, export"},
    {{"--partial", NULL, "write what matched, though something is missing"},
     SP_OPTION_FLAG,
     AT(is_partial),
     .only = "import"},
    {{"--packed", NULL, "write a packed model, for prediction"},
     SP_OPTION_FLAG,
     AT(is_packed),
     .only = "export"},
    {{"--precision", "fp32|bf16",
      "of a packed model: how it stores the weights of convolutions, and computes "
      "(fp32)"},
     SP_OPTION_WORD,
     AT(precision),
     .only = "export"},
    SP_OPTION_HELP_ROW,
};

/* ---- list ---- */

/* The arrays of a checkpoint, or of a file with only weights. */
static sp_status print_arrays(sp_h5 *file, const char *path)
{
    char **names, shape[SP_TENSOR_SHAPE];
    sp_status rc = SP_OK;
    int n;

    SP_TRY(sp_h5_list(file, &names, &n));
    for (int i = 0; i < n && rc == SP_OK; i++) {
        sp_h5_shape s;

        rc = sp_h5_shape_of(file, names[i], &s);
        if (rc == SP_OK)
            printf("%-56s %c%-4d %s\n", names[i], s.type.kind, 8 * s.type.size,
                   sp_tensor_print_shape(s.rank, s.dim, shape));
    }
    if (rc == SP_OK)
        printf("%s: HDF5, %d array%s\n", path, n, sp_plural(n));
    sp_h5_list_free(names, n);
    return rc;
}

static sp_status list_h5(const char *path)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;

    SP_TRY(sp_h5_open(&file, path));
    return print_arrays(file, path);
}

static sp_status list_weights(const char *path, const weights_options *o)
{
    SP_CLOSED_BY(sp_tensors_close) sp_tensors file = {0};

    (void)o;
    if (sp_packed_is(path))
        return sp_packed_print(path, stdout);
    if (sp_file_begins(path, SP_H5_SIGNATURE, 8))
        return list_h5(path);
    SP_TRY(sp_tensors_open(&file, path));
    sp_tensors_print(&file, stdout);
    return SP_OK;
}

/* ---- import ---- */

static sp_status write_import(const sp_import *m, const weights_options *o)
{
    SP_FREED bool *has = NULL;

    SP_TRY(SP_NEW(&has, m->n, o->out));
    sp_import_list(m, has);
    SP_TRY(sp_checkpoint_write_weights(o->out, &m->graph, m->param, m->running, has));
    printf("%s: written; run.init_from and run.checkpoint take it\n", o->out);
    return SP_OK;
}

static sp_status finish_import(sp_import *m, const weights_options *o)
{
    sp_import_print(m, stdout);
    if (m->n_matched < m->n && !o->is_partial)
        return SP_FAIL(SP_EDATA,
                       "%s: %d of %d parameters and statistics of the network did not "
                       "match (listed above), nothing was written; --partial writes "
                       "the others",
                       m->file->path, m->n - m->n_matched, m->n);
    if (m->n_matched == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: nothing matched; --names, --layout or --deck are "
                       "not the file's",
                       m->file->path);
    SP_TRY(sp_import_fill(m));
    return write_import(m, o);
}

static sp_status import_weights(const char *path, const weights_options *o)
{
    const sp_layout layout = {o->layout, o->axes};
    SP_CLOSED_BY(sp_tensors_close) sp_tensors file = {0};
    SP_CLOSED_BY(sp_naming_close) sp_naming naming = {0};
    SP_CLOSED_BY(sp_config_destroy) sp_config config = {0};
    SP_CLOSED_BY(sp_import_close) sp_import import = {0};

    if (!o->deck)
        return SP_FAIL(SP_EUSAGE, "weights import: expected --deck DECK");
    if (!sp_file_ends_in(o->out, ".h5"))
        return SP_FAIL(SP_EUSAGE,
                       "weights import: -o %s: expected a name that ends in "
                       ".h5",
                       o->out);
    SP_TRY(sp_naming_open(&naming, o->names ? o->names : "ours", &layout));
    SP_TRY(sp_config_read(&config, o->deck, 0, NULL));
    SP_TRY(sp_tensors_open(&file, path));
    SP_TRY(sp_import_open(&import, &file, &naming, &config, o->prefix));
    return finish_import(&import, o);
}

/* ---- export ---- */

/* The tensors of a model in another layout; they are freed together. */
typedef struct exporting {
    const sp_weights_model *model;
    const sp_naming *naming;
    const char *prefix;
    int n;
    sp_tensor_out *out;
} exporting;

static sp_status name_export(const exporting *e, const sp_param *p,
                             char key[SP_TENSOR_NAME])
{
    char plain[SP_TENSOR_NAME], ours[SP_TENSOR_NAME];
    bool is_named;

    sp_naming_ours(p, ours);
    if (e->naming->kind == SP_NAMING_MAP)
        is_named = sp_naming_map(e->naming, ours, plain);
    else
        is_named = sp_naming_key(e->naming, &e->model->graph, p, plain);
    if (is_named && (size_t)snprintf(key, SP_TENSOR_NAME, "%s%s", e->prefix, plain) <
                        SP_TENSOR_NAME)
        return SP_OK;
    return SP_FAIL(SP_EUSAGE,
                   "weights export: --names has no name for %s of this network", ours);
}

static sp_status export_param(exporting *e, const sp_param *p, const float *flat)
{
    const sp_graph *graph = &e->model->graph;
    const sp_layout *layout = &e->naming->layout;
    const char *difference = sp_layout_difference(layout, graph, &graph->node[p->node]);
    sp_tensor_out *out = &e->out[e->n];
    char key[SP_TENSOR_NAME];
    float *numbers;
    bool is_linear;

    if (difference)
        return SP_FAIL(SP_EDATA, "%s: layer %s: %s", e->model->path,
                       graph->node[p->node].name, difference);
    SP_TRY(name_export(e, p, key));
    is_linear = sp_naming_is_linear(e->naming, graph, p, key);
    out->name = strdup(key);
    out->data = numbers = malloc((size_t)p->count * sizeof *numbers + 1);
    e->n++;
    if (!out->name || !numbers)
        return SP_FAIL(SP_EMEM, "weights export: out of memory");
    out->rank = sp_layout_shape(layout, graph, p, is_linear, out->dim);
    sp_layout_from_ours(layout, graph, p, is_linear, flat + p->offset, numbers);
    return SP_OK;
}

static sp_status export_params(exporting *e)
{
    const sp_weights_model *m = e->model;

    for (int i = 0; i < m->graph.n_params; i++)
        SP_TRY(export_param(e, &m->graph.param[i], m->param));
    for (int i = 0; i < m->graph.n_buffers; i++)
        SP_TRY(export_param(e, &m->graph.buffer[i], m->running));
    return SP_OK;
}

static sp_status write_safetensors(const sp_weights_model *m, const sp_naming *naming,
                                   const weights_options *o)
{
    exporting e = {m, naming, o->prefix ? o->prefix : "", 0, NULL};
    sp_status rc;

    SP_TRY(
        SP_NEW(&e.out, m->graph.n_params + m->graph.n_buffers, "the exported weights"));
    rc = export_params(&e);
    if (rc == SP_OK)
        rc = sp_safetensors_write(o->out, e.n, e.out, sp_file_name(m->path));
    for (int i = 0; i < e.n; i++) {
        free((char *)e.out[i].name);
        free((float *)e.out[i].data);
    }
    free(e.out);
    return rc;
}

static sp_status write_export(const sp_weights_model *m, const weights_options *o)
{
    const sp_layout layout = {o->layout, o->axes};
    SP_CLOSED_BY(sp_naming_close) sp_naming naming = {0};

    if (o->is_packed)
        return sp_packed_write(o->out, m,
                               o->precision == PACK_BF16 ? SP_BF16 : SP_FP32);
    if (sp_file_ends_in(o->out, ".h5"))
        return sp_checkpoint_write_weights(o->out, &m->graph, m->param, m->running,
                                           NULL);
    SP_TRY(sp_naming_open(&naming, o->names ? o->names : "ours", &layout));
    return write_safetensors(m, &naming, o);
}

static sp_status check_export(const weights_options *o)
{
    const char *ending = o->is_packed ? ".spm" : ".safetensors .h5";

    if (!sp_file_ends_in(o->out, ending))
        return SP_FAIL(SP_EUSAGE,
                       "weights export: -o %s: expected a name that ends in %s", o->out,
                       o->is_packed ? ".spm" : ".safetensors or .h5 (--packed: .spm)");
    if (sp_file_ends_in(o->out, ".h5") && (o->names || o->layout != SP_LAYOUT_OURS))
        return SP_FAIL(SP_EUSAGE,
                       "weights export: a .h5 file has our layout and names");
    return SP_OK;
}

static sp_status export_weights(const char *path, const weights_options *o)
{
    SP_CLOSED_BY(sp_weights_model_close) sp_weights_model model = {0};

    SP_TRY(check_export(o));
    SP_TRY(sp_weights_model_open(&model, path, o->deck));
    SP_TRY(write_export(&model, o));
    printf("%s: %lld weights of %s\n", o->out, (long long)model.graph.n_weights,
           model.path);
    return SP_OK;
}

/* ---- the command ---- */

typedef struct weights_action {
    sp_word_entry word;
    sp_status (*act)(const char *path, const weights_options *o);
    bool has_out;
} weights_action;

static const weights_action actions[] = {
    {{"list", "FILE", "print name, type, shape and bytes of each tensor of a file"},
     list_weights,
     false},
    {{"import", "FILE --deck DECK -o OUT.h5",
      "write what run.init_from and run.checkpoint take, from safetensors or a file of "
      "PyTorch; nothing of the file is run"},
     import_weights,
     true},
    {{"export", "MODEL -o OUT",
      "write a checkpoint, or the best of a run folder, as safetensors, or with "
      "--packed as a packed model (.spm)"},
     export_weights,
     true},
};

static void print_weights_help(void)
{
    puts("usage: sptrain weights list FILE\n"
         "       sptrain weights import FILE --layout LAYOUT --names NAMES --deck DECK "
         "-o OUT.h5\n"
         "       sptrain weights export MODEL --layout LAYOUT --names NAMES "
         "-o OUT.safetensors\n"
         "       sptrain weights export MODEL --packed -o OUT.spm\n");
    sp_word_table_print(SP_WORD_TABLE(actions), stdout);
    putchar('\n');
    sp_word_table_print(SP_WORD_TABLE(option_rows), stdout);
}

sp_status sp_weights_answer(int argc, char **argv)
{
    weights_options o = {0};
    const weights_action *action = NULL;
    int n;

    if (argc < 3 || sp_usage_asked(argc, argv)) {
        print_weights_help();
        return argc < 3 ? SP_FAIL(SP_EUSAGE, "weights: expected list, import or export")
                        : SP_OK;
    }
    action = sp_word_table_find(SP_WORD_TABLE(actions), argv[2]);
    if (!action)
        return SP_FAIL(SP_EUSAGE,
                       "weights %s: expected list, import or export; did "
                       "you mean %s?",
                       argv[2],
                       sp_word_table_nearest(SP_WORD_TABLE(actions), argv[2])->name);
    SP_TRY(sp_options_read(&o, SP_WORD_TABLE(option_rows), "sptrain weights", argc - 2,
                           argv + 2, &n));
    if (n != 1)
        return SP_FAIL(SP_EUSAGE, "weights %s: expected one file, found %d", argv[2],
                       n);
    if (action->has_out && !o.out)
        return SP_FAIL(SP_EUSAGE, "weights %s: expected -o FILE", argv[2]);
    return action->act(argv[3], &o);
}
