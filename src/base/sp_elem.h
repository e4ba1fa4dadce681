/* The types of the elements of tensors, fp32 and bf16 (the upper half of an fp32). */
#ifndef SP_ELEM_H
#define SP_ELEM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fp32 is 0, so that a zeroed tensor is fp32. */
typedef enum sp_elem { SP_ELEM_F32, SP_ELEM_BF16 } sp_elem;

static inline size_t sp_elem_bytes(sp_elem elem)
{
    return elem == SP_ELEM_BF16 ? 2 : 4;
}

/* The bf16 nearest to v, ties to even. A NaN stays one, and subnormal numbers are kept.
 */
static inline uint16_t sp_bf16_of(float v)
{
    uint32_t bits, rounded;

    memcpy(&bits, &v, sizeof bits);
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

static inline float sp_bf16_to_float(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

#ifdef __cplusplus
}
#endif
#endif
