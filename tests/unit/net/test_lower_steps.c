/* In every network that is lowered the passes that are left are the expected ones,
 * concats copy nothing where they can, and a suffix of the flat gradient is final when
 * it is said to be. */
#include "reference/net_case.h"

#include "net/sp_lower.h"

typedef struct lowered {
    sp_config config;
    sp_graph graph;
    sp_lowered low;
} lowered;

/* With layers NULL the network is the family's. */
static void lower(lowered *l, char *family, const char *layers)
{
    char text[8192] = "";

    memset(l, 0, sizeof *l);
    if (layers)
        snprintf(text, sizeof text, "net : { layers = ( %s ); };", layers);
    OK(sp_config_parse(&l->config, text, "lowering", layers ? 0 : 1, &family));
    OK(sp_graph_build(&l->graph, &l->config, CASE_FEATURES, CASE_CLASSES));
    OK(sp_lower(&l->low, &l->graph, false));
}

static void drop(lowered *l)
{
    sp_lowered_destroy(&l->low);
    sp_graph_destroy(&l->graph);
    sp_config_destroy(&l->config);
}

static int count_steps(const lowered *l, sp_op op)
{
    const sp_lowered *low = &l->low;
    int n = 0;

    for (int s = 0; s < low->n_steps; s++)
        n += low->step[s].op == op;
    return n;
}

TEST(families_keep_no_add_and_no_activation)
{
    char *family[] = {"net.family=dummy", "net.family=minkunet18",
                      "net.family=minkunet50"};

    for (int i = 0; i < 3; i++) {
        lowered l;

        lower(&l, family[i], NULL);
        assert_int_equal(count_steps(&l, SP_OP_RELU), 0);
        assert_int_equal(count_steps(&l, SP_OP_ADD), 0);
        assert_true(count_steps(&l, SP_OP_BATCHNORM) > 0);
        drop(&l);
    }
}

TEST(unet_concats_copy_nothing)
{
    CLOSED_BY(drop) lowered l;

    lower(&l, "net.family=minkunet18", NULL);
    assert_int_equal(count_steps(&l, SP_OP_CONCAT), 4);
    for (int s = 0; s < l.low.n_steps; s++) {
        const sp_lower_step *step = &l.low.step[s];

        for (int k = 0; step->op == SP_OP_CONCAT && k < step->n_in; k++)
            assert_int_equal(l.low.value[step->in[k]].storage, step->out);
    }
}

/* Two values never share columns, and lie within the home's. */
static void check_columns(const sp_lowered *low)
{
    for (int a = 0; a < low->n_values; a++) {
        const sp_lower_value *u = &low->value[a];

        if (u->storage == a)
            continue;
        assert_true(u->column >= 0 && u->column + u->c <= low->value[u->storage].c);
        for (int b = 0; b < a; b++) {
            const sp_lower_value *v = &low->value[b];

            if (v->storage == u->storage && v->storage != b)
                assert_true(u->column + u->c <= v->column ||
                            v->column + v->c <= u->column);
        }
    }
}

/* Going backward from the last step, `ready` never rises, ends at 0, and no later step
 * has a parameter behind it. */
static void check_ready(const lowered *l)
{
    const sp_lowered *low = &l->low;
    const sp_param *param = l->graph.param;

    assert_int_equal(low->step[0].ready, 0);
    for (int s = 1; s < low->n_steps; s++) {
        assert_true(low->step[s].ready >= low->step[s - 1].ready);
        for (int before = 0; before < s; before++) {
            const sp_node *node = &l->graph.node[low->step[before].layer];

            if (node->weight >= 0)
                assert_true(param[node->weight].offset + param[node->weight].count <=
                            low->step[s].ready);
            if (node->bias >= 0)
                assert_true(param[node->bias].offset + param[node->bias].count <=
                            low->step[s].ready);
        }
    }
}

static bool reads(const sp_lower_step *step, int value)
{
    for (int k = 0; k < step->n_in; k++)
        if (step->in[k] == value)
            return true;
    return false;
}

/* When the backward of convolution s ends, it or a concat that it reads is the only
 * one still to hand a gradient to the norm before, and nobody has one for its input. */
static void check_norm_before(const sp_lowered *low, int s)
{
    const sp_lower_step *step = &low->step[s];
    const sp_lower_value *in = &low->value[step->in[0]];
    const int out = low->step[step->norm_before].out;
    const bool is_part = out != step->in[0];

    assert_int_equal(low->step[step->norm_before].op, SP_OP_BATCHNORM);
    assert_true(!is_part || (low->value[out].storage == step->in[0] &&
                             low->value[out].column + low->value[out].c <= in->c));
    for (int t = 0; t < low->n_steps; t++) {
        const sp_lower_step *other = &low->step[t];

        assert_true(t >= s || !reads(other, step->in[0]));
        if (is_part && reads(other, out))
            assert_true(other->op == SP_OP_CONCAT && other->out == step->in[0]);
    }
}

/* The residual norm gets the gradient that the other norm has. Training reads its input
 * in the turn of the other norm, and its output nowhere. */
static void check_residual_norm(const sp_lowered *low, int s)
{
    const sp_lower_step *residual = &low->step[low->step[s].residual_norm];

    assert_int_equal(residual->op, SP_OP_BATCHNORM);
    assert_int_equal(residual->out, low->step[s].in[1]);
    assert_true(residual->slope == 1 && residual->n_in == 1);
    assert_true(low->value[residual->out].is_unwritten);
    assert_int_equal(sp_lowered_read(low, &low->step[s], 1), residual->in[0]);
    assert_true(
        low->value[sp_lowered_storage(low, residual->in[0])].last[SP_TRAINING] >= s);
    for (int t = 0; t < low->n_steps; t++)
        assert_int_equal(reads(&low->step[t], residual->out), t == s);
}

/* Returns the number of norms whose sums no convolution forms. */
static int check_norms(const sp_lowered *low)
{
    int n = low->n_norms;

    for (int s = 0; s < low->n_steps; s++) {
        const int norm = low->step[s].norm_before;

        if (low->step[s].residual_norm >= 0)
            check_residual_norm(low, s);
        if (norm < 0)
            continue;
        check_norm_before(low, s);
        n -= 1 + (low->step[norm].residual_norm >= 0);
    }
    return n;
}

TEST(convolutions_take_the_sums_of_norms_before)
{
    /* The values are read by an add of three, by a concat twice, by a broadcast; by a
     * norm, by an activation and others, by the loss. */
    static const int without[] = {0, 1, 1, 1, 3, 0, 0, 0};
    char *family[] = {"net.family=dummy", "net.family=minkunet18",
                      "net.family=minkunet34"};
    lowered l;

    for (int i = 0; i < 3; i++) {
        lower(&l, family[i], NULL);
        assert_int_equal(check_norms(&l.low), 0);
        drop(&l);
    }
    for (int i = 0; case_nets[i]; i++) {
        assert_true(i < (int)(sizeof without / sizeof *without));
        lower(&l, NULL, case_nets[i]);
        assert_int_equal(check_norms(&l.low), without[i]);
        drop(&l);
    }
}

TEST(columns_are_disjoint_and_gradients_final)
{
    lowered l;

    for (int i = 0; case_nets[i]; i++) {
        lower(&l, NULL, case_nets[i]);
        check_columns(&l.low);
        check_ready(&l);
        drop(&l);
    }
    lower(&l, "net.family=minkunet34", NULL);
    check_columns(&l.low);
    check_ready(&l);
    drop(&l);
}
