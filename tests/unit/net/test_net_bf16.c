/* A step in bf16 is that of fp32 with rounded activations: on each network its loss and
 * its gradient are close to those of the plain loops in fp32, and the same bits come of
 * the instructions of AVX512_BF16 and from those of AVX-512. */
#include "reference/net_case.h"

static const case_sample samples[] = {
    {1, 40, false}, {2, 0, false}, {3, 61, false}, {4, 7, true}, {5, 1, false}};
enum { N_SAMPLES = sizeof samples / sizeof samples[0] };

static void run(net_case *c, const sp_backend_ops *ops, const char *layers,
                sp_precision precision)
{
    const sp_net_options options = {.bn_scope = SP_SCOPE_WORLD,
                                    .seed = 3,
                                    /* as ranks on the CPU train */
                                    .is_low_memory = precision == SP_BF16};

    case_open_as(c, ops, alone(), layers, "[]", &options, precision);
    case_batch(c, samples, N_SAMPLES);
    case_step(c, true);
}

TEST(follows_fp32)
{
    for (int i = 0; case_nets[i]; i++) {
        CLOSED_BY(case_close) net_case want, got;
        double loss, gradient;

        run(&want, sp_backend_reference(), case_nets[i], SP_FP32);
        run(&got, sp_backend_find("cpu"), case_nets[i], SP_BF16);
        loss = fabs(got.loss.loss_sum / want.loss.loss_sum - 1);
        gradient =
            case_distance(got.buckets.grad, want.buckets.grad, want.graph.n_floats);
        if (!(loss <= 0.02 && gradient <= 0.15 && gradient > 0))
            fail_msg("network %d: loss differs by %g, gradient by %g", i, loss,
                     gradient);
    }
}

TEST(instructions_change_no_bit)
{
    for (int i = 0; case_nets[i]; i++) {
        sp_backend be = {.ops = sp_backend_find("cpu"), .precision = SP_BF16};
        CLOSED_BY(case_close) net_case a, b;

        setenv("SP_CPU_ISA", "avx512bf16", 1);
        if (be.ops->open(&be, 0, 1) != SP_OK)
            skip(); /* this processor does not have them */
        be.ops->close(&be);
        run(&a, be.ops, case_nets[i], SP_BF16);
        setenv("SP_CPU_ISA", "avx512", 1);
        run(&b, be.ops, case_nets[i], SP_BF16);
        unsetenv("SP_CPU_ISA");
        assert_true(a.loss.loss_sum == b.loss.loss_sum);
        assert_memory_equal(a.buckets.grad, b.buckets.grad,
                            (size_t)a.graph.n_floats * sizeof(float));
    }
}
