/* spvox compare: command line, division over the ranks, and output. */
#include "vox/vox_compare.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_json.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_serial.h"
#include "base/sp_text.h"
#include "vox/vox.h"

enum { NAME_CELL = 4096, CONFUSION_MOST = 20 /* classes of a printed confusion */ };

static sp_status compare_read_match(void *to, const sp_option *option, const char *text)
{
    vox_compare_options *o = to;

    (void)option;
    o->match_field = NULL;
    if (strcmp(text, "auto") == 0)
        o->match = VOX_MATCH_AUTO;
    else if (strcmp(text, "order") == 0)
        o->match = VOX_MATCH_ORDER;
    else if (strcmp(text, "position") == 0)
        o->match = VOX_MATCH_POSITION;
    else
        o->match_field = text;
    return SP_OK;
}

#define AT(member) .offset = offsetof(vox_compare_options, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"--map", "LIST", "classes by codes, as in spvox convert; codes without a class are "
  "left out if A has them, and count as wrong if only B has them. Without it each code "
  "is a class"},
 SP_OPTION_READ, .offset = offsetof(vox_compare_options, map) +
                           offsetof(vox_options, map), .read = vox_read_map},
{{"--ignore", "CODES", "points with one of these codes in A are left out: \"0,7\""},
 SP_OPTION_TEXT, AT(ignore)},
{{"--match", "HOW", "auto (by order, or by position if the orders differ), order, "
  "position, or the name of a field with a value for each point"},
 SP_OPTION_READ, .read = compare_read_match},
{{"--label-field", "NAME", "the attribute that is the class, in A and B"},
 SP_OPTION_TEXT, AT(label_field)},
{{"--label-field-a", "NAME", "the same for A only"}, SP_OPTION_TEXT, AT(label_field_a)},
{{"--label-field-b", "NAME", "the same for B only"}, SP_OPTION_TEXT, AT(label_field_b)},
{{"--columns", "LIST", "as in spvox convert, for text and .npy"},
 SP_OPTION_TEXT, AT(columns)},
{{"--json", NULL, "print one JSON object instead of tables"},
 SP_OPTION_FLAG, AT(with_json)},
{{"--least-miou", "X", "end with status 1 if the mean IoU is below X"},
  SP_OPTION_REAL, AT(least_miou), .or_0 = true, .most = 1},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

const sp_usage vox_compare_usage = {
    .line = "usage: spvox compare [OPTIONS] A B",
    .text = "Compares the classes of the same points in two scans, or in two "
            "folders of scans: A is the truth, B is judged. Files may be LAS, "
            "LAZ, PLY, PCD, .label of SemanticKITTI, .npy (also one dimension of "
            "classes) and text. Prints IoU, precision, recall and F1 of each "
            "class, mean IoU, accuracy, Cohen's kappa and the confusion, of each "
            "file and of all points together. Files of a folder are divided over "
            "the ranks.",
    .options = SP_WORD_ROWS(option_table),
};

/* ---- work of all ranks ---- */

static void share_pairs(sp_serial *serial, vox_file_pair **pair, int *n)
{
    int64_t count = *n;

    sp_serial_count(serial, &count, 3);
    if (serial->is_reading && serial->rc == SP_OK) {
        *n = (int)count;
        *pair = calloc((size_t)count + 1, sizeof **pair);
        if (!*pair)
            serial->rc = SP_FAIL(SP_EMEM, "no memory for names");
    }
    for (int i = 0; i < *n && serial->rc == SP_OK; i++) {
        sp_serial_text(serial, &(*pair)[i].a);
        sp_serial_text(serial, &(*pair)[i].b);
        sp_serial_text(serial, &(*pair)[i].name);
    }
}

/* Lists the files on rank 0, for all ranks. */
static sp_status compare_list(sp_comm *comm, char **path, vox_file_pair **pair, int *n)
{
    sp_serial serial = {0};
    sp_status rc;

    if (comm->rank == 0) {
        serial.rc = vox_compare_list(path[0], path[1], pair, n);
        if (serial.rc == SP_OK)
            share_pairs(&serial, pair, n);
    }
    rc = sp_comm_bcast_serial(comm, &serial);
    if (rc == SP_OK && comm->rank > 0) {
        serial.is_reading = true;
        share_pairs(&serial, pair, n);
        rc = serial.rc;
    }
    free(serial.data);
    return sp_comm_agree(comm, rc);
}

/* Counts this rank's files; rank 0 gets the counts of all. */
static sp_status compare_count(sp_comm *comm, const vox_compare_options *o,
                               const vox_file_pair *pair, int n, vox_code_pairs *all)
{
    vox_code_pairs mine = {0};
    void *data = NULL;
    size_t bytes = 0;
    sp_status rc = SP_OK;

    for (int i = comm->rank; i < n && rc == SP_OK; i += comm->size)
        rc = vox_compare_pair(o, &pair[i], i, &mine);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        rc = sp_comm_gather(comm, mine.pair, (size_t)mine.n * sizeof *mine.pair, &data,
                            &bytes);
    free(mine.pair);
    all->pair = data;
    all->n = (int64_t)(bytes / sizeof *all->pair);
    vox_code_pairs_sort(all);
    return rc;
}

/* ---- output ---- */

static void json_rates(sp_json *json, const char *key, int n, const double *rate)
{
    sp_json_begin_array(json, key);
    for (int c = 0; c < n; c++)
        sp_json_double(json, NULL, rate[c]);
    sp_json_end_array(json);
}

static void json_score(sp_json *json, const vox_score *s)
{
    sp_json_int(json, "points", s->n_points);
    sp_json_int(json, "ignored", s->n_ignored);
    sp_json_double(json, "miou", s->miou);
    sp_json_double(json, "accuracy", s->accuracy);
    sp_json_double(json, "kappa", s->kappa);
    json_rates(json, "iou", s->n, s->iou);
    json_rates(json, "precision", s->n, s->precision);
    json_rates(json, "recall", s->n, s->recall);
    json_rates(json, "f1", s->n, s->f1);
    sp_json_begin_array(json, "confusion");
    for (int c = 0; c < s->n; c++) {
        sp_json_begin_array(json, NULL);
        for (int k = 0; k < s->n; k++)
            sp_json_int(json, NULL, s->points[c * (s->n + 1) + k]);
        sp_json_end_array(json);
    }
    sp_json_end_array(json);
    sp_json_begin_array(json, "no_class");
    for (int c = 0; c < s->n; c++)
        sp_json_int(json, NULL, s->points[c * (s->n + 1) + s->n]);
    sp_json_end_array(json);
}

/* Everything that is printed. */
typedef struct comparison {
    const vox_code_classes *classes;
    const vox_code_pairs *counts;
    const vox_file_pair *pair;
    int n_pairs;
    char **path; /* [2] of the command line */
    vox_score all;
} comparison;

static sp_status compare_print_json(const comparison *c)
{
    SP_CLOSED_BY(sp_json_destroy) sp_json json = {0};
    const char *line;

    sp_json_begin(&json);
    sp_json_text(&json, "a", c->path[0]);
    sp_json_text(&json, "b", c->path[1]);
    sp_json_begin_array(&json, "classes");
    for (int i = 0; i < c->classes->n; i++)
        sp_json_text(&json, NULL, c->classes->name[i]);
    sp_json_end_array(&json);
    json_score(&json, &c->all);
    sp_json_begin_array(&json, "files");
    for (int i = 0; i < c->n_pairs; i++) {
        SP_CLOSED_BY(vox_score_free) vox_score one = {0};

        SP_TRY(vox_score_of(&one, c->classes, c->counts, i));
        sp_json_begin_object(&json, NULL);
        sp_json_text(&json, "file", c->pair[i].name);
        json_score(&json, &one);
        sp_json_end_object(&json);
    }
    sp_json_end_array(&json);
    SP_TRY(sp_json_end(&json, &line));
    puts(line);
    return SP_OK;
}

static const char *rate_text(double rate, char text[16])
{
    snprintf(text, 16, isnan(rate) ? "-" : "%.4f", rate);
    return text;
}

static void print_classes_of(const vox_score *s)
{
    const int width = sp_text_width(s->n, s->name, 12);
    char shown[NAME_CELL], text[4][16];

    printf("%-*s %14s %9s %9s %9s %9s\n", width, "class", "points of A", "IoU",
           "precision", "recall", "F1");
    for (int c = 0; c < s->n; c++) {
        int64_t truth = 0;

        for (int k = 0; k <= s->n; k++)
            truth += s->points[c * (s->n + 1) + k];
        printf("%s %14" PRId64 " %9s %9s %9s %9s\n",
               sp_text_cell(shown, sizeof shown, s->name[c], width), truth,
               rate_text(s->iou[c], text[0]), rate_text(s->precision[c], text[1]),
               rate_text(s->recall[c], text[2]), rate_text(s->f1[c], text[3]));
    }
}

static void print_confusion(const vox_score *s)
{
    const int width = sp_text_width(s->n, s->name, 12);
    char shown[NAME_CELL];

    if (s->n > CONFUSION_MOST) {
        printf("\nconfusion of %d classes: --json has it\n", s->n);
        return;
    }
    printf("\nconfusion (a row for each class of A, a column for each of B)\n");
    for (int c = 0; c < s->n; c++) {
        printf("%s", sp_text_cell(shown, sizeof shown, s->name[c], width));
        for (int k = 0; k < s->n; k++)
            printf(" %10" PRId64, s->points[c * (s->n + 1) + k]);
        if (s->points[c * (s->n + 1) + s->n] > 0)
            printf("   no class: %" PRId64, s->points[c * (s->n + 1) + s->n]);
        putchar('\n');
    }
}

static sp_status print_files(const comparison *c)
{
    char text[3][16];
    vox_score one;

    if (c->n_pairs == 1)
        return SP_OK;
    for (int i = 0; i < c->n_pairs; i++) {
        const sp_status rc = vox_score_of(&one, c->classes, c->counts, i);

        if (rc == SP_OK)
            printf("%s: points=%" PRId64 " miou=%s accuracy=%s kappa=%s\n",
                   c->pair[i].name, one.n_points, rate_text(one.miou, text[0]),
                   rate_text(one.accuracy, text[1]), rate_text(one.kappa, text[2]));
        vox_score_free(&one);
        SP_TRY(rc);
    }
    putchar('\n');
    return SP_OK;
}

/* Prints the last line, to standard error if standard output has the JSON object. */
static void compare_print_summary(const vox_score *s, FILE *to)
{
    fprintf(to, "miou=%.6f accuracy=%.6f kappa=%.6f points=%" PRId64 "\n", s->miou,
            s->accuracy, s->kappa, s->n_points);
}

static sp_status compare_print(const vox_compare_options *o, comparison *c)
{
    bool is_below;

    SP_TRY(vox_score_of(&c->all, c->classes, c->counts, -1));
    is_below = o->least_miou >= 0 && !(c->all.miou >= o->least_miou);
    if (c->all.n_points == 0)
        return SP_FAIL(SP_EDATA, "%s: no point has a class that counts", c->path[0]);
    if (o->with_json) {
        SP_TRY(compare_print_json(c));
        fflush(stdout);
    } else {
        SP_TRY(print_files(c));
        print_classes_of(&c->all);
        print_confusion(&c->all);
        putchar('\n');
    }
    if (is_below)
        fprintf(stderr, "the mean IoU %.6f is below --least-miou %.6g\n", c->all.miou,
                o->least_miou);
    compare_print_summary(&c->all, o->with_json ? stderr : stdout);
    return is_below ? SP_FAIL(SP_EBELOW, "the mean IoU is below --least-miou") : SP_OK;
}

static sp_status compare_report(const vox_compare_options *o,
                                const vox_code_pairs *counts, const vox_file_pair *pair,
                                int n, char **path)
{
    SP_FREED vox_code_classes *classes = NULL;
    comparison c = {NULL, counts, pair, n, path, {0}};
    sp_status rc;

    SP_TRY(SP_NEW(&classes, 1, "the codes of classes"));
    c.classes = classes;
    rc = vox_classes_find(classes, o, counts);
    if (rc == SP_OK)
        rc = compare_print(o, &c);
    vox_score_free(&c.all);
    vox_classes_free(classes);
    return rc;
}

static sp_status compare_run(const vox_compare_options *o, sp_comm *comm, char **path)
{
    vox_file_pair *pair = NULL;
    vox_code_pairs counts = {0};
    int n = 0;
    sp_status rc = compare_list(comm, path, &pair, &n);

    if (rc == SP_OK)
        rc = compare_count(comm, o, pair, n, &counts);
    if (rc == SP_OK && comm->rank == 0)
        rc = compare_report(o, &counts, pair, n, path);
    free(counts.pair);
    vox_compare_free(pair, n);
    return sp_comm_agree(comm, rc);
}

static void compare_options_free(vox_compare_options **o)
{
    if (*o)
        vox_options_destroy(&(*o)->map);
    free(*o);
}

sp_status vox_compare(int argc, char **argv, sp_comm *comm)
{
    SP_CLOSED_BY(compare_options_free) vox_compare_options *o = NULL;
    int n_words = 0;

    assert(argc >= 1 && argv && comm);
    SP_TRY(SP_NEW(&o, 1, "options"));
    o->least_miou = -1;
    o->threads = comm->node_cores / comm->local_size;
    memset(o->map.map.class_of, 0xff, sizeof o->map.map.class_of);
    SP_TRY(
        sp_options_read(o, SP_WORD_TABLE(option_table), "spvox", argc, argv, &n_words));
    if (n_words != 2)
        return SP_FAIL(SP_EUSAGE,
                       "spvox compare: expected two files or two folders, A and B, "
                       "found %d",
                       n_words);
    return compare_run(o, comm, argv + 1);
}
