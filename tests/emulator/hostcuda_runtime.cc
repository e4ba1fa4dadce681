/* Streams, events and the calls of the CUDA runtime. */
#include "emulator/hostcuda_internal.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <set>
#include <string>

struct hc_event {
    int device;
    uint64_t recorded, done; /* numbers of the operations */
    bool is_timed;
    uint64_t done_ns;
    std::shared_ptr<const hc_point> point; /* of the last record */
};

struct operation {
    enum { RUN, GRID, RECORD, WAIT, OUTSIDE } kind;
    std::function<void()> run = nullptr;
    hc_event *event = NULL;
    uint64_t ticket = 0;
    hc_grid *grid = NULL;
    hc_outside outside = {};
    bool is_started = false;
};

struct hc_stream {
    int device;
    std::deque<operation> queue;
    bool has_news;         /* operations since a thread waited for the stream */
    bool is_behind_kernel; /* kind of the last submission, events' records excepted */
    uint32_t last;         /* number of the last launch */
    hc_stream_order *order;
};

static struct state {
    std::vector<hc_stream *> stream;
    uint64_t ticket, random;
    std::map<const void *, size_t> allowed; /* most shared memory, by kernel */
    std::set<const void *> loaded;          /* kernels, by cudaFuncGetAttributes */
    bool is_all_loaded;
    bool is_broken; /* a kernel has failed (HC_FAULT): nothing runs any more */
} *const S = new state();

static thread_local cudaError_t last_error;

cudaError_t hc_remember(cudaError_t error)
{
    if (S->is_broken)
        error = cudaErrorIllegalAddress;
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

std::recursive_mutex &hc_lock = *new std::recursive_mutex();
char *hc_space;
hc_options hc_option;

/* ---- start ---- */

static void on_fault(int, siginfo_t *info, void *)
{
    const char *at = (const char *)info->si_addr;

    if (at < hc_space || at >= hc_space + HC_SPACE) {
        signal(SIGSEGV, SIG_DFL);
        return; /* the address is not the emulator's: fault again */
    }
    if (!hc_self)
        hc_fail("the host touches device memory at %p", (const void *)at);
    if (hc_is_ahead())
        hc_fail("launched early, touches device memory ahead of sp_grid_wait: %s",
                hc_where(hc_current()));
    hc_fail("address %p is not allocated: %s", (const void *)at,
            hc_where(hc_current()));
}

uint64_t hc_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static struct start_runtime {
    start_runtime()
    {
        const char *order = getenv("HC_ORDER");
        struct sigaction action = {};

        hc_option = {HC_RANDOM, hc_number("HC_SEED", 1), hc_number("HC_LAZY", 0) != 0,
                     (int)hc_number("HC_WATCHDOG", 60)};
        if (order && *order)
            hc_option.order = !strcmp(order, "up") ? HC_UP : HC_DOWN;
        S->random = hc_option.seed * 7919 + 77;
        hc_space = (char *)mmap(NULL, HC_SPACE, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (hc_space == MAP_FAILED ||
            mprotect(hc_space, HC_SHARED_SPACE, PROT_READ | PROT_WRITE))
            hc_fail("no addresses for device memory");
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, NULL);
    }
} start_once;

void hc_set_order(uint64_t seed, bool is_lazy)
{
    const hc_hold h(hc_lock);

    hc_option.seed = seed;
    hc_option.is_lazy = is_lazy;
    S->random = seed * 7919 + 77;
    S->ticket = 0;
}

bool hc_is_checked()
{
    return hc_hook.allocated != NULL;
}

/* ---- streams ---- */

/* Tells whether the front of the stream is a grid that waits for another process. */
static bool is_suspended(const hc_stream *s)
{
    return !s->queue.empty() && s->queue.front().kind == operation::GRID &&
           s->queue.front().is_started;
}

static bool is_blocked(const hc_stream *s)
{
    const operation &o = s->queue.front();

    if (o.kind == operation::OUTSIDE)
        return o.is_started && !o.outside.is_done(o.outside.arg);
    return is_suspended(s) || (o.kind == operation::WAIT && o.event->done < o.ticket);
}

static bool is_outside(const hc_stream *s)
{
    return is_suspended(s) ||
           (!s->queue.empty() && s->queue.front().kind == operation::OUTSIDE);
}

static void run_front(hc_stream *s)
{
    operation o = s->queue.front();

    if (o.is_started || o.kind != operation::GRID || !hc_is_early(o.grid))
        hc_open_space();
    if (o.kind == operation::OUTSIDE && !o.is_started) {
        s->queue.front().is_started = true;
        o.outside.start(o.outside.arg);
        hc_close_space();
        return;
    }
    s->queue.front().is_started = true;
    if (o.kind == operation::GRID && !hc_grid_go(o.grid)) {
        hc_close_space();
        return;
    }
    s->queue.pop_front();
    if (o.kind == operation::OUTSIDE)
        o.outside.finish(o.outside.arg);
    else if (o.kind == operation::RUN)
        o.run();
    else if (o.kind == operation::RECORD && o.event->done < o.ticket) {
        o.event->done = o.ticket;
        o.event->done_ns = sp_clock_ns();
    }
    hc_close_space();
}

/* Lets a suspended grid poll whether it can go on; true: it has ended. */
static bool look_again(hc_stream *s)
{
    const bool is_any = is_suspended(s);

    if (is_any)
        run_front(s);
    return is_any && !is_suspended(s);
}

/* Runs one operation of any stream that has one ready. False: all that is left waits
 * for something outside of this process. */
static bool step()
{
    std::vector<hc_stream *> ready;
    bool is_any_outside = false;

    if (S->is_broken)
        return true;
    for (hc_stream *s : S->stream) {
        if (look_again(s))
            return true;
        if (!s->queue.empty() && !is_blocked(s))
            ready.push_back(s);
        is_any_outside = is_any_outside || is_outside(s);
    }
    if (ready.empty() && !is_any_outside)
        hc_fail("streams wait for each other");
    if (!ready.empty())
        run_front(ready[hc_random(&S->random) % ready.size()]);
    return !ready.empty();
}

/* Runs operations until `is_over`. Other threads may come in while it waits for
 * something outside. */
static void wait_until(hc_hold_loosely &h, const std::function<bool()> &is_over)
{
    while (!is_over())
        if (!step()) {
            h.unlock();
            usleep(100);
            h.lock();
        }
}

static void drain(hc_hold_loosely &h, hc_stream *s)
{
    wait_until(h, [=] { return s->queue.empty(); });
}

/* Runs everything that can run, where streams are not lazy. */
static void run_ahead(hc_stream *s)
{
    if (!hc_option.is_lazy)
        look_again(s);
    while (!hc_option.is_lazy && !s->queue.empty() && !is_blocked(s))
        run_front(s);
}

static thread_local unsigned n_waits;

unsigned hc_waits()
{
    return n_waits;
}

/* The calling thread waits for the stream. It is not counted as a wait where the thread
 * has waited before and nothing was submitted since. */
static void wait_for(hc_hold_loosely &h, hc_stream *s)
{
    n_waits += s->has_news;
    s->has_news = false;
    const std::shared_ptr<const hc_point> point = hc_order_point(s->order);
    drain(h, s);
    hc_order_seen(point);
}

static void submit(hc_stream *s, const operation &o)
{
    if (!s)
        hc_fail("the legacy default stream is not used here");
    if (S->is_broken)
        return;
    s->has_news = true;
    if (o.kind != operation::RECORD)
        s->is_behind_kernel = o.kind == operation::GRID;
    s->queue.push_back(o);
    run_ahead(s);
}

void hc_drain_all(hc_hold_loosely &h)
{
    wait_until(h, [] {
        for (const hc_stream *s : S->stream)
            if (!s->queue.empty())
                return false;
        return true;
    });
}

void hc_submit_run(cudaStream_t stream, const std::function<void()> &run)
{
    const hc_hold h(hc_lock);

    submit(stream, {operation::RUN, run});
}

void hc_submit_outside(cudaStream_t stream, const hc_outside *work)
{
    const hc_hold h(hc_lock);

    submit(stream, {operation::OUTSIDE, nullptr, NULL, 0, NULL, *work});
}

static size_t allowed_shared(const void *kernel)
{
    const auto allowed = S->allowed.find(kernel);

    return allowed == S->allowed.end() ? 48 << 10 : allowed->second;
}

cudaError_t hc_allow_shared(const void *kernel, int bytes)
{
    const hc_hold h(hc_lock);

    if ((size_t)bytes > hc_most_shared())
        return hc_remember(cudaErrorInvalidValue);
    S->allowed[kernel] = (size_t)bytes;
    return cudaSuccess;
}

static thread_local unsigned n_launches;

unsigned hc_launches()
{
    return n_launches;
}

static thread_local unsigned n_operations;

unsigned hc_operations()
{
    return n_operations;
}

void hc_count_operations(int n)
{
    n_operations += (unsigned)n;
}

static thread_local unsigned n_early;

unsigned hc_early_launches()
{
    return n_early;
}

void hc_loaded(const void *kernel)
{
    const hc_hold h(hc_lock);

    S->loaded.insert(kernel);
}

void hc_all_loaded()
{
    const hc_hold h(hc_lock);

    S->is_all_loaded = true;
}

/* Clusters exist from capability 9.0 on; the grid consists of whole ones. */
static bool can_cluster(const hc_launch &l)
{
    int major = 0;

    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    return l.cluster == 1 || (l.cluster >= 1 && l.cluster <= HC_MOST_BLOCKS &&
                              l.grid.x % l.cluster == 0 && major >= 9);
}

static bool is_named_by(const char *variable, const char *kernel)
{
    const char *text = getenv(variable);

    return text && strstr(kernel, text);
}

/* HC_FAULT=name:n */
static bool is_to_fault(const char *kernel)
{
    static const char *const text = getenv("HC_FAULT");
    static const std::string name(text ? text : "", text ? strcspn(text, ":") : 0);
    static int left = text && strchr(text, ':') ? atoi(strchr(text, ':') + 1) : 1;

    return text && strstr(kernel, name.c_str()) && --left == 0;
}

/* A kernel has failed while it ran: all that is queued is lost, and every call from now
 * on says so. */
static void break_device()
{
    S->is_broken = true;
    for (hc_stream *s : S->stream)
        s->queue.clear();
}

void hc_submit(const hc_launch &launch, cudaStream_t stream)
{
    static uint32_t number;
    hc_launch l = launch;

    n_launches++;
    n_operations++;
    n_early += l.is_early;
    const hc_hold h(hc_lock);
    int device = 0;

    cudaGetDevice(&device);
    if (S->is_broken || device != stream->device) {
        hc_remember(cudaErrorInvalidResourceHandle);
        return;
    }
    const size_t threads = (size_t)l.block.x * l.block.y * l.block.z;
    const size_t blocks = (size_t)l.grid.x * l.grid.y * l.grid.z;
    const uint64_t seed = hc_option.seed + 1000003 * ++S->ticket;

    if (!threads || threads > (l.is_translated ? 1024 : hc_bound_of(l.code)) ||
        l.block.z > 64 || !blocks || l.grid.x > 2147483647u || l.grid.y > 65535 ||
        l.grid.z > 65535 || l.call_bytes > 4096 + sizeof(void *) || !can_cluster(l) ||
        l.shared_bytes > allowed_shared(l.code)) {
        hc_remember(cudaErrorInvalidConfiguration);
        return;
    }
    if (l.is_early && !stream->is_behind_kernel)
        hc_fail("kernel %s launched early, not behind a kernel in its stream",
                l.kernel);
    if (S->is_all_loaded && !S->loaded.count(l.code))
        hc_fail("kernel %s is loaded at its first launch", l.kernel);
    l.number = ++number;
    l.before = l.is_early ? stream->last : 0;
    stream->last = l.number;
    hc_order_launch(stream->order, l.number);
    if (is_named_by("HC_CRASH", l.kernel))
        abort();
    while (is_named_by("HC_HANG", l.kernel))
        pause();
    const bool is_to_break = is_to_fault(l.kernel);
    if (is_to_break)
        submit(stream, {operation::RUN, break_device});
    if (is_to_break || is_named_by("HC_SKIP", l.kernel)) {
        stream->is_behind_kernel = true;
        return;
    }
    submit(stream, {operation::GRID, nullptr, NULL, 0, hc_grid_begin(l, seed)});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    const hc_hold h(hc_lock);

    *stream = new hc_stream();
    cudaGetDevice(&(*stream)->device);
    (*stream)->order = hc_order_create();
    S->stream.push_back(*stream);
    return hc_remember(cudaSuccess);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    hc_hold_loosely h(hc_lock);

    drain(h, stream);
    hc_order_destroy(stream->order);
    for (size_t i = 0; i < S->stream.size(); i++)
        if (S->stream[i] == stream)
            S->stream.erase(S->stream.begin() + (ptrdiff_t)i);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    hc_hold_loosely h(hc_lock);

    wait_for(h, stream);
    return hc_remember(cudaSuccess);
}

/* A query is a kind of waiting, so something runs. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    const hc_hold h(hc_lock);

    if (!stream->queue.empty())
        step();
    if (stream->queue.empty())
        hc_order_seen(hc_order_point(stream->order));
    return hc_remember(stream->queue.empty() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new hc_event();
    (*event)->is_timed = !(flags & cudaEventDisableTiming);
    return cudaGetDevice(&(*event)->device);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    hc_hold_loosely h(hc_lock);

    hc_drain_all(h); /* operations refer to it */
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const hc_hold h(hc_lock);

    if (event->device != stream->device)
        return hc_remember(cudaErrorInvalidResourceHandle);
    event->recorded = ++S->ticket;
    event->point = hc_order_point(stream->order);
    submit(stream, {operation::RECORD, nullptr, event, event->recorded});
    return hc_remember(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const hc_hold h(hc_lock);

    if (event->recorded)
        hc_order_wait(stream->order, event->point);
    if (event->recorded)
        submit(stream, {operation::WAIT, nullptr, event, event->recorded});
    return hc_remember(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const hc_hold h(hc_lock);

    if (event->done < event->recorded)
        step();
    if (event->recorded && event->done >= event->recorded)
        hc_order_seen(event->point);
    return hc_remember(event->done < event->recorded ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    const hc_hold h(hc_lock);

    if (!begin->is_timed || !end->is_timed || !begin->recorded || !end->recorded)
        return hc_remember(cudaErrorInvalidValue);
    if (begin->done < begin->recorded || end->done < end->recorded)
        return hc_remember(cudaErrorNotReady);
    hc_order_seen(end->point);
    *ms = (float)((double)(end->done_ns - begin->done_ns) * 1e-6);
    return cudaSuccess;
}

/* ---- calls ---- */

/* Copies to pageable memory return when they are complete. Copies from it return when
 * the memory may be reused: its content has been saved, and reaches the device in its
 * turn; with HC_PAGEABLE it is read in its turn. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    hc_hold_loosely h(hc_lock);
    std::shared_ptr<std::vector<char>> aside;

    n_operations++;
    if (kind == cudaMemcpyHostToDevice && !hc_is_pinned(from) && !hc_reads_pageable()) {
        aside = std::make_shared<std::vector<char>>((const char *)from,
                                                    (const char *)from + bytes);
        from = aside->data();
    }
    submit(stream, {operation::RUN, [=] { (void)aside, memcpy(to, from, bytes); }});
    if (kind == cudaMemcpyDeviceToHost && !hc_is_pinned(to))
        wait_for(h, stream);
    return hc_remember(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t stream)
{
    n_operations++;
    hc_submit_run(stream, [=] { memset(data, byte, bytes); });
    return hc_remember(cudaSuccess);
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaDeviceSynchronize()
{
    hc_hold_loosely h(hc_lock);

    n_waits++;
    hc_drain_all(h);
    return hc_remember(cudaSuccess);
}
