#include "comm/sp_table.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_exact.h"
#include "base/sp_wire.h"

/* A row in the all-reduce: the limbs of its sum, then SLOTS words of each rank for its
 * count, least and greatest value. A rank leaves the words of other ranks 0, so an
 * integer sum carries the bits unchanged. */
enum { SLOTS = 3 };

static size_t row_words(const sp_table *t)
{
    return SP_EXACT_LIMBS + SLOTS * (size_t)t->comm->size;
}

static sp_status check_names(const sp_table *t)
{
    sp_wire names = {0};
    bool is_same;
    sp_status rc;

    for (int i = 0; i < t->n; i++)
        sp_wire_text(&names, (char **)(uintptr_t)&t->row[i].name);
    rc = sp_comm_agree(t->comm, names.rc, NULL);
    if (rc == SP_OK)
        rc = sp_comm_is_same(t->comm, names.data, names.size, &is_same);
    free(names.data);
    SP_TRY(rc);
    return is_same ? SP_OK
                   : SP_FAIL_INTERNAL(SP_EMPI, "the ranks hold tables of other rows");
}

sp_status sp_table_create(sp_table *table, sp_comm *comm, int n,
                          const char *const *names)
{
    sp_table *t = table;
    size_t rows = (size_t)n + 1;
    sp_status rc = SP_OK;

    assert(n >= 0 && (names || n == 0));
    memset(t, 0, sizeof *t);
    t->comm = comm;
    t->n = n;
    t->n_wire = (size_t)n * row_words(t);
    t->row = calloc(rows, sizeof *t->row);
    t->exact = calloc(rows * SP_EXACT_LIMBS, sizeof *t->exact);
    t->wire = calloc(t->n_wire + 1, sizeof *t->wire);
    if (!t->row || !t->exact || !t->wire)
        rc = SP_FAIL(SP_EMEM, "no memory for a table of %d numbers", n);
    SP_TRY(sp_comm_agree(comm, rc, NULL));
    for (int i = 0; i < n; i++)
        t->row[i].name = names[i];
    sp_table_zero(t);
    return check_names(t);
}

void sp_table_destroy(sp_table *table)
{
    free(table->row);
    free(table->exact);
    free(table->wire);
    memset(table, 0, sizeof *table);
}

void sp_table_zero(sp_table *table)
{
    memset(table->exact, 0, (size_t)table->n * SP_EXACT_LIMBS * sizeof *table->exact);
    for (int i = 0; i < table->n; i++)
        table->row[i] = (sp_table_row){.name = table->row[i].name,
                                       .min = NAN,
                                       .max = NAN,
                                       .min_rank = -1,
                                       .max_rank = -1};
}

void sp_table_add(sp_table *table, int i, double value)
{
    sp_table_row *row = &table->row[i];

    assert(0 <= i && i < table->n);
    row->count++;
    sp_exact_add_f64(table->exact + (size_t)i * SP_EXACT_LIMBS, &value, 1);
    row->min = fmin(row->min, value); /* fmin(NAN, value) is value */
    row->max = fmax(row->max, value);
}

static int64_t bits_of(double x)
{
    int64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double of_bits(int64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_row(const sp_table *t, int i, int64_t *wire)
{
    const sp_table_row *row = &t->row[i];
    int64_t *own = wire + SP_EXACT_LIMBS + SLOTS * t->comm->rank;

    memcpy(wire, t->exact + (size_t)i * SP_EXACT_LIMBS, SP_EXACT_LIMBS * sizeof *wire);
    own[0] = row->count;
    own[1] = bits_of(row->min);
    own[2] = bits_of(row->max);
}

static void get_row(const sp_table *t, int i, const int64_t *wire)
{
    sp_table_row *row = &t->row[i];

    row->count = 0;
    row->min = row->max = NAN;
    for (int r = 0; r < t->comm->size; r++) {
        const int64_t *slot = wire + SP_EXACT_LIMBS + SLOTS * r;
        double min = of_bits(slot[1]), max = of_bits(slot[2]);

        row->count += slot[0];
        if (!slot[0])
            continue;
        if (min < row->min || (isnan(row->min) && !isnan(min))) {
            row->min = min;
            row->min_rank = r;
        }
        if (max > row->max || (isnan(row->max) && !isnan(max))) {
            row->max = max;
            row->max_rank = r;
        }
    }
    sp_exact_get_f64(wire, &row->sum, 1);
}

sp_status sp_table_reduce(sp_table *table)
{
    size_t words = row_words(table);

    assert(table->row && table->wire);
    memset(table->wire, 0, table->n_wire * sizeof *table->wire);
    for (int i = 0; i < table->n; i++)
        put_row(table, i, table->wire + (size_t)i * words);
    SP_TRY(sp_comm_allreduce(table->comm, SP_SCOPE_WORLD, table->wire, table->n_wire,
                             SP_I64, SP_SUM));
    for (int i = 0; i < table->n; i++)
        get_row(table, i, table->wire + (size_t)i * words);
    return SP_OK;
}
