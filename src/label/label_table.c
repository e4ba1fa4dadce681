#include "label/label_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_json.h"

static const char *table_path(const label_files *f, int i, char path[LABEL_PATH])
{
    snprintf(path, LABEL_PATH, "%s/%s.stats", f->work, f->file[i].name);
    return path;
}

sp_status label_table_keep(const label_files *f, int i, const label_tally *t,
                           double seconds)
{
    char path[LABEL_PATH], text[256 + 24 * VOX_MAX_CLASSES];
    int at = snprintf(text, sizeof text, "%.3f %" PRId64 " %" PRId64 " %" PRId64,
                      seconds, t->n_points, t->n_doubtful, t->confidence);

    for (int c = 0; c < VOX_MAX_CLASSES; c++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %" PRId64, t->n[c]);
    return sp_file_replace_unflushed(table_path(f, i, path), text, (size_t)at,
                                     f->options->task);
}

/* Reads the counts of output i; false if it has no counts. */
static bool table_read(const label_files *f, int i, label_tally *t, double *seconds)
{
    char path[LABEL_PATH], *text = NULL, *at, *end;
    bool is_whole = true;
    int64_t word[LABEL_TALLY_WORDS];

    table_path(f, i, path);
    if (access(path, R_OK) != 0 || sp_file_read(path, &text, NULL) != SP_OK)
        return false;
    *seconds = strtod(text, &at);
    for (int k = 0; k < LABEL_TALLY_WORDS && is_whole; k++, at = end) {
        word[k] = strtoll(at, &end, 10);
        is_whole = end != at;
    }
    free(text);
    if (is_whole)
        memcpy(t, word, sizeof word);
    return is_whole;
}

/* One output as the tables have it. */
typedef struct table_row {
    const label_model *model;
    const char *name;
    const vox_extent *extent;
    label_tally tally;
    double seconds;
} table_row;

static double row_share(const table_row *r, int64_t n)
{
    return r->tally.n_points > 0 ? (double)n / (double)r->tally.n_points : 0;
}

static double row_confidence(const table_row *r)
{
    return row_share(r, r->tally.confidence) / LABEL_CONFIDENCE_UNITS;
}

/* Writes a text as one CSV field (RFC 4180). */
static void csv_text(FILE *to, const char *text)
{
    const bool is_quoted = strpbrk(text, ",\"\r\n") != NULL;

    if (is_quoted)
        putc('"', to);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', to);
        putc(*text, to);
    }
    if (is_quoted)
        putc('"', to);
}

static void csv_head(FILE *to, const label_model *m)
{
    fputs("file,points,mean_confidence,doubtful_share,seconds", to);
    for (int c = 0; c < m->n_classes; c++) {
        char name[300];

        snprintf(name, sizeof name, "share_%s", m->infer.network.class_name[c]);
        putc(',', to);
        csv_text(to, name);
    }
    putc('\n', to);
}

static void csv_row(FILE *to, const table_row *r)
{
    csv_text(to, r->name);
    fprintf(to, ",%" PRId64 ",%.6f,%.6f,%.3f", r->tally.n_points, row_confidence(r),
            row_share(r, r->tally.n_doubtful), r->seconds);
    for (int c = 0; c < r->model->n_classes; c++)
        fprintf(to, ",%.6f", row_share(r, r->tally.n[c]));
    putc('\n', to);
}

/* Writes the extent as a ring, counter-clockwise (RFC 7946). */
static void json_extent(sp_json *json, const vox_extent *e)
{
    const double x[2] = {e->low[0], e->high[0]}, y[2] = {e->low[1], e->high[1]};
    static const int corner[5][2] = {{0, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}};

    sp_json_begin_object(json, "geometry");
    sp_json_text(json, "type", "Polygon");
    sp_json_begin_array(json, "coordinates");
    sp_json_begin_array(json, NULL);
    for (int i = 0; i < 5; i++) {
        sp_json_begin_array(json, NULL);
        sp_json_double(json, NULL, x[corner[i][0]]);
        sp_json_double(json, NULL, y[corner[i][1]]);
        sp_json_end_array(json);
    }
    sp_json_end_array(json);
    sp_json_end_array(json);
    sp_json_end_object(json);
}

static void json_row(sp_json *json, const table_row *r)
{
    sp_json_begin_object(json, NULL);
    sp_json_text(json, "type", "Feature");
    if (r->extent->low[0] <= r->extent->high[0])
        json_extent(json, r->extent);
    else
        sp_json_null(json, "geometry");
    sp_json_begin_object(json, "properties");
    sp_json_text(json, "file", r->name);
    sp_json_int(json, "points", r->tally.n_points);
    sp_json_double(json, "mean_confidence", row_confidence(r));
    sp_json_double(json, "doubtful_share", row_share(r, r->tally.n_doubtful));
    sp_json_double(json, "seconds", r->seconds);
    for (int c = 0; c < r->model->n_classes; c++) {
        char name[300];

        snprintf(name, sizeof name, "share_%s", r->model->infer.network.class_name[c]);
        sp_json_double(json, name, row_share(r, r->tally.n[c]));
    }
    sp_json_end_object(json);
    sp_json_end_object(json);
}

static sp_status table_save(const label_files *f, const char *prefix,
                            const char *ending, const char *text, size_t bytes)
{
    char path[LABEL_PATH];

    snprintf(path, sizeof path, "%s%s", prefix, ending);
    return sp_file_replace(path, text, bytes, f->options->task);
}

/* Writes the rows of all outputs to both. */
static void table_rows(const label_files *f, const label_model *m, FILE *csv,
                       sp_json *json)
{
    for (int i = 0; i < f->n; i++) {
        table_row row = {
            .model = m, .name = f->file[i].name, .extent = &f->file[i].extent};

        if (f->file[i].is_skipped || !table_read(f, i, &row.tally, &row.seconds))
            continue;
        csv_row(csv, &row);
        json_row(json, &row);
    }
}

sp_status label_table_write(const label_files *f, const label_model *m,
                            const char *prefix)
{
    SP_FREED char *text = NULL;
    const char *line = NULL;
    size_t bytes = 0;
    SP_CLOSED_BY(sp_json_destroy) sp_json json = {0};
    FILE *csv = open_memstream(&text, &bytes);

    assert(f && m && prefix);
    if (!csv)
        return SP_FAIL(SP_EMEM, "%s.csv: no memory to write it", prefix);
    csv_head(csv, m);
    sp_json_begin(&json);
    sp_json_text(&json, "type", "FeatureCollection");
    if (f->crs[0]) {
        sp_json_begin_object(&json, "crs");
        sp_json_text(&json, "type", "name");
        sp_json_begin_object(&json, "properties");
        sp_json_text(&json, "name", f->crs);
        sp_json_end_object(&json);
        sp_json_end_object(&json);
    }
    sp_json_begin_array(&json, "features");
    table_rows(f, m, csv, &json);
    sp_json_end_array(&json);
    if (!sp_file_close(csv))
        return SP_FAIL(SP_EMEM, "%s.csv: no memory to write it", prefix);
    SP_TRY(table_save(f, prefix, ".csv", text, bytes));
    SP_TRY(sp_json_end(&json, &line));
    return table_save(f, prefix, ".geojson", line, strlen(line));
}
