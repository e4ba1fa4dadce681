/* Memory, streams, events and the calls of the CUDA runtime. */
#include "hostcuda_internal.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>

enum : size_t { PAGE = 4096, DEVICE_MEMORY = (size_t)1 << 28 };

struct hc_event {
    uint64_t recorded, done; /* tickets */
    bool is_timed;
    double done_s;
};

struct operation {
    enum { RUN, RECORD, WAIT, OUTSIDE } kind;
    std::function<void()> run;
    hc_event *event;
    uint64_t ticket;
    hc_outside outside;
    bool is_started;
};

struct hc_stream {
    std::deque<operation> queue;
    bool has_news; /* since somebody waited for it */
};

struct range_map : std::map<char *, size_t> {
};

static struct state {
    std::recursive_mutex lock;
    range_map reserved; /* addresses */
    range_map backed;   /* those with memory */
    range_map pinned;   /* host memory that copies do not wait for */
    size_t backed_bytes;
    long n_memory_calls;
    int n_open;
    std::vector<hc_stream *> stream;
    uint64_t ticket, random;
    std::map<const void *, size_t> allowed; /* shared memory of launches, by kernel */
    cudaError_t error;
} *const S = new state();

char *hc_space;
hc_options hc_option;
typedef std::lock_guard<std::recursive_mutex> hold;
typedef std::unique_lock<std::recursive_mutex> hold_loosely; /* across a wait */

/* ---- start ---- */

static void on_fault(int, siginfo_t *info, void *)
{
    const char *at = (const char *)info->si_addr;

    if (at < hc_space || at >= hc_space + HC_SPACE) {
        signal(SIGSEGV, SIG_DFL);
        return; /* not ours: fault again */
    }
    if (!hc_self)
        hc_fail("the host touches device memory at %p", (const void *)at);
    hc_fail("address %p is not allocated: %s", (const void *)at,
            hc_where(hc_current()));
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static struct start_runtime {
    start_runtime()
    {
        const char *order = getenv("HC_ORDER");
        struct sigaction action = {};

        hc_option = {HC_RANDOM, number("HC_SEED", 1), number("HC_LAZY", 0) != 0,
                     (int)number("HC_WATCHDOG", 60)};
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
    const hold h(S->lock);

    hc_option.seed = seed;
    hc_option.is_lazy = is_lazy;
    S->random = seed * 7919 + 77;
    S->ticket = 0;
}

long hc_memory_calls()
{
    const hold h(S->lock);

    return S->n_memory_calls;
}

bool hc_is_checked()
{
    return hc_hook.allocated != NULL;
}

/* ---- memory ---- */

void hc_fill_garbage(void *data, size_t bytes)
{
    memset(data, 0xff, bytes); /* NaN as a float, -1 as an integer */
}

static void protect(int how)
{
    for (const auto &r : S->backed)
        if (mprotect(r.first, r.second, how))
            hc_fail("mprotect of device memory");
}

void hc_open_space()
{
    if (!S->n_open++)
        protect(PROT_READ | PROT_WRITE);
}

void hc_close_space()
{
    if (!--S->n_open)
        protect(PROT_NONE);
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* First gap that is large enough, a page apart from its neighbours. */
cudaError_t sp_vmm_reserve(void **out, size_t bytes)
{
    const hold h(S->lock);
    char *at = hc_space + HC_SHARED_SPACE;

    bytes = pages(bytes) + PAGE;
    for (const auto &r : S->reserved) {
        if ((size_t)(r.first - at) >= bytes)
            break;
        at = r.first + r.second;
    }
    if ((size_t)(hc_space + HC_SPACE - at) < bytes)
        return cudaErrorMemoryAllocation;
    S->reserved[at] = bytes;
    *out = at;
    return cudaSuccess;
}

cudaError_t sp_vmm_back(void *at, size_t bytes, int)
{
    const hold h(S->lock);
    char *data = (char *)at;

    S->n_memory_calls++;
    if (S->backed_bytes + pages(bytes) > DEVICE_MEMORY)
        return cudaErrorMemoryAllocation;
    S->backed_bytes += pages(bytes);
    S->backed[data] = pages(bytes);
    hc_open_space();
    if (mprotect(data, pages(bytes), PROT_READ | PROT_WRITE))
        hc_fail("mprotect of device memory");
    hc_fill_garbage(data, pages(bytes));
    if (hc_hook.allocated)
        hc_hook.allocated(data, bytes);
    hc_close_space();
    return cudaSuccess;
}

cudaError_t sp_vmm_release(void *base, size_t, size_t backed)
{
    const hold h(S->lock);
    char *data = (char *)base, *end = data + pages(backed);
    auto r = S->backed.lower_bound(data);

    while (r != S->backed.end() && r->first < end) {
        if (hc_hook.freed)
            hc_hook.freed(r->first, r->second);
        madvise(r->first, r->second, MADV_DONTNEED);
        mprotect(r->first, r->second, PROT_NONE);
        S->backed_bytes -= r->second;
        r = S->backed.erase(r);
    }
    S->reserved.erase(data);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    const hold h(S->lock);

    *free = DEVICE_MEMORY - S->backed_bytes;
    *total = DEVICE_MEMORY;
    return cudaSuccess;
}

/* ---- streams ---- */

static bool is_blocked(const hc_stream *s)
{
    const operation &o = s->queue.front();

    if (o.kind == operation::OUTSIDE)
        return o.is_started && !o.outside.is_done(o.outside.arg);
    return o.kind == operation::WAIT && o.event->done < o.ticket;
}

static bool is_outside(const hc_stream *s)
{
    return !s->queue.empty() && s->queue.front().kind == operation::OUTSIDE;
}

static double now_s()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_front(hc_stream *s)
{
    operation o = s->queue.front();

    hc_open_space();
    if (o.kind == operation::OUTSIDE && !o.is_started) {
        s->queue.front().is_started = true;
        o.outside.start(o.outside.arg);
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
        o.event->done_s = now_s();
    }
    hc_close_space();
}

/* Runs one operation of any stream that has one ready. False: all that is left waits
 * for something outside. */
static bool step()
{
    std::vector<hc_stream *> ready;
    bool is_any_outside = false;

    for (hc_stream *s : S->stream) {
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

/* Until `is_over`. While something outside is waited for, other threads may come in. */
static void wait_until(hold_loosely &h, const std::function<bool()> &is_over)
{
    while (!is_over())
        if (!step()) {
            h.unlock();
            usleep(100);
            h.lock();
        }
}

static void drain(hold_loosely &h, hc_stream *s)
{
    wait_until(h, [=] { return s->queue.empty(); });
}

/* What can run does, where streams are not lazy. */
static void run_ahead(hc_stream *s)
{
    while (!hc_option.is_lazy && !s->queue.empty() && !is_blocked(s))
        run_front(s);
}

static thread_local unsigned n_waits;

unsigned hc_waits()
{
    return n_waits;
}

/* The calling thread waits for the stream; not a wait where it has before and nothing
 * came since. */
static void wait_for(hold_loosely &h, hc_stream *s)
{
    n_waits += s->has_news;
    s->has_news = false;
    drain(h, s);
}

static void submit(hc_stream *s, const operation &o)
{
    if (!s)
        hc_fail("the legacy default stream is not used here");
    s->has_news = true;
    s->queue.push_back(o);
    run_ahead(s);
}

static void drain_all(hold_loosely &h)
{
    wait_until(h, [] {
        for (const hc_stream *s : S->stream)
            if (!s->queue.empty())
                return false;
        return true;
    });
}

void hc_submit_outside(cudaStream_t stream, const hc_outside *work)
{
    const hold h(S->lock);

    submit(stream, {operation::OUTSIDE, nullptr, NULL, 0, *work, false});
}

static size_t allowed_shared(const void *kernel)
{
    const auto allowed = S->allowed.find(kernel);

    return allowed == S->allowed.end() ? 48 << 10 : allowed->second;
}

cudaError_t hc_allow_shared(const void *kernel, int bytes)
{
    const hold h(S->lock);

    if (bytes > 227 << 10)
        return cudaErrorInvalidValue;
    S->allowed[kernel] = (size_t)bytes;
    return cudaSuccess;
}

static thread_local unsigned n_launches;

unsigned hc_launches()
{
    return n_launches;
}

void hc_submit(const hc_launch &l, cudaStream_t stream)
{
    n_launches++;
    const hold h(S->lock);
    const size_t threads = (size_t)l.block.x * l.block.y * l.block.z;
    const size_t blocks = (size_t)l.grid.x * l.grid.y * l.grid.z;
    const uint64_t seed = hc_option.seed + 1000003 * ++S->ticket;

    if (!threads || threads > 1024 || l.block.z > 64 || !blocks ||
        l.grid.x > 2147483647u || l.grid.y > 65535 || l.grid.z > 65535 ||
        l.call_bytes > 4096 + sizeof(void *) ||
        l.shared_bytes > allowed_shared(l.code)) {
        S->error = cudaErrorInvalidConfiguration;
        return;
    }
    if (const char *broken = getenv("HC_SKIP"); broken && strstr(l.kernel, broken))
        return;
    submit(stream,
           {operation::RUN, [=] { hc_run_grid(&l, seed); }, NULL, 0, {}, false});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    const hold h(S->lock);

    *stream = new hc_stream();
    S->stream.push_back(*stream);
    return cudaSuccess;
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
    hold_loosely h(S->lock);

    drain(h, stream);
    for (size_t i = 0; i < S->stream.size(); i++)
        if (S->stream[i] == stream)
            S->stream.erase(S->stream.begin() + (ptrdiff_t)i);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    hold_loosely h(S->lock);

    wait_for(h, stream);
    return cudaSuccess;
}

/* Asking is a kind of waiting: something runs. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    const hold h(S->lock);

    if (!stream->queue.empty())
        step();
    return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new hc_event();
    (*event)->is_timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    hold_loosely h(S->lock);

    drain_all(h); /* operations refer to it */
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const hold h(S->lock);

    event->recorded = ++S->ticket;
    submit(stream, {operation::RECORD, nullptr, event, event->recorded, {}, false});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const hold h(S->lock);

    if (event->recorded)
        submit(stream, {operation::WAIT, nullptr, event, event->recorded, {}, false});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const hold h(S->lock);

    if (event->done < event->recorded)
        step();
    return event->done < event->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    const hold h(S->lock);

    if (!begin->is_timed || !end->is_timed || !begin->recorded || !end->recorded)
        return cudaErrorInvalidValue;
    if (begin->done < begin->recorded || end->done < end->recorded)
        return cudaErrorNotReady;
    *ms = (float)((end->done_s - begin->done_s) * 1e3);
    return cudaSuccess;
}

/* ---- calls ---- */

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    const hold h(S->lock);

    S->n_memory_calls++;
    *out = aligned_alloc(PAGE, pages(bytes));
    if (!*out)
        return cudaErrorMemoryAllocation;
    hc_fill_garbage(*out, bytes);
    S->pinned[(char *)*out] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *data)
{
    hold_loosely h(S->lock);

    drain_all(h);
    S->pinned.erase((char *)data);
    free(data);
    return cudaSuccess;
}

static bool is_pinned(const void *data)
{
    auto r = S->pinned.upper_bound((char *)data);

    return r != S->pinned.begin() && (--r, (char *)data < r->first + r->second);
}

/* Copies to pageable memory return when they are complete. Those from it return when it
 * is free again: its content has been put aside, and reaches the device in its turn. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    hold_loosely h(S->lock);
    std::shared_ptr<std::vector<char>> aside;

    if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {
        aside = std::make_shared<std::vector<char>>((const char *)from,
                                                    (const char *)from + bytes);
        from = aside->data();
    }
    submit(stream, {operation::RUN,
                    [=] { (void)aside, memcpy(to, from, bytes); },
                    NULL,
                    0,
                    {},
                    false});
    if (kind == cudaMemcpyDeviceToHost && !is_pinned(to))
        wait_for(h, stream);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t stream)
{
    const hold h(S->lock);

    submit(stream,
           {operation::RUN, [=] { memset(data, byte, bytes); }, NULL, 0, {}, false});
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    const hold h(S->lock);
    const cudaError_t error = sp_vmm_reserve(out, bytes);

    return error == cudaSuccess ? sp_vmm_back(*out, bytes, 0) : error;
}

cudaError_t cudaFree(void *data)
{
    hold_loosely h(S->lock);

    if (!data)
        return cudaSuccess;
    drain_all(h);
    return sp_vmm_release(data, 0, S->reserved.at((char *)data) - PAGE);
}

cudaError_t cudaGetLastError()
{
    const hold h(S->lock);
    const cudaError_t error = S->error;

    S->error = cudaSuccess;
    return error;
}

cudaError_t cudaDeviceSynchronize()
{
    hold_loosely h(S->lock);

    n_waits++;
    drain_all(h);
    return cudaSuccess;
}
