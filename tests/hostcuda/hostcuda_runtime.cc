/* Memory, streams, events and the calls of the CUDA runtime. */
#include "hostcuda_internal.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>

enum : size_t { PAGE = 4096, DEVICE_MEMORY = (size_t)1 << 28 };

struct hc_event {
    uint64_t recorded, done; /* tickets */
};

struct operation {
    enum { RUN, RECORD, WAIT } kind;
    std::function<void()> run;
    hc_event *event;
    uint64_t ticket;
};

struct hc_stream {
    std::deque<operation> queue;
};

struct range_map : std::map<char *, size_t> {
};

static struct state {
    std::recursive_mutex lock;
    range_map reserved; /* addresses */
    range_map backed;   /* those with memory */
    size_t backed_bytes;
    int n_open;
    std::vector<hc_stream *> stream;
    uint64_t ticket, random;
    cudaError_t error;
} *const S = new state();

char *hc_space;
hc_options hc_option;
typedef std::lock_guard<std::recursive_mutex> hold;

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

    return o.kind == operation::WAIT && o.event->done < o.ticket;
}

/* Runs one operation of any stream that has one ready. */
static void step()
{
    std::vector<hc_stream *> ready;

    for (hc_stream *s : S->stream)
        if (!s->queue.empty() && !is_blocked(s))
            ready.push_back(s);
    if (ready.empty())
        hc_fail("streams wait for each other");
    hc_stream *s = ready[hc_random(&S->random) % ready.size()];
    const operation o = s->queue.front();
    s->queue.pop_front();
    if (o.kind == operation::RUN) {
        hc_open_space();
        o.run();
        hc_close_space();
    } else if (o.kind == operation::RECORD && o.event->done < o.ticket)
        o.event->done = o.ticket;
}

static void drain(hc_stream *s)
{
    while (!s->queue.empty())
        step();
}

static void submit(hc_stream *s, const operation &o)
{
    if (!s)
        hc_fail("the legacy default stream is not used here");
    s->queue.push_back(o);
    if (!hc_option.is_lazy)
        drain(s);
}

static void drain_all()
{
    for (hc_stream *s : S->stream)
        drain(s);
}

void hc_submit(const hc_launch &l, cudaStream_t stream)
{
    const hold h(S->lock);
    const size_t threads = (size_t)l.block.x * l.block.y * l.block.z;
    const size_t blocks = (size_t)l.grid.x * l.grid.y * l.grid.z;
    const uint64_t seed = hc_option.seed + 1000003 * ++S->ticket;

    if (!threads || threads > 1024 || l.block.z > 64 || !blocks ||
        l.grid.x > 2147483647u || l.grid.y > 65535 || l.grid.z > 65535 ||
        l.call_bytes > 4096 + sizeof(void *)) {
        S->error = cudaErrorInvalidConfiguration;
        return;
    }
    submit(stream, {operation::RUN, [=] { hc_run_grid(&l, seed); }, NULL, 0});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    const hold h(S->lock);

    *stream = new hc_stream();
    S->stream.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const hold h(S->lock);

    drain(stream);
    for (size_t i = 0; i < S->stream.size(); i++)
        if (S->stream[i] == stream)
            S->stream.erase(S->stream.begin() + (ptrdiff_t)i);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const hold h(S->lock);

    drain(stream);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new hc_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const hold h(S->lock);

    drain_all(); /* operations refer to it */
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const hold h(S->lock);

    event->recorded = ++S->ticket;
    submit(stream, {operation::RECORD, nullptr, event, event->recorded});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const hold h(S->lock);

    if (event->recorded)
        submit(stream, {operation::WAIT, nullptr, event, event->recorded});
    return cudaSuccess;
}

/* ---- calls ---- */

/* Copies from and to pageable memory, the only kind here, return when it is free again.
 */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    const hold h(S->lock);

    submit(stream, {operation::RUN, [=] { memcpy(to, from, bytes); }, NULL, 0});
    if (kind != cudaMemcpyDeviceToDevice)
        drain(stream);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t stream)
{
    const hold h(S->lock);

    submit(stream, {operation::RUN, [=] { memset(data, byte, bytes); }, NULL, 0});
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
    const hold h(S->lock);

    if (!data)
        return cudaSuccess;
    drain_all();
    return sp_vmm_release(data, 0, S->reserved.at((char *)data) - PAGE);
}

cudaError_t cudaGetLastError()
{
    const hold h(S->lock);
    const cudaError_t error = S->error;

    S->error = cudaSuccess;
    return error;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    const hold h(S->lock);

    drain_all();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    }
    return "unknown error";
}
