/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011).
 *
 * A stream is identified by its use, (seed, purpose, a, b), so a draw depends on
 * neither rank, thread nor order of work. Draw i of a stream is a pure function of
 * these and i.
 */
#ifndef SP_RNG_H
#define SP_RNG_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__ /* CUDA kernels draw the same numbers */
#define SP_HOST_DEVICE __host__ __device__
#else
#define SP_HOST_DEVICE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The purpose of a stream, with the meaning of a and b, and of the counter if draws are
 * addressed by index. */
typedef enum sp_rng_purpose {
    SP_RNG_SHUFFLE = 1, /* a = epoch */
    SP_RNG_AUGMENT,     /* a = epoch, b = sample */
    SP_RNG_VOXEL_DROP,  /* a = epoch, b = sample; counter = voxel */
    SP_RNG_JITTER,      /* a = epoch, b = sample; counter = voxel, channel */
    SP_RNG_DROPOUT,     /* a = epoch, b = sample; counter = layer, row, channel */
    SP_RNG_INIT,        /* a = hash of the parameter's name; counter = element */
    SP_RNG_SCENE,       /* a = sample */
    SP_RNG_SHIFT,       /* a = epoch, b = sample; counter = axis */
    SP_RNG_NOISE,       /* a = epoch, b = sample; counter = voxel, axis */
    SP_RNG_ELASTIC,     /* a = epoch, b = sample; counter = distortion, node, axis */
    SP_RNG_MIX,         /* a = epoch, b = sample */
    SP_RNG_CROP,        /* a = epoch, b = sample */
    SP_RNG_PASTE,       /* a = epoch, b = sample; counter = object, draw */
    SP_RNG_COLOR,       /* a = epoch, b = sample */
    SP_RNG_COLOR_NOISE, /* a = epoch, b = sample; counter = voxel, column */
} sp_rng_purpose;

typedef struct sp_rng {
    uint32_t key[2];
    uint32_t hi[2];   /* upper half of the 128-bit counter: the stream */
    uint64_t counter; /* lower half: the draw, advanced by the sequential calls */
} sp_rng;

/* Mixes the bits of a word. */
static inline SP_HOST_DEVICE uint64_t sp_rng_mix(uint64_t x)
{ /* the finalizer of splitmix64, a bijection */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Opens the stream (seed, purpose, a, b) at its first draw. */
static inline SP_HOST_DEVICE sp_rng sp_rng_open(uint64_t seed, sp_rng_purpose purpose,
                                                uint64_t a, uint64_t b)
{
    uint64_t k = sp_rng_mix(seed + 0x9e3779b97f4a7c15u * (uint64_t)purpose);
    uint64_t h = sp_rng_mix(sp_rng_mix(a + 0x9e3779b97f4a7c15u) ^ k) ^ sp_rng_mix(b);
    sp_rng r = {
        {(uint32_t)k, (uint32_t)(k >> 32)}, {(uint32_t)h, (uint32_t)(h >> 32)}, 0};
    return r;
}

/* Computes the four words of block `block` of the stream. */
static inline SP_HOST_DEVICE void sp_rng_block(const sp_rng *r, uint64_t block,
                                               uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), r->hi[0], r->hi[1]};
    uint32_t k0 = r->key[0], k1 = r->key[1];

    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t t0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        uint32_t t2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[0] = t0;
        c[1] = (uint32_t)p1;
        c[2] = t2;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c[0];
    out[1] = c[1];
    out[2] = c[2];
    out[3] = c[3];
}

/* Word i of the stream, for draws that are addressed by index. */
static inline SP_HOST_DEVICE uint32_t sp_rng_at(const sp_rng *r, uint64_t i)
{
    uint32_t w[4];

    sp_rng_block(r, i >> 2, w);
    return w[i & 3];
}

/* Writes words first .. first + n - 1 of the stream to out [n]; `first` is a multiple
 * of 4. Faster than n calls of sp_rng_at, because blocks are computed in vector
 * registers. */
void sp_rng_words(const sp_rng *r, uint64_t first, int64_t n, uint32_t *out);
/* Writes standard normal deviates first .. first + n - 1 of the stream to out [n]:
 * words 2 k and 2 k + 1 give deviates 2 k and 2 k + 1. `first` is a multiple of 4. The
 * magnitude is at most 5.77, and the bits are the same on every machine. */
void sp_rng_normals(const sp_rng *r, uint64_t first, int64_t n, float *out);

/* The next word, for draws in sequence; advances the counter. */
static inline uint32_t sp_rng_u32(sp_rng *r)
{
    return sp_rng_at(r, r->counter++);
}

/* A number of 24 bits, uniform in [0, 1). */
static inline SP_HOST_DEVICE float sp_rng_to_unit(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24f;
}
/* Uniform in [0, 1), 53 bits from the next two words. */
static inline double sp_rng_unit(sp_rng *r)
{
    uint64_t hi = sp_rng_u32(r), lo = sp_rng_u32(r);
    return (double)((hi << 32 | lo) >> 11) * 0x1p-53;
}

/* Uniform in [lo, hi), from the next two words. */
static inline double sp_rng_uniform(sp_rng *r, double lo, double hi)
{
    return lo + (hi - lo) * sp_rng_unit(r);
}

/* Pair i of standard normal deviates of the stream (Box and Muller, in double). */
static inline void sp_rng_normal2(const sp_rng *r, uint64_t i, double out[2])
{
    uint32_t w[4];
    double u, v;

    sp_rng_block(r, i, w);
    u = ((double)(((uint64_t)w[0] << 32 | w[1]) >> 11) + 0.5) * 0x1p-53;
    v = (double)(((uint64_t)w[2] << 32 | w[3]) >> 11) * 0x1p-53;
    u = sqrt(-2 * log(u));
    out[0] = u * cos(6.283185307179586477 * v);
    out[1] = u * sin(6.283185307179586477 * v);
}

#ifdef __cplusplus
}
#endif
#endif
