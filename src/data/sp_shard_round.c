/* Reports the loss by rounding features to float32, once for a data set: the column
 * that loses most, and the columns that lose more than training can bear. Map
 * coordinates are such: large numbers with small differences.
 *
 * Rank 0 looks through the files while it opens them, up to LOOK_BYTES of a data set,
 * in stretches spread evenly: through all of a small data set, and without reading a
 * large one twice. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "data/sp_shard_internal.h"

enum { LOOK_BYTES = 256 << 20, STRETCHES = 16, PIECE = 256 << 10, TOLD = 3 };

/* Rounding up to this share of a column's standard deviation gives no warning. */
#define COARSE 1e-3

/* A column that is looked through. The sums are of differences from its first value,
 * which keeps them exact enough. */
typedef struct sp_rounded {
    char *name;
    double first, sum, squares, count;
    double most; /* the largest change of a value by rounding */
} sp_rounded;

static sp_status begin(sp_rounding *r, const sp_dataset *part)
{
    r->column = calloc((size_t)part->n_features, sizeof *r->column);
    r->path = strdup(part->shard->path);
    if (!r->column || !r->path)
        return SP_FAIL(SP_EMEM, "%s: no memory", part->shard->path);
    r->n_columns = part->n_features;
    r->kind = part->shard->features.kind;
    r->type_size = part->shard->features.type_size;
    for (int c = 0; c < r->n_columns; c++)
        if (!(r->column[c].name = strdup(part->feature_name[c])))
            return SP_FAIL(SP_EMEM, "%s: no memory", part->shard->path);
    return SP_OK;
}

static void take(sp_rounded *c, double value)
{
    const double lost = fabs(value - (double)(float)value);

    if (!isfinite(value) || !isfinite(lost))
        return; /* such a value is refused when its sample is read */
    if (c->count == 0)
        c->first = value;
    c->count++;
    c->sum += value - c->first;
    c->squares += (value - c->first) * (value - c->first);
    c->most = lost > c->most ? lost : c->most;
}

static sp_status read_rows(sp_rounding *r, sp_h5 *file, const sp_extent *e,
                           int64_t first, int64_t n, char *raw)
{
    const sp_h5_type type = sp_extent_type(e);

    SP_TRY(sp_h5_read_rows(file, e->name, first, n, raw));
    sp_h5_to_native(type, raw, n * e->cols);
    for (int64_t i = 0; i < n * e->cols; i++)
        take(&r->column[i % e->cols], sp_h5_value(type, raw, i));
    r->rows_seen += n;
    return SP_OK;
}

/* Looks at a stretch of rows in each of STRETCHES places of the file. */
static sp_status look(sp_rounding *r, sp_h5 *file, const sp_extent *e, int64_t rows)
{
    const int64_t row = sp_extent_row_bytes(e);
    const int64_t step = PIECE / row > 0 ? PIECE / row : 1;
    const int64_t stretch = rows / STRETCHES + 1;
    SP_FREED char *raw = NULL;

    SP_TRY(SP_NEW(&raw, step * row, sp_h5_path(file)));
    for (int s = 0; s < STRETCHES; s++) {
        int64_t at = e->rows / STRETCHES * s, end = at + stretch, m;

        if (rows >= e->rows) { /* the stretches cover the file without gaps */
            at = s ? e->rows : 0;
            end = e->rows;
        }
        end = end < e->rows ? end : e->rows;
        for (; at < end; at += m) {
            m = end - at < step ? end - at : step;
            SP_TRY(read_rows(r, file, e, at, m, raw));
        }
    }
    return SP_OK;
}

bool sp_rounding_is_needed(const sp_extent *features)
{
    return features->type_size == 8 ||
           (features->type_size == 4 && features->kind != 'f');
}

sp_status sp_rounding_add(sp_rounding *r, sp_h5 *file, const sp_dataset *part,
                          int n_files)
{
    const sp_extent *e = &part->shard->features;
    const int64_t rows = LOOK_BYTES / n_files / sp_extent_row_bytes(e);

    assert(n_files > 0 && part->n_shards == 1);
    if (e->rows == 0 || !sp_rounding_is_needed(e))
        return SP_OK;
    if (!r->column)
        SP_TRY(begin(r, part));
    if (r->n_columns != part->n_features)
        return SP_OK; /* the data set is refused later */
    r->n_files++;
    r->rows += e->rows;
    return look(r, file, e, rows);
}

static double deviation(const sp_rounded *c)
{
    const double mean = c->count > 0 ? c->sum / c->count : 0;
    const double variance = c->count > 0 ? c->squares / c->count - mean * mean : 0;

    return variance > 0 ? sqrt(variance) : 0;
}

/* Writes "; x by up to 0.25, its standard deviation is 3" for the columns that lose
 * much. */
static void list_coarse(const sp_rounding *r, char *text, size_t size)
{
    size_t used = 0;
    int n = 0;

    *text = 0;
    for (int c = 0; c < r->n_columns && used < size; c++) {
        const sp_rounded *column = &r->column[c];

        if (column->most <= COARSE * deviation(column) || n++ >= TOLD)
            continue;
        used += (size_t)snprintf(text + used, size - used,
                                 "; column %s by up to %.2g, its standard deviation is "
                                 "%.2g",
                                 column->name, column->most, deviation(column));
    }
    if (n > 0 && used < size)
        snprintf(text + used, size - used,
                 "%s: subtract a constant from such columns before they are written",
                 n > TOLD ? "; and others" : "");
}

void sp_rounding_warn(const sp_rounding *r)
{
    char coarse[600], part[80] = "";
    int worst = 0;

    for (int c = 1; c < r->n_columns; c++)
        if (r->column[c].most > r->column[worst].most)
            worst = c;
    if (r->n_columns == 0 || r->column[worst].most == 0)
        return;
    if (r->rows_seen < r->rows)
        snprintf(part, sizeof part, " (%.2g %% of the rows were looked at)",
                 100 * (double)r->rows_seen / (double)r->rows);
    list_coarse(r, coarse, sizeof coarse);
    sp_log_warn0("%s%s:/features: %s%d values are rounded to float32, by at most %.2g "
                 "(column %s)%s%s",
                 r->path, r->n_files > 1 ? " and others" : "",
                 r->kind == 'f' ? "float" : (r->kind == 'u' ? "uint" : "int"),
                 8 * r->type_size, r->column[worst].most, r->column[worst].name, part,
                 coarse);
}

void sp_rounding_free(sp_rounding *r)
{
    for (int c = 0; c < r->n_columns; c++)
        free(r->column[c].name);
    free(r->column);
    free(r->path);
    *r = (sp_rounding){0};
}
