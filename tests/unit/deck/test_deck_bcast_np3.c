/* Every rank has rank 0's config, or rank 0's failure. */
#include "fixtures/test.h"

#include "deck/sp_deck.h"

ON_RANKS(comm)

TEST(config_of_rank_0_reaches_all)
{
    char *o[] = {"train.lr=0.75", "run.dir=a\"b",
                 "net.layers=({ name = \"x\"; op = \"relu\"; })"};
    CLOSED_BY(sp_config_destroy) sp_config c = {0};
    sp_status rc = SP_OK;

    if (comm.rank == 0)
        rc = sp_config_read(&c, NULL, 3, o);
    OK(sp_config_bcast(&c, &comm, rc));
    assert_true(c.train.lr == 0.75);
    assert_string_equal(c.run.dir, "a\"b");
    assert_int_equal(c.net.n_layers, 1);
    assert_true(sp_config_is_set(&c, "train.lr"));
    assert_false(sp_config_is_set(&c, "train.momentum"));
}

TEST(failure_of_rank_0_is_agreed)
{
    char *o[] = {"train.lr=x"};
    CLOSED_BY(sp_config_destroy) sp_config c = {0};
    sp_status rc = SP_OK;

    if (comm.rank == 0)
        rc = sp_config_read(&c, NULL, 1, o);
    FAILS(sp_config_bcast(&c, &comm, rc), SP_EUSAGE, "train.lr = x");
}
