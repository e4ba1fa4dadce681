/* Device copies of a test's arrays, and the CUDA backend on the emulator. Every array
 * is an allocation of its own, so that the race checker knows its bounds. */
#ifndef CUDA_FIXTURE_H
#define CUDA_FIXTURE_H

#include "cuda/device/cuda_ops.h"
#include "cuda/plan/cuda_map_host.h"
#include "gpu/kernel_tests.h"
#include "reference/op_results.h"

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *data);

/* True where cases that run the same code again, on other numbers, are left out: in
 * programs that watch memory, which takes them several times as long, of the race
 * checker, and of gcc's sanitizers, whose kernels are those of every build; and on
 * devices of another capability, where what the launches ask for is looked at alone. */
static inline bool cu_is_watched(void)
{
#ifdef __SANITIZE_ADDRESS__
    return true;
#else
    return hc_is_checked() || (hc_launches && getenv("HC_CAPABILITY"));
#endif
}

/* The number of orders of execution in which a case is repeated. */
static inline int cu_orders(void)
{
    return cu_is_watched() ? 1 : 3;
}

static struct {
    void *data[256];
    int n;
    cuda_map map[32];
    int n_maps;
} cu_held;

static inline sp_backend cu_open(int order)
{
    sp_backend be = {.ops = &sp_cuda_ops};

    hc_set_order((uint64_t)order + 1, order % 2);
    OK(be.ops->open(&be, 0, 1));
    return be;
}

/* Frees every copy. */
static inline void cu_free(sp_backend *be)
{
    OK(be->ops->wait(be));
    while (cu_held.n)
        assert_int_equal(cudaFree(cu_held.data[--cu_held.n]), 0);
    while (cu_held.n_maps) /* the part of a map in host memory */
        free((void *)cu_held.map[--cu_held.n_maps].pair_start);
}

static inline void cu_close(sp_backend *be)
{
    cu_free(be);
    be->ops->close(be);
}

static inline void *cu_copy(sp_backend *be, const void *host, size_t bytes)
{
    void *data;

    assert_true(cu_held.n < 256);
    if (!host)
        return NULL;
    assert_int_equal(cudaMalloc(&data, bytes ? bytes : 1), 0);
    OK(be->ops->upload(be, data, host, bytes));
    cu_held.data[cu_held.n++] = data;
    return data;
}

static inline void *cu_room(sp_backend *be, size_t bytes)
{
    void *data = cu_copy(be, test_alloc(bytes), bytes);

    OK(be->ops->wait(be));
    return data;
}

static inline size_t cu_bytes(sp_tensor t)
{
    return ((size_t)t.n * (size_t)t.ld + 1) * sizeof(float); /* with the guard */
}

/* Makes rows as the network has them: of bf16 where products are of bf16. The guards
 * behind column c are rounded too then. */
static inline sp_tensor cu_put(sp_backend *be, sp_tensor host, bool is_bf16)
{
    const sp_tensor rows = is_bf16 ? fx_rounded(host) : host;
    const size_t element = sp_elem_bytes(rows.elem), n = cu_bytes(host) / sizeof(float);
    /* If rows are not whole chunks of 16 bytes, the first row is not aligned to them
     * either. */
    const size_t off = host.n > 1 && host.ld % 4 ? element : 0;
    char *to = (char *)cu_room(be, n * element + off) + off;

    OK(be->ops->upload(be, to, rows.data, n * element));
    host.data = (float *)to;
    host.elem = rows.elem;
    return host;
}

/* Reads rows as fp32. Guards come back as those of fp32 where they are intact. */
static inline void cu_read(sp_backend *be, sp_tensor device, sp_tensor host)
{
    const bool is_bf16 = device.elem == SP_ELEM_BF16;
    const size_t bytes = cu_bytes(host) / (is_bf16 ? 2 : 1);
    const void *from = device.data;

    device.data = is_bf16 ? test_alloc(bytes) : host.data;
    OK(be->ops->download(be, device.data, from, bytes));
    if (is_bf16)
        memcpy(host.data, fx_widened(device).data, cu_bytes(host));
}

/* Gives the map as a plan of the device has it: without tile lists. Its form for the
 * device is valid until cu_close. */
static inline sp_map cu_map(sp_backend *be, const sp_map *m, int n_samples)
{
    const size_t n = sizeof(int32_t);
    sp_map map = *m;
    cuda_map host, *d;

    OK(cuda_map_host(m, n_samples, &host));
    assert_true(cu_held.n_maps < 32);
    d = &cu_held.map[cu_held.n_maps++];
    *d = host;
    d->mask = cu_copy(be, d->mask, (size_t)d->n_out * (size_t)d->n_words * n);
    d->first = cu_copy(be, d->first, ((size_t)d->n_out + 1) * n);
    d->nbr = cu_copy(be, d->nbr, (size_t)d->pairs * n);
    d->order = cu_copy(be, d->order, (size_t)d->n_out * n);
    d->pair_in = cu_copy(be, d->pair_in, (size_t)d->pairs * n);
    d->pair_out = cu_copy(be, d->pair_out, (size_t)d->pairs * n);
    host.pair_start = NULL; /* d has it */
    cuda_map_host_free(&host);
    map.n_tiles = 0;
    map.start = map.in = map.out = map.tile_row = map.sample_tile = NULL;
    map.device = d;
    return map;
}

static inline void cu_run(op_results *r, sp_backend *be, bool is_bf16, op_work *work,
                          const void *of)
{
    static const op_memory device = {cu_copy, cu_put, cu_map};

    op_run(r, be, &device, is_bf16, is_bf16, work, of);
}

/* Runs the same with the plain loops and on the device, in an order of execution, and
 * compares. Operands are such as bf16 holds where the device stores them so. */
static inline void cu_compare(int order, bool is_bf16, op_work *work, const void *of)
{
    static op_results plain, got;
    const size_t mark = test_mark();
    sp_backend be = fx_reference();

    op_run(&plain, &be, NULL, is_bf16, false, work, of);
    be = cu_open(order);
    cu_run(&got, &be, is_bf16, work, of);
    cu_close(&be);
    op_compare("cuda", &got, &plain, 0x1p-8);
    test_release(mark);
}

#endif
