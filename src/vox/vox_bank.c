/* spvox bank: the objects of given classes as the samples of one shard, for
 * augment.paste.
 *
 *     rows of a sample with a label of the classes --neighbours joined--> objects
 *         object --> coordinates about its middle in x and y and above the ground in z
 *
 * An object's origin is its place, so that coordinate * voxel_size + origin is the
 * position that it had. Its ground is the lowest row of its sample in its box in x and
 * y, which is widened by a voxel to each side. */
#include "base/sp_list.h"
#include "vox/vox.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "base/sp_number.h"
#include "base/sp_signal.h"
#include "base/sp_text.h"
#include "base/sp_word_table.h"
#include "compute/sp_plan.h"
#include "data/sp_shard.h"
#include "scan/sp_gridding.h"

enum { BANK_MOST_VOXELS = 1 << 28 };

/* The options, and the objects that were found. */
typedef struct bank {
    const char *out, *classes;
    int64_t gap, least, most;
    sp_dataset set;
    bool *is_wanted; /* [set.n_classes] */
    sp_sample *object;
    char **name; /* [n_objects] */
    int64_t n_objects, room, n_voxels;
} bank;

#define AT(member) .offset = offsetof(bank, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"--out", "FILE", "the shard that is written"}, SP_OPTION_TEXT, AT(out)},
{{"--classes", "A,B,...", "the classes of the objects, by name or number"},
 SP_OPTION_TEXT, AT(classes)},
{{"--gap", "N", "voxels belong to one object if in each axis they are at most this "
  "number of voxels apart (1)"}, SP_OPTION_WHOLE, AT(gap), 1, 3},
{{"--min-voxels", "N", "leaves smaller objects out (5)"}, SP_OPTION_WHOLE, AT(least), 1,
 INT32_MAX},
{{"--max-voxels", "N", "leaves larger objects out (20000)"}, SP_OPTION_WHOLE, AT(most), 1,
 INT32_MAX},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

const sp_usage vox_bank_usage = {
    .line = "usage: spvox bank --out FILE --classes A,B,... [OPTIONS] SHARD...",
    .text = "Finds the objects of rare classes in shards: voxels of one class that "
            "touch each other. Each becomes a sample of one shard, which "
            "augment.paste of sptrain takes.",
    .options = SP_WORD_ROWS(option_table),
};

/* ---- classes ---- */

static sp_status bank_want(bank *b, const char *word)
{
    int c = sp_text_find(b->set.n_classes, b->set.class_name, word);
    char names[300], *end;

    if (c < 0) {
        c = (int)strtol(word, &end, 10);
        c = end == word || *end ? -1 : c;
    }
    if (c >= 0 && c < b->set.n_classes) {
        b->is_wanted[c] = true;
        return SP_OK;
    }
    sp_dataset_print_names(names, sizeof names, b->set.n_classes, b->set.class_name,
                           NULL);
    return SP_FAIL(SP_EUSAGE,
                   "--classes: \"%.80s\" is no class of %s, expected names of %s or "
                   "numbers from 0 to %d",
                   word, b->set.shard[0].path, names, b->set.n_classes - 1);
}

static sp_status bank_read_classes(bank *b)
{
    SP_FREED char *copy = strdup(b->classes);
    char *rest = copy, *word;

    if (!copy)
        return SP_FAIL(SP_EMEM, "no memory for the list of classes");
    SP_TRY(SP_NEW(&b->is_wanted, b->set.n_classes, "the list of classes"));
    while ((word = strsep(&rest, ",")))
        SP_TRY(bank_want(b, word));
    return SP_OK;
}

/* ---- objects ---- */

/* The rows of a sample with a label of the classes, found by coordinate. */
typedef struct bank_finder {
    const sp_sample *s;
    int32_t *place; /* [mask + 1] row + 1; 0: empty */
    uint32_t mask;
    int32_t *object; /* [n] the object of each row; -1: not wanted or not found yet */
    int32_t *queue;  /* [n] rows of an object; the rows before `found` were seen */
} bank_finder;

static uint32_t bank_hash(const int32_t *c)
{
    const uint64_t x = ((uint64_t)(c[0] + SP_COORD_LIMIT) << 40) ^
                       ((uint64_t)(c[1] + SP_COORD_LIMIT) << 20) ^
                       (uint64_t)(c[2] + SP_COORD_LIMIT);

    return (uint32_t)((x * 0x9e3779b97f4a7c15u) >> 32);
}

static int32_t bank_row_at(const bank_finder *f, const int32_t c[3])
{
    for (uint32_t at = bank_hash(c) & f->mask; f->place[at]; at = (at + 1) & f->mask)
        if (memcmp(f->s->coords + 3 * (int64_t)(f->place[at] - 1), c, 12) == 0)
            return f->place[at] - 1;
    return -1;
}

static void bank_index(const bank *b, bank_finder *f)
{
    for (int64_t i = 0; i < f->s->n; i++) {
        const int32_t label = f->s->labels[i];
        uint32_t at = bank_hash(f->s->coords + 3 * i) & f->mask;

        f->object[i] = -1;
        if (label < 0 || !b->is_wanted[label])
            continue;
        while (f->place[at])
            at = (at + 1) & f->mask;
        f->place[at] = (int32_t)i + 1;
    }
}

/* Lists the rows of the object of row `first` in f->queue; returns their number. */
static int64_t bank_grow(const bank *b, bank_finder *f, int64_t first)
{
    const int32_t gap = (int32_t)b->gap;
    int64_t n = 1;

    f->queue[0] = (int32_t)first;
    f->object[first] = (int32_t)first;
    for (int64_t done = 0; done < n; done++) {
        const int32_t *c = f->s->coords + 3 * (int64_t)f->queue[done];

        for (int32_t x = -gap; x <= gap; x++)
            for (int32_t y = -gap; y <= gap; y++)
                for (int32_t z = -gap; z <= gap; z++) {
                    const int32_t at[3] = {c[0] + x, c[1] + y, c[2] + z};
                    const int32_t row = bank_row_at(f, at);

                    if (row < 0 || f->object[row] >= 0 ||
                        f->s->labels[row] != f->s->labels[first])
                        continue;
                    f->object[row] = (int32_t)first;
                    f->queue[n++] = row;
                }
    }
    return n;
}

/* Sets at to the middle of the rows in x and y, and the ground below them. */
static void bank_find_place(const sp_sample *s, const int32_t *rows, int64_t n,
                            int32_t at[3])
{
    int32_t lo[2] = {INT32_MAX, INT32_MAX}, hi[2] = {INT32_MIN, INT32_MIN};

    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            const int32_t c = s->coords[3 * (int64_t)rows[i] + k];

            lo[k] = c < lo[k] ? c : lo[k];
            hi[k] = c > hi[k] ? c : hi[k];
        }
    for (int k = 0; k < 2; k++)
        at[k] = lo[k] + (hi[k] - lo[k]) / 2;
    at[2] = INT32_MAX;
    for (int64_t i = 0; i < s->n; i++) {
        const int32_t *c = s->coords + 3 * i;

        if (lo[0] - 1 <= c[0] && c[0] <= hi[0] + 1 && lo[1] - 1 <= c[1] &&
            c[1] <= hi[1] + 1 && c[2] < at[2])
            at[2] = c[2];
    }
}

static int bank_by_row(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Allocates the arrays of an object of n rows. */
static sp_status bank_alloc_object(const bank *b, int64_t n, sp_sample *o)
{
    o->n = n;
    o->coords = malloc((size_t)n * 3 * sizeof *o->coords);
    o->features = malloc((size_t)n * (size_t)b->set.n_features * sizeof *o->features);
    o->labels = malloc((size_t)n * sizeof *o->labels);
    o->subvoxel = b->set.has_subvoxel ? malloc((size_t)n * 3) : NULL;
    return o->coords && o->features && o->labels &&
                   (o->subvoxel || !b->set.has_subvoxel)
               ? SP_OK
               : SP_FAIL(SP_EMEM, "no memory for an object of %lld voxels",
                         (long long)n);
}

static sp_status bank_reserve(bank *b)
{
    const int64_t room = 2 * b->room + 64;
    sp_sample *object;
    char **name;

    if (b->n_objects < b->room)
        return SP_OK;
    object = realloc(b->object, (size_t)room * sizeof *object);
    b->object = object ? object : b->object;
    name = realloc(b->name, (size_t)room * sizeof *name);
    b->name = name ? name : b->name;
    if (!object || !name)
        return SP_FAIL(SP_EMEM, "no memory for %lld objects", (long long)room);
    memset(b->object + b->room, 0, (size_t)(room - b->room) * sizeof *object);
    memset(b->name + b->room, 0, (size_t)(room - b->room) * sizeof *name);
    b->room = room;
    return SP_OK;
}

/* Copies the rows of an object, in stored order. */
static sp_status bank_add(bank *b, const sp_sample *s, int32_t *rows, int64_t n)
{
    const int64_t c = b->set.n_features;
    char where[300], text[340];
    int32_t at[3];
    sp_sample *o;

    if (n < b->least || n > b->most)
        return SP_OK;
    b->n_voxels += n;
    if (b->n_voxels > BANK_MOST_VOXELS)
        return SP_FAIL(SP_EDATA, "more than %d voxels of objects: name rarer classes",
                       BANK_MOST_VOXELS);
    SP_TRY(bank_reserve(b));
    o = &b->object[b->n_objects];
    SP_TRY(bank_alloc_object(b, n, o));
    qsort(rows, (size_t)n, sizeof *rows, bank_by_row);
    bank_find_place(s, rows, n, at);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = rows[i];

        for (int k = 0; k < 3; k++)
            o->coords[3 * i + k] = s->coords[3 * row + k] - at[k];
        memcpy(o->features + c * i, s->features + c * row,
               (size_t)c * sizeof *o->features);
        o->labels[i] = s->labels[row];
        if (o->subvoxel)
            memcpy(o->subvoxel + 3 * i, s->subvoxel + 3 * row, 3);
    }
    for (int k = 0; k < 3; k++)
        o->origin[k] = s->origin[k] + at[k] * b->set.voxel_size;
    snprintf(text, sizeof text, "%s row %d",
             sp_dataset_print_sample(&b->set, s->id, where, sizeof where), rows[0]);
    b->name[b->n_objects++] = strdup(text);
    return SP_OK;
}

static sp_status bank_search(bank *b, const sp_sample *s, bank_finder *f)
{
    bank_index(b, f);
    for (int64_t i = 0; i < s->n; i++) {
        const int32_t label = s->labels[i];

        if (label >= 0 && b->is_wanted[label] && f->object[i] < 0)
            SP_TRY(bank_add(b, s, f->queue, bank_grow(b, f, i)));
    }
    return SP_OK;
}

static sp_status bank_search_sample(bank *b, const sp_sample *s)
{
    bank_finder f = {.s = s, .mask = 15};
    sp_status rc;

    while ((int64_t)f.mask + 1 < 2 * s->n)
        f.mask = 2 * f.mask + 1;
    f.place = calloc((size_t)f.mask + 1, sizeof *f.place);
    f.object = malloc(((size_t)s->n + 1) * sizeof *f.object);
    f.queue = malloc(((size_t)s->n + 1) * sizeof *f.queue);
    rc = f.place && f.object && f.queue
             ? bank_search(b, s, &f)
             : SP_FAIL(SP_EMEM, "no memory for a sample of %lld voxels",
                       (long long)s->n);
    free(f.place);
    free(f.object);
    free(f.queue);
    return rc;
}

static sp_status bank_collect(bank *b)
{
    const sp_sample_request request = {.verify = true};
    SP_CLOSED_BY(sp_sample_destroy) sp_sample s = {0};

    for (int64_t i = 0; i < b->set.n_samples; i++) {
        SP_TRY(sp_sample_read(&b->set, i, &request, &s));
        SP_TRY(bank_search_sample(b, &s));
        SP_TRY(sp_signal_check());
    }
    return SP_OK;
}

/* ---- the shard ---- */

/* Each voxel of an object has a label, so this number need not be the data set's. */
static int bank_ignore_label(const sp_dataset *set)
{
    if (set->ignore_label >= 0 && set->ignore_label <= UINT16_MAX)
        return set->ignore_label;
    return set->n_classes <= UINT8_MAX ? UINT8_MAX : UINT16_MAX;
}

static sp_status bank_write_objects(const bank *b, sp_shard_writer *writer)
{
    int64_t cost[SP_COST_COLUMNS];

    for (int64_t i = 0; i < b->n_objects; i++) {
        SP_TRY(sp_grid_cost(b->object[i].coords, b->object[i].n, cost));
        SP_TRY(sp_shard_write_sample(writer, i, &b->object[i], b->name[i], cost));
    }
    return SP_OK;
}

static sp_status bank_write(const bank *b)
{
    const sp_dataset *set = &b->set;
    const sp_shard_meta meta = {.voxel_size = set->voxel_size,
                                .n_classes = set->n_classes,
                                .ignore_label = bank_ignore_label(set),
                                .n_features = set->n_features,
                                .class_name = set->class_name,
                                .feature_name = set->feature_name,
                                .class_code = set->class_code,
                                .feature_mean = set->feature_mean,
                                .feature_std = set->feature_std,
                                .has_labels = true,
                                .has_subvoxel = set->has_subvoxel,
                                .recipe = set->recipe};
    SP_FREED int64_t *voxels = NULL;
    sp_shard_writer *writer;

    SP_TRY(SP_NEW(&voxels, b->n_objects, "the sizes of objects"));
    for (int64_t i = 0; i < b->n_objects; i++)
        voxels[i] = b->object[i].n;
    SP_TRY(sp_shard_create(&writer, b->out, &meta, b->n_objects, voxels, NULL));
    return sp_shard_close(writer, bank_write_objects(b, writer));
}

static void bank_print(const bank *b)
{
    for (int c = 0; c < b->set.n_classes; c++) {
        int64_t n = 0, voxels = 0;

        for (int64_t i = 0; i < b->n_objects; i++)
            if (b->object[i].labels[0] == c) {
                n++;
                voxels += b->object[i].n;
            }
        if (b->is_wanted[c])
            sp_log_info("class %d %s: %lld objects of %lld voxels", c,
                        b->set.class_name ? b->set.class_name[c] : "", (long long)n,
                        (long long)voxels);
    }
    sp_log_info("wrote out=%s objects=%lld voxels=%lld", b->out,
                (long long)b->n_objects, (long long)b->n_voxels);
}

/* Makes the bank. Only rank 0 works. */
static sp_status bank_make(bank *b)
{
    SP_TRY(bank_read_classes(b));
    if (!b->set.has_labels)
        return SP_FAIL(SP_EDATA, "%s has no labels, so no objects",
                       b->set.shard[0].path);
    SP_TRY(bank_collect(b));
    if (b->n_objects == 0)
        return SP_FAIL(
            SP_EDATA, "%s: no object of %lld to %lld voxels of the classes %s",
            b->set.shard[0].path, (long long)b->least, (long long)b->most, b->classes);
    SP_TRY(bank_write(b));
    bank_print(b);
    return SP_OK;
}

static void bank_release(bank *b)
{
    for (int64_t i = 0; i < b->n_objects + 1 && i < b->room; i++) {
        free(b->object[i].coords);
        free(b->object[i].features);
        free(b->object[i].labels);
        free(b->object[i].subvoxel);
        free(b->name[i]);
    }
    free(b->object);
    free(b->name);
    free(b->is_wanted);
    sp_dataset_close(&b->set);
}

sp_status vox_bank(int argc, char **argv, sp_comm *comm)
{
    bank b = {.gap = 1, .least = 5, .most = 20000};
    sp_strings patterns;
    sp_status rc;
    int n;

    assert(argc >= 1 && argv && comm);
    SP_TRY(sp_options_read(&b, SP_WORD_TABLE(option_table), "spvox", argc, argv, &n));
    if (n == 0 || !b.out || !b.classes)
        return SP_FAIL(SP_EUSAGE, "bank: %s; see spvox bank --help",
                       n == 0   ? "no shard given"
                       : !b.out ? "--out is missing"
                                : "--classes is missing");
    patterns = (sp_strings){n, argv + 1};
    rc = sp_dataset_open(&b.set, &patterns, comm);
    if (rc == SP_OK)
        rc = sp_comm_agree(comm, comm->rank == 0 ? bank_make(&b) : SP_OK);
    bank_release(&b);
    return rc;
}
