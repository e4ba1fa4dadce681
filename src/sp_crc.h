/* CRC32C (Castagnoli), the checksum of shards and checkpoints. */
#ifndef SP_CRC_H
#define SP_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what gave `crc` followed by these bytes; begin with 0. With the
 * processor's own instruction where it has one (10 bytes per nanosecond and more), else
 * by table. */
uint32_t sp_crc32c(uint32_t crc, const void *data, size_t bytes);
/* The portable form of the same, for tests. */
uint32_t sp_crc32c_table(uint32_t crc, const void *data, size_t bytes);

#endif
