#include "label/label_options.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "label/label_raster.h"
#include "predict/sp_view.h"

static sp_status read_keep(void *to, const sp_option *option, const char *text)
{
    label_options *o = to;
    const char *at = text;

    (void)option;
    if (!o->keep)
        SP_TRY(SP_NEW(&o->keep, VOX_MAX_CODE, "--keep"));
    for (;; at++) {
        char *end;
        long code = strtol(at, &end, 10);

        if (end == at || code < 0 || code > VOX_MAX_CODE ||
            (*end && *end != ',' && *end != ':'))
            return SP_FAIL(SP_EUSAGE,
                           "--keep %s: at \"%.40s\": expected codes from 0 to %d, as "
                           "2,9",
                           text, at, VOX_MAX_CODE);
        o->keep[code] = true;
        at = end;
        if (*at == '\0')
            return SP_OK;
    }
}

static sp_status options_read_task(void *to, const sp_option *option, const char *text)
{
    label_options *o = to;
    int used = 0;

    (void)option;
    if (sscanf(text, "%9d/%9d%n", &o->task, &o->n_tasks, &used) != 2 || text[used] ||
        o->task < 0 || o->task >= o->n_tasks)
        return SP_FAIL(SP_EUSAGE, "--task %s: expected I/N with 0 <= I < N", text);
    return SP_OK;
}

#define AT(member) .offset = offsetof(label_options, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"--out", "DIR", "folder of the outputs, each with the name of its scan"},
 SP_OPTION_TEXT, AT(out)},
{{"--confidence", NULL, "add the field confidence: the probability of the class"},
 SP_OPTION_FLAG, AT(confidence)},
{{"--entropy", NULL, "add the field entropy: 0 where one class is certain, 1 where "
  "all are equally likely"}, SP_OPTION_FLAG, AT(entropy)},
{{"--probabilities", "CLASS,...", "add a field p_CLASS with the probability of each of "
  "these classes (all: of every class)"}, SP_OPTION_TEXT, AT(probabilities)},
{{"--margin", NULL, "add the field margin: the probability of the class minus the "
  "second class's"}, SP_OPTION_FLAG, AT(margin)},
{{"--no-agreement", NULL, "leave out the field agreement of several models, the share "
  "of them that have the class"}, SP_OPTION_FLAG, AT(no_agreement)},
{{"--class-field", "NAME", "write the class into this field (uint8) and leave the scan's "
  "own classes as they are"}, SP_OPTION_TEXT, AT(class_field)},
{{"--field-type", "uint8|float32", "type of added fields; uint8 is in steps of 1/255 in "
  "scans of all formats (uint8)"}, SP_OPTION_WORD, AT(is_float)},
{{"--min-confidence", "P", "points without a class of this probability get no class"},
 SP_OPTION_REAL, AT(min_confidence), .or_0 = true, .most = 1},
{{"--doubtful-features", "Q", "points with features farther from every class than the "
  "share Q of the validation set (0.95) get no class either; the model is calibrated"},
 SP_OPTION_REAL, AT(doubtful_features), .most = 1},
{{"--doubtful", "CODE", "the code that these points get instead"},
 SP_OPTION_WHOLE, AT(doubtful), 0, VOX_MAX_CODE},
{{"--keep", "CODE,...", "points that have one of these codes keep it"},
 SP_OPTION_READ, .read = read_keep},
{{"--views", "N", "predict the mean over up to N views of each sample: turned, "
  "mirrored and scaled as in the training (1)"},
 SP_OPTION_WHOLE, AT(views), 1, SP_MAX_VIEWS},
{{"--buffer", "M", "points of the other scans within M metres shape the classes too, so "
  "that tiles fit together; at least block + 2 overlap makes them as if the area were one "
  "file"}, SP_OPTION_REAL, AT(buffer), .or_0 = true},
{{"--window", "x0,y0,x1,y1", "write only the points with x0 <= x < x1 and y0 <= y < y1, with "
  "the classes of the whole scan; COPC is read only there"},
 SP_OPTION_READ, AT(vox), .read = vox_read_bounds},
{{"--raster", "M", "writes NAME.tif beside each output, a GeoTIFF with cells of M metres: the "
  "share of each class, and of doubtful points"}, SP_OPTION_REAL, AT(raster)},
{{"--index", "FILE", "keeps where the points of each scan lie, for --buffer"},
 SP_OPTION_TEXT, AT(index)},
{{"--summary", "PREFIX", "writes PREFIX.csv and PREFIX.geojson: points, shares of classes, "
  "confidence and extent of each output"}, SP_OPTION_TEXT, AT(summary)},
{{"--task", "I/N", "label every N-th scan, from number I on: several processes share a list "
  "(jobs/label.slurm)"}, SP_OPTION_READ, .read = options_read_task},
{{"--overwrite", NULL, "replace files in DIR that this command has not made, "
  "or made of another scan"},
 SP_OPTION_FLAG, AT(overwrite)},
{{"--any-format", NULL, "take scans of formats and units that the model has not seen"},
 SP_OPTION_FLAG, AT(any_format)},
{{"--z-unit", SP_SCAN_Z_WORDS, "the unit of z, as in spvox convert (as in the training; "
  "with --any-format: same)"}, SP_OPTION_WORD, AT(vox.z_unit)},
{{"--columns", "LIST", "names of the columns of text and npy, as in spvox convert"},
 SP_OPTION_TEXT, AT(vox.columns)},
{{"--label-field", "NAME", "the attribute with the codes for --keep"},
 SP_OPTION_TEXT, AT(vox.label_field)},
{{"--block", "M", "edge of blocks in metre (as in the training; 0: whole scans)"},
 SP_OPTION_REAL, AT(vox.block), .or_0 = true},
{{"--overlap", "M", "margin around blocks in metre (as in the training)"},
 SP_OPTION_REAL, AT(vox.overlap), .or_0 = true},
{{"--voxel-size", "M", "for a model that does not tell it, as --features and --map"},
 SP_OPTION_REAL, AT(vox.voxel_size)},
{{"--features", "LIST", "the columns of the model, as in spvox convert"},
 SP_OPTION_READ, AT(vox), .read = vox_read_features},
{{"--missing", "NUMBER", "the value of attributes that are not a number, as in spvox "
  "convert"}, SP_OPTION_READ, AT(vox), .read = vox_read_missing},
{{"--map", "LIST", "the codes of the classes, as in spvox convert; @FILE reads them"},
 SP_OPTION_READ, AT(vox.map), .read = vox_read_map},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

const sp_usage sp_label_usage = {
    .line = "usage: sptrain label MODEL SCAN... --out DIR [OPTIONS] "
            "[SECTION.KEY=VALUE ...]",
    .text = "Gives the points of each scan the classes that a model predicts. MODEL is "
            "a run folder, a checkpoint or a packed model, or A+B+C, several of them, "
            "whose probabilities are averaged. The output has the scan's own format "
            "where that is written, else that of .txt. Outputs that are complete and "
            "made by the same model and options are not made again.\n\n"
            "formats of outputs, by their endings",
    .formats = sp_scan_print_outputs,
    .options = SP_WORD_ROWS(option_table),
};

/* True for "section.key=value", unless there is a file of this name. */
static bool is_override(const char *word)
{
    const char *equals = strchr(word, '='), *dot = strchr(word, '.');

    return equals && dot && dot > word && dot < equals &&
           !memchr(word, '/', (size_t)(equals - word)) && access(word, F_OK) != 0;
}

/* Moves overrides after the scans. */
static sp_status split_words(label_options *o, char **word, int n)
{
    SP_FREED char **moved = NULL;
    int n_files = 0;

    SP_TRY(SP_NEW(&moved, n, "the command line"));
    for (int i = 0; i < n; i++)
        if (is_override(word[i]))
            moved[o->n_overrides++] = word[i];
        else
            word[n_files++] = word[i];
    memcpy(word + n_files, moved, (size_t)o->n_overrides * sizeof *moved);
    o->overrides = word + n_files;
    o->model = n_files > 0 ? word[0] : NULL;
    o->vox.input = word + 1;
    o->vox.n_inputs = n_files > 0 ? n_files - 1 : 0;
    return SP_OK;
}

/* Is a model missing in A+B+C? */
static bool lacks_model(const char *models)
{
    const size_t n = strlen(models);

    return access(models, F_OK) != 0 &&
           (n == 0 || models[0] == '+' || models[n - 1] == '+' || strstr(models, "++"));
}

static sp_status check(const label_options *o)
{
    if (!o->model)
        return SP_FAIL(
            SP_EUSAGE,
            "label: expected MODEL SCAN... --out DIR; see sptrain label --help");
    if (lacks_model(o->model))
        return SP_FAIL(SP_EUSAGE,
                       "%s: a model is missing, expected their paths as A+B+C",
                       o->model);
    if (o->vox.n_inputs == 0)
        return SP_FAIL(SP_EUSAGE, "label: no scan is named after the model %s",
                       o->model);
    if (!o->out || !*o->out)
        return SP_FAIL(SP_EUSAGE, "label: --out DIR is missing");
    if (o->doubtful != LABEL_NOT_GIVEN && o->min_confidence <= 0 &&
        o->doubtful_features <= 0)
        return SP_FAIL(SP_EUSAGE,
                       "--doubtful is the code of points that --min-confidence or "
                       "--doubtful-features finds; both are missing");
    if (o->raster > 0 && !label_raster_is_built())
        return SP_FAIL(SP_EUSAGE,
                       "--raster: this build has no libtiff, so it writes no "
                       "maps: install libtiff-dev and configure anew");
    if (o->index && o->buffer <= 0)
        return SP_FAIL(SP_EUSAGE, "--index keeps extents for --buffer, which is "
                                  "missing");
    if (o->class_field &&
        (!*o->class_field || strlen(o->class_field) > SP_SCAN_ADDED_NAME))
        return SP_FAIL(SP_EUSAGE, "--class-field %s: expected 1 to %d bytes",
                       o->class_field, SP_SCAN_ADDED_NAME);
    if (o->class_field && o->keep)
        return SP_FAIL(SP_EUSAGE, "--keep with --class-field: the scan's own classes "
                                  "stay in any case; leave out --keep");
    return SP_OK;
}

sp_status label_options_read(label_options *o, int argc, char **argv)
{
    int n_words = 0;

    assert(argc >= 1 && argv);
    *o = (label_options){.doubtful = LABEL_NOT_GIVEN,
                         .n_tasks = 1,
                         .vox = {.z_unit = LABEL_NOT_GIVEN,
                                 .voxel_size = LABEL_NOT_GIVEN,
                                 .block = LABEL_NOT_GIVEN,
                                 .overlap = LABEL_NOT_GIVEN}};
    memset(o->vox.map.class_of, 0xff, sizeof o->vox.map.class_of);
    SP_TRY(sp_options_read(o, SP_WORD_TABLE(option_table), "sptrain", argc, argv,
                           &n_words));
    SP_TRY(split_words(o, argv + 1, n_words));
    return check(o);
}

void label_options_free(label_options *o)
{
    vox_options_destroy(&o->vox);
    free(o->keep);
    o->keep = NULL;
}
