/* CRC32C equals the published check value, in one piece, in parts and by table. */
#include "fixtures/test.h"

#include <float.h>
#include <math.h>

#include "base/sp_crc.h"

TEST(check_value)
{
    unsigned char zeros[32] = {0};

    assert_int_equal(sp_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sp_crc32c_table(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sp_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(sp_crc32c(0, "", 0), 0);
}

TEST(parts_and_table_agree)
{
    enum { N = 70001 };
    FREED unsigned char *data = malloc(N);

    for (int i = 0; i < N; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t n = 0; n < N; n = 2 * n + 1 + n % 7)
        for (size_t cut = 0; cut <= n; cut += 1 + n / 3) {
            uint32_t whole = sp_crc32c_table(0, data + 1, n);

            assert_int_equal(sp_crc32c(0, data + 1, n), whole);
            assert_int_equal(
                sp_crc32c(sp_crc32c(0, data + 1, cut), data + 1 + cut, n - cut), whole);
            assert_int_equal(sp_crc32c_join(sp_crc32c(0, data + 1, cut),
                                            sp_crc32c(0, data + 1 + cut, n - cut),
                                            n - cut),
                             whole);
        }
}

/* One value out of range is found wherever it stands, values at the ends of the range
 * are accepted, and the checksum stays the same. */
TEST(invalid_words_are_found)
{
    static const int32_t edge[2][2] = {{-524289, -524288}, {524288, 524287}};
    static const float end[2][2] = {{-INFINITY, -FLT_MAX}, {NAN, FLT_MAX}};
    static int32_t coords[1500];
    static float floats[1500];
    bool is_invalid;

    for (size_t n = 1; n <= 1500; n += 1 + n / 4)
        for (size_t at = 0; at < n; at += 1 + n / 9)
            for (int k = 0; k < 4; k++) {
                size_t bytes = 4 * n;
                bool is_good = k & 1;

                memset(coords, 0xff, sizeof coords);
                memset(floats, 0, sizeof floats);
                coords[at] = edge[k >> 1][k & 1];
                floats[at] = end[k >> 1][k & 1];
                assert_int_equal(!sp_words_invalid(coords, bytes, SP_COORD), is_good);
                assert_int_equal(!sp_words_invalid(floats, bytes, SP_FLOAT), is_good);
                assert_int_equal(sp_crc32c_checked((uint32_t)n, coords, bytes, SP_COORD,
                                                   &is_invalid),
                                 sp_crc32c_table((uint32_t)n, coords, bytes));
                assert_int_equal(!is_invalid, is_good);
                assert_int_equal(sp_crc32c_checked((uint32_t)n, floats, bytes, SP_FLOAT,
                                                   &is_invalid),
                                 sp_crc32c_table((uint32_t)n, floats, bytes));
                assert_int_equal(!is_invalid, is_good);
            }
}
