#include "comm/sp_comm_node.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/sp_comm_internal.h"

enum {
    /* distance of two flags: they share no cache line, prefetched pairs included */
    LINE = 128,
    SLOT_BYTES = 1 << 15, /* longest short vector in bytes */
    N_SLOTS = 4,
    /* bytes of short vectors that a rank reads at most; beyond, MPI's tree is used */
    READ_BYTES = 1 << 19,
    /* bytes of a slice that are summed at a time, within the first-level cache */
    BLOCK_BYTES = 1 << 13
};

/* A rank's flags, which the others read. Each holds the number of the last request that
 * has reached this state. */
typedef enum flag {
    WRITTEN, /* short vectors: the rank's vector is in its slot */
    READ,    /* short vectors: the rank has added up all slots */
    POSTED,  /* long vectors: the rank's vector may be read and overwritten */
    SUMMED,  /* long vectors: the rank has written its slice to all */
    LANE_POSTED,
    LANE_SUMMED,
    N_FLAGS
} flag;

typedef struct lane {
    struct {
        _Alignas(LINE) _Atomic int64_t number;
    } flag[N_FLAGS];
} lane;

typedef struct region {
    struct region *next;
    char *base; /* [size][bytes] a part for each rank */
    size_t bytes;
} region;

/* The requests that are posted and not yet done, in order. */
typedef struct queue {
    sp_node_request *first, **last;
    int64_t n_posted;
} queue;

struct sp_node {
    int rank, size;
    sp_comm *comm;
    region segment;
    lane *lane; /* [size] flags of each rank */
    /* requests of SP_SCOPE_LANE have an order of their own */
    queue brief, lengthy, lengthy_lane;
    region *regions;
};

/* ---- shared memory ---- */

/* The description of new memory that the node's first rank gives to the others. */
typedef struct offer {
    int64_t pid, fd; /* fd < 0: there is no memory */
    /* random, part of the memory's name: exposes the equal pid of another container */
    int64_t number;
} offer;

/* False if the limit on file sizes forbids this size, which would raise a signal. */
static bool is_allowed(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

enum { NAME = 32 };
static const char *name_of(const offer *o, char name[NAME])
{
    snprintf(name, NAME, "sptrain-%016" PRIx64, (uint64_t)o->number);
    return name;
}

static int make_memory(size_t bytes, offer *o)
{
    char name[NAME];
    int fd;

    if (!is_allowed(bytes) || getrandom(&o->number, sizeof o->number, 0) < 0)
        return -1;
    o->number &= INT64_MAX; /* it is the greatest of the ranks' */
    fd = memfd_create(name_of(o, name), MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        close(fd);
        fd = -1;
    }
    o->pid = getpid();
    o->fd = fd;
    return fd;
}

static int open_memory(const offer *o)
{
    char path[64], target[PATH_MAX], own[NAME], name[NAME + 8];
    ssize_t n;

    if (o->fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)o->pid,
             (long long)o->fd);
    n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return -1;
    target[n] = 0;
    snprintf(name, sizeof name, "/memfd:%s", name_of(o, own));
    return strncmp(target, name, strlen(name)) == 0 ? open(path, O_RDWR | O_CLOEXEC)
                                                    : -1;
}

static char *map_memory(int fd, size_t bytes)
{
    char *base = fd < 0 ? MAP_FAILED
                        : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return base == MAP_FAILED ? NULL : base;
}

static void unshare(const sp_node *node, region *r)
{
    if (r->base)
        munmap(r->base, r->bytes * (size_t)node->size);
    r->base = NULL;
}

/* Maps a new segment of `bytes` for each rank. Collective over the node. r->base is
 * NULL on all ranks if one of them cannot map it, or has can_use false because it lacks
 * the memory to record it. */
static sp_status comm_share(const sp_node *node, size_t bytes, bool can_use, region *r)
{
    const size_t all_bytes = bytes * (size_t)node->size;
    offer o = {-1, -1, -1};
    int64_t is_missing = 1;
    int fd = node->rank == 0 ? make_memory(all_bytes, &o) : -1;
    sp_status rc =
        sp_comm_greatest_in_node(node->comm, &o.pid, sizeof o / sizeof o.pid);

    *r = (region){.bytes = bytes};
    if (rc == SP_OK) {
        if (node->rank > 0)
            fd = open_memory(&o);
        r->base = map_memory(fd, all_bytes);
        is_missing = !r->base || !can_use;
        rc = sp_comm_greatest_in_node(node->comm, &is_missing, 1);
    }
    if (fd >= 0)
        close(fd);
    if (rc != SP_OK || is_missing)
        unshare(node, r);
    return rc;
}

sp_status sp_node_open(sp_node **node, sp_comm *comm)
{
    const size_t flags = sizeof(lane), slots = (size_t)N_SLOTS * SLOT_BYTES;
    const sp_node own = {
        .rank = comm->local_rank, .size = comm->local_size, .comm = comm};
    sp_node *n = calloc(1, sizeof *n);
    region segment;
    sp_status rc;

    assert(0 <= own.rank && own.rank < own.size);
    *node = NULL;
    rc = comm_share(&own, flags + slots, n, &segment);
    if (!segment.base) {
        free(n);
        return rc;
    }
    *n = own;
    n->segment = segment;
    n->lane = (lane *)(void *)segment.base;
    n->brief.last = &n->brief.first;
    n->lengthy.last = &n->lengthy.first;
    n->lengthy_lane.last = &n->lengthy_lane.first;
    *node = n;
    return SP_OK;
}

void sp_node_close(sp_node *node)
{
    if (!node)
        return;
    while (node->regions)
        sp_node_free(node,
                     node->regions->base + node->regions->bytes * (size_t)node->rank);
    unshare(node, &node->segment);
    free(node);
}

sp_status sp_node_alloc(sp_node *node, size_t bytes, void **out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    region *r = calloc(1, sizeof *r), found;
    sp_status rc = comm_share(node, (bytes + page) / page * page, r, &found);

    *out = NULL;
    if (!found.base) {
        free(r);
        return rc;
    }
    *r = found;
    r->next = node->regions;
    node->regions = r;
    *out = r->base + r->bytes * (size_t)node->rank;
    return SP_OK;
}

sp_status sp_node_map(sp_node *node, size_t bytes, void **out, size_t *mapped)
{
    const size_t size = (size_t)node->size;
    region r;

    SP_TRY(comm_share(node, bytes / size + 1, true, &r));
    *out = r.base;
    *mapped = r.bytes * size;
    return SP_OK;
}

bool sp_node_free(sp_node *node, void *data)
{
    for (region **at = &node->regions; *at; at = &(*at)->next) {
        region *r = *at;

        if (r->base + r->bytes * (size_t)node->rank != (char *)data)
            continue;
        *at = r->next;
        unshare(node, r);
        free(r);
        return true;
    }
    return false;
}

/* Returns the region with `data` in this rank's part, or NULL. */
static const region *region_of(const sp_node *node, const void *data)
{
    const region *r = node->regions;

    for (; r; r = r->next) {
        const char *own = r->base + r->bytes * (size_t)node->rank;

        if ((const char *)data >= own && (const char *)data < own + r->bytes)
            break;
    }
    return r;
}

bool sp_node_holds(const sp_node *node, const void *data)
{
    return region_of(node, data) != NULL;
}

/* ---- arithmetic ---- */

size_t sp_type_bytes(sp_type type)
{
    return type == SP_U8 ? 1 : type == SP_F32 ? sizeof(float) : sizeof(double);
}

/* A NaN of one rank is the greatest and the least number, on every rank. */
#define NEVER(x) false
#define COMBINE(NAME, TYPE, IS_NAN)                                                    \
    static void NAME(void *to, const void *from, size_t n, sp_reduce_op op)            \
    {                                                                                  \
        TYPE *restrict a = to;                                                         \
        const TYPE *restrict b = from;                                                 \
        size_t i;                                                                      \
                                                                                       \
        for (i = 0; op == SP_SUM && i < n; i++)                                        \
            a[i] = (TYPE)(a[i] + b[i]);                                                \
        for (i = 0; op == SP_MAX && i < n; i++)                                        \
            a[i] = b[i] > a[i] || IS_NAN(b[i]) ? b[i] : a[i];                          \
        for (i = 0; op == SP_MIN && i < n; i++)                                        \
            a[i] = b[i] < a[i] || IS_NAN(b[i]) ? b[i] : a[i];                          \
    }
COMBINE(combine_f32, float, isnan)
COMBINE(combine_f64, double, isnan)
COMBINE(combine_i64, int64_t, NEVER)
COMBINE(combine_u8, uint8_t, NEVER)

static void combine(void *to, const void *from, size_t n, const sp_node_request *q)
{
    static void (*const by_type[])(void *, const void *, size_t, sp_reduce_op) = {
        [SP_F32] = combine_f32,
        [SP_F64] = combine_f64,
        [SP_I64] = combine_i64,
        [SP_U8] = combine_u8,
    };

    by_type[q->type](to, from, n, q->op);
}

/* ---- requests ---- */

static void tell(const sp_node *node, flag what, int64_t number)
{
    atomic_store_explicit(&node->lane[node->rank].flag[what].number, number,
                          memory_order_release);
}

static bool all_told(const sp_node *node, flag what, int64_t number)
{
    for (int r = 0; r < node->size; r++)
        if (atomic_load_explicit(&node->lane[r].flag[what].number,
                                 memory_order_acquire) < number)
            return false;
    return true;
}

static char *comm_slot_of(const sp_node *node, int rank, int64_t number)
{
    char *slots = node->segment.base + sizeof(lane) * (size_t)node->size;

    return slots + ((size_t)rank * N_SLOTS + (size_t)(number % N_SLOTS)) * SLOT_BYTES;
}

static bool is_brief(const sp_node *node, size_t bytes)
{
    return bytes <= SLOT_BYTES && bytes * (size_t)node->size <= READ_BYTES;
}

bool sp_node_takes(const sp_node *node, sp_scope scope, const void *data, size_t count,
                   sp_type type)
{
    return (scope != SP_SCOPE_LANE && is_brief(node, count * sp_type_bytes(type))) ||
           region_of(node, data);
}

void sp_node_post(sp_node *node, sp_node_request *request, sp_scope scope, void *data,
                  size_t count, sp_type type, sp_reduce_op op)
{
    bool is_lane = scope == SP_SCOPE_LANE;
    bool is_long = is_lane || !is_brief(node, count * sp_type_bytes(type));
    queue *q = is_lane ? &node->lengthy_lane : is_long ? &node->lengthy : &node->brief;

    assert(sp_node_takes(node, scope, data, count, type));
    *request = (sp_node_request){
        .number = ++q->n_posted, .data = data, .count = count, .type = type, .op = op};
    *q->last = request;
    q->last = &request->next;
    if (is_long)
        tell(node, is_lane ? LANE_POSTED : POSTED, request->number);
    sp_node_progress(node);
}

static void pop(queue *q)
{
    q->first->is_done = true;
    q->first = q->first->next;
    if (!q->first)
        q->last = &q->first;
}

/* Copies this rank's vector into its slot, once the slot is free: all ranks have then
 * read the vector that it held N_SLOTS requests ago. */
static void give_brief(sp_node *node, sp_node_request *q)
{
    if (q->is_given || !all_told(node, READ, q->number - N_SLOTS))
        return;
    memcpy(comm_slot_of(node, node->rank, q->number), q->data,
           q->count * sp_type_bytes(q->type));
    tell(node, WRITTEN, q->number);
    q->is_given = true;
}

static void progress_brief(sp_node *node)
{
    sp_node_request *q;

    for (q = node->brief.first; q; q = q->next) {
        give_brief(node, q);
        if (!q->is_given)
            break;
    }
    while ((q = node->brief.first) && q->is_given &&
           all_told(node, WRITTEN, q->number)) {
        memcpy(q->data, comm_slot_of(node, 0, q->number),
               q->count * sp_type_bytes(q->type));
        for (int r = 1; r < node->size; r++)
            combine(q->data, comm_slot_of(node, r, q->number), q->count, q);
        tell(node, READ, q->number);
        pop(&node->brief);
    }
}

/* Adds up this rank's slice of all vectors and writes the sum to all of them. */
static void sum_slice(const sp_node *node, const sp_node_request *q)
{
    const region *r = region_of(node, q->data);
    size_t each = sp_type_bytes(q->type), n_ranks = (size_t)node->size;
    size_t at = (size_t)(q->data - r->base) - r->bytes * (size_t)node->rank;
    size_t lines = (q->count * each + LINE - 1) / LINE;
    size_t from = lines * (size_t)node->rank / n_ranks * LINE;
    size_t to = lines * ((size_t)node->rank + 1) / n_ranks * LINE;
    _Alignas(LINE) char sum[BLOCK_BYTES];

    to = to < q->count * each ? to : q->count * each;
    for (size_t n; from < to; from += n) {
        char *first = r->base + at + from;

        n = to - from < BLOCK_BYTES ? to - from : BLOCK_BYTES;
        memcpy(sum, first, n);
        for (size_t k = 1; k < n_ranks; k++)
            combine(sum, first + k * r->bytes, n / each, q);
        for (size_t k = 0; k < n_ranks; k++)
            memcpy(first + k * r->bytes, sum, n);
    }
}

static void progress_long(sp_node *node, queue *posts, flag posted, flag summed)
{
    sp_node_request *q;

    for (q = posts->first; q; q = q->next) {
        if (!q->is_given && all_told(node, posted, q->number)) {
            sum_slice(node, q);
            tell(node, summed, q->number);
            q->is_given = true;
        }
        if (!q->is_given)
            break;
    }
    while ((q = posts->first) && q->is_given && all_told(node, summed, q->number))
        pop(posts);
}

void sp_node_progress(sp_node *node)
{
    progress_brief(node);
    progress_long(node, &node->lengthy, POSTED, SUMMED);
    progress_long(node, &node->lengthy_lane, LANE_POSTED, LANE_SUMMED);
}
