/* CRC32C equals the published check value, in one piece, in parts and by table. */
#include "test.h"

#include "sp_crc.h"

static void check_value(void **state)
{
    unsigned char zeros[32] = {0};

    (void)state;
    assert_int_equal(sp_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sp_crc32c_table(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sp_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(sp_crc32c(0, "", 0), 0);
}

static void parts_and_table_agree(void **state)
{
    enum { N = 70001 };
    unsigned char *data = malloc(N);

    (void)state;
    for (int i = 0; i < N; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t n = 0; n < N; n = 2 * n + 1 + n % 7)
        for (size_t cut = 0; cut <= n; cut += 1 + n / 3) {
            uint32_t whole = sp_crc32c_table(0, data + 1, n);

            assert_int_equal(sp_crc32c(0, data + 1, n), whole);
            assert_int_equal(
                sp_crc32c(sp_crc32c(0, data + 1, cut), data + 1 + cut, n - cut), whole);
        }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_value),
        cmocka_unit_test(parts_and_table_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
