/* CRC32C (Castagnoli), the checksum of shards and checkpoints. */
#ifndef SP_CRC_H
#define SP_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of what gave `crc` followed by these bytes; begin with 0. With the
 * processor's own instructions where it has them (20 to 60 bytes per nanosecond), else
 * by table. */
uint32_t sp_crc32c(uint32_t crc, const void *data, size_t bytes);
/* 32-bit words that a reader checks while it sums them. */
typedef enum sp_word {
    SP_COORD, /* int32, strange outside [-2^19, 2^19) */
    SP_FLOAT, /* float32, strange if infinite or no number */
} sp_word;

/* Is any of the words strange? `bytes` a multiple of 4. */
bool sp_words_strange(const void *data, size_t bytes, sp_word kind);
/* Both in one pass. */
uint32_t sp_crc32c_strange(uint32_t crc, const void *data, size_t bytes, sp_word kind,
                           bool *strange);
/* The portable form of the first, for tests. */
uint32_t sp_crc32c_table(uint32_t crc, const void *data, size_t bytes);

#endif
