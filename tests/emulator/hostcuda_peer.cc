/* Devices that reach each other's memory: words that all of them see, and memory that
 * processes export and map. Stores of a pair become visible in either order, with any
 * delay between them; a device promises no more. */
#include "emulator/hostcuda_internal.h"

#include <time.h>
#include <unistd.h>

/* Sleeps now and then for up to a third of a millisecond, so that other processes
 * overtake this one. */
static void dawdle()
{
    static const bool is_asked = hc_number("HC_DELAY", 0) != 0;
    static uint64_t random = (uint64_t)getpid() * 2654435761u + hc_option.seed;

    if (is_asked && hc_random(&random) % 256 == 0)
        usleep((useconds_t)(hc_random(&random) % 300));
}

static void note(const void *data, size_t bytes, bool is_write)
{
    if (hc_hook.accessed && !hc_is_pinned(data))
        hc_hook.accessed(hc_self, data, bytes, is_write, __builtin_return_address(0));
}

void sp_store_word(uint64_t *to, uint64_t value)
{
    note(to, sizeof *to, true);
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
}

uint64_t sp_load_word(const uint64_t *from)
{
    note(from, sizeof *from, false);
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}

void sp_store_pair(uint64_t *to, uint64_t a, uint64_t b)
{
    const int first = hc_is_chance(2);
    const uint64_t value[2] = {a, b};

    for (int i = 0; i < 2; i++) {
        dawdle();
        sp_store_word(to + (first ^ i), value[first ^ i]);
    }
    dawdle();
}

uint64_t hc_wrong_bits()
{
    return (uint64_t)hc_number("HC_WRONG", 0) << 40;
}

void sp_load_pair(const uint64_t *from, uint64_t &a, uint64_t &b)
{
    dawdle();
    a = sp_load_word(from) ^ hc_wrong_bits();
    b = sp_load_word(from + 1);
    hc_poll();
}

uint64_t sp_clock_ns()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- between processes ---- */

static bool is_peerless()
{
    return hc_number("HC_NO_PEER", 0) != 0;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id)
{
    char own[16];
    int n = 0;

    cudaGetDeviceCount(&n);
    for (*device = 0; *device < n; ++*device)
        if (!cudaDeviceGetPCIBusId(own, sizeof own, *device) && !strcasecmp(own, id))
            return cudaSuccess;
    return hc_remember(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer && !is_peerless();
    return cudaSuccess;
}

/* Puts a file in memory behind the addresses; peers open it by the process's name for
 * it. */
struct handle {
    int64_t pid, fd, bytes, inode;
};

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *data)
{
    const hc_hold h(hc_lock);
    handle own = {getpid(), -1, 0, 0};

    if (!hc_export((char *)data, &own.fd, &own.bytes, &own.inode))
        return hc_remember(cudaErrorInvalidValue);
    *out = cudaIpcMemHandle_t();
    memcpy(out, &own, sizeof own);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t in, unsigned)
{
    const hc_hold h(hc_lock);
    char path[64];
    handle other;

    memcpy(&other, &in, sizeof other);
    if (other.pid == getpid()) /* as a device's driver requires it */
        return hc_remember(cudaErrorInvalidValue);
    if (is_peerless())
        return hc_remember(cudaErrorPeerAccessUnsupported);
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)other.pid,
             (long long)other.fd);
    return hc_remember(hc_import(path, other.inode, (size_t)other.bytes, out)
                           ? cudaSuccess
                           : cudaErrorInvalidValue);
}

cudaError_t cudaIpcCloseMemHandle(void *data)
{
    return cudaFree(data);
}
