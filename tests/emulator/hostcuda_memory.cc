/* Memory of the emulated device, and host memory that copies do not wait for. */
#include "emulator/hostcuda_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

enum : size_t { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static size_t device_memory()
{
    return hc_number("HC_MEMORY", 256) << 20;
}

/* The memory that other processes have left. */
static size_t memory_for_us()
{
    const size_t used = hc_number("HC_USED", 0) << 20, all = device_memory();

    return used < all ? all - used : 0;
}

struct range_map : std::map<char *, size_t> {
};

static struct memory {
    range_map reserved;           /* addresses */
    range_map backed;             /* addresses that have memory */
    range_map pinned;             /* memory of the host */
    std::map<char *, int> shared; /* memory of a file that other processes map */
    size_t backed_bytes;
    long n_calls;
    int n_open;
} *const M = new memory();

void hc_fill_garbage(void *data, size_t bytes)
{
    memset(data, 0xff, bytes); /* NaN as a float, -1 as an integer */
}

/* Memory is opened and closed around each operation. Where the processor has protection
 * keys, that is a write to a register of the thread. Elsewhere (-1), and with
 * HC_KEYS=0, the system changes pages, which was half of the emulator's time while it
 * was done page by page: so neighbours are taken together, and memory is of huge pages
 * where the system has them. */
static int key_of_memory()
{
    return !hc_number("HC_KEYS", 1) ? -1 : pkey_alloc(0, PKEY_DISABLE_ACCESS);
}

static const int key = key_of_memory();

static void protect_pages(int how)
{
    auto r = M->backed.begin();

    while (r != M->backed.end()) {
        char *const from = r->first;
        char *end = from;

        for (; r != M->backed.end() && r->first == end; ++r)
            end += r->second;
        if (mprotect(from, (size_t)(end - from), how))
            hc_fail("mprotect of device memory");
    }
}

static void protect(int how)
{
    if (key < 0)
        protect_pages(how);
    else if (pkey_set(key, how == PROT_NONE   ? PKEY_DISABLE_ACCESS
                           : how == PROT_READ ? PKEY_DISABLE_WRITE
                                              : 0))
        hc_fail("protection key of device memory");
}

/* Pages become device memory, which is open now. */
static void admit(char *at, size_t bytes)
{
    if (pkey_mprotect(at, bytes, PROT_READ | PROT_WRITE, key))
        hc_fail("mprotect of device memory");
}

void hc_open_space()
{
    if (!M->n_open++)
        protect(PROT_READ | PROT_WRITE);
}

void hc_show_space()
{
    if (!M->n_open)
        protect(PROT_READ);
}

void hc_close_space()
{
    if (!--M->n_open)
        protect(PROT_NONE);
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static char *at_huge_page(char *at)
{
    return (char *)(((uintptr_t)at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
}

/* Finds the first gap that is large enough, a page away from its neighbours, and begins
 * it where a huge page can be. */
cudaError_t sp_vmm_reserve(void **out, size_t bytes)
{
    const hc_hold h(hc_lock);
    char *at = at_huge_page(hc_space + HC_SHARED_SPACE);

    bytes = pages(bytes) + PAGE;
    for (const auto &r : M->reserved) {
        if (r.first >= at && (size_t)(r.first - at) >= bytes)
            break;
        at = at_huge_page(r.first + r.second);
    }
    if (at + bytes > hc_space + HC_SPACE)
        return cudaErrorMemoryAllocation;
    M->reserved[at] = bytes;
    *out = at;
    return cudaSuccess;
}

cudaError_t sp_vmm_back(void *at, size_t bytes, int)
{
    const hc_hold h(hc_lock);
    char *data = (char *)at;

    M->n_calls++;
    if (M->backed_bytes + pages(bytes) > memory_for_us())
        return cudaErrorMemoryAllocation;
    M->backed_bytes += pages(bytes);
    M->backed[data] = pages(bytes);
    hc_open_space();
    admit(data, pages(bytes));
    madvise(data, pages(bytes), MADV_HUGEPAGE);
    hc_fill_garbage(data, pages(bytes));
    if (hc_hook.allocated)
        hc_hook.allocated(data, bytes);
    hc_close_space();
    return cudaSuccess;
}

static void unmap(range_map::iterator r)
{
    if (hc_hook.freed)
        hc_hook.freed(r->first, r->second);
    if (mmap(r->first, r->second, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        hc_fail("no addresses for device memory");
    if (M->shared.count(r->first))
        close(M->shared[r->first]);
    M->shared.erase(r->first);
    M->backed_bytes -= r->second;
    M->backed.erase(r);
}

/* As the driver documents it, memory is unmapped as it was mapped, piece by piece, and
 * addresses are free only when nothing is mapped there. */
cudaError_t sp_vmm_release(void *base, size_t, const size_t *backed, int n)
{
    const hc_hold h(hc_lock);
    char *at = (char *)base;

    for (int i = 0; i < n; at += backed[i++]) {
        const auto r = M->backed.find(at);

        if (r == M->backed.end() || r->second != pages(backed[i]))
            return cudaErrorInvalidValue;
        unmap(r);
    }
    const auto left = M->backed.lower_bound((char *)base);
    if (left != M->backed.end() &&
        left->first < (char *)base + M->reserved[(char *)base])
        return cudaErrorInvalidValue;
    M->reserved.erase((char *)base);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    const hc_hold h(hc_lock);

    *free = memory_for_us() - M->backed_bytes;
    *total = device_memory();
    return hc_remember(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    const hc_hold h(hc_lock);

    M->n_calls++;
    *out = aligned_alloc(PAGE, pages(bytes));
    if (!*out)
        return hc_remember(cudaErrorMemoryAllocation);
    hc_fill_garbage(*out, bytes);
    M->pinned[(char *)*out] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *data)
{
    hc_hold_loosely h(hc_lock);

    hc_drain_all(h);
    M->pinned.erase((char *)data);
    free(data);
    return cudaSuccess;
}

bool hc_is_pinned(const void *data)
{
    auto r = M->pinned.upper_bound((char *)data);

    return r != M->pinned.begin() && (--r, (char *)data < r->first + r->second);
}

bool hc_reads_pageable()
{
    return hc_number("HC_PAGEABLE", 0) != 0;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    const hc_hold h(hc_lock);
    const cudaError_t error = sp_vmm_reserve(out, bytes);

    return hc_remember(error == cudaSuccess ? sp_vmm_back(*out, bytes, 0) : error);
}

cudaError_t cudaFree(void *data)
{
    hc_hold_loosely h(hc_lock);

    if (!data)
        return cudaSuccess;
    hc_drain_all(h);
    const size_t bytes = M->reserved.at((char *)data) - PAGE;

    return sp_vmm_release(data, 0, &bytes, 1);
}

long hc_memory_calls()
{
    const hc_hold h(hc_lock);

    return M->n_calls;
}

/* ---- between processes ---- */

/* A file takes the place of what is there. */
static bool map_file(char *at, size_t bytes, int fd)
{
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
        return false;
    admit(at, bytes);
    M->shared[at] = fd;
    return true;
}

bool hc_export(char *data, int64_t *fd, int64_t *bytes, int64_t *inode)
{
    const auto r = M->backed.find(data);
    struct stat st;

    if (r == M->backed.end())
        return false;
    *bytes = (int64_t)r->second;
    if (!M->shared.count(data)) {
        const int file = memfd_create("device", MFD_CLOEXEC);

        hc_open_space();
        if (file < 0 || write(file, data, r->second) != (ssize_t)r->second ||
            !map_file(data, r->second, file))
            hc_fail("memory of a device cannot be exported");
        hc_close_space();
    }
    *fd = M->shared[data];
    *inode = fstat((int)*fd, &st) ? -1 : (int64_t)st.st_ino;
    return true;
}

bool hc_import(const char *path, int64_t inode, size_t bytes, void **out)
{
    const int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    void *at;

    if (file < 0 || fstat(file, &st) || (int64_t)st.st_ino != inode ||
        sp_vmm_reserve(&at, bytes) != cudaSuccess) {
        if (file >= 0)
            close(file);
        return false;
    }
    hc_open_space();
    if (!map_file((char *)at, bytes, file))
        hc_fail("memory of another device cannot be mapped");
    M->backed[(char *)at] = bytes;
    M->backed_bytes += bytes; /* the memory is given back with the address */
    if (hc_hook.allocated)
        hc_hook.allocated(at, bytes);
    hc_close_space();
    *out = at;
    return true;
}
