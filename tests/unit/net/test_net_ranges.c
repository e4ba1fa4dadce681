/* The ranges that a profiler gets nest, and every layer has one in the forward pass and
 * one in the backward pass. */
#include "reference/net_case.h"

static int depth, n_layers; /* open ranges; ranges so far of the layer looked for */
static const char *wanted;

static void begin(const char *name)
{
    depth++;
    n_layers += strcmp(name, wanted) == 0;
}

static void end(void)
{
    assert_true(depth > 0);
    depth--;
}

TEST(every_layer_has_its_ranges)
{
    static const case_sample samples[] = {{1, 20, false}, {2, 9, false}};
    const sp_net_options options = {.bn_scope = SP_SCOPE_WORLD, .seed = 3};
    sp_backend_ops ops = *sp_backend_find("cpu");

    ops.range_begin = begin;
    ops.range_end = end;
    for (int i = 0; case_nets[i]; i++) {
        CLOSED_BY(case_close) net_case c;

        case_open(&c, &ops, alone(), case_nets[i], &options);
        case_batch(&c, samples, 2);
        for (int k = 0; k < c.graph.n_nodes; k++) {
            const sp_node *node = &c.graph.node[k];

            wanted = node->name;
            n_layers = 0;
            case_step(&c, true);
            assert_int_equal(depth, 0);
            if (node->op == SP_OP_CONV && n_layers != 2)
                fail_msg("network %d: %d ranges of %s", i, n_layers, wanted);
        }
    }
}
