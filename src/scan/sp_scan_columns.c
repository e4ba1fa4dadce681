/* Copies of scans as columns: what PLY and text share. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "scan/sp_scan_format.h"

static bool is_added(const sp_scan_labels *labels, const char *name)
{
    for (int i = 0; i < labels->n_added; i++)
        if (strcasecmp(labels->added[i].name, name) == 0)
            return true;
    return false;
}

/* Lists the columns and selects the attributes. */
static sp_status columns_list(sp_scan *scan, const sp_scan_labels *labels,
                              sp_scan_columns *c)
{
    const char *label_field = scan->options.label_field, *name;
    int field[SP_SCAN_FIELDS], size;
    char kind;

    assert(scan && labels->n_added >= 0 && (labels->added || labels->n_added == 0));
    c->n = 0;
    for (int i = 0; (name = sp_scan_attribute(scan, i, &kind, &size)); i++) {
        bool is_axis = strlen(name) == 1 && strchr("xyzXYZ", *name);

        if (!*name || is_axis || strcasecmp(name, "label") == 0 ||
            strcasecmp(name, "scalar_label") == 0 || is_added(labels, name) ||
            (label_field && strcasecmp(name, label_field) == 0))
            continue;
        if (c->n == SP_SCAN_FIELDS)
            return SP_FAIL(SP_EDATA, "%s: more than %d attributes", scan->path,
                           SP_SCAN_FIELDS);
        field[c->n] = i;
        c->name[c->n] = name;
        c->kind[c->n] = kind;
        c->size[c->n++] = size;
    }
    SP_TRY(sp_scan_select(scan, c->n, c->name));
    /* A name finds the first of the fields that have it. */
    memcpy(scan->selected, field, (size_t)c->n * sizeof *field);
    scan->is_copied = true;
    return SP_OK;
}

/* One block of points with the values to write. */
typedef struct block {
    sp_scan_points points;
    int32_t *code; /* [SP_SCAN_BLOCK] */
    float *value;  /* [SP_SCAN_BLOCK][n_added] */
} block;

static void block_free(block *b)
{
    sp_scan_points_destroy(&b->points);
    free(b->code);
    free(b->value);
}

static sp_status fill_block(sp_scan *scan, const sp_scan_labels *labels,
                            int32_t no_class, block *b)
{
    const sp_scan_points *p = &b->points;

    SP_TRY(sp_scan_next(scan, SP_SCAN_BLOCK, &b->points));
    if (p->first_row + p->n > labels->n)
        return SP_FAIL(SP_EDATA, "%s: more than the %" PRId64 " points counted",
                       scan->path, labels->n);
    SP_TRY(labels->get(labels->from, p->first_row, p->n, b->code, b->value));
    for (int64_t i = 0; i < p->n; i++) {
        if (b->code[i] == SP_SCAN_KEEP)
            b->code[i] = p->label[i];
        if (b->code[i] < 0)
            b->code[i] = no_class;
    }
    return SP_OK;
}

sp_status sp_scan_each_block(sp_scan *scan, const sp_scan_labels *labels,
                             int32_t no_class, sp_scan_put_points *put, void *arg)
{
    SP_CLOSED_BY(block_free) block b = {0};

    assert(labels->get && put);
    SP_TRY(SP_NEW(&b.code, SP_SCAN_BLOCK, scan->path));
    SP_TRY(SP_NEW(&b.value, SP_SCAN_BLOCK * labels->n_added, scan->path));
    SP_TRY(sp_scan_rewind(scan));
    do {
        SP_TRY(fill_block(scan, labels, no_class, &b));
        if (b.points.n > 0)
            SP_TRY(put(arg, &b.points, b.code, b.value));
        sp_liveness_count();
    } while (b.points.n > 0);
    return SP_OK;
}

void sp_scan_put_name(FILE *to, const char *name)
{
    assert(to && name);
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        putc(*c <= ' ' || *c == 0x7f ? '_' : *c, to);
}

static sp_status put_points(void *arg, const sp_scan_points *p, const int32_t *code,
                            const float *value)
{
    const sp_scan_writing *w = arg;
    const sp_scan_columns *c = &w->columns;
    const int n_added = w->labels->n_added;

    for (int64_t i = 0; i < p->n; i++) {
        for (int a = 0; a < 3; a++)
            w->format->put_number(w->to, p->xyz[3 * i + a], 'f', 8, ' ');
        for (int k = 0; k < c->n; k++)
            w->format->put_number(w->to, p->attr[i * c->n + k], c->kind[k], c->size[k],
                                  ' ');
        for (int k = 0; k < n_added; k++)
            w->format->put_number(w->to, (double)value[i * n_added + k], 'f', 4, ' ');
        w->format->put_number(w->to, code[i], 'i', 4, '\n');
    }
    return SP_OK;
}

sp_status sp_scan_write_file(sp_scan *scan, const sp_scan_labels *labels,
                             const sp_scan_part *part)
{
    const sp_scan_format *format = part->format;
    sp_scan_writing w = {.to = part->to, .format = format, .labels = labels};

    assert(labels && format->put_head && format->put_number);
    SP_TRY(columns_list(scan, labels, &w.columns));
    format->put_head(&w);
    return sp_scan_each_block(scan, labels, format->no_class, put_points, &w);
}
