/* Fibers and blocks: the threads of a block are fibers, and one block runs at a time,
 * or one cluster of blocks. By chance two blocks of a grid run as a cluster does,
 * thread by thread in turns, so that waits for other blocks happen. */
#include "emulator/hostcuda_internal.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__
#define HC_ASAN 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define HC_ASAN 1
#endif
#endif
#ifdef HC_ASAN
extern "C" void __sanitizer_start_switch_fiber(void **, const void *, size_t);
extern "C" void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
extern "C" void __asan_unpoison_memory_region(const void *, size_t);
#endif

enum : size_t { STACK = 192 << 10, GUARD = 4 << 10 };
enum { STACK_SHIFTS = 64, SHIFT = 1 << 10 /* bytes */ };
enum { MAX_THREADS = 1024 /* of a cluster too */ };

/* A block of the cluster. */
struct member {
    int n_done, n_arrived; /* threads; at __syncthreads */
};

/* The one cluster that runs. */
struct block {
    std::vector<hc_fiber> fiber;
    std::vector<hc_warp> warp;
    std::vector<char *> stack;
    std::vector<hc_fiber *> ready;
    member members[HC_MOST_BLOCKS];
    int size, n_each; /* blocks, and threads of each */
    bool is_pair;     /* two blocks of a grid without clusters */
    int n, n_done;    /* threads of all */
    int n_polls;      /* polls since the host let the block run */
    bool is_ahead;    /* device memory is closed until all have waited */
    bool is_shown;    /* but it can be read */
    bool lets_next;
    std::vector<hc_fiber *> waited;
    const hc_launch *launch; /* NULL: no block is under way */
    void *host_sp;           /* stack pointer of the host, while fibers run */
    void *host_fake;
    const void *host_stack;
    size_t host_stack_bytes;
    uint64_t random;
    int favourite; /* the block whose threads run by preference, for a while */
};

static block *B = new block();
__thread hc_view *hc_self;
char *hc_window;
hc_fiber *volatile hc_running;
hc_hooks hc_hook;

/* ---- findings ---- */

void hc_fail(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "hostcuda: kernel %s: ", B->launch ? B->launch->kernel : "none");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    fflush(stderr);
    _exit(66);
}

const char *hc_where(const hc_fiber *f)
{
    static char text[4][256];
    static unsigned turn;
    char *to = text[turn++ % 4];
    const hc_view *v = &f->view;

    snprintf(to, sizeof text[0], "block (%u,%u,%u) thread (%u,%u,%u) at %s:%d",
             v->block.x, v->block.y, v->block.z, v->thread.x, v->thread.y, v->thread.z,
             f->file ? f->file : "its start", f->line);
    return to;
}

uint64_t hc_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545f4914f6cdd1du >> 11;
}

/* ---- context switch ---- */

static void __attribute__((noinline)) arrived()
{
#ifdef HC_ASAN
    hc_fiber *f = hc_current();
    const void *stack;
    size_t bytes;

    __sanitizer_finish_switch_fiber(f ? f->fake : B->host_fake, &stack, &bytes);
    if (f && !B->host_stack) {
        B->host_stack = stack;
        B->host_stack_bytes = bytes;
    }
#endif
}

/* Switches from one fiber to another; NULL is the host. */
static void jump(hc_fiber *from, hc_fiber *to)
{
    if (from == to)
        return;
    hc_self = to ? &to->view : NULL;
    hc_running = to;
    if (to)
        hc_window = hc_space + (size_t)to->rank * HC_WINDOW;
#ifdef HC_ASAN
    __sanitizer_start_switch_fiber(!from           ? &B->host_fake
                                   : from->is_done ? NULL
                                                   : &from->fake,
                                   to ? to->stack : B->host_stack,
                                   to ? STACK : B->host_stack_bytes);
#endif
    hc_switch(from ? &from->sp : &B->host_sp, to ? to->sp : B->host_sp);
    arrived();
}

/* ---- scheduling ---- */

hc_fiber *hc_current()
{
    return (hc_fiber *)hc_self;
}

int hc_block_of_run()
{
    return hc_current()->rank;
}

hc_fiber *hc_current_at(const char *file, int line)
{
    hc_fiber *f = hc_current();

    f->file = file;
    f->line = line;
    return f;
}

void hc_make_ready(hc_fiber *f)
{
    B->ready.push_back(f);
}

size_t hc_launch_shared_bytes()
{
    return B->launch->shared_bytes;
}

bool hc_is_own_stack(const void *p)
{
    const char *stack = hc_current()->stack;

    return (const char *)p >= stack && (const char *)p < stack + STACK;
}

size_t hc_random_below(size_t n)
{
    if (hc_option.order != HC_RANDOM)
        return 0;
    /* A product instead of a remainder, since each switch of threads draws once. */
    return (hc_random(&B->random) & UINT32_MAX) * n >> 32;
}

/* Blocks of a cluster are to get apart from each other, so one of them is preferred for
 * a while. */
static size_t pick_at_random()
{
    size_t i = hc_random_below(B->ready.size());

    if (B->size > 1 && hc_random_below(1024) == 0)
        B->favourite = (int)hc_random_below((size_t)B->size);
    for (int k = 0; k < 8 && B->size > 1 && B->ready[i]->rank != B->favourite; k++)
        i = hc_random_below(B->ready.size());
    return i;
}

static hc_fiber *pick()
{
    std::vector<hc_fiber *> &r = B->ready;
    hc_fiber *f;

    if (hc_option.order == HC_RANDOM)
        std::swap(r[pick_at_random()], r.back());
    if (hc_option.order == HC_UP) {
        f = r.front();
        r.erase(r.begin());
        return f;
    }
    f = r.back();
    r.pop_back();
    return f;
}

static void fail_deadlock()
{
    char text[1024] = "";
    size_t used = 0;
    const hc_fiber *last = NULL;
    int n_arrived = 0;

    for (int i = 0; i < B->n && used < sizeof text - 300; i++) {
        const hc_fiber *f = &B->fiber[i];
        if (f->is_done || (last && last->line == f->line))
            continue;
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "\n  %s", hc_where(f));
        last = f;
    }
    for (int i = 0; i < B->size; i++)
        n_arrived += B->members[i].n_arrived;
    hc_fail("deadlock: %d of %d threads done, %d at __syncthreads; waiting:%s",
            B->n_done, B->n, n_arrived, text);
}

/* All threads of a block that are not done have arrived. */
static void release_barrier(int rank)
{
    const int from = rank * B->n_each, end = from + B->n_each;
    const hc_fiber *first = NULL, *done = NULL;

    for (int i = from; i < end; i++) {
        const hc_fiber *f = &B->fiber[i];
        if (f->is_done)
            done = f;
        else if (!first)
            first = f;
        else if (f->line != first->line ||
                 (f->file != first->file && strcmp(f->file, first->file)))
            hc_fail("divergent __syncthreads: %s and %s", hc_where(first), hc_where(f));
    }
    if (done)
        hc_fail("thread (%u,%u,%u) is done while others wait in __syncthreads: %s",
                done->view.thread.x, done->view.thread.y, done->view.thread.z,
                hc_where(first));
    B->members[rank].n_arrived = 0;
    for (int i = from; i < end; i++)
        hc_make_ready(&B->fiber[i]);
}

/* No thread is ready: releases barriers, else lets copies land. */
static void go_further()
{
    for (int i = 0; i < B->size; i++) {
        const member &m = B->members[i];
        if (m.n_arrived && m.n_arrived + m.n_done == B->n_each)
            release_barrier(i);
    }
    while (B->ready.empty())
        if (!hc_cluster_stir())
            fail_deadlock();
}

void hc_switch_away()
{
    hc_fiber *from = hc_current();

    if (B->ready.empty() && B->n_done < B->n)
        go_further();
    jump(from, B->n_done == B->n ? NULL : pick());
}

static void fiber_main()
{
    hc_fiber *f;

    arrived();
    B->launch->invoke(B->launch->call.get());
    f = hc_current();
    hc_copy_left(f);
    hc_wgmma_left(f);
    hc_cluster_left(f);
    if (B->launch->is_early && !f->has_waited)
        hc_fail("launched early, leaves without sp_grid_wait: %s", hc_where(f));
    f->is_done = true;
    B->n_done++;
    B->members[f->rank].n_done++;
    f->warp->live &= ~(1u << f->view.lane);
    hc_warp_left(f->warp);
    hc_switch_away();
    abort();
}

void __syncthreads(const char *file, int line)
{
    hc_fiber *f = hc_current_at(file, line);

    /* Blocks of a cluster do not wait for each other here. */
    if (++B->members[f->rank].n_arrived == B->n_each && B->size > 1)
        release_barrier(f->rank);
    hc_switch_away();
    f->view.barriers++;
}

bool hc_is_chance(int one_in)
{
    return hc_option.order == HC_RANDOM && hc_random_below((size_t)one_in) == 0;
}

void hc_maybe_yield()
{
    if (hc_option.order != HC_RANDOM || hc_is_chance(4)) {
        hc_make_ready(hc_current());
        hc_switch_away();
    }
}

hc_fiber *hc_fiber_of(int rank, int thread)
{
    return &B->fiber[rank * B->n_each + thread];
}

bool hc_has_left(int rank)
{
    return B->members[rank].n_done == B->n_each;
}

bool hc_is_ahead()
{
    return B->is_ahead;
}

void sp_reads_ahead()
{
    if (!B->is_ahead || B->is_shown)
        return;
    B->is_shown = true;
    hc_show_space();
}

void hc_grid_let()
{
    if (!hc_current()->has_waited)
        hc_fail("lets the next kernel begin ahead of sp_grid_wait: %s",
                hc_where(hc_current()));
    B->lets_next = true;
}

void sp_grid_wait()
{
    hc_fiber *f = hc_current();

    f->has_waited = true;
    if (!B->is_ahead)
        return;
    B->waited.push_back(f);
    if ((int)B->waited.size() < B->n)
        return hc_switch_away();
    B->is_ahead = false;
    hc_open_space();
    for (hc_fiber *other : B->waited)
        if (other != f)
            hc_make_ready(other);
}

void __threadfence()
{
    if (hc_hook.fenced)
        hc_hook.fenced(hc_self);
}

/* ---- blocks ---- */

static void need_stacks(int n)
{
    while ((int)B->stack.size() < n) {
        char *m = (char *)mmap(NULL, STACK + GUARD, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED || mprotect(m, GUARD, PROT_NONE))
            hc_fail("no memory for stacks");
        B->stack.push_back(m + GUARD);
    }
}

/* Makes a fiber as new, but for the room in its lists. */
static void renew(hc_fiber *f)
{
    *static_cast<hc_thread *>(f) = hc_thread();
    f->copy.clear();
    f->landed.clear();
    f->sums.clear();
    f->seen.clear();
}

/* Stacks begin at different places of their pages: at the same ones, a few sets of the
 * processor's cache would hold the frames of all fibers. */
static char *top_of(int i, char *stack)
{
    return stack + STACK - i % STACK_SHIFTS * SHIFT;
}

/* at: the block. */
static void make_fiber(int i, uint3 at)
{
    const dim3 b = B->launch->block;
    const unsigned u = (unsigned)(i % B->n_each);
    const int lane = (int)u % 32;
    hc_fiber *f = &B->fiber[i];

    renew(f);
    f->rank = i / B->n_each;
    f->view.thread = {u % b.x, u / b.x % b.y, u / (b.x * b.y)};
    f->view.block = at;
    f->view.block_dim = b;
    f->view.grid_dim = B->launch->grid;
    f->view.lane = lane;
    f->stack = B->stack[i];
    f->warp = &B->warp[f->rank * ((B->n_each + 31) / 32) + (int)u / 32];
    f->warp->lane[lane] = f;
    f->warp->live |= 1u << lane;
#ifdef HC_ASAN /* the last fiber's frames never returned */
    __asan_unpoison_memory_region(f->stack, STACK);
#endif
    f->sp = hc_first_frame(top_of(i, f->stack), fiber_main);
    hc_make_ready(f);
}

/* Gives the i-th block of a grid. */
static uint3 block_at(const hc_launch *launch, uint32_t i)
{
    const dim3 g = launch->grid;

    return {i % g.x, i / g.x % g.y, i / (g.x * g.y)};
}

/* block: the first of the cluster, or both of a pair. */
static void begin_block(const hc_launch *launch, const uint32_t *block, bool is_pair,
                        uint64_t seed)
{
    const int size = is_pair ? 2 : (int)launch->cluster;
    const int each = (int)(launch->block.x * launch->block.y * launch->block.z);
    const int n = size * each;

    B->launch = launch;
    if (n > MAX_THREADS)
        hc_fail("clusters of %d threads are not emulated", n);
    B->size = size;
    B->is_pair = is_pair;
    B->n_each = each;
    B->n = n;
    B->n_done = B->favourite = 0;
    memset(B->members, 0, sizeof B->members);
    B->random = seed;
    B->fiber.resize(MAX_THREADS); /* resized once, since warps point into it */
    B->warp.assign((size_t)(size * ((each + 31) / 32)), hc_warp());
    hc_cluster_begin(size, n, is_pair);
    hc_wgmma_begin(B->warp.data(), (int)B->warp.size());
    B->ready.clear();
    need_stacks(n);
    for (int i = 0; i < n; i++) {
        const uint32_t rank = (uint32_t)(i / each);
        make_fiber(i, block_at(launch, is_pair ? block[rank] : block[0] + rank));
    }
}

/* Runs the block; returns true if it has ended. */
static bool go_on()
{
    B->n_polls = 0;
    B->host_stack = NULL; /* it belongs to the present host thread */
    hc_switch_away();
    if (B->n_done < B->n)
        return false;
    hc_shared_drop();
    B->launch = NULL;
    return true;
}

/* A thread polls and finds nothing. When all threads that could run have polled, the
 * host goes on. */
void hc_poll()
{
    hc_fiber *f = hc_current();

    hc_make_ready(f);
    if (++B->n_polls > 2 * (B->n - B->n_done))
        jump(f, NULL);
    else
        hc_switch_away();
}

struct hc_grid {
    hc_launch launch;
    std::vector<uint32_t> order; /* of its clusters of blocks */
    size_t n_done;
    uint64_t random;
    block *suspended; /* NULL: none */
};

hc_grid *hc_grid_begin(const hc_launch &launch, uint64_t seed)
{
    const dim3 g = launch.grid;
    const size_t n = (size_t)g.x * g.y * g.z / launch.cluster;
    hc_grid *grid = new hc_grid();

    hc_count_launch(&launch);
    grid->launch = launch;
    grid->random = (seed + 1) * 0x9e3779b97f4a7c15u;
    grid->order.resize(n);
    for (size_t i = 0; i < n; i++)
        grid->order[i] = (uint32_t)(hc_option.order == HC_DOWN ? n - 1 - i : i);
    for (size_t i = n; hc_option.order == HC_RANDOM && i > 1; i--)
        std::swap(grid->order[i - 1], grid->order[hc_random(&grid->random) % i]);
    return grid;
}

/* Never destroyed, like B: its content is used to the end of the program. */
static std::vector<block *> &spare = *new std::vector<block *>();

/* Suspends a grid: other grids may run before it goes on, so its block is kept. */
static void suspend(hc_grid *grid)
{
    if (hc_shared_is_taken())
        hc_fail("a thread waits for another device in a block with shared memory");
    grid->suspended = B;
    if (spare.empty())
        spare.push_back(new block());
    B = spare.back();
    spare.pop_back();
}

static void resume(hc_grid *grid)
{
    if (!grid->suspended)
        return;
    spare.push_back(B);
    B = grid->suspended;
    grid->suspended = NULL;
}

bool hc_is_early(const hc_grid *grid)
{
    return grid->launch.is_early;
}

/* Begins the next block of the grid, cluster, or pair. */
static void begin_next(hc_grid *grid)
{
    const hc_launch *l = &grid->launch;
    const size_t threads = (size_t)l->block.x * l->block.y * l->block.z;
    const bool is_pair =
        hc_option.order == HC_RANDOM && l->cluster == 1 && 2 * threads <= MAX_THREADS &&
        grid->order.size() - grid->n_done > 1 && hc_random(&grid->random) % 2;
    const uint32_t *const at = &grid->order[grid->n_done];
    const uint32_t blocks[] = {at[0] * l->cluster, is_pair ? at[1] : 0};

    begin_block(l, blocks, is_pair, hc_random(&grid->random) | 1);
    B->is_ahead = hc_is_early(grid) && grid->n_done == 0;
    B->is_shown = false;
    B->waited.clear();
}

bool hc_grid_go(hc_grid *grid)
{
    const hc_launch *l = &grid->launch;

    resume(grid);
    if (hc_hook.launched)
        hc_hook.launched(l);
    hc_set_watchdog(hc_option.watchdog_s);
    while (grid->n_done < grid->order.size()) {
        if (!B->launch)
            begin_next(grid);
        if (!go_on()) {
            suspend(grid);
            break;
        }
        grid->n_done += B->is_pair ? 2 : 1;
    }
    hc_set_watchdog(0);
    if (grid->n_done < grid->order.size())
        return false;
    hc_count_let(B->lets_next);
    B->lets_next = false;
    delete grid;
    return true;
}
