/* SipHash-2-4, a keyed hash: without the key nobody can compute the hash of a text, not
 * even after seeing the hashes of other texts (Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF", 2012). */
#ifndef SP_SIPHASH_H
#define SP_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

enum { SP_SIPHASH_KEY = 16 };

/* Returns the hash of `bytes` bytes under a key. Local. */
uint64_t sp_siphash(const uint8_t key[SP_SIPHASH_KEY], const void *data, size_t bytes);

#endif
