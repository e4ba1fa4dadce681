/* The results of runs: lines of metrics, checkpoints, predictions. */
/* H5Ovisit2 has H5O_info_t in HDF5 1.10; later ones have it so with this only. */
#define H5_USE_110_API
#include <dirent.h>
#include <hdf5.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "torture/random/random.h"

char *rnd_read_file(const char *path, size_t *bytes)
{
    char *text;

    return sp_file_read(path, &text, bytes) == SP_OK ? text : NULL;
}

uint64_t rnd_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

/* ---- lines ---- */

/* Returns the value of a key in a line of JSON without the line's end: its text up to
 * the comma or the bracket that ends it. NULL: there is none. */
static const char *value_of(const char *line, const char *key, size_t *length)
{
    const char *end = strchr(line, '\n'), *at;
    char quoted[NAME_SIZE + 4];
    int depth = 0;

    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    at = strstr(line, quoted);
    if (!at || (end && at > end))
        return NULL;
    at += strlen(quoted);
    for (*length = 0; at[*length] && at[*length] != '\n'; ++*length) {
        const char letter = at[*length];

        depth += letter == '[' || letter == '{';
        if (depth == 0 && strchr(",]}", letter))
            break;
        depth -= letter == ']' || letter == '}';
    }
    return at;
}

static double number_of(const char *line, const char *key)
{
    size_t length;
    const char *at = value_of(line, key, &length);

    return at && strncmp(at, "null", 4) != 0 ? strtod(at, NULL) : NAN;
}

static char *text_of(const char *line, const char *key)
{
    size_t length = 0;
    const char *at = value_of(line, key, &length);
    char *text = calloc(length + 1, 1);

    if (at)
        memcpy(text, at, length);
    return text;
}

static bool is_event(const char *line, const char *event)
{
    size_t length;
    const char *at = value_of(line, "event", &length);

    return at && length == strlen(event) + 2 && !strncmp(at + 1, event, length - 2);
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');

    return end ? end + 1 : line + strlen(line);
}

static char *read_lines(const rnd_case *c, const char *dir)
{
    FREED char *path = rnd_path(c, "%s/metrics.jsonl", dir);

    return rnd_read_file(path, NULL);
}

/* Writes the keys' values of each line of the event, a line each. */
static char *extract(const rnd_case *c, const char *dir, const char *event,
                     const char *const *keys)
{
    char *all = read_lines(c, dir), *out = calloc(all ? 2 * strlen(all) + 2 : 2, 1);
    char *to = out;

    for (const char *line = all; line && *line; line = next_line(line)) {
        if (!is_event(line, event))
            continue;
        for (int i = 0; keys[i]; i++) {
            size_t length;
            const char *at = value_of(line, keys[i], &length);

            if (at)
                to += sprintf(to, "%s%.*s", i ? " " : "", (int)length, at);
        }
        *to++ = '\n';
    }
    free(all);
    return out;
}

char *rnd_steps(const rnd_case *c, const char *dir)
{
    static const char *const keys[] = {"step", "samples",   "voxels", "loss",
                                       "lr",   "grad_norm", NULL};

    return extract(c, dir, "step", keys);
}

char *rnd_evals(const rnd_case *c, const char *dir)
{
    static const char *const keys[] = {
        "step", "samples",    "voxels",         "loss",      "accuracy",
        "miou", "point_miou", "point_accuracy", "confusion", "point_confusion",
        NULL};

    return extract(c, dir, "eval", keys);
}

bool rnd_step_of(const rnd_case *c, const char *dir, long long step, rnd_step *out)
{
    FREED char *all = read_lines(c, dir);
    bool is_found = false;

    for (const char *line = all; line && *line; line = next_line(line))
        if (is_event(line, "step") && number_of(line, "step") == (double)step) {
            out->loss = number_of(line, "loss");
            out->grad_norm = number_of(line, "grad_norm");
            out->voxels = (long long)number_of(line, "voxels");
            out->samples = (long long)number_of(line, "samples");
            is_found = true;
        }
    return is_found;
}

static void take_eval(const char *line, rnd_eval *eval)
{
    const char *merged = strstr(line, "\"merged\":{");

    merged = merged && merged < next_line(line) ? merged : line;
    rnd_eval_free(eval);
    eval->step = (long long)number_of(line, "step");
    eval->samples = (long long)number_of(line, "samples");
    eval->voxels = (long long)number_of(line, "voxels");
    eval->loss = number_of(line, "loss");
    eval->confusion = text_of(line, "confusion");
    eval->points = text_of(line, "point_confusion");
    eval->merged = text_of(merged, "confusion");
    eval->merged_points = text_of(merged, "point_confusion");
}

bool rnd_last_eval(const rnd_case *c, const char *dir, rnd_eval *eval)
{
    FREED char *path = rnd_path(c, "%s", dir);
    DIR *folder = opendir(path);
    struct dirent *entry;

    *eval = (rnd_eval){0};
    while (folder && (entry = readdir(folder))) {
        FREED char *file = rnd_path(c, "%s/%s", dir, entry->d_name), *all = NULL;
        const size_t length = strlen(entry->d_name);

        if (length < 6 || strcmp(entry->d_name + length - 6, ".jsonl") != 0)
            continue;
        all = rnd_read_file(file, NULL);
        for (const char *line = all; line && *line; line = next_line(line))
            if (is_event(line, "eval"))
                take_eval(line, eval);
    }
    if (folder)
        closedir(folder);
    return eval->confusion;
}

void rnd_eval_free(rnd_eval *eval)
{
    free(eval->confusion);
    free(eval->points);
    free(eval->merged);
    free(eval->merged_points);
    *eval = (rnd_eval){0};
}

/* ---- checkpoints ---- */

long long rnd_checkpoint(const rnd_case *c, const char *dir, int nth)
{
    FREED char *path = rnd_path(c, "%s/checkpoints", dir);
    DIR *folder = opendir(path);
    long long step[256], below = INT64_MAX, most = -1;
    struct dirent *entry;
    int n = 0;

    while (folder && (entry = readdir(folder))) {
        int used = 0;

        if (n < 256 && sscanf(entry->d_name, "step-%lld.h5%n", &step[n], &used) == 1 &&
            used && !entry->d_name[used])
            n++;
    }
    if (folder)
        closedir(folder);
    for (; nth >= 0; nth--, below = most) {
        most = -1;
        for (int i = 0; i < n; i++)
            if (step[i] > most && step[i] < below)
                most = step[i];
    }
    return most;
}

typedef struct summing {
    hid_t file;
    uint64_t hash;
    bool is_good;
} summing;

/* Hashes name, type and bytes of a dataset. */
static void sum_dataset(summing *s, hid_t data, const char *name)
{
    hid_t type = H5Dget_type(data), space = H5Dget_space(data);
    const bool is_text = H5Tis_variable_str(type) > 0;
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    const size_t bytes = (size_t)n * H5Tget_size(type);
    void *value = calloc(bytes + 1, 1);

    s->hash = rnd_hash(s->hash, name, strlen(name));
    s->is_good &= H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0;
    for (hssize_t i = 0; is_text && i < n; i++)
        s->hash = rnd_hash(s->hash, ((char **)value)[i], strlen(((char **)value)[i]));
    if (is_text)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, value);
    else
        s->hash = rnd_hash(s->hash, value, bytes);
    free(value);
    H5Sclose(space);
    H5Tclose(type);
}

static herr_t visit(hid_t at, const char *name, const H5O_info_t *info, void *arg)
{
    summing *s = arg;
    hid_t data;

    if (info->type != H5O_TYPE_DATASET)
        return 0;
    data = H5Dopen2(at, name, H5P_DEFAULT);
    sum_dataset(s, data, name);
    H5Dclose(data);
    return 0;
}

static void sum_below(summing *s, const char *group)
{
    hid_t at;

    if (group[1] && H5Lexists(s->file, group, H5P_DEFAULT) <= 0)
        return;
    at = H5Gopen2(s->file, group, H5P_DEFAULT);
    s->hash = rnd_hash(s->hash, group, strlen(group));
    s->is_good &=
        H5Ovisit2(at, H5_INDEX_NAME, H5_ITER_INC, visit, s, H5O_INFO_BASIC) >= 0;
    H5Gclose(at);
}

/* A number in the root's attributes joins the hash. */
static void sum_attribute(summing *s, const char *name)
{
    double value = 0;
    hid_t at;

    if (H5Aexists(s->file, name) <= 0)
        return;
    at = H5Aopen(s->file, name, H5P_DEFAULT);
    s->is_good &= H5Aread(at, H5T_NATIVE_DOUBLE, &value) >= 0;
    H5Aclose(at);
    s->hash = rnd_hash(s->hash, &value, sizeof value);
}

bool rnd_checkpoint_hash(const rnd_case *c, const char *dir, long long step,
                         uint64_t *arrays, uint64_t *counters)
{
    static const char *const counter[] = {"step",         "epoch",    "position",
                                          "samples_seen", "updates",  "skipped",
                                          "seed",         "best_miou"};
    FREED char *path = step < 0
                           ? rnd_path(c, "%s/checkpoints/best.h5", dir)
                           : rnd_path(c, "%s/checkpoints/step-%09lld.h5", dir, step);
    summing s = {.is_good = true};

    s.file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (s.file < 0)
        return false;
    sum_below(&s, "/params");
    sum_below(&s, "/buffers");
    sum_below(&s, "/optim");
    *arrays = s.hash;
    s.hash = 0;
    for (size_t i = 0; i < sizeof counter / sizeof *counter; i++)
        sum_attribute(&s, counter[i]);
    *counters = s.hash;
    H5Fclose(s.file);
    return s.is_good;
}

/* ---- predictions ---- */

char *rnd_predictions(rnd_case *c, const char *dir, int shard)
{
    FREED char *name = rnd_shard_name(c, &c->val, shard);

    return rnd_path(c, "%s/predictions/%s", dir, name);
}

bool rnd_predictions_hash(rnd_case *c, const char *dir, uint64_t *hash)
{
    summing s = {.is_good = true};

    for (int i = 0; s.is_good && i < c->val.n_shards; i++) {
        FREED char *path = rnd_predictions(c, dir, i);

        s.file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        if (s.file < 0)
            return false;
        sum_below(&s, "/");
        H5Fclose(s.file);
    }
    *hash = s.hash;
    return s.is_good;
}
