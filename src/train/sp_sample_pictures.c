#include "train/sp_sample_pictures.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_json.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "comm/sp_gather_buffer.h"
#include "net/sp_metrics.h"
#include "report/sp_canvas.h"
#include "report/sp_figure.h"
#include "train/sp_session.h"

/* Pixels of a picture. */
enum { WIDTH = 420, HEIGHT = 350 };

/* One sample that this rank has evaluated. */
typedef struct entry {
    int64_t sample, n; /* number in the data set; its stored voxels */
    int64_t at;        /* first of its predictions, in values of the temporary file */
    double miou;       /* over its labelled voxels; NAN if it has no label */
} entry;

struct sp_sample_pictures {
    int n_classes, n;
    char *const *class_name; /* [n_classes] borrowed */
    entry *entry;            /* [n] */
    int64_t *confusion;      /* [n_classes][n_classes] of one sample */
    /* Class + 1 of each stored voxel, or 0, as uint16. The file has no name and is
     * removed when it is closed. */
    FILE *predictions;
    int64_t n_values;
    bool is_broken;
};

/* The samples that are drawn; rank 0 chooses and informs all. */
enum { BEST, MEDIAN, WORST, CHOSEN };
static const char *const which_words[CHOSEN] = {"best", "median", "worst"};
enum { TRUTH, PREDICTION, ERROR, KINDS };
static const char *const kind_words[KINDS] = {"truth", "prediction", "error"};
enum { SIDES = 2 };
static const struct side {
    const char *word;
    sp_render_from from;
} sides[SIDES] = {{"top", SP_FROM_TOP}, {"oblique", SP_FROM_OBLIQUE}};

typedef struct choice {
    int64_t sample[CHOSEN]; /* -1: no sample */
    double miou[CHOSEN];
} choice;

/* ---- while the pass goes on ---- */

/* tmpfile makes its file there, whatever TMPDIR says. */
#define NO_PICTURES "no pictures of samples (their classes are kept in " P_tmpdir "): "

static void pictures_give_up(sp_sample_pictures *g, const char *why)
{
    if (!g->is_broken)
        sp_log_warn(NO_PICTURES "%s", why);
    g->is_broken = true;
}

void sp_sample_pictures_create(sp_sample_pictures **pictures, int n_classes,
                               char *const *class_name)
{
    sp_sample_pictures *g;

    assert(pictures && n_classes >= 1);
    *pictures = NULL;
    if (!sp_png_is_built()) {
        sp_log_warn0("no pictures of samples: this build has no libpng");
        return;
    }
    g = calloc(1, sizeof *g);
    if (g) {
        g->n_classes = n_classes;
        g->class_name = class_name;
        g->confusion =
            calloc((size_t)n_classes * (size_t)n_classes, sizeof *g->confusion);
        g->predictions = tmpfile();
    }
    if (!g || !g->confusion || !g->predictions) {
        sp_log_warn(NO_PICTURES "%s", strerror(errno));
        sp_sample_pictures_destroy(g);
        return;
    }
    *pictures = g;
}

void sp_sample_pictures_destroy(sp_sample_pictures *g)
{
    if (!g)
        return;
    if (g->predictions)
        fclose(g->predictions);
    free(g->confusion);
    free(g->entry);
    free(g);
}

/* Writes the predictions of a sample's stored voxels and returns its mIoU. */
static double pictures_keep(sp_sample_pictures *g, const sp_sample *s,
                            const int32_t *row_of, const int32_t *prediction)
{
    enum { BLOCK = 1024 };
    const int n = g->n_classes;
    uint16_t block[BLOCK];
    size_t used = 0;

    memset(g->confusion, 0, (size_t)n * (size_t)n * sizeof *g->confusion);
    for (int64_t i = 0; i < s->n; i++) {
        const int32_t class = row_of[i] >= 0 ? prediction[row_of[i]] : SP_IGNORE;

        block[used++] = (uint16_t)(class + 1);
        if (s->labels[i] >= 0 && class >= 0)
            g->confusion[(int64_t)s->labels[i] * n + class]++;
        if (used < BLOCK && i < s->n - 1)
            continue;
        if (fwrite(block, sizeof *block, used, g->predictions) != used)
            pictures_give_up(g, strerror(errno));
        used = 0;
    }
    return sp_metrics_miou(g->confusion, n);
}

void sp_sample_pictures_add(sp_sample_pictures *g, const sp_batch *batch,
                            const int32_t *prediction)
{
    assert(!g || g->is_broken || (prediction && batch->n_samples >= 0));
    for (int b = 0; g && !g->is_broken && b < batch->n_samples; b++) {
        const sp_sample *s = &batch->sample[b];
        entry *e;

        if (!sp_list_grow(&g->entry, g->n, sizeof *g->entry)) {
            pictures_give_up(g, "no memory");
            return;
        }
        e = &g->entry[g->n++];
        *e = (entry){batch->sample_id[b], s->n, g->n_values, NAN};
        e->miou = pictures_keep(g, s, batch->row_of + batch->row_of_at[b], prediction);
        g->n_values += s->n;
    }
}

/* ---- choosing ---- */

static int by_miou(const void *a, const void *b)
{
    const entry *x = a, *y = b;

    if (x->miou != y->miou)
        return x->miou < y->miou ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

/* Rank 0: chooses among all samples that have labelled voxels. */
static void pictures_choose(entry *all, int64_t n, choice *c)
{
    int64_t kept = 0;
    int64_t at[CHOSEN];

    for (int64_t i = 0; i < n; i++)
        if (!isnan(all[i].miou))
            all[kept++] = all[i];
    if (kept > 0)
        qsort(all, (size_t)kept, sizeof *all, by_miou);
    at[BEST] = kept - 1;
    at[MEDIAN] = kept > 2 ? (kept - 1) / 2 : -1;
    at[WORST] = kept > 1 ? 0 : -1;
    for (int k = 0; k < CHOSEN; k++) {
        c->sample[k] = at[k] < 0 ? -1 : all[at[k]].sample;
        c->miou[k] = at[k] < 0 ? NAN : all[at[k]].miou;
    }
}

/* Tells all ranks the choice. A rank that has given up offers no samples. */
static sp_status agree_on_choice(const sp_sample_pictures *g, sp_comm *comm, choice *c)
{
    const int n = g && !g->is_broken ? g->n : 0;
    void *all = NULL;
    size_t bytes;
    sp_status rc = sp_comm_gather(comm, n ? g->entry : NULL,
                                  (size_t)n * sizeof *g->entry, &all, &bytes);

    if (rc == SP_EMEM) { /* agreed; no sample is chosen */
        sp_log_warn0("no pictures of samples: no memory to choose them");
        bytes = 0;
    } else {
        SP_TRY(rc);
    }
    if (comm->rank == 0)
        pictures_choose(all, (int64_t)(bytes / sizeof(entry)), c);
    free(all);
    return sp_comm_bcast(comm, c, sizeof *c, 0);
}

/* ---- drawing ---- */

/* Heads a picture on its way to rank 0; the bytes of the PNG follow. */
typedef struct parcel {
    int32_t which, kind, side;
    int64_t n_voxels;
} parcel;

/* A sample in the colours of each kind. */
typedef struct scene {
    sp_sample sample;
    float *xyz;             /* [sample.n][3] */
    uint16_t *index[KINDS]; /* [sample.n] colours; of classes: class + 1, or 0 */
    uint8_t *hidden;        /* [sample.n] voxels of a ceiling; NULL: no ceiling */
    sp_colour *palette;     /* [n_classes + 1] */
    sp_colour verdict[3];   /* palette of the error */
} scene;

static void pictures_release(scene *s)
{
    sp_sample_destroy(&s->sample);
    free(s->xyz);
    free(s->index[0]);
    free(s->hidden);
    free(s->palette);
}

static sp_status pictures_allocate(const sp_sample_pictures *g, size_t n, scene *s)
{
    s->xyz = malloc((n + 1) * 3 * sizeof *s->xyz);
    s->index[0] = malloc((n + 1) * KINDS * sizeof **s->index);
    s->palette = malloc(((size_t)g->n_classes + 1) * sizeof *s->palette);
    if (!s->xyz || !s->index[0] || !s->palette)
        return SP_FAIL(SP_EMEM, "no memory for a picture of %zu voxels", n);
    for (int k = 1; k < KINDS; k++)
        s->index[k] = s->index[k - 1] + n;
    return SP_OK;
}

static void pictures_colour(const sp_sample_pictures *g, scene *s)
{
    const int32_t *label = s->sample.labels;

    s->palette[0] = s->verdict[0] = sp_palette_ignored;
    for (int c = 0; c < g->n_classes; c++)
        s->palette[c + 1] = sp_palette_class(c);
    s->verdict[1] = sp_palette_right;
    s->verdict[2] = sp_palette_wrong;
    for (int64_t i = 0; i < s->sample.n; i++) {
        s->index[TRUTH][i] = (uint16_t)(label[i] + 1);
        s->index[ERROR][i] = label[i] < 0                              ? 0
                             : label[i] + 1 == s->index[PREDICTION][i] ? 1
                                                                       : 2;
    }
}

/* Hides a ceiling, by the truth, so that the three pictures show the same voxels. No
 * voxel is hidden if nothing else would be left. */
static sp_status pictures_hide(const sp_sample_pictures *g, scene *s)
{
    int64_t n_hidden = 0;
    int ceiling = -1;

    for (int c = 0; c < g->n_classes; c++)
        if (sp_render_hides(g->class_name[c], SP_FROM_TOP))
            ceiling = c;
    if (ceiling < 0)
        return SP_OK;
    s->hidden = malloc((size_t)s->sample.n + 1);
    if (!s->hidden)
        return SP_FAIL(SP_EMEM, "no memory for a picture of %lld voxels",
                       (long long)s->sample.n);
    for (int64_t i = 0; i < s->sample.n; i++)
        n_hidden += s->hidden[i] = s->sample.labels[i] == ceiling;
    if (n_hidden == s->sample.n)
        memset(s->hidden, 0, (size_t)s->sample.n);
    return SP_OK;
}

static sp_status read_scene(const sp_sample_pictures *g, const sp_dataset *set,
                            const entry *e, scene *s)
{
    const sp_sample_request request = {.verify = false};
    const size_t n = (size_t)e->n;

    SP_TRY(sp_sample_read(set, e->sample, &request, &s->sample));
    SP_TRY(pictures_allocate(g, n, s));
    if (s->sample.n != e->n ||
        fseeko(g->predictions, (off_t)(e->at * (int64_t)sizeof(uint16_t)), SEEK_SET) ||
        fread(s->index[PREDICTION], sizeof **s->index, n, g->predictions) != n)
        return SP_FAIL(SP_EIO, "the temporary file of predictions cannot be read");
    for (size_t i = 0; i < 3 * n; i++)
        s->xyz[i] = (float)((s->sample.coords[i] + 0.5) * set->voxel_size);
    pictures_colour(g, s);
    return pictures_hide(g, s);
}

/* Adds a picture to the records. */
static sp_status pictures_add_picture(const sp_canvas *canvas, parcel head,
                                      sp_gather_buffer *records)
{
    SP_FREED char *bytes = NULL;
    void *record;
    size_t n = 0;

    SP_TRY(sp_png_encode(canvas, &bytes, &n));
    SP_TRY(sp_gather_buffer_add(records, sizeof head + n, &record));
    memcpy(record, &head, sizeof head);
    memcpy((char *)record + sizeof head, bytes, n);
    return SP_OK;
}

/* Draws truth, prediction and error from one side. */
static sp_status draw_side(const sp_dataset *set, const scene *s, parcel head,
                           sp_gather_buffer *records)
{
    sp_canvas canvas[KINDS] = {0};
    sp_cloud cloud[KINDS];
    sp_status rc;

    for (int k = 0; k < KINDS; k++)
        cloud[k] = (sp_cloud){s->sample.n,     s->xyz,
                              s->index[k],     k == ERROR ? s->verdict : s->palette,
                              set->voxel_size, s->hidden};
    rc = sp_figure_draw_plain(cloud, KINDS, sides[head.side].from, WIDTH, HEIGHT,
                              canvas);
    for (head.kind = 0; head.kind < KINDS; head.kind++) {
        if (rc == SP_OK)
            rc = pictures_add_picture(&canvas[head.kind], head, records);
        sp_canvas_destroy(&canvas[head.kind]);
    }
    return rc;
}

static sp_status draw_sample(const sp_sample_pictures *g, const sp_dataset *set,
                             const entry *e, int which, sp_gather_buffer *records)
{
    scene s = {0};
    sp_status rc = read_scene(g, set, e, &s);

    for (int side = 0; rc == SP_OK && side < SIDES; side++)
        rc = draw_side(set, &s,
                       (parcel){.which = which, .side = side, .n_voxels = s.sample.n},
                       records);
    pictures_release(&s);
    return rc;
}

/* Draws the chosen samples that this rank has evaluated. */
static void draw_mine(sp_sample_pictures *g, const sp_dataset *set, const choice *c,
                      sp_gather_buffer *records)
{
    if (!g || g->is_broken)
        return;
    if (fflush(g->predictions) != 0) {
        pictures_give_up(g, strerror(errno));
        return;
    }
    for (int k = 0; k < CHOSEN; k++)
        for (int i = 0; i < g->n; i++)
            if (g->entry[i].sample == c->sample[k] &&
                draw_sample(g, set, &g->entry[i], k, records) != SP_OK)
                pictures_give_up(g, sp_error_last()->message);
}

/* ---- writing, on rank 0 ---- */

static void pictures_write_sample(sp_json *json, const sp_session *session,
                                  const sp_dataset *set, const choice *c, int k,
                                  int64_t n_voxels)
{
    char name[1024];

    sp_json_begin_object(json, NULL);
    sp_json_text(json, "which", which_words[k]);
    sp_json_text(json, "name",
                 sp_dataset_print_sample(set, c->sample[k], name, sizeof name));
    sp_json_int(json, "sample", c->sample[k]);
    sp_json_double(json, "miou", c->miou[k]);
    sp_json_int(json, "voxels", n_voxels);
    sp_json_int(json, "step", session->step);
    sp_json_end_object(json);
}

/* Writes the list of the samples that have all their pictures written. */
static sp_status write_list(const sp_session *session, const sp_dataset *set,
                            const choice *c, const int drawn[CHOSEN],
                            const int64_t n_voxels[CHOSEN])
{
    char path[PATH_MAX];
    sp_json json = {0};
    const char *line;
    sp_status rc;

    sp_json_begin(&json);
    sp_json_int(&json, "step", session->step);
    sp_json_int(&json, "epoch", session->epoch);
    sp_json_begin_array(&json, "samples");
    for (int k = 0; k < CHOSEN; k++)
        if (drawn[k] == KINDS * SIDES)
            pictures_write_sample(&json, session, set, c, k, n_voxels[k]);
    sp_json_end_array(&json);
    rc = sp_json_end(&json, &line);
    snprintf(path, sizeof path, "%s/pictures/pictures.json", session->run.dir);
    if (rc == SP_OK)
        rc = sp_file_replace_unflushed(path, line, strlen(line), 0);
    sp_json_destroy(&json);
    return rc;
}

static sp_status write_pictures(const sp_session *session, const sp_dataset *set,
                                const choice *c, sp_gather_buffer *records)
{
    int drawn[CHOSEN] = {0};
    int64_t n_voxels[CHOSEN] = {0};
    char path[PATH_MAX];
    size_t bytes;
    char *record;

    snprintf(path, sizeof path, "%s/pictures", session->run.dir);
    SP_TRY(sp_file_make_folder(path));
    while ((record = sp_gather_buffer_next(records, &bytes))) {
        parcel head;

        memcpy(&head, record, sizeof head);
        snprintf(path, sizeof path, "%s/pictures/%s-%s-%s.png", session->run.dir,
                 which_words[head.which], kind_words[head.kind], sides[head.side].word);
        SP_TRY(sp_file_replace_unflushed(path, record + sizeof head,
                                         bytes - sizeof head, 0));
        drawn[head.which]++;
        n_voxels[head.which] = head.n_voxels;
    }
    return write_list(session, set, c, drawn, n_voxels);
}

sp_status sp_sample_pictures_write(sp_sample_pictures *g, const sp_session *session,
                                   const sp_dataset *set)
{
    sp_comm *comm = session->comm;
    sp_gather_buffer records = {0};
    choice c;
    sp_status rc;

    SP_TRY(agree_on_choice(g, comm, &c));
    draw_mine(g, set, &c, &records);
    rc = sp_gather_buffer_gather(&records, comm);
    if (rc == SP_OK && comm->rank == 0 && c.sample[BEST] >= 0 &&
        write_pictures(session, set, &c, &records) != SP_OK)
        sp_log_warn0("no pictures of samples: %s", sp_error_last()->message);
    sp_gather_buffer_destroy(&records);
    return rc;
}
