#include "data/sp_spans.h"

#include <assert.h>

#include "base/sp_list.h"

/* Adds sample i, which has n rows and comes after `first` rows. */
static void spans_put(sp_spans *rows, int64_t i, int64_t first, int64_t n)
{
    sp_spans *of = rows + i / SP_SPANS_SAMPLES;

    if (i % SP_SPANS_SAMPLES == 0)
        of->first = first;
    of->n[i % SP_SPANS_SAMPLES] = (uint32_t)n;
}

sp_status sp_spans_pack(sp_spans **rows, const int64_t *offset, int64_t n)
{
    assert(offset[0] == 0);
    SP_TRY(SP_NEW(rows, sp_spans_size(n), "the index of the samples"));
    for (int64_t i = 0; i < n; i++)
        spans_put(*rows, i, offset[i], offset[i + 1] - offset[i]);
    return SP_OK;
}

void sp_spans_unpack(const sp_spans *rows, int64_t first, int64_t n, int64_t *offset)
{
    offset[0] = 0;
    for (int64_t i = 0; i < n; i++)
        offset[i + 1] = offset[i] + sp_spans_count(rows, first + i);
}

void sp_spans_append(sp_spans *to, int64_t at, const sp_spans *from, int64_t n)
{
    int64_t first =
        at > 0 ? sp_spans_first(to, at - 1) + sp_spans_count(to, at - 1) : 0;

    for (int64_t i = 0; i < n; i++) {
        const int64_t count = sp_spans_count(from, i);

        spans_put(to, at + i, first, count);
        first += count;
    }
}
