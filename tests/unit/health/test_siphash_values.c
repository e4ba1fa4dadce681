/* SipHash-2-4 gives the values of its authors: key 00 01 .. 0f, text 00 01 .. n-1. */
#include "fixtures/test.h"

#include "health/sp_auth_socket.h"

TEST(the_published_values)
{
    /* The vectors are the reference implementation's for 0 to 8 bytes, and the paper's
     * for 15. */
    static const struct {
        size_t bytes;
        uint64_t hash;
    } want[] = {{0, UINT64_C(0x726fdb47dd0e0e31)}, {1, UINT64_C(0x74f839c593dc67fd)},
                {2, UINT64_C(0x0d6c8009d9a94f5a)}, {3, UINT64_C(0x85676696d7fb7e2d)},
                {4, UINT64_C(0xcf2794e0277187b7)}, {5, UINT64_C(0x18765564cd99a68d)},
                {6, UINT64_C(0xcbc9466e58fee3ce)}, {7, UINT64_C(0xab0200f58b01d137)},
                {8, UINT64_C(0x93f5f5799a932462)}, {15, UINT64_C(0xa129ca6149be45e5)}};
    uint8_t bytes[16];

    for (int i = 0; i < 16; i++)
        bytes[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(sp_siphash(bytes, bytes, want[i].bytes), want[i].hash);
}

TEST(every_bit_of_key_and_text_counts)
{
    uint8_t key[16] = {0}, text[144] = {0};
    const uint64_t plain = sp_siphash(key, text, sizeof text);

    for (size_t bit = 0; bit < 8 * sizeof text; bit++) {
        text[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(sp_siphash(key, text, sizeof text), plain);
        text[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * sizeof key; bit++) {
        key[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(sp_siphash(key, text, sizeof text), plain);
        key[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}
