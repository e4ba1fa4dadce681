/* Is a file of weights, or a checkpoint, good? All of it is read before any is used. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sp_crc.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "checkpoint/sp_checkpoint_internal.h"
#include "h5/sp_h5.h"

enum {
    PIECE = 16 << 20,  /* bytes that are verified at a time */
    MOST_UNPACKED = 64 /* times the file: rows that compress better are refused */
};

/* False if the number of bytes exceeds 64 bits. */
static bool count_bytes(const sp_h5_shape *shape, int64_t *bytes)
{
    *bytes = shape->type.size;
    for (int i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(*bytes, shape->dim[i], bytes))
            return false;
    return true;
}

static bool is_ours(const char *name)
{
    return strncmp(name, "/params/", 8) == 0 || strncmp(name, "/buffers/", 9) == 0 ||
           strncmp(name, "/ema/", 5) == 0 || strncmp(name, "/ema_buffers/", 13) == 0;
}

/* True for float32 arrays of the network. Arrays of another type fail, or are checked,
 * when they are read for a network. */
static bool has_numbers(const char *name, sp_h5_type type)
{
    return is_ours(name) && type.kind == 'f' && type.size == sizeof(float) &&
           !type.is_swapped;
}

/* A buffer for `step` rows of `row` bytes. */
typedef struct piece {
    int64_t row, step;
    void *buffer;
} piece;

static sp_status verify_rows(sp_h5 *file, const char *name, const sp_h5_shape *shape,
                             const piece *p, bool with_numbers, uint32_t *crc)
{
    const int64_t size = (int64_t)sizeof(float), rows = shape->dim[0];

    for (int64_t at = 0; at < rows; at += p->step) {
        const int64_t n = sp_least(rows - at, p->step);

        SP_TRY(sp_h5_read_rows(file, name, at, n, p->buffer));
        *crc = sp_crc32c(*crc, p->buffer, (size_t)(n * p->row));
        if (with_numbers)
            SP_TRY(sp_checkpoint_check_numbers(file, name, p->buffer, n * p->row / size,
                                               at * p->row / size));
    }
    return SP_OK;
}

/* Reads all values, in pieces, since a file of weights may be compressed to much less
 * than their size. bytes: of all values. *crc is continued with them. */
static sp_status verify_values(sp_h5 *file, const char *name, const sp_h5_shape *shape,
                               int64_t bytes, bool with_numbers, uint32_t *crc)
{
    const int64_t rows = shape->dim[0];
    piece p = {.row = rows ? bytes / rows : 0, .step = rows};
    SP_FREED unsigned char *buffer = NULL;

    if (p.row > PIECE && p.row / MOST_UNPACKED > sp_h5_bytes(file))
        return SP_FAIL(SP_EDATA, "%s:%s: rows of %lld bytes in a file of %lld",
                       sp_h5_path(file), name, (long long)p.row,
                       (long long)sp_h5_bytes(file));
    if (bytes > PIECE)
        p.step = p.row < PIECE ? PIECE / p.row : 1;
    SP_TRY(SP_NEW(&buffer, p.step * p.row, name));
    p.buffer = buffer;
    return verify_rows(file, name, shape, &p,
                       with_numbers && has_numbers(name, shape->type), crc);
}

/* A file of weights by another program may store them in any layout and contain other
 * datasets too, so less is demanded of it. */
static sp_status verify_dataset(sp_h5 *file, const char *name, bool is_checkpoint,
                                sp_checkpoint_demand demand)
{
    sp_h5_shape shape;
    int64_t bytes;
    uint32_t crc = 0;

    SP_TRY(sp_h5_shape_of(file, name, &shape));
    if (!is_checkpoint && shape.rank < 1)
        return SP_OK;
    if (shape.rank < 1)
        return SP_FAIL(SP_EDATA, "%s:%s: %d dimensions, expected 1 to %d",
                       sp_h5_path(file), name, shape.rank, SP_H5_RANK);
    if ((is_checkpoint && !shape.is_contiguous) || !count_bytes(&shape, &bytes) ||
        (shape.is_contiguous && bytes > sp_h5_bytes(file)))
        return SP_FAIL(SP_EDATA, "%s:%s: not a contiguous array inside the file",
                       sp_h5_path(file), name);
    SP_TRY(verify_values(file, name, &shape, bytes, demand == SP_FINITE, &crc));
    return is_checkpoint ? sp_checkpoint_check_crc(file, name, crc) : SP_OK;
}

/* Reads and checks all but the datasets of parameters. */
static sp_status verify_root(sp_h5 *file, bool is_checkpoint)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization norm = {0};

    SP_TRY(sp_checkpoint_read_root(file, &state, &norm));
    if (state.deck)
        SP_TRY(sp_checkpoint_check_deck(sp_h5_path(file), &state));
    return is_checkpoint ? sp_checkpoint_read_rows(file, &norm) : SP_OK;
}

static sp_status verify_all(sp_h5 *file, bool is_checkpoint,
                            sp_checkpoint_demand demand)
{
    char **names;
    sp_status rc = SP_OK;
    int n;

    SP_TRY(verify_root(file, is_checkpoint));
    SP_TRY(sp_h5_list(file, &names, &n));
    for (int i = 0; i < n && rc == SP_OK; i++)
        if (is_checkpoint || is_ours(names[i]))
            rc = verify_dataset(file, names[i], is_checkpoint, demand);
    sp_h5_list_free(names, n);
    return rc;
}

/* Closes the file unless it is good. */
static sp_status verify_opened(sp_h5 **file, bool is_checkpoint,
                               sp_checkpoint_demand demand)
{
    sp_status rc = SP_OK;

    is_checkpoint = is_checkpoint || sp_h5_attr_has(*file, "/", "format");
    if (is_checkpoint)
        rc = sp_checkpoint_check_format(*file);
    if (rc == SP_OK)
        rc = verify_all(*file, is_checkpoint, demand);
    if (rc != SP_OK) {
        sp_h5_close(*file);
        *file = NULL;
    }
    return rc;
}

sp_status sp_checkpoint_open(sp_h5 **file, const char *path,
                             sp_checkpoint_demand demand)
{
    SP_TRY(sp_h5_open(file, path));
    return verify_opened(file, true, demand);
}

sp_status sp_checkpoint_open_weights(sp_h5 **file, const char *path,
                                     sp_checkpoint_demand demand)
{
    struct stat about;

    *file = NULL;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return SP_FAIL(SP_EDATA,
                       "%s: a folder, expected a checkpoint; a run folder has "
                       "checkpoints/best.h5",
                       path);
    SP_TRY(sp_h5_open(file, path));
    return verify_opened(file, false, demand);
}

sp_status sp_checkpoint_verify_weights(const char *path, sp_checkpoint_demand demand)
{
    sp_h5 *file;

    SP_TRY(sp_checkpoint_open_weights(&file, path, demand));
    return sp_h5_close(file);
}

sp_status sp_checkpoint_verify_written(const char *path)
{
    sp_h5 *file;
    sp_status rc = sp_h5_open_own(&file, path);

    if (rc == SP_OK)
        rc = verify_opened(&file, true, SP_INTACT);
    if (rc == SP_OK)
        rc = sp_h5_close(file);
    if (rc == SP_EDATA || rc == SP_EIO)
        return SP_FAIL(SP_EIO,
                       "the checkpoint was written, but reading it back failed: %s",
                       sp_error_last()->message);
    return rc;
}
