/* The kernels that sum through memory which devices reach of each other, on one device:
 * two to four ranks are streams of this process, and each has memory of its own. Sums
 * have the bits of sums by rank, while ranks run up to a sum ahead of each other, and
 * every stream ends where a rank does not come. */
#include "fixtures/test.h"

#include "gpu/cuda_fixture.h"

/* peer_streams.cu: data [ranks][n_sums][n] becomes the sums over ranks, in `ranks`
 * streams; no sum is put into the stream of rank `absent` (-1: all come). *lost is 0,
 * or 1 + the rank for which the others waited limit_s in vain. */
sp_status peer_streams(int ranks, int absent, double limit_s, int n_sums, int n,
                       double *data, int *lost);

static double value(int r, int k, int i)
{
    return ldexp(1.0 / (3 + i + 7 * r + k), (i * 5 + r * 11 + k) % 41 - 20);
}

TEST(sums_have_the_bits_of_their_order)
{
    enum { SUMS = 12 };
    static const int length[] = {1, 64, 193, 4096};

    for (int ranks = 2; ranks <= 4; ranks++)
        for (int l = 0; l < 4; l++) {
            const int n = length[l];
            CLOSED_BY(cu_close) sp_backend be = cu_open(ranks + l);
            double *data = test_alloc((size_t)ranks * SUMS * (size_t)n * sizeof *data);
            int lost;

            for (int r = 0; r < ranks; r++)
                for (int k = 0; k < SUMS; k++)
                    for (int i = 0; i < n; i++)
                        data[((size_t)r * SUMS + (size_t)k) * (size_t)n + (size_t)i] =
                            value(r, k, i);
            OK(peer_streams(ranks, -1, 1000, SUMS, n, data, &lost));
            assert_int_equal(lost, 0);
            for (int r = 0; r < ranks; r++)
                for (int k = 0; k < SUMS; k++)
                    for (int i = 0; i < n; i++) {
                        const double *got =
                            &data[((size_t)r * SUMS + (size_t)k) * (size_t)n +
                                  (size_t)i];
                        double sum = value(0, k, i);

                        for (int of = 1; of < ranks; of++)
                            sum += value(of, k, i);
                        if (memcmp(got, &sum, sizeof sum) != 0)
                            fail_msg("%d ranks, rank %d, sum %d of %d values, [%d]: "
                                     "%.17g, by rank it is %.17g",
                                     ranks, r, k, n, i, *got, sum);
                    }
        }
}

TEST(all_streams_end_where_a_rank_is_absent)
{
    CLOSED_BY(cu_close) sp_backend be = cu_open(0);
    double data[3 * 2] = {0};
    int lost = 0;

    /* To a process that stands still another rank may seem absent. */
    for (double limit_s = 0.2; lost != 1 + 1 && limit_s < 100; limit_s *= 5)
        OK(peer_streams(3, 1, limit_s, 2, 1, data, &lost));
    assert_int_equal(lost, 1 + 1);
}

KERNEL_TESTS(test_peer_streams)
