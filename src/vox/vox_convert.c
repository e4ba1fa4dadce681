/* spvox convert: scans to voxel shards, in parallel over ranks.
 *
 *     cut        part p of file f by rank (f + p) % size    pieces: the list of samples
 *                (--block; vox_set.h)
 *     voxelize   piece i by rank i % size     parts in one temporary file per rank
 *     agree      all                          classes, mean and std of the whole set
 *     write      shard s by rank s % size     contiguous ranges of samples
 *
 * The bytes do not depend on the number of ranks: the list of samples is a function of
 * the input alone, each sample is voxelized by one rank in the order of its file, and
 * statistics are pooled in the order of the list. A large file has several parts, so
 * that one huge file is cut by all ranks. Temporary files are in the folder of the
 * shards, which every rank must see. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "compute/sp_backend.h"
#include "report/sp_progress.h"
#include "vox/vox.h"
#include "vox/vox_set.h"
#include "vox/vox_sweeps.h"
#include "vox/vox_voxelize.h"

enum { PATH_BYTES = 4096 };

#define AT(member) .offset = offsetof(vox_options, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"--out", "PREFIX", "prefix of the shards' names"}, SP_OPTION_TEXT, AT(out)},
{{"--shards", "N", "number of files, at most the number of samples (1)"},
 SP_OPTION_WHOLE, AT(shards), 1, 99999},
{{"--voxel-size", "M", "edge of a voxel in metre (0.5)"},
 SP_OPTION_REAL, AT(voxel_size)},
{{"--map", "LIST", "the classes in their order, each with its codes, as "
  "2=ground,3:4:5=vegetation, or @FILE with such an entry in each line; points with "
  "other codes are ignored. Without it code k is class k, named classk"},
 SP_OPTION_READ, AT(map), .read = vox_read_map},
{{"--features", "LIST", "feature columns: one, height (metre above the sample's 2nd "
  "percentile of z), count (points in the voxel) or any attribute of the source, "
  "each with an optional /DIVISOR; a name with commas in double quotes (one,height, "
  "and intensity where the source has it)"}, SP_OPTION_READ, .read = vox_read_features},
{{"--missing", "NUMBER", "the value of attributes that are not a number (they are "
  "refused)"}, SP_OPTION_READ, .read = vox_read_missing},
{{"--columns", "LIST", "names of the columns of text, npy and bin: x,y,z,-,label (- "
  "passes over one, also of words)"}, SP_OPTION_TEXT, AT(columns)},
{{"--label-field", "NAME", "the attribute that is the label (label, classification, "
  "class, labels, semantic, sem_class, category or code)"},
 SP_OPTION_TEXT, AT(label_field)},
{{"--list", "FILE", "further inputs, one in each line of FILE"}, SP_OPTION_TEXT, AT(list)},
{{"--block", "M", "cuts scans into square blocks of this edge in metre, one sample "
  "each"},
 SP_OPTION_REAL, AT(block)},
{{"--overlap", "M", "margin around a block in metre, which is context that is not "
  "evaluated"},
 SP_OPTION_REAL, AT(overlap), .or_0 = true},
{{"--bounds", "x0,y0,x1,y1", "take only points with x0 <= x < x1 and y0 <= y < y1"},
 SP_OPTION_READ, .read = vox_read_bounds},
{{"--points", NULL, "store the point map, point labels and point index, for spvox "
  "apply and for evaluation per point"},
 SP_OPTION_FLAG, AT(with_points)},
{{"--poses", "FILE|auto", "join scans by their poses: poses.txt of KITTI, with calib.txt "
  "beside it; auto: the one in the folder of the scan or in the one above it"},
 SP_OPTION_TEXT, AT(poses)},
{{"--sweeps", "N", "with --poses: a sample is a scan and the N - 1 scans before it; "
  "points of these are context, without label, and are not in the point map. The column "
  "age is the number of scans that a point is before its sample's"},
 SP_OPTION_WHOLE, AT(n_sweeps), 1, 1000},
{{"--sweep-labels", NULL, "with --poses: labels of the scans before count in voxels too, "
  "for training"}, SP_OPTION_FLAG, AT(with_sweep_labels)},
{{"--degrees", NULL, "take scans whose records say that x and y are in degree; all "
  "lengths then count in it"},
 SP_OPTION_FLAG, AT(with_degrees)},
{{"--z-unit", SP_SCAN_Z_WORDS, "the unit of z: what the scan's records say, which has "
  "to be the unit of x and y; the same as x and y, whatever the records say; or one that "
  "z is converted from, to the unit of x and y (records)"},
 SP_OPTION_WORD, AT(z_unit)},
{{"--conflict", "majority|ignore", "label of a voxel whose points have several: the "
  "most frequent one (no label if two are equally frequent; points without a class do "
  "not vote), or no label (majority)"},
 SP_OPTION_WORD, AT(ignore_conflicts)},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

const sp_usage vox_convert_usage = {
    .line = "usage: spvox convert [OPTIONS] --out PREFIX INPUT...",
    .text = "Turns scans into voxel shards PREFIX-00000-of-0000N.h5. A column that is "
            "the same everywhere is stored with mean 0 and std 1, so that normalizing "
            "leaves it as it is. If the source lacks an attribute, the message lists "
            "those it has. scan_angle is in degrees. Reads",
    .options = SP_WORD_ROWS(option_table),
    .formats = sp_scan_print_formats,
};

/* The state of one conversion. */
typedef struct convert {
    vox_options *options;
    sp_comm *comm;
    vox_blocks blocks; /* with --block */
    vox_piece *piece;  /* [n_pieces] the same on all ranks */
    int64_t n_pieces;
    vox_part *part; /* [n_parts] the parts of all ranks, in the order of the pieces */
    int64_t n_parts;
    vox_codes *codes; /* counts of this rank's scans, later of all ranks */
    vox_set set;
    vox_sweeps sweeps;
    int lock; /* of rank 0 on the shards' names; -1: not held */
} convert;

static void part_path(const convert *c, int64_t rank, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s.part-%05d.tmp", c->options->out, (int)rank);
}

/* Names a sample: "tile.las", or "tile.las[3,4]" for a block. */
static void piece_name(const convert *c, const vox_piece *p, char name[PATH_BYTES])
{
    if (c->options->block > 0)
        snprintf(name, PATH_BYTES, "%s[%d,%d]", c->options->input[p->file], p->bx,
                 p->by);
    else
        snprintf(name, PATH_BYTES, "%s", c->options->input[p->file]);
}

/* ---- cut ---- */

/* Joins the ranks' arrays of n elements on all ranks, sorted by `compare`; *all is
 * malloc'd. Collective. */
static sp_status convert_share(sp_comm *comm, const void *mine, int64_t n, size_t size,
                               int (*compare)(const void *, const void *), void **all,
                               int64_t *n_all)
{
    size_t total;

    SP_TRY(sp_comm_gather(comm, mine, (size_t)n * size, all, &total));
    SP_TRY(sp_comm_bcast(comm, &total, sizeof total, 0));
    SP_TRY(sp_comm_bcast_array(comm, all, total, 0));
    *n_all = (int64_t)(total / size);
    qsort(*all, total / size, size, compare);
    return SP_OK;
}

/* The number of n things, dealt to the ranks in turn, that this rank has. */
static int64_t convert_share_of(const convert *c, int64_t n)
{
    return (n - c->comm->rank + c->comm->size - 1) / c->comm->size;
}

static int compare_pieces(const void *a, const void *b)
{
    const vox_piece *p = a, *q = b;

    if (p->file != q->file)
        return p->file < q->file ? -1 : 1;
    return p->block.number < q->block.number ? -1 : p->block.number > q->block.number;
}

/* Lists each file as one sample. Its number of points is known when it has been read.
 */
static sp_status convert_list_files(convert *c)
{
    c->n_pieces = c->options->n_inputs;
    SP_TRY(SP_NEW(&c->piece, c->n_pieces, "samples"));
    for (int f = 0; f < c->n_pieces; f++)
        c->piece[f].file = f;
    return SP_OK;
}

static sp_status find_pieces(convert *c)
{
    SP_FREED vox_piece *mine = NULL;
    int64_t n = 0;
    void *all = NULL;

    if (c->options->block <= 0)
        return sp_comm_agree(c->comm, convert_list_files(c));
    SP_TRY(vox_blocks_cut(&c->blocks, c->options, c->comm, c->codes, &mine, &n));
    SP_TRY(convert_share(c->comm, mine, n, sizeof *mine, compare_pieces, &all,
                         &c->n_pieces));
    c->piece = all;
    return SP_OK;
}

/* ---- voxelize ---- */
/* Voxelizes one piece and appends it to this rank's temporary file. part->n stays 0 for
 * a piece without points. */
static sp_status make_part(convert *c, vox_cloud *cloud, sp_grid *grid, int fd,
                           int64_t *at, vox_part *part)
{
    const vox_piece *p = &c->piece[part->piece];
    char path[PATH_BYTES], name[PATH_BYTES];
    int64_t bytes;
    sp_status rc;

    SP_TRY(c->options->block > 0
               ? vox_blocks_read(&c->blocks, p, cloud)
               : vox_cloud_load(cloud, c->options, p->file, c->codes));
    part->source = cloud->source;
    vox_find_steps(cloud, c->options->voxel_size, part->step);
    part->max_label = -1;
    for (int64_t i = 0; i < cloud->n; i++)
        part->max_label =
            cloud->label[i] > part->max_label ? cloud->label[i] : part->max_label;
    if (cloud->n == 0)
        return SP_OK;
    piece_name(c, p, name);
    if (c->options->map.n == 0 && part->max_label >= VOX_MAX_CLASSES)
        return SP_FAIL(SP_EDATA, "%s: label code %d, at most %d without --map", name,
                       part->max_label, VOX_MAX_CLASSES - 1);
    rc = vox_voxelize(c->options, cloud, grid);
    if (rc == SP_EDATA)
        return SP_FAIL(rc, "%s: %s", name, sp_error_last()->message);
    SP_TRY(rc);
    part->rank = c->comm->rank;
    part->at = *at;
    part_path(c, part->rank, path);
    SP_TRY(vox_part_write(fd, path, grid, c->options->n_features, part, &bytes));
    *at += bytes;
    return SP_OK;
}

static sp_status make_parts(convert *c, int fd, vox_part **mine, int64_t *n)
{
    int64_t most = c->n_pieces / c->comm->size + 1, at = 0;
    SP_CLOSED_BY(vox_cloud_destroy) vox_cloud cloud = {0};
    SP_CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    sp_progress progress;
    sp_status rc = SP_OK;

    SP_TRY(SP_NEW(mine, most, "the samples"));
    sp_progress_begin(&progress, "voxelizing", "samples",
                      convert_share_of(c, c->n_pieces));
    for (int64_t i = c->comm->rank; i < c->n_pieces && rc == SP_OK;
         i += c->comm->size) {
        sp_fault_at("voxelize", i);
        (*mine)[*n].piece = i;
        rc = vox_options_check_stop(c->options);
        if (rc == SP_OK)
            rc = make_part(c, &cloud, &grid, fd, &at, &(*mine)[*n]);
        ++*n;
        sp_progress_at(&progress, *n, "%s", c->options->input[c->piece[i].file]);
    }
    sp_progress_end(&progress);
    return rc;
}

static sp_status convert_open_part(const convert *c, int *fd)
{
    char path[PATH_BYTES];

    part_path(c, c->comm->rank, path);
    *fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (*fd < 0)
        return SP_FAIL(SP_EIO, "%s: cannot create: %s", path, strerror(errno));
    return SP_OK;
}

static int compare_parts(const void *a, const void *b)
{
    const vox_part *p = a, *q = b;

    return p->piece < q->piece ? -1 : p->piece > q->piece;
}

static sp_status find_parts(convert *c)
{
    SP_FREED vox_part *mine = NULL;
    int64_t n = 0;
    void *all = NULL;
    int fd = -1;
    sp_status rc = convert_open_part(c, &fd);

    if (rc == SP_OK)
        rc = make_parts(c, fd, &mine, &n);
    if (fd >= 0 && close(fd) != 0 && rc == SP_OK)
        rc = SP_FAIL(SP_EIO, "cannot write temporary samples: %s", strerror(errno));
    SP_TRY(sp_comm_agree(c->comm, rc));
    rc =
        convert_share(c->comm, mine, n, sizeof *mine, compare_parts, &all, &c->n_parts);
    c->part = all;
    return rc;
}

/* ---- write ---- */

/* Are the samples blocks, with points that can be merged? */
static bool has_blocks(const convert *c)
{
    return c->options->block > 0 && c->options->with_points;
}

static sp_status convert_write_sample(const convert *c, sp_shard_writer *writer,
                                      const vox_part *p, int64_t at)
{
    const vox_piece *piece = &c->piece[p->piece];
    char path[PATH_BYTES], name[PATH_BYTES], scan[PATH_BYTES];
    SP_CLOSED_BY(vox_part_free) sp_sample sample = {0};

    part_path(c, p->rank, path);
    piece_name(c, piece, name);
    /* Tiles of two folders may have been converted under one relative path. */
    snprintf(scan, sizeof scan, "%s crc32c %08x", c->options->input[piece->file],
             piece->crc);
    SP_TRY(vox_part_read(path, p, c->options->n_features, &sample));
    SP_TRY(sp_shard_write_sample(writer, at, &sample, name, p->cost));
    return has_blocks(c) ? sp_shard_write_block(writer, at, scan, &piece->block)
                         : SP_OK;
}

static sp_status convert_write_samples(const convert *c, sp_shard_writer *writer,
                                       int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        sp_fault_at("write", i);
        SP_TRY(vox_options_check_stop(c->options));
        SP_TRY(convert_write_sample(c, writer, &c->part[i], i - first));
    }
    return SP_OK;
}

static sp_shard_meta convert_describe(const convert *c,
                                      char *feature_name[VOX_MAX_FEATURES])
{
    for (int f = 0; f < c->options->n_features; f++)
        feature_name[f] = (char *)c->options->feature[f].name;
    return (sp_shard_meta){.voxel_size = c->options->voxel_size,
                           .n_classes = c->set.n_classes,
                           .ignore_label = VOX_IGNORE_LABEL,
                           .n_features = c->options->n_features,
                           .class_name = c->set.class_name,
                           .class_code = c->set.class_code,
                           .feature_name = feature_name,
                           .feature_mean = c->set.mean,
                           .feature_std = c->set.std,
                           .has_labels = c->set.has_labels,
                           .has_subvoxel = true,
                           .has_points = c->options->with_points,
                           .recipe = c->set.recipe,
                           .is_of_set = true};
}

static sp_status convert_write_shard(const convert *c, int s)
{
    int64_t first = c->n_parts * s / c->options->shards;
    int64_t end = c->n_parts * (s + 1) / c->options->shards, n = end - first;
    SP_FREED int64_t *voxels = NULL;
    int64_t *points, *context;
    char path[PATH_BYTES], *feature_name[VOX_MAX_FEATURES];
    sp_shard_meta meta = convert_describe(c, feature_name);
    sp_shard_writer *writer;

    SP_TRY(SP_NEW(&voxels, 3 * n, "samples"));
    points = voxels + n;
    context = points + n;
    for (int64_t i = 0; i < n; i++) {
        voxels[i] = c->part[first + i].n;
        points[i] = c->part[first + i].n_points;
        context[i] = c->part[first + i].n_context;
    }
    meta.context = has_blocks(c) ? context : NULL;
    SP_TRY(
        sp_shard_path(c->options->out, s, (int)c->options->shards, path, sizeof path));
    SP_TRY(sp_shard_create(&writer, path, &meta, n, voxels, points));
    return sp_shard_close(writer, convert_write_samples(c, writer, first, end));
}

static sp_status convert_write_shards(const convert *c)
{
    sp_progress progress;
    int64_t n_done = 0;

    sp_progress_begin(&progress, "writing", "shards",
                      convert_share_of(c, c->options->shards));
    for (int s = c->comm->rank; s < c->options->shards; s += c->comm->size) {
        SP_TRY(convert_write_shard(c, s));
        sp_progress_at(&progress, ++n_done, "%s", c->options->out);
    }
    sp_progress_end(&progress);
    return SP_OK;
}

/* Finds the files named by the prefix and `ending`, in which # is a number. globfree in
 * any case. */
static void find_files(const convert *c, const char *ending, glob_t *found)
{
    char pattern[3 * PATH_BYTES], *to = pattern;

    for (const char *at = c->options->out; *at; *to++ = *at++)
        if (strchr("*?[\\", *at))
            *to++ = '\\';
    for (; *ending; ending++)
        if (*ending == '#')
            to = stpcpy(to, "[0-9][0-9][0-9][0-9][0-9]");
        else
            *to++ = *ending;
    *to = '\0';
    if (glob(pattern, 0, NULL, found) != 0)
        *found = (glob_t){0};
}

/* Warns of shards of an earlier run with another number of shards, because the pattern
 * PREFIX-*.h5 would read them too. */
static void convert_warn_of_others(const convert *c)
{
    char ending[32];
    int others = 0;
    glob_t found;

    snprintf(ending, sizeof ending, "-of-%05d.h5", (int)c->options->shards);
    find_files(c, "-#-of-#.h5", &found);
    for (size_t i = 0; i < found.gl_pathc; i++)
        others += !sp_file_ends_in(found.gl_pathv[i], ending);
    globfree(&found);
    if (others > 0)
        sp_log_warn0("older shards %s-* that are of another number of shards are still "
                     "there: %d",
                     c->options->out, others);
}

/* ---- the command ---- */

static sp_status convert_check_options(vox_options *o)
{
    char path[PATH_BYTES - 64]; /* names of temporary files are longer than a shard's */

    if (!o->out)
        return SP_FAIL(SP_EUSAGE, "spvox convert: --out PREFIX is missing");
    SP_TRY(sp_shard_path(o->out, 0, (int)o->shards, path, sizeof path));
    SP_TRY(vox_options_read_list(o));
    if (o->n_inputs == 0)
        return SP_FAIL(SP_EUSAGE, "spvox convert: no input; spvox convert --help");
    if (o->overlap > 0 && o->block <= 0)
        return SP_FAIL(SP_EUSAGE,
                       "--overlap %g: is the margin of a --block, which is missing",
                       o->overlap);
    if (o->overlap > o->block)
        return SP_FAIL(SP_EUSAGE, "--overlap %g: expected at most --block, which is %g",
                       o->overlap, o->block);
    SP_TRY(vox_options_check_sweeps(o));
    return o->n_features ? SP_OK : vox_features_default(o);
}

/* Removes this rank's files, and on rank 0 the files of a killed run, which may have
 * had other ranks, inputs and shards. */
static void remove_temporary(convert *c)
{
    static const char *const left[] = {".part-#.tmp", ".spill-#-#.tmp",
                                       "-#-of-#.h5.part"};
    char path[PATH_BYTES];

    part_path(c, c->comm->rank, path);
    unlink(path);
    vox_blocks_close(&c->blocks);
    for (size_t i = 0; c->comm->rank == 0 && i < sizeof left / sizeof *left; i++) {
        glob_t found;

        find_files(c, left[i], &found);
        for (size_t k = 0; k < found.gl_pathc; k++)
            unlink(found.gl_pathv[k]);
        globfree(&found);
    }
}

static void convert_report(const convert *c)
{
    int64_t voxels = 0, points = 0;

    for (int64_t i = 0; i < c->n_parts; i++) {
        voxels += c->part[i].n;
        points += c->part[i].n_points;
    }
    sp_log_info("samples=%" PRId64 " voxels=%" PRId64 " points_mapped=%" PRId64
                " classes=%d labels=%s shards=%d out=%s",
                c->n_parts, voxels, points, c->set.n_classes,
                c->set.has_labels ? "yes" : "none", (int)c->options->shards,
                c->options->out);
}

/* Runs the conversion. Temporary files are removed after a failure too. Collective. */
static sp_status convert_run(convert *c)
{
    sp_status rc = find_pieces(c);

    if (rc == SP_OK)
        rc = find_parts(c);
    if (rc == SP_OK)
        rc = vox_codes_tell_missing(c->codes, c->options, c->comm, "they are left out");
    if (rc == SP_OK && c->options->sweeps)
        rc = vox_sweeps_tell(&c->sweeps, c->comm);
    if (rc == SP_OK && c->options->map.n > 0)
        rc = sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, c->codes->n, VOX_MAX_CODE + 1,
                               SP_I64, SP_SUM);
    if (rc == SP_OK) { /* all ranks hold the same lists here */
        rc = vox_set_describe(&c->set, c->options, c->piece, c->part, &c->n_parts,
                              c->codes);
        if (rc == SP_OK)
            rc = convert_write_shards(c);
        rc = sp_comm_agree(c->comm, rc);
        rc = sp_shards_end(c->options->out, (int)c->options->shards, c->comm->rank,
                           c->comm->size, rc);
        rc = sp_comm_agree(c->comm, rc);
    }
    remove_temporary(c);
    if (rc == SP_OK && c->comm->rank == 0) {
        convert_report(c);
        convert_warn_of_others(c);
    }
    return rc;
}

static void convert_release(convert *c)
{
    sp_shards_unlock(c->lock < 0 ? "" : c->options->out, &c->lock);
    vox_sweeps_destroy(&c->sweeps);
    vox_set_destroy(&c->set);
    free(c->codes);
    free(c->piece);
    free(c->part);
    vox_options_free(&c->options);
}

sp_status vox_convert(int argc, char **argv, sp_comm *comm)
{
    SP_CLOSED_BY(convert_release) convert c = {.comm = comm, .lock = -1};
    vox_options *options;
    sp_status rc;

    assert(argc >= 1 && argv && comm);
    SP_TRY(SP_NEW(&c.options, 1, "options"));
    SP_TRY(SP_NEW(&c.codes, 1, "codes"));
    options = c.options;
    rc = vox_options_read(options, argc, argv, SP_WORD_TABLE(option_table));
    options->sweeps = options->poses ? &c.sweeps : NULL;
    options->threads = comm->node_cores / comm->local_size;
    if (rc == SP_OK)
        rc = convert_check_options(options);
    if (rc == SP_OK && comm->rank == 0)
        rc = vox_options_check_inputs(options);
    if (rc == SP_OK)
        rc = sp_file_make_folder_of(options->out);
    if (rc == SP_OK && comm->rank == 0)
        rc = sp_shards_lock(options->out, &c.lock);
    SP_TRY(sp_comm_agree(comm, rc));
    return convert_run(&c);
}
