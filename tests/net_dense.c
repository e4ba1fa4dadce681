/* The network in double on lists of coordinates: no plan, no maps, no fusion. */
#include "net_case.h"

#include "sp_rng.h"

enum { MAX_ROWS = 512 };

typedef struct rows {
    int n;
    int at[MAX_ROWS][4]; /* sample, x, y, z */
} rows;

struct dense {
    const net_case *c;
    rows level[SP_MAX_LEVELS];
    int **in;      /* per node: [n_out][K] input row of each offset, -1 none; or NULL */
    double **out;  /* per node: [rows][c_out] */
    double **stat; /* per node: [2][c] */
    int64_t *stat_rows;
};

static int find(const rows *r, const int at[4])
{
    int i;

    for (i = 0; i < r->n; i++)
        if (!memcmp(r->at[i], at, 4 * sizeof *at))
            return i;
    return -1;
}

static int floor_to(int x, int s)
{
    return (x >= 0 ? x / s : -((s - 1 - x) / s)) * s;
}

static void make_levels(dense *d)
{
    const sp_batch *batch = &d->c->batch;
    int l, i, j, b;

    for (b = 0; b < batch->n_samples; b++)
        for (i = batch->plan.level[0].sample_row[b];
             i < batch->plan.level[0].sample_row[b + 1]; i++)
            for (l = 0; l < d->c->graph.spec.n_levels; l++) {
                rows *r = &d->level[l];
                int at[4] = {b};

                for (j = 0; j < 3; j++)
                    at[j + 1] = floor_to(d->c->coords[3 * i + j], 1 << l);
                if (find(r, at) < 0) {
                    assert_true(r->n < MAX_ROWS);
                    memcpy(r->at[r->n++], at, sizeof at);
                }
            }
}

static int level_in(const dense *d, const sp_node *node)
{
    return node->in[0] < 0 ? 0 : d->c->graph.node[node->in[0]].level;
}

static int n_rows(const dense *d, int level)
{
    return level < 0 ? d->c->batch.n_samples : d->level[level].n;
}

/* Which input row offset k of output row o reads. */
static int neighbour(const dense *d, const sp_node *node, int o, int k)
{
    bool is_up = !strcmp(node->op_name, "conv_transpose");
    int fine = is_up ? node->level : level_in(d, node), at[4], off[3], j;

    memcpy(at, d->level[node->level].at[o], sizeof at);
    sp_kernel_offset(node->kernel, k, off);
    for (j = 0; j < 3; j++)
        at[j + 1] += (is_up ? -off[j] : off[j]) * (1 << fine);
    return find(&d->level[level_in(d, node)], at);
}

static void make_table(dense *d, int i)
{
    const sp_node *node = &d->c->graph.node[i];
    int K = node->kernel * node->kernel * node->kernel, o, k;

    if (node->level < 0 || (node->op != SP_OP_CONV && node->op != SP_OP_MAX_POOL &&
                            node->op != SP_OP_AVG_POOL))
        return;
    d->in[i] = malloc(sizeof(int) * (size_t)(n_rows(d, node->level) * K + 1));
    for (o = 0; o < n_rows(d, node->level); o++)
        for (k = 0; k < K; k++)
            d->in[i][o * K + k] = neighbour(d, node, o, k);
}

dense *dense_open(const net_case *c)
{
    dense *d = calloc(1, sizeof *d);
    size_t n = (size_t)c->graph.n_nodes;
    int i;

    d->c = c;
    d->in = calloc(n, sizeof *d->in);
    d->out = calloc(n, sizeof *d->out);
    d->stat = calloc(n, sizeof *d->stat);
    d->stat_rows = calloc(n, sizeof *d->stat_rows);
    make_levels(d);
    for (i = 0; i < c->graph.n_nodes; i++) {
        const sp_node *node = &c->graph.node[i];

        make_table(d, i);
        d->out[i] = calloc((size_t)(n_rows(d, node->level) * node->c_out + 1), 8);
        d->stat[i] = calloc(2 * (size_t)node->c_out, 8);
    }
    return d;
}

void dense_close(dense *d)
{
    int i;

    for (i = 0; i < d->c->graph.n_nodes; i++) {
        free(d->in[i]);
        free(d->out[i]);
        free(d->stat[i]);
    }
    free(d->in);
    free(d->out);
    free(d->stat);
    free(d->stat_rows);
    free(d);
}

static double value(const dense *d, int node, int row, int c)
{
    const sp_graph *g = &d->c->graph;

    return node < 0 ? (double)d->c->batch.features[row * CASE_FEATURES + c]
                    : d->out[node][row * g->node[node].c_out + c];
}

static void conv(const dense *d, int i, const double *param)
{
    const sp_node *node = &d->c->graph.node[i];
    const sp_param *p = d->c->graph.param;
    const double *w = param + p[node->weight].offset;
    int K = node->kernel * node->kernel * node->kernel, o, k, a, b;

    for (o = 0; o < n_rows(d, node->level); o++)
        for (b = 0; b < node->c_out; b++) {
            double sum = node->bias < 0 ? 0 : param[p[node->bias].offset + b];

            for (k = 0; k < K; k++) {
                int from = d->in[i] ? d->in[i][o * K + k] : o;

                for (a = 0; from >= 0 && a < node->c_in; a++)
                    sum += value(d, node->in[0], from, a) *
                           w[(k * node->c_in + a) * node->c_out + b];
            }
            d->out[i][o * node->c_out + b] = sum;
        }
}

static void norm(dense *d, int i, const double *param, const float *running,
                 bool is_training)
{
    const sp_node *node = &d->c->graph.node[i];
    const sp_param *p = d->c->graph.param;
    int n = n_rows(d, node->level), c = node->c_out, j, r;

    d->stat_rows[i] = n;
    for (j = 0; j < c; j++) {
        double mean = 0, var = 0, scale = param[p[node->weight].offset + j];

        for (r = 0; r < n; r++)
            mean += value(d, node->in[0], r, j) / n;
        for (r = 0; r < n; r++)
            var += pow(value(d, node->in[0], r, j) - mean, 2) / n;
        d->stat[i][j] = mean;
        d->stat[i][c + j] = var;
        if (!is_training) {
            mean = (double)running[node->running_mean + j];
            var = (double)running[node->running_var + j];
        }
        for (r = 0; r < n; r++)
            d->out[i][r * c + j] =
                (value(d, node->in[0], r, j) - mean) / sqrt(var + 1e-5) * scale +
                param[p[node->bias].offset + j];
    }
}

static void pool(dense *d, int i)
{
    const sp_node *node = &d->c->graph.node[i];
    int K = node->kernel * node->kernel * node->kernel, o, k, j;

    for (o = 0; o < n_rows(d, node->level); o++)
        for (j = 0; j < node->c_out; j++) {
            double sum = 0, most = -HUGE_VAL;
            int n = 0;

            for (k = 0; k < K; k++)
                if (d->in[i][o * K + k] >= 0) {
                    double x = value(d, node->in[0], d->in[i][o * K + k], j);

                    n++;
                    sum += x;
                    most = fmax(most, x);
                }
            d->out[i][o * node->c_out + j] = n == 0                       ? 0
                                             : node->op == SP_OP_MAX_POOL ? most
                                                                          : sum / n;
        }
}

static void global(dense *d, int i)
{
    const sp_node *node = &d->c->graph.node[i];
    const rows *r = &d->level[level_in(d, node)];
    int b, j, k;

    for (b = 0; b < d->c->batch.n_samples; b++)
        for (j = 0; j < node->c_out; j++) {
            double sum = 0, most = -HUGE_VAL;
            int n = 0;

            for (k = 0; k < r->n; k++)
                if (r->at[k][0] == b) {
                    n++;
                    sum += value(d, node->in[0], k, j);
                    most = fmax(most, value(d, node->in[0], k, j));
                }
            d->out[i][b * node->c_out + j] = n == 0 ? 0
                                             : node->op == SP_OP_GLOBAL_MAX_POOL
                                                 ? most
                                                 : sum / n;
        }
}

/* Dropout is tested at level 0, whose rows stand in the order of the plan. */
static double kept(const dense *d, int i, int row, int c)
{
    const sp_node *node = &d->c->graph.node[i];
    const sp_batch *batch = &d->c->batch;
    int b = d->level[0].at[row][0];
    sp_rng r = sp_rng_open(17, SP_RNG_DROPOUT, (uint64_t)batch->epoch,
                           (uint64_t)batch->sample_id[b]);
    uint32_t w[4];

    sp_rng_block(&r, sp_dropout_block(i, row - batch->plan.level[0].sample_row[b], c),
                 w);
    return sp_rng_to_unit(w[c & 3]) >= node->p ? 1 / (1 - (double)node->p) : 0;
}

static double plain(const dense *d, int i, int row, int c, bool is_training)
{
    const sp_node *node = &d->c->graph.node[i];
    double x = 0;
    int k;

    if (node->op == SP_OP_BROADCAST)
        return value(d, node->in[0], d->level[node->level].at[row][0], c);
    if (node->op == SP_OP_CONCAT)
        for (k = 0;; c -= d->c->graph.node[node->in[k++]].c_out)
            if (node->in[k] < 0 || c < d->c->graph.node[node->in[k]].c_out)
                return value(d, node->in[k], row, c);
    for (k = 0; k < node->n_in; k++)
        x += value(d, node->in[k], row, c);
    if (node->op == SP_OP_RELU && x < 0)
        x *= (double)node->slope;
    if (node->op == SP_OP_DROPOUT && is_training)
        x *= kept(d, i, row, c);
    return x;
}

static void run_node(dense *d, int i, const double *param, const float *running,
                     bool is_training)
{
    const sp_node *node = &d->c->graph.node[i];
    int r, j;

    switch (node->op) {
    case SP_OP_CONV:
        conv(d, i, param);
        return;
    case SP_OP_BATCHNORM:
        norm(d, i, param, running, is_training);
        return;
    case SP_OP_MAX_POOL:
    case SP_OP_AVG_POOL:
        pool(d, i);
        return;
    case SP_OP_GLOBAL_AVG_POOL:
    case SP_OP_GLOBAL_MAX_POOL:
        global(d, i);
        return;
    default:
        for (r = 0; r < n_rows(d, node->level); r++)
            for (j = 0; j < node->c_out; j++)
                d->out[i][r * node->c_out + j] = plain(d, i, r, j, is_training);
    }
}

double dense_loss(dense *d, const double *param, const float *running, bool is_training,
                  const double **logits)
{
    const sp_graph *g = &d->c->graph;
    const double *z = d->out[g->n_nodes - 1];
    double loss = 0;
    int i, j;

    for (i = 0; i < g->n_nodes; i++)
        run_node(d, i, param, running, is_training);
    for (i = 0; i < d->c->batch.n; i++) {
        int label = d->c->batch.labels[i];
        double sum = 0;

        if (label == SP_IGNORE)
            continue;
        for (j = 0; j < CASE_CLASSES; j++)
            sum += exp(z[i * CASE_CLASSES + j]);
        for (j = 0; j < CASE_CLASSES; j++) {
            double e = (double)d->c->smoothing;
            double target = (j == label) * (1 - e) + e / CASE_CLASSES;

            loss += (double)d->c->class_weight[label] * target *
                    (log(sum) - z[i * CASE_CLASSES + j]);
        }
    }
    if (logits)
        *logits = z;
    return loss;
}

int64_t dense_stats(const dense *d, int node, const double **mean, const double **var)
{
    *mean = d->stat[node];
    *var = d->stat[node] + d->c->graph.node[node].c_out;
    return d->stat_rows[node];
}
