/* Running statistics of batch norm move by its momentum towards the batch's mean and
 * unbiased variance. A single row leaves the variance as it is, no rows leave both, and
 * no number that a float cannot hold gets in. */
#include "fixtures/test.h"

#include "compute/sp_norm.h"

static float running[2]; /* mean, variance */
static double momentum = 0.1;

/* The rows have this sum and this sum of squares. */
static void finish(double rows, double sum, double squares)
{
    float gamma = 1, beta = 0, scale, shift, mean, inv_std;
    const double part[3] = {sum, squares, rows};
    const sp_norm_finish_args args = {.c = 1,
                                      .eps = 1e-5,
                                      .momentum = momentum,
                                      .sums = {part, 1, rows},
                                      .gamma = &gamma,
                                      .beta = &beta,
                                      .running_mean = &running[0],
                                      .running_var = &running[1],
                                      .scale = &scale,
                                      .shift = &shift,
                                      .mean = &mean,
                                      .inv_std = &inv_std};

    running[0] = 1;
    running[1] = 2;
    sp_norm_finish_channel(&args, 0, sp_norm_add_parts(&args.sums, 1, 0));
}

TEST(batches_move_it)
{
    finish(4, 20, 132); /* mean 5, variance 8, unbiased 32 / 3 */
    assert_float_equal(running[0], 0.9 + 0.5, 1e-6);
    assert_float_equal(running[1], 1.8 + 3.2 / 3, 1e-6);
    finish(1, 5, 25);
    assert_float_equal(running[0], 1.4, 1e-6);
    assert_true(running[1] == 2);
    finish(0, 0, 0);
    assert_true(running[0] == 1 && running[1] == 2);
}

TEST(momentum_is_the_share_of_the_batch)
{
    momentum = 0.01;
    finish(4, 20, 132);
    assert_float_equal(running[0], 0.99 + 0.05, 1e-6);
    assert_float_equal(running[1], 1.98 + 0.32 / 3, 1e-6);
    momentum = 1;
    finish(4, 20, 132);
    assert_float_equal(running[0], 5, 1e-6);
    assert_float_equal(running[1], 32 / 3.0, 1e-6);
    momentum = 0;
    finish(4, 20, 132);
    assert_true(running[0] == 1 && running[1] == 2);
    momentum = 0.1;
}

TEST(no_infinity_gets_in)
{
    finish(4, NAN, NAN);
    assert_true(running[0] == 1 && running[1] == 2);
    finish(4, 20, INFINITY);
    assert_true(running[0] == 1 && running[1] == 2);
    finish(4, 3e38, 9e76); /* finite in double */
    assert_true(running[0] == 1 && running[1] == 2);
}
