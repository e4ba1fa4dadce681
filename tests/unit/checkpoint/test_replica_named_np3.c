/* One rank's weights differ in one bit: all ranks fail alike and name it. */
#include "fixtures/test.h"

#include "checkpoint/sp_replica.h"

ON_RANKS(comm)

TEST(the_same_bits_pass)
{
    float data[1000];

    for (int i = 0; i < 1000; i++)
        data[i] = (float)i / 7;
    OK(sp_replica_check(&comm, data, 1000, 5));
    OK(sp_replica_check(&comm, data, 0, 5));
}

TEST(the_one_that_differs_is_named)
{
    float data[1000] = {0};

    for (int who = 0; who < comm.size; who++) {
        char text[64];

        data[999] = comm.rank == who ? -0.0F : 0.0F;
        assert_int_equal(sp_replica_check(&comm, data, 1000, 7), SP_ENUMERIC);
        snprintf(text, sizeof text, "step 7: the weights of rank %d differ", who);
        SAYS(text);
        SAYS("most others");
    }
}
