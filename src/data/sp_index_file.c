#include "data/sp_index_file.h"

#include "config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_serial.h"
#include "data/sp_shard_internal.h"

/* The first bytes of the file. The rest is of this version of the program on this kind of
 * machine: another one ignores the file. */
typedef struct index_head {
    char format[8], version[24];
    int64_t layout; /* the bytes of the structs that are stored */
    int64_t table_at, table_bytes;
    uint64_t hash; /* of the table and of all before it here */
} index_head;

/* What the table has of a shard. */
typedef struct sp_index_entry {
    char *name;
    int64_t bytes, modified_s, modified_ns; /* of the shard */
    int64_t at, n; /* the place of its part in the index file */
    uint64_t hash;
} sp_index_entry;

bool sp_index_is_beside(const char *a, const char *b)
{
    const ptrdiff_t n = sp_file_name(a) - a;

    return sp_file_name(b) - b == n && memcmp(a, b, (size_t)n) == 0;
}

/* Forms the path of the index file in path [PATH_MAX]. Returns path. */
static const char *index_path(const char *shard, char *path)
{
    snprintf(path, PATH_MAX, "%.*s" SP_INDEX_FILE, (int)(sp_file_name(shard) - shard),
             shard);
    return path;
}

static index_head index_head_make(void)
{
    index_head head = {.format = "spindex",
                       .layout = (int64_t)(sizeof(sp_extent) << 32 |
                                           sizeof(sp_spans) << 16 | sizeof(sp_block))};

    snprintf(head.version, sizeof head.version, "%s", PACKAGE_VERSION);
    return head;
}

static uint64_t index_hash(const index_head *head, const sp_serial *table)
{
    return XXH64(table->data, table->size, XXH64(head, offsetof(index_head, hash), 0));
}

/* Writes an entry to the table, or reads it. */
static void index_entry_serialize(sp_serial *table, sp_index_entry *e)
{
    sp_serial_text(table, &e->name);
    sp_serial_bytes(table, &e->bytes, sizeof *e - offsetof(sp_index_entry, bytes));
}

/* Writes a part with its arrays, or reads it. */
static void index_part_serialize(sp_serial *serial, sp_dataset *part)
{
    sp_shard_serialize(serial, part);
    for (int k = 0; serial->rc == SP_OK && k < SP_INDEX_ARRAYS; k++) {
        const sp_index_array array = sp_index_array_of(part, k);

        if (array.n != 0)
            sp_serial_array(serial, array.at, array.n, array.size);
    }
}

/* ---- writing ---- */

typedef struct index_writer {
    int fd;
    char temporary[PATH_MAX + sizeof SP_FILE_UNFINISHED];
    int64_t at;
    sp_index_entry entry; /* of the shard at hand */
    sp_serial table;
    sp_indexed *told;
} index_writer;

static sp_status index_describe(const char *path, sp_index_entry *e)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return SP_FAIL(SP_EDATA, "%s: %s", path, strerror(errno));
    e->name = (char *)(uintptr_t)sp_file_name(path);
    e->bytes = st.st_size;
    e->modified_s = st.st_mtim.tv_sec;
    e->modified_ns = st.st_mtim.tv_nsec;
    return SP_OK;
}

static sp_status index_add(sp_h5 *file, int i, void *context)
{
    index_writer *w = context;
    SP_CLOSED_BY(sp_dataset_close) sp_dataset part = {0};
    sp_index_entry e = {0};
    sp_serial content = {0};
    sp_status rc;

    (void)i;
    SP_TRY(index_describe(sp_h5_path(file), &e));
    SP_TRY(sp_shard_header(file, &part));
    if (sp_rounding_is_needed(&part.shard->features) || e.bytes != sp_h5_bytes(file)) {
        w->told->n_left_out++;
        return SP_OK;
    }
    index_part_serialize(&content, &part);
    e.at = w->at;
    e.n = (int64_t)content.size;
    e.hash = XXH64(content.data, content.size, 0);
    rc = content.rc;
    if (rc == SP_OK)
        rc = sp_file_write_at(w->fd, w->temporary, content.data, content.size, w->at);
    free(content.data);
    SP_TRY(rc);
    index_entry_serialize(&w->table, &e);
    w->at += e.n;
    w->told->n_files++;
    w->told->n_samples += part.n_samples;
    return w->table.rc;
}

static sp_status index_write_all(index_writer *w, char *const *paths, int n)
{
    index_head head = index_head_make();

    SP_TRY(
        sp_file_open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, &w->fd));
    w->at = sizeof head;
    SP_TRY(sp_h5_open_each(paths, n, index_add, w));
    head.table_at = w->at;
    head.table_bytes = (int64_t)w->table.size;
    head.hash = index_hash(&head, &w->table);
    SP_TRY(sp_file_write_at(w->fd, w->temporary, w->table.data, w->table.size, w->at));
    SP_TRY(sp_file_write_at(w->fd, w->temporary, &head, sizeof head, 0));
    w->told->n_bytes = head.table_at + head.table_bytes;
    if (fsync(w->fd) != 0)
        return SP_FAIL(SP_EIO, "%s: %s", w->temporary, strerror(errno));
    return sp_file_rename(w->temporary, w->told->path);
}

sp_status sp_index_file_write(char *const *paths, int n, sp_indexed *told)
{
    index_writer w = {.fd = -1, .told = told};
    sp_status rc;

    assert(n > 0 && told);
    *told = (sp_indexed){0};
    index_path(paths[0], told->path);
    snprintf(w.temporary, sizeof w.temporary, "%s" SP_FILE_UNFINISHED, told->path);
    rc = index_write_all(&w, paths, n);
    if (rc != SP_OK && w.fd >= 0)
        unlink(w.temporary);
    sp_file_done(&w.fd);
    free(w.table.data);
    SP_TRY(rc);
    return SP_OK;
}

/* ---- reading ---- */

/* Closes the file; the folder counts as one without such a file. */
static void index_reader_forget(sp_index_reader *r)
{
    for (int64_t i = 0; r->entry && i <= r->n; i++) /* the last may be half read */
        free(r->entry[i].name);
    free(r->entry);
    r->entry = NULL;
    r->n = 0;
    if (r->beside)
        sp_file_done(&r->fd);
    r->fd = -1;
}

/* Warns of the last error, and goes on without the file. */
static void index_reader_refuse(sp_index_reader *r)
{
    char path[PATH_MAX];

    sp_log_warn0("%s is not used: %s; the shards are opened one by one; spvox index "
                 "writes it again",
                 index_path(r->beside, path), sp_error_last()->message);
    index_reader_forget(r);
}

static sp_status index_read_table(sp_index_reader *r, const char *path)
{
    const index_head own = index_head_make();
    index_head head;
    sp_serial table = {.is_reading = true};
    SP_FREED unsigned char *bytes = NULL;
    struct stat st;

    if (fstat(r->fd, &st) != 0 || st.st_size < (off_t)sizeof head)
        return SP_FAIL(SP_EDATA, "too short");
    SP_TRY(sp_file_read_at(r->fd, path, &head, sizeof head, 0));
    if (memcmp(&head, &own, offsetof(index_head, table_at)) != 0)
        return SP_FAIL(SP_EDATA, "no index of version %s of the program",
                       PACKAGE_VERSION);
    if (head.table_at < 0 || head.table_bytes < 0 || head.table_at > st.st_size ||
        head.table_bytes > st.st_size - head.table_at)
        return SP_FAIL(SP_EDATA, "shorter than its table says");
    SP_TRY(SP_NEW(&bytes, head.table_bytes, path));
    SP_TRY(
        sp_file_read_at(r->fd, path, bytes, (size_t)head.table_bytes, head.table_at));
    table.data = bytes;
    table.size = (size_t)head.table_bytes;
    if (index_hash(&head, &table) != head.hash)
        return SP_FAIL(SP_EDATA, "wrong checksum of its table");
    /* Entries have more bytes in the table; one more, that is not read whole. */
    SP_TRY(SP_NEW(&r->entry, table.size / sizeof(sp_index_entry) + 1, path));
    for (; table.rc == SP_OK && table.at < table.size; r->n++) {
        index_entry_serialize(&table, &r->entry[r->n]);
        if (table.rc == SP_OK && !r->entry[r->n].name)
            return SP_FAIL(SP_EDATA, "a shard without a name");
    }
    SP_TRY(table.rc);
    qsort(r->entry, (size_t)r->n, sizeof *r->entry, sp_by_text);
    return SP_OK;
}

/* Opens the index file beside a shard, unless it is open already or absent. */
static void index_reader_turn(sp_index_reader *r, const char *shard)
{
    char path[PATH_MAX];

    if (r->beside && sp_index_is_beside(r->beside, shard))
        return;
    index_reader_forget(r);
    free(r->beside);
    r->beside = strdup(shard);
    if (!r->beside || sp_file_is_absent(index_path(shard, path)))
        return;
    if (sp_file_open(path, O_RDONLY, &r->fd) != SP_OK ||
        index_read_table(r, path) != SP_OK)
        index_reader_refuse(r);
}

/* True if the spans are consecutive and end at `total`. */
static bool are_spans(const sp_spans *rows, int64_t n, int64_t total)
{
    int64_t sum = 0;

    for (int64_t i = 0; rows && i < n; i++) {
        if (i % SP_SPANS_SAMPLES == 0 && rows[i / SP_SPANS_SAMPLES].first != sum)
            return false;
        sum += sp_spans_count(rows, i);
    }
    return !rows || sum == total;
}

/* True if the spans are the texts' bytes and each text ends there. */
static bool are_texts(const sp_texts *texts, int64_t n)
{
    int64_t end = 0;

    if (!are_spans(texts->row, n, texts->n_bytes))
        return false;
    for (int64_t i = 0; texts->row && i < n; i++) {
        end += sp_spans_count(texts->row, i);
        if (sp_spans_count(texts->row, i) == 0 || texts->bytes[end - 1] != 0)
            return false;
    }
    return true;
}

static bool is_in_file(const sp_extent *e, int64_t file_bytes)
{
    int64_t bytes, chunk_bytes;

    if (e->type_size < 0 || e->type_size > 8 || e->cols < 0 || e->rows < 0 ||
        e->chunks.rows < 0 || e->chunks.bytes < 0 ||
        __builtin_mul_overflow(sp_extent_row_bytes(e), e->rows, &bytes) ||
        __builtin_mul_overflow(sp_extent_row_bytes(e), e->chunks.rows, &chunk_bytes))
        return false;
    return e->at < 0 ||
           (e->chunks.rows == 0 && e->at <= file_bytes && bytes <= file_bytes - e->at);
}

/* True if the dataset has this shape and numbers of a type that exists, or is absent. */
static bool has_shape(const sp_extent *e, bool is_needed, int64_t rows, int cols)
{
    if (e->type_size == 0)
        return !is_needed;
    return (e->kind == 'i' || e->kind == 'u' || e->kind == 'f') &&
           (e->type_size & (e->type_size - 1)) == 0 && e->rows == rows &&
           e->cols == cols;
}

/* True if the datasets have the shapes that readers of samples rely on. */
static bool have_shapes(const sp_dataset *part)
{
    const sp_shard *s = part->shard;
    const int64_t n = part->n_samples, voxels = part->n_voxels, points = part->n_points;
    const int64_t context = s->context_voxel.rows;

    return part->n_features > 0 && has_shape(&s->coords, true, voxels, 3) &&
           has_shape(&s->features, true, voxels, part->n_features) &&
           has_shape(&s->labels, part->has_labels, voxels, 1) &&
           has_shape(&s->origin, false, n, 3) &&
           has_shape(&s->subvoxel, part->has_subvoxel, voxels, 3) &&
           has_shape(&s->crc, false, n, 1) &&
           has_shape(&s->point_voxel, part->has_points, points, 1) &&
           has_shape(&s->point_labels, false, points, 1) &&
           has_shape(&s->point_index, false, points, 1) &&
           has_shape(&s->context_voxel, part->has_blocks, context, 1) &&
           has_shape(&s->context_block, part->has_blocks, context, 1) &&
           has_shape(&s->context_point, part->has_blocks, context, 1);
}

/* True if no number of a part leads beyond its arrays or its shard. */
static bool is_sound(sp_dataset *part, const sp_index_entry *e)
{
    sp_shard *shard = part->shard;
    const int64_t n = part->n_samples;
    bool is = n >= 0 && n == shard->n_samples && shard->file_bytes == e->bytes &&
              part->class_name && part->feature_name && have_shapes(part);

    for (int k = 0; is && k < SP_INDEX_ARRAYS; k++) {
        const sp_index_array array = sp_index_array_of(part, k);

        is = array.n == 0 || *array.at;
    }
    for (int k = 0; is && k < SP_EXTENTS; k++)
        is = is_in_file(sp_shard_extent(shard, k), e->bytes);
    for (int c = 0; c < SP_COST_COLUMNS; c++)
        is = is && part->costs.bits[c] < 64;
    return is && are_spans(part->rows, n, part->n_voxels) &&
           are_spans(part->point_rows, n, part->n_points) &&
           are_spans(part->context_rows, n, shard->context_voxel.rows) &&
           are_texts(&part->name, n) && are_texts(&part->scan, n);
}

static sp_status index_read_part(const sp_index_reader *r, const sp_index_entry *e,
                                 const char *path, sp_dataset *part)
{
    sp_serial content = {.is_reading = true};
    SP_FREED unsigned char *bytes = NULL;
    struct stat st;

    if (fstat(r->fd, &st) != 0 || e->at < 0 || e->n < 0 || e->at > st.st_size ||
        e->n > st.st_size - e->at)
        return SP_FAIL(SP_EDATA, "it ends before the part of %s", e->name);
    SP_TRY(SP_NEW(&bytes, e->n, path));
    SP_TRY(sp_file_read_at(r->fd, path, bytes, (size_t)e->n, e->at));
    if (XXH64(bytes, (size_t)e->n, 0) != e->hash)
        return SP_FAIL(SP_EDATA, "wrong checksum of the part of %s", e->name);
    content.data = bytes;
    content.size = (size_t)e->n;
    index_part_serialize(&content, part);
    SP_TRY(content.rc);
    if (!is_sound(part, e))
        return SP_FAIL(SP_EDATA, "impossible numbers in the part of %s", e->name);
    free(part->shard->path);
    part->shard->path = strdup(path);
    return part->shard->path ? SP_OK : SP_FAIL(SP_EMEM, "no memory for its index");
}

bool sp_index_reader_read(sp_index_reader *r, const char *path, sp_dataset *part)
{
    sp_index_entry now = {0};
    const sp_index_entry *e;

    index_reader_turn(r, path);
    if (r->n == 0 || index_describe(path, &now) != SP_OK)
        return false;
    e = bsearch(&now, r->entry, (size_t)r->n, sizeof *r->entry, sp_by_text);
    if (!e)
        return false;
    if (e->bytes != now.bytes || e->modified_s != now.modified_s ||
        e->modified_ns != now.modified_ns) {
        if (r->n_stale++ == 0)
            r->stale = strdup(path);
        return false;
    }
    if (index_read_part(r, e, path, part) == SP_OK)
        return true;
    sp_dataset_close(part);
    index_reader_refuse(r);
    return false;
}

void sp_index_reader_end(sp_index_reader *r)
{
    if (r->n_stale > 0)
        sp_log_warn0("%s%s changed after spvox index (%d such shard%s): opened without "
                     "the index file",
                     r->stale ? r->stale : "", r->n_stale > 1 ? " and others" : "",
                     r->n_stale, sp_plural(r->n_stale));
    index_reader_forget(r);
    free(r->beside);
    free(r->stale);
    *r = (sp_index_reader){0};
}
