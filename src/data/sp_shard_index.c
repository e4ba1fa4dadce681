/* From files to one index on all ranks: rank 0 has a child read the headers (as bytes
 * that carry their checksum) and broadcasts them; every rank makes the same index of
 * them. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sp_log.h"
#include "process/sp_pulse.h"
#include "data/sp_shard_internal.h"

extern char **environ;

/* Set for the child: a program whose main forgot sp_shard_probe_main must not start
 * itself over and over. */
static const char child_mark[] = "SP_SHARD_PROBE_CHILD";

/* ---- the child ---- */

static sp_status make_environment(char ***out)
{
    size_t n = 0;
    static char mark[] = "SP_SHARD_PROBE_CHILD=1";

    while (environ[n])
        n++;
    *out = malloc((n + 2) * sizeof **out);
    if (!*out)
        return SP_FAIL(SP_EMEM, "no memory to start the reader of shard headers");
    memcpy(*out, environ, n * sizeof **out);
    (*out)[n] = mark;
    (*out)[n + 1] = NULL;
    return SP_OK;
}

/* One socket is the child's standard input and output. */
static sp_status spawn_child(pid_t *pid, int *fd)
{
    char *arguments[] = {"sptrain", SP_SHARD_PROBE, NULL}, **environment;
    posix_spawn_file_actions_t actions;
    int ends[2], failed;

    if (getenv(child_mark))
        return SP_FAIL(SP_EDATA,
                       "main must call sp_shard_probe_main before anything else");
    SP_TRY(make_environment(&environment));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(environment);
        return SP_FAIL(SP_EIO, "reader of shard headers: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    failed = posix_spawn(pid, "/proc/self/exe", &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    free(environment);
    *fd = ends[0];
    if (!failed)
        return SP_OK;
    close(ends[0]);
    return SP_FAIL(SP_EIO, "reader of shard headers cannot be started: %s",
                   strerror(failed));
}

/* A child that died early shows when its answer is read. */
static void send_list(int fd, const sp_strings *paths)
{
    for (int i = 0; i < paths->n; i++) {
        const char *at = paths->at[i];
        size_t left = strlen(at) + 1;
        ssize_t n;

        for (; left > 0; left -= (size_t)n, at += n) {
            n = send(fd, at, left, MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR)
                n = 0;
            else if (n < 0)
                return;
        }
    }
    shutdown(fd, SHUT_WR);
}

static bool is_quiet(int fd, double limit_s)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    double until = sp_now_s() + limit_s;
    int n;

    do {
        n = poll(&wait, 1, 1000);
        sp_pulse_beat(); /* the limit is here, not the watchdog's */
    } while ((n == 0 || (n < 0 && errno == EINTR)) && sp_now_s() < until);
    return n <= 0;
}

/* All that the child says, until it ends or says nothing for long. */
static sp_status receive(int fd, sp_wire *answer, bool *is_hung)
{
    enum { PIECE = 1 << 20 };
    unsigned char *more;
    ssize_t n = 1;

    *is_hung = false;
    while (n != 0) {
        if (answer->room - answer->size < PIECE) {
            more = realloc(answer->data, answer->room = 2 * answer->room + 2 * PIECE);
            if (!more)
                return SP_FAIL(SP_EMEM, "no memory for the index of the data");
            answer->data = more;
        }
        if (is_quiet(fd, 2 * SP_PROBE_WALL_S)) {
            *is_hung = true;
            return SP_OK;
        }
        n = recv(fd, answer->data + answer->size, PIECE, 0);
        if (n < 0 && errno != EINTR)
            n = 0;
        answer->size += n > 0 ? (size_t)n : 0;
    }
    return SP_OK;
}

static void describe_end(int status, bool is_hung, char *text, size_t size)
{
    if (is_hung || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
        snprintf(text, size, "reader made no progress for %d s", SP_PROBE_WALL_S);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
        snprintf(text, size, "reader did not finish within %d s of work",
                 SP_PROBE_WORK_S);
    else if (WIFSIGNALED(status))
        snprintf(text, size, "reader ended by signal %d", WTERMSIG(status));
    else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        snprintf(text, size, "reader ended with status %d", WEXITSTATUS(status));
    else
        snprintf(text, size, "reader's answer makes no sense");
}

/* Fills `answer` with what the child said and `end` with how it ended. */
static sp_status ask_child(const sp_strings *paths, sp_wire *answer, char *end,
                           size_t size)
{
    bool is_hung;
    int fd = -1, status = 0;
    pid_t pid = -1;
    sp_status rc;

    SP_TRY(spawn_child(&pid, &fd));
    send_list(fd, paths);
    rc = receive(fd, answer, &is_hung);
    if (rc != SP_OK || is_hung)
        kill(pid, SIGKILL);
    close(fd);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    describe_end(status, is_hung, end, size);
    return rc;
}

/* ---- its answer ---- */

static bool next_frame(sp_wire *answer, sp_probe_frame *frame)
{
    if (answer->size - answer->at < sizeof *frame)
        return false;
    memcpy(frame, answer->data + answer->at, sizeof *frame);
    answer->at += sizeof *frame;
    return frame->bytes <= answer->size - answer->at;
}

static sp_status raise_error(const sp_wire *answer, size_t bytes)
{
    int64_t status = SP_EDATA;

    if (bytes < sizeof status)
        return SP_FAIL(SP_EDATA, "damaged file");
    memcpy(&status, answer->data + answer->at, sizeof status);
    return SP_FAIL(status == SP_EMEM || status == SP_EIO ? (sp_status)status : SP_EDATA,
                   "%.*s", (int)(bytes - sizeof status),
                   (const char *)answer->data + answer->at + sizeof status);
}

/* The shard frames of a complete and undamaged answer, appended to `index`. */
static sp_status check_answer(sp_wire *answer, const sp_strings *paths, const char *end,
                              sp_wire *index)
{
    XXH64_state_t hash;
    sp_probe_frame frame;
    int64_t file = 0;
    uint64_t sum;

    XXH64_reset(&hash, 0);
    while (next_frame(answer, &frame)) {
        const unsigned char *data = answer->data + answer->at;

        if (frame.tag == SP_PROBE_FILE && frame.bytes == sizeof file) {
            memcpy(&file, data, sizeof file);
            file = file < 0 || file >= paths->n ? 0 : file;
        } else if (frame.tag == SP_PROBE_SHARD) {
            XXH64_update(&hash, data, frame.bytes);
            sp_wire_bytes(index, (void *)data, frame.bytes);
            SP_TRY(index->rc);
        } else if (frame.tag == SP_PROBE_ERROR) {
            return raise_error(answer, frame.bytes);
        } else if (frame.tag == SP_PROBE_END && frame.bytes == sizeof sum) {
            memcpy(&sum, data, sizeof sum);
            if (sum == XXH64_digest(&hash) && file == paths->n - 1)
                return SP_OK;
            break;
        } else {
            break;
        }
        answer->at += frame.bytes;
    }
    return SP_FAIL(SP_EDATA, "%s: damaged file (%s)", paths->at[file], end);
}

/* Rank 0: the shards of all files, one after the other, in index->data. */
static sp_status collect(const sp_strings *patterns, sp_wire *index, int64_t *n_shards)
{
    sp_strings paths;
    sp_wire answer = {0};
    char end[96];
    sp_status rc = sp_shard_glob(patterns, &paths);

    *n_shards = paths.n;
    if (rc == SP_OK)
        rc = ask_child(&paths, &answer, end, sizeof end);
    if (rc == SP_OK)
        rc = check_answer(&answer, &paths, end, index);
    free(answer.data);
    sp_shard_glob_free(&paths);
    return rc;
}

/* Collective: rank 0's index on all ranks. */
static sp_status share(sp_comm *comm, sp_status rc, sp_wire *index, int64_t *n_shards)
{
    uint64_t sizes[2] = {index->size, (uint64_t)*n_shards};

    if (!comm)
        return rc;
    SP_TRY(sp_comm_agree(comm, rc, NULL));
    SP_TRY(sp_comm_bcast(comm, sizes, sizeof sizes, 0));
    index->size = sizes[0];
    *n_shards = (int64_t)sizes[1];
    return sp_comm_bcast_array(comm, (void **)&index->data, index->size, 0);
}

/* ---- one index of all shards ---- */

static sp_status differ_value(const sp_dataset *a, const sp_dataset *b,
                              const char *what, double x, double y)
{
    return SP_FAIL(SP_EDATA,
                   "%s has %s %.9g, but %s has %.9g: files of one data set must agree",
                   b->shard->path, what, y, a->shard->path, x);
}

static sp_status differ_name(const sp_dataset *a, const sp_dataset *b, const char *what,
                             int i, const char *x, const char *y)
{
    return SP_FAIL(SP_EDATA,
                   "%s has %s %d \"%s\", but %s has \"%s\": files of one data set must "
                   "agree",
                   b->shard->path, what, i, y, a->shard->path, x);
}

static sp_status differ_part(const sp_dataset *a, const sp_dataset *b, bool is_in_a,
                             const char *part)
{
    return SP_FAIL(
        SP_EDATA, "%s has %s, but %s has none: files of one data set must agree",
        (is_in_a ? a : b)->shard->path, part, (is_in_a ? b : a)->shard->path);
}

static sp_status agree(const sp_dataset *a, const sp_dataset *b)
{
    if (fabs(a->voxel_size - b->voxel_size) > 1e-6 * a->voxel_size)
        return differ_value(a, b, "voxel_size", a->voxel_size, b->voxel_size);
    if (a->n_classes != b->n_classes)
        return differ_value(a, b, "num_classes", a->n_classes, b->n_classes);
    if (a->ignore_label != b->ignore_label)
        return differ_value(a, b, "ignore_label", a->ignore_label, b->ignore_label);
    if (a->n_features != b->n_features)
        return differ_value(a, b, "feature columns", a->n_features, b->n_features);
    for (int i = 0; i < a->n_classes; i++)
        if (strcmp(a->class_name[i], b->class_name[i]) != 0)
            return differ_name(a, b, "class", i, a->class_name[i], b->class_name[i]);
    for (int i = 0; i < a->n_features; i++)
        if (strcmp(a->feature_name[i], b->feature_name[i]) != 0)
            return differ_name(a, b, "feature", i, a->feature_name[i],
                               b->feature_name[i]);
    if (a->has_labels != b->has_labels)
        return differ_part(a, b, a->has_labels, "/labels");
    if (a->has_subvoxel != b->has_subvoxel)
        return differ_part(a, b, a->has_subvoxel, "/subvoxel");
    if (a->has_points != b->has_points)
        return differ_part(a, b, a->has_points, "/point_offsets");
    if (!a->feature_mean != !b->feature_mean)
        return differ_part(a, b, a->feature_mean != NULL, "feature_mean");
    return SP_OK;
}

static sp_status read_parts(sp_wire *index, sp_dataset *part, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sp_wire_shard(index, &part[i]);
        SP_TRY(index->rc);
        SP_TRY(agree(&part[0], &part[i]));
    }
    return SP_OK;
}

/* Mean and standard deviation of the voxels of all files together. */
static void merge_moments(sp_dataset *set, const sp_dataset *part, int64_t n)
{
    for (int c = 0; c < set->n_features; c++) {
        double mean = 0, square = 0, total = (double)set->n_voxels;

        for (int64_t i = 0; i < n; i++)
            if (part[i].n_voxels > 0)
                mean += part[i].feature_mean[c] * ((double)part[i].n_voxels / total);
        for (int64_t i = 0; i < n; i++) {
            double away = part[i].n_voxels > 0 ? part[i].feature_mean[c] - mean : 0;
            double std = part[i].n_voxels > 0 ? part[i].feature_std[c] : 0;

            if (part[i].n_voxels > 0)
                square +=
                    (std * std + away * away) * ((double)part[i].n_voxels / total);
        }
        set->feature_mean[c] = n == 1 ? part[0].feature_mean[c] : mean;
        set->feature_std[c] = n == 1 ? part[0].feature_std[c] : sqrt(square);
    }
}

static void count(sp_dataset *set, sp_dataset *part, int64_t n)
{
    set->has_cost = set->has_names = true;
    for (int64_t i = 0; i < n; i++) {
        set->has_cost &= part[i].has_cost;
        set->has_names &= part[i].has_names;
        part[i].shard->first_sample = set->n_samples;
        set->n_samples += part[i].n_samples;
        set->n_voxels += part[i].n_voxels;
        set->n_points += part[i].n_points;
    }
}

/* Cost and names are there if every file has them. */
static sp_status allocate(sp_dataset *set, int64_t n)
{
    size_t offsets = (size_t)(set->n_samples + n), samples = (size_t)set->n_samples + 1;

    set->shard = calloc((size_t)n, sizeof *set->shard);
    set->offset = malloc(offsets * sizeof *set->offset);
    if (set->has_points)
        set->point_offset = malloc(offsets * sizeof *set->point_offset);
    if (set->has_cost)
        set->cost = malloc(samples * SP_COST_COLUMNS * sizeof *set->cost);
    if (set->has_names)
        set->name = calloc(samples, sizeof *set->name);
    if (!set->shard || !set->offset || (set->has_points && !set->point_offset) ||
        (set->has_cost && !set->cost) || (set->has_names && !set->name))
        return SP_FAIL(SP_EMEM, "no memory for the index of %lld samples",
                       (long long)set->n_samples);
    return SP_OK;
}

static void copy_part(sp_dataset *set, sp_dataset *part, int64_t i)
{
    int64_t first = part->shard->first_sample, n = part->n_samples;
    size_t offsets = (size_t)(n + 1) * sizeof *set->offset;

    set->shard[i] = *part->shard;
    part->shard->path = NULL;
    memcpy(set->offset + first + i, part->offset, offsets);
    if (set->has_points)
        memcpy(set->point_offset + first + i, part->point_offset, offsets);
    if (set->has_cost)
        memcpy(set->cost + first * SP_COST_COLUMNS, part->cost,
               (size_t)n * SP_COST_COLUMNS * sizeof *set->cost);
    for (int64_t s = 0; set->has_names && s < n; s++) {
        set->name[first + s] = part->name[s];
        part->name[s] = NULL;
    }
}

/* The codes that all parts have alike; NULL: scans of several sources, or of none. */
static char **take_codes(sp_dataset *part, int64_t n)
{
    char **code = part[0].class_code;
    bool is_same = code != NULL;

    for (int64_t i = 1; is_same && i < n; i++) {
        is_same = part[i].class_code != NULL;
        for (int c = 0; is_same && c < part[0].n_classes; c++)
            is_same = strcmp(code[c], part[i].class_code[c]) == 0;
    }
    if (!is_same)
        return NULL;
    part[0].class_code = NULL;
    return code;
}

/* Takes what it can from the parts. */
static sp_status merge(sp_dataset *set, sp_dataset *part, int64_t n)
{
    set->voxel_size = part[0].voxel_size;
    set->n_classes = part[0].n_classes;
    set->ignore_label = part[0].ignore_label;
    set->n_features = part[0].n_features;
    set->has_labels = part[0].has_labels;
    set->has_subvoxel = part[0].has_subvoxel;
    set->has_points = part[0].has_points;
    count(set, part, n);
    SP_TRY(allocate(set, n));
    set->n_shards = (int)n;
    for (int64_t i = 0; i < n; i++)
        copy_part(set, &part[i], i);
    if (part[0].feature_mean) {
        set->feature_mean = malloc((size_t)set->n_features * sizeof(double));
        set->feature_std = malloc((size_t)set->n_features * sizeof(double));
        if (!set->feature_mean || !set->feature_std)
            return SP_FAIL(SP_EMEM, "no memory for the index of the data");
        merge_moments(set, part, n);
    }
    set->class_name = part[0].class_name;
    set->feature_name = part[0].feature_name;
    part[0].class_name = part[0].feature_name = NULL;
    set->class_code = take_codes(part, n);
    return sp_shard_files_create(&set->files, set->n_shards, set->n_samples);
}

/* Where the files lie does not count. */
static uint64_t hash_of(const sp_dataset *set)
{
    XXH64_state_t hash;
    const char *base;

    XXH64_reset(&hash, 0);
    for (int i = 0; i < set->n_shards; i++) {
        base = strrchr(set->shard[i].path, '/');
        base = base ? base + 1 : set->shard[i].path;
        XXH64_update(&hash, base, strlen(base) + 1);
        XXH64_update(&hash, &set->shard[i].n_samples, sizeof set->shard[i].n_samples);
    }
    XXH64_update(&hash, &set->voxel_size, sizeof set->voxel_size);
    XXH64_update(&hash, &set->n_classes, sizeof set->n_classes);
    XXH64_update(&hash, &set->ignore_label, sizeof set->ignore_label);
    XXH64_update(&hash, &set->n_features, sizeof set->n_features);
    for (int i = 0; i < set->n_classes; i++)
        XXH64_update(&hash, set->class_name[i], strlen(set->class_name[i]) + 1);
    for (int i = 0; i < set->n_features; i++)
        XXH64_update(&hash, set->feature_name[i], strlen(set->feature_name[i]) + 1);
    if (set->feature_mean) {
        XXH64_update(&hash, set->feature_mean,
                     (size_t)set->n_features * sizeof(double));
        XXH64_update(&hash, set->feature_std, (size_t)set->n_features * sizeof(double));
    }
    XXH64_update(&hash, set->offset,
                 (size_t)(set->n_samples + set->n_shards) * sizeof *set->offset);
    if (set->has_points)
        XXH64_update(&hash, set->point_offset,
                     (size_t)(set->n_samples + set->n_shards) *
                         sizeof *set->point_offset);
    return XXH64_digest(&hash);
}

static sp_status build(sp_dataset *set, sp_wire *index, int64_t n)
{
    sp_dataset *part = calloc((size_t)n, sizeof *part);
    sp_status rc;

    if (!part)
        return SP_FAIL(SP_EMEM, "no memory for the index of %lld files", (long long)n);
    rc = read_parts(index, part, n);
    if (rc == SP_OK)
        rc = merge(set, part, n);
    for (int64_t i = 0; i < n; i++)
        sp_dataset_close(&part[i]);
    free(part);
    if (rc == SP_OK)
        set->hash = hash_of(set);
    return rc;
}

static void warn_slow(const sp_dataset *set)
{
    for (int i = 0; i < set->n_shards; i++)
        if (sp_shard_is_chunked(&set->shard[i]))
            sp_log_warn0(
                "%s: chunked or compressed, so its samples are read one at a time "
                "through HDF5, which is slow; write it contiguous",
                set->shard[i].path);
}

sp_status sp_dataset_open(sp_dataset *set, const sp_strings *patterns, sp_comm *comm)
{
    sp_wire index = {0};
    int64_t n_shards = 0;
    sp_status rc = SP_OK;

    *set = (sp_dataset){0};
    if (!comm || comm->rank == 0)
        rc = collect(patterns, &index, &n_shards);
    rc = share(comm, rc, &index, &n_shards);
    if (rc == SP_OK) {
        index.is_reading = true;
        rc = build(set, &index, n_shards);
        if (comm)
            rc = sp_comm_agree(comm, rc, NULL);
    }
    free(index.data);
    SP_TRY(rc);
    warn_slow(set);
    return SP_OK;
}
