/* CRC32C (Castagnoli), the checksum of shards and checkpoints, and a test of the
 * numbers that it covers. A reader does both in one pass. All functions are local, may
 * be called by any thread and cannot fail. */
#ifndef SP_CRC_H
#define SP_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of the data with checksum `crc` followed by these bytes; the
 * first call passes 0. The processor's own instructions are used if it has them
 * (measured, 20 to 60 bytes per nanosecond), else tables. */
uint32_t sp_crc32c(uint32_t crc, const void *data, size_t bytes);
/* Returns the checksum of the data with checksum `crc` followed by `bytes` bytes with
 * the checksum `next`. */
uint32_t sp_crc32c_join(uint32_t crc, uint32_t next, uint64_t bytes);
/* Returns the checksum of the data with checksum `crc` followed by a name and the n
 * texts of that name. Their zero bytes count, so that ["ab"] differs from ["a", "b"].
 * text NULL: followed by nothing. */
uint32_t sp_crc32c_texts(uint32_t crc, const char *name, int n, char *const *text);

/* The type of 32-bit words, which decides the values that are invalid. */
typedef enum sp_word {
    SP_COORD, /* int32; invalid outside [-2^19, 2^19) */
    SP_FLOAT, /* float32; invalid if infinite or NaN */
} sp_word;

/* True if any of the words is invalid. `bytes` is a multiple of 4. */
bool sp_words_invalid(const void *data, size_t bytes, sp_word kind);
/* The checksum, as sp_crc32c, and in *is_invalid the test of sp_words_invalid, in one
 * pass. */
uint32_t sp_crc32c_checked(uint32_t crc, const void *data, size_t bytes, sp_word kind,
                           bool *is_invalid);
/* The portable form of sp_crc32c, for tests too. */
uint32_t sp_crc32c_table(uint32_t crc, const void *data, size_t bytes);

/* ---- for the forms of the checksum, which config.h lists in SP_CRC_FORMS ---- */
typedef struct sp_crc_form {
    /* Has this processor the form? Fills its tables. NULL: every processor has it. */
    bool (*is_here)(void);
    uint32_t (*sum)(uint32_t crc, const void *data, size_t bytes);
    /* The sum and the test in one pass; NULL: one after the other, piece by piece. */
    uint32_t (*checked)(uint32_t crc, const void *data, size_t bytes, sp_word kind,
                        bool *is_invalid);
} sp_crc_form;

/* A word x is invalid if it differs from a certain sum in one of the bits of the kind.
 * Coordinates: the sum is x + x, because bits 19 to 31 of a coordinate in range are all
 * equal. Floats: the sum is x + SP_EXPONENT_STEP, which carries into the sign bit if
 * all bits of the exponent are set. */
enum { SP_EXPONENT_STEP = 0x00800000 };
static inline uint32_t sp_tell_tale(sp_word kind)
{
    return kind == SP_COORD ? 0xfff00000u : 0x80000000u;
}

#endif
