/* The functions that ptx2cc.py's C++ calls: PTX instructions that are not one operator
 * of C++. Names and meanings are those of the PTX manual; threads, barriers, memory and
 * tensor cores are the emulator's (tests/emulator).
 *
 * A register holds bits; an instruction reads and writes them as its own type.
 * Addresses of shared memory have 32 bits: the distance from the begin of the
 * block's window of the emulator's memory.
 */
#ifndef PTX_H
#define PTX_H

#include "emulator/hostcuda_internal.h"

/* A translated kernel. Its parameters lie behind one another, as a launch passes
 * them. */
struct ptx_parameter {
    int at, bytes;
};
struct ptx_kernel {
    const char *name; /* name as the compiler mangled it */
    void (*run)(const char *parameters);
    int bytes, n_parameters;
    const ptx_parameter *parameter;
    int most_threads; /* of a block, by __launch_bounds__; 0: any */
};
/* Called by each translated file before main. */
void ptx_register(const ptx_kernel *kernel);

/* ---- memory ---- */

static inline char *shared(uint32_t address)
{
    return hc_window + address;
}

static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)((const char *)p - hc_window);
}

/* Ends the program where an access is not aligned to its size, vectors as a whole. Not
 * inline: kernels have thousands of accesses, and compilers take long over branches. */
void ptx_check_aligned(uintptr_t p, size_t bytes, const char *file, int line);

template <class T>
static inline T *access(const void *p, int count, const char *file, int line)
{
    ptx_check_aligned((uintptr_t)p, sizeof(T) * (size_t)count, file, line);
    return (T *)const_cast<void *>(p);
}

/* ---- integers ---- */

template <class T> static inline T shl(T a, uint32_t n)
{
    return n >= sizeof(T) * 8 ? 0 : (T)(a << n);
}

template <class T> static inline T shr(T a, uint32_t n)
{
    return n >= sizeof(T) * 8 ? (T)(a < 0 ? -1 : 0) : (T)(a >> n);
}

template <class T> static inline T divide(T a, T b)
{
    return b ? (T)(a / b) : (T)-1;
}

template <class T> static inline T remainder_of(T a, T b)
{
    return b ? (T)(a % b) : a;
}

template <class T> static inline T bfi(T a, T b, uint32_t at, uint32_t n)
{
    const T mask = shl<T>(n >= sizeof(T) * 8 ? ~(T)0 : (T)(((T)1 << n) - 1), at);

    return (T)((b & ~mask) | (shl(a, at) & mask));
}

static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t r = 0;

    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> (4 * i) & 15;
        uint32_t byte = (uint32_t)(bytes >> (8 * (s & 7))) & 255;
        if (s & 8) /* the sign of the byte, eight times */
            byte = byte & 128 ? 255 : 0;
        r |= byte << (8 * i);
    }
    return r;
}

static inline uint32_t clz(uint32_t v)
{
    return v ? (uint32_t)__builtin_clz(v) : 32;
}

/* bfind.shiftamt: the distance by which the first one is shifted to the top. */
template <class T> static inline uint32_t shift_to_top(T v)
{
    return v ? clz(v) : ~0u;
}

template <class T> static inline T brev(T v)
{
    T r = 0;

    for (unsigned i = 0; i < sizeof(T) * 8; i++)
        r |= (T)(v >> i & 1) << (sizeof(T) * 8 - 1 - i);
    return r;
}

/* ---- floating point ---- */

/* min and max give the other number where one is NaN. */
static inline float min_of(float a, float b)
{
    return fminf(a, b);
}
static inline float max_of(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min_of(double a, double b)
{
    return fmin(a, b);
}
static inline double max_of(double a, double b)
{
    return fmax(a, b);
}
template <class T> static inline T min_of(T a, T b)
{
    return a < b ? a : b;
}
template <class T> static inline T max_of(T a, T b)
{
    return a > b ? a : b;
}
static inline float fma_of(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double fma_of(double a, double b, double c)
{
    return fma(a, b, c);
}

/* rcp.approx.ftz.f64: the upper half of the result. */
static inline double rough_reciprocal(double v)
{
    return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, 1 / v) &
                                          0xffffffff00000000u);
}

/* ---- blocks ---- */

/* A barrier that tells whether a thread of the block came with a true value. */
static inline bool is_in_block(bool value, const char *file, int line)
{
    static bool is_any[HC_MOST_BLOCKS];
    bool *const own = &is_any[hc_block_of_run()];
    bool was_any;

    *own = *own || value;
    __syncthreads(file, line);
    was_any = *own;
    __syncthreads(file, line);
    *own = false;
    __syncthreads(file, line);
    return was_any;
}

/* ---- warps ---- */

enum ptx_shuffle { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };

/* clamp: the operand c of the manual. *is_inside: the source lane is in the segment. */
static inline uint32_t shuffle(ptx_shuffle mode, uint32_t value, uint32_t by,
                               uint32_t clamp, uint32_t mask, bool *is_inside,
                               const char *file, int line)
{
    const int lane = hc_self->lane, segment = (int)(clamp >> 8 & 31);
    const int last = (lane & segment) | ((int)(clamp & 31) & ~segment);
    const int first = lane & segment, b = (int)(by & 31);
    int from;

    if (mode == SHFL_UP) {
        from = lane - b;
        *is_inside = from >= last;
    } else {
        from = mode == SHFL_DOWN   ? lane + b
               : mode == SHFL_BFLY ? lane ^ b
                                   : first | (b & ~segment);
        *is_inside = from <= last;
    }
    return (uint32_t)hc_collective(HC_SHUFFLE, mask, value, *is_inside ? from : lane,
                                   file, line);
}

#endif
