/* spbench model: predicts the time of a training step on many ranks.
 *
 *     step   = max(loading, computing)
 *     computing = largest share of the ranks * seconds per unit of cost (measured here)
 *               + batch norm's sums over the ranks (twice a layer, only latency)
 *               + all-reduce that the backward pass does not hide + update
 *     all-reduce of B bytes on R ranks =
 *                 2 log2(R) latency + 2 (R - 1) / R B / bandwidth
 *
 * Shares are formed from the sizes of the data set's own samples, drawn with
 * replacement: either the largest sample goes to the least loaded rank first
 * (balanced), or ranks get runs of equal numbers of samples.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_json.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_rng.h"
#include "bench/bench.h"

/* Measured or given properties of one rank and of the network between ranks. */
typedef struct model {
    /* Seconds per unit of cost; backward: the part of the backward pass. */
    double compute, backward;
    double load;   /* loader's seconds per unit of cost */
    double update; /* seconds of a step */
    double flops;  /* per unit of cost */
    /* A real step on these ranks: seconds, shares (as in prediction), samples. */
    double step, share[2], step_samples;
    double latency, bandwidth;
    double bytes; /* size of the gradient */
    double n_buckets;
    int n_norms;         /* batch norm layers with sums over all ranks */
    double sample_bytes; /* mean of the data set */
    double read_rate, storage_rate;
    int64_t per_rank;
    int64_t n_samples;
    const int64_t *cost; /* [n_samples] */
    double mean_cost;
} model;

typedef struct prediction {
    double share[2]; /* largest and mean cost of a rank in a step */
    double mean, imbalance, norm, exposed, update, load, step;
    const char *limit;
} prediction;

/* ---- shares ---- */

/* Restores the heap after its least element, heap[0], has grown. */
static void sift_down(int64_t *heap, int n)
{
    const int64_t moved = heap[0];
    int i = 0, child;

    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= moved)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

/* Deals the samples to the ranks and returns the largest load; load [ranks]
 * is scratch. */
static int64_t model_deal(int64_t *drawn, int64_t n, int ranks, bool is_balanced,
                          int64_t *load)
{
    int64_t largest = 0;

    memset(load, 0, (size_t)ranks * sizeof *load);
    if (is_balanced)
        qsort(drawn, (size_t)n, sizeof *drawn, sp_by_int64_falling);
    for (int64_t i = 0; i < n; i++) {
        int64_t *to = is_balanced ? load : load + i * ranks / n;
        *to += drawn[i];
        if (is_balanced)
            sift_down(load, ranks);
    }
    for (int r = 0; r < ranks; r++)
        largest = load[r] > largest ? load[r] : largest;
    return largest;
}

/* share: means over steps of the largest and of the mean share. */
static sp_status draw_shares(const model *m, int ranks, bool is_balanced, int steps,
                             double share[2])
{
    const int64_t n = m->per_rank * ranks;
    int64_t *drawn = malloc((size_t)n * sizeof *drawn);
    int64_t *load = malloc((size_t)ranks * sizeof *load);
    sp_status rc = drawn && load ? SP_OK : SP_FAIL(SP_EMEM, "out of memory");

    share[0] = share[1] = 0;
    for (int s = 0; s < steps && rc == SP_OK; s++) {
        const sp_rng rng = sp_rng_open(1, SP_RNG_SHUFFLE, (uint64_t)s, 0);
        for (int64_t i = 0; i < n; i++) {
            uint32_t word[4];
            sp_rng_block(&rng, (uint64_t)i, word);
            drawn[i] = m->cost[(uint64_t)word[0] * (uint64_t)m->n_samples >> 32];
            share[1] += (double)drawn[i] / ranks / steps;
        }
        share[0] += (double)model_deal(drawn, n, ranks, is_balanced, load) / steps;
    }
    free(drawn);
    free(load);
    return rc;
}

/* ---- prediction ---- */

static double reduce_s(const model *m, int ranks, double bytes)
{
    return 2 * ceil(log2(ranks)) * m->latency +
           2.0 * (ranks - 1) / ranks * bytes / m->bandwidth;
}

/* Name of the part that limits the step: reading if it exceeds computing, else the
 * largest part. */
static const char *limit_of(const prediction *p, double computing)
{
    const struct {
        const char *name;
        double s;
    } part[] = {{"compute", p->mean},
                {"imbalance", p->imbalance},
                {"batch norm sums", p->norm},
                {"all-reduce", p->exposed},
                {"update", p->update}};
    int largest = 0;

    if (p->load > computing)
        return "reading";
    for (int i = 1; i < 5; i++)
        largest = part[i].s > part[largest].s ? i : largest;
    return part[largest].name;
}

static void model_predict(const model *m, int ranks, prediction *p)
{
    const double bytes = m->sample_bytes * (double)m->per_rank;
    const double backward = m->backward * p->share[1];
    double reduce = reduce_s(m, ranks, m->bytes) +
                    2 * ceil(log2(ranks)) * m->latency * (m->n_buckets - 1);
    double shared = m->storage_rate > 0 ? bytes * ranks / m->storage_rate : 0;
    double computing;

    p->mean = m->compute * p->share[1];
    p->imbalance = m->compute * (p->share[0] - p->share[1]);
    p->norm = 2 * m->n_norms * 2 * ceil(log2(ranks)) * m->latency;
    /* The last bucket is ready only when the backward pass ends. */
    p->exposed = fmax(reduce - backward, reduce / m->n_buckets);
    p->update = m->update;
    p->load = fmax(m->load * p->share[0], fmax(bytes / m->read_rate, shared));
    computing = p->mean + p->imbalance + p->norm + p->exposed + p->update;
    p->step = fmax(computing, p->load);
    p->limit = limit_of(p, computing);
}

/* ---- report ---- */

static sp_status model_print_json(const bench *b, const model *m, int ranks,
                                  bool is_balanced, const prediction *p)
{
    const double ideal = m->flops * p->share[1] / (p->mean + p->update);
    const double gained = m->flops * p->share[1] / p->step;
    sp_json json = {0};

    sp_json_begin(&json);
    sp_json_text(&json, "name", is_balanced ? "model_balanced" : "model_unbalanced");
    sp_json_int(&json, "n", m->per_rank * ranks);
    sp_json_int(&json, "ranks", ranks);
    sp_json_double(&json, "ms", p->step * 1e3);
    sp_json_double(&json, "gflops", gained * ranks * 1e-9);
    sp_json_double(&json, "ceiling", ideal * ranks * 1e-9);
    sp_json_double(&json, "ratio", gained / ideal);
    sp_json_double(&json, "compute_ms", p->mean * 1e3);
    sp_json_double(&json, "imbalance_ms", p->imbalance * 1e3);
    sp_json_double(&json, "norm_ms", p->norm * 1e3);
    sp_json_double(&json, "allreduce_ms", p->exposed * 1e3);
    sp_json_double(&json, "update_ms", p->update * 1e3);
    sp_json_double(&json, "reading_ms", p->load * 1e3);
    sp_json_text(&json, "limit", p->limit);
    return bench_json_end(b, &json);
}

static sp_status model_print_row(bench *b, const model *m, int ranks, bool is_balanced,
                                 const prediction *p)
{
    if (b->options->is_json)
        return model_print_json(b, m, ranks, is_balanced, p);
    fprintf(b->out, "%6d %-10s %10.3f %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %6.1f  %s\n",
            ranks, is_balanced ? "balanced" : "runs", p->step * 1e3, p->mean * 1e3,
            p->imbalance * 1e3, p->norm * 1e3, p->exposed * 1e3, p->update * 1e3,
            p->load * 1e3, 100 * (p->mean + p->update) / p->step, p->limit);
    return SP_OK;
}

/* The source of a latency or a bandwidth, in a word for the table. */
static const char *origin(const bench *b, double given)
{
    return given > 0           ? "given"
           : b->comm->size > 1 ? "measured on these ranks"
                               : "assumed";
}

static void print_known(const bench *b, const model *m)
{
    if (b->options->is_json)
        return;
    fprintf(
        b->out,
        "%lld samples a rank and step, %.2f ms computing each, gradient %.1f MB in "
        "%.0f buckets\n"
        "latency %.1f us (%s), bandwidth %.2f GB/s (%s); reading %.0f MB/s a rank%s\n",
        (long long)m->per_rank, 1e3 * m->compute * m->mean_cost, m->bytes * 1e-6,
        m->n_buckets, m->latency * 1e6, origin(b, b->options->latency_s),
        m->bandwidth * 1e-9, origin(b, b->options->bandwidth), m->read_rate * 1e-6,
        m->storage_rate > 0 ? ", storage shared" : "");
}

/* Number of simulated steps, enough that the mean over few ranks is the data set's. */
static int steps_of(const bench *b, int64_t n)
{
    const int64_t least = b->options->is_quick ? 2 : 8, samples = 4096;

    return (int)(samples / n > least ? samples / n : least);
}

/* Compares the measured steps with the prediction for their shares. */
static sp_status print_check(bench *b, const model *m)
{
    const int ranks = b->comm->size;
    prediction p = {.share = {m->share[0], m->share[1]}};
    const double flops = m->flops * m->share[1] * ranks;
    double deviation;
    sp_json json = {0};

    model_predict(m, ranks, &p);
    deviation = p.step / m->step - 1;
    if (!b->options->is_json) {
        fprintf(b->out,
                "check: %d rank%s here, mean step %.3f ms, predicted %.3f ms "
                "(%+.1f %%)%s\n",
                ranks, sp_plural(ranks), m->step * 1e3, p.step * 1e3, deviation * 100,
                b->comm->is_oversubscribed
                    ? "; they share cores, which the model's do not"
                    : "");
        return SP_OK;
    }
    sp_json_begin(&json);
    sp_json_text(&json, "name", "model_check");
    sp_json_double(&json, "n", m->step_samples);
    sp_json_int(&json, "ranks", ranks);
    sp_json_double(&json, "ms", m->step * 1e3);
    sp_json_double(&json, "gflops", flops / m->step * 1e-9);
    sp_json_null(&json, "ceiling"); /* a prediction is no upper bound */
    sp_json_null(&json, "ratio");
    sp_json_double(&json, "predicted_ms", p.step * 1e3);
    sp_json_double(&json, "deviation", deviation);
    return bench_json_end(b, &json);
}

static sp_status model_predict_all(bench *b, const model *m)
{
    const bench_list *ranks = &b->options->ranks;

    SP_TRY(print_check(b, m));
    if (!b->options->is_json)
        fprintf(b->out, "%6s %-10s %10s %9s %9s %9s %9s %9s %9s %6s  %s\n", "ranks",
                "dealt", "step ms", "compute", "imbalance", "norm", "reduce", "update",
                "reading", "eff. %", "limit");
    for (int i = 0; i < ranks->n; i++)
        for (int balanced = 1; balanced >= 0; balanced--) {
            prediction p = {0};
            SP_TRY(draw_shares(m, (int)ranks->at[i], balanced,
                               steps_of(b, m->per_rank * ranks->at[i]), p.share));
            model_predict(m, (int)ranks->at[i], &p);
            SP_TRY(model_print_row(b, m, (int)ranks->at[i], balanced, &p));
        }
    return SP_OK;
}

/* ---- what is measured ---- */

/* Determines latency and bandwidth from all-reduces of two sizes. Collective. */
static sp_status measure_network(bench *b, const sp_graph *graph, float *data, model *m)
{
    const int ranks = b->comm->size;
    bench_time small, large;

    SP_TRY(bench_reduce_time(b, data, 1, &small));
    SP_TRY(bench_reduce_time(b, data, graph->n_floats, &large));
    m->latency = small.wall_s / (2 * ceil(log2(ranks)));
    m->bandwidth =
        2.0 * (ranks - 1) / ranks * m->bytes / fmax(large.wall_s - small.wall_s, 1e-9);
    return SP_OK;
}

static sp_status measure_reading(bench_training *t, model *m)
{
    const sp_dataset *set = &t->resources.train;
    const sp_sample_request request = {.columns = t->resources.columns,
                                       .n_columns = t->resources.n_columns,
                                       .verify =
                                           t->resources.config->data.verify};
    const double row = 12 + 4.0 * t->resources.n_columns + 1, begin = sp_now_s();
    sp_sample sample = {0};
    double bytes = 0;
    sp_status rc = SP_OK;

    for (int64_t i = 0; i < set->n_samples && rc == SP_OK; i++) {
        rc = sp_sample_read(set, i, &request, &sample);
        bytes += row * (double)sample.n;
        if (sp_now_s() - begin > 0.5)
            break;
    }
    m->read_rate = bytes / (sp_now_s() - begin);
    m->sample_bytes = row * (double)set->n_voxels / (double)set->n_samples;
    sp_sample_destroy(&sample);
    return rc;
}

/* Sums over the measured steps, then over the ranks. */
typedef struct work {
    double forward, backward, load, update, flops, cost, cost_max, cost_sum, n_samples,
        all;
} work;

/* Determines seconds per unit of cost from steps on this machine. Waits for other ranks
 * do not count as computing; the waits within the reduction are known separately, so
 * the rest belongs to the backward pass. Collective. */
static sp_status measure_compute(bench *b, bench_training *t, model *m)
{
    const int steps = b->options->is_quick ? 3 : 7, ranks = b->comm->size;
    work w = {0};
    bench_parts p;

    bench_training_step(t, &p); /* warm-up */
    for (int i = 0; i < steps; i++) {
        bench_progress(b, "step %d of %d", i + 1, steps);
        SP_TRY(sp_comm_barrier(b->comm));
        bench_training_step(t, &p);
        w.forward += p.part[SP_STEP_FORWARD] + p.part[SP_STEP_LOSS];
        w.backward +=
            p.part[SP_STEP_BACKWARD] - fmax(p.waited - p.part[SP_STEP_REDUCE], 0);
        w.load += p.plan + p.read;
        w.update += p.part[SP_STEP_UPDATE];
        w.flops += p.flops;
        w.cost += p.cost;
        w.cost_max += p.cost_max;
        w.cost_sum += p.cost_sum;
        w.n_samples += p.n_samples;
        w.all += p.all;
    }
    SP_TRY(sp_comm_allreduce(b->comm, SP_SCOPE_WORLD, &w, sizeof w / sizeof(double),
                             SP_F64, SP_SUM));
    w.cost = fmax(w.cost, 1);
    m->compute = (w.forward + w.backward) / w.cost;
    m->backward = w.backward / w.cost;
    m->load = w.load / w.cost;
    m->update = w.update / steps / ranks;
    m->flops = w.flops / w.cost;
    m->step = w.all / steps / ranks;
    m->step_samples = w.n_samples / steps;
    m->share[0] = w.cost_max / steps / ranks;
    m->share[1] = w.cost_sum / steps / ranks / ranks;
    return SP_OK;
}

static sp_status model_measure(bench *b, bench_training *t, model *m)
{
    const sp_graph *graph = &t->resources.graph;
    const bench_options *o = b->options;
    float *data = NULL;

    m->bytes = 4.0 * (double)graph->n_floats;
    m->n_buckets = t->resources.buckets.n_buckets;
    for (int i = 0; t->resources.config->train.bn_scope == SP_SCOPE_WORLD &&
                    i < graph->n_nodes;
         i++)
        m->n_norms += graph->node[i].op == SP_OP_BATCHNORM;
    SP_TRY(measure_compute(b, t, m));
    SP_TRY(sp_comm_agree(t->resources.comm, measure_reading(t, m)));
    if (b->comm->size > 1) {
        sp_status rc = sp_comm_alloc(b->comm, (size_t)graph->n_floats * sizeof *data,
                                     (void **)&data);

        rc = sp_comm_agree(t->resources.comm, rc);
        if (rc == SP_OK)
            rc = measure_network(b, graph, data, m);
        sp_comm_free(b->comm, data);
        SP_TRY(rc);
    }
    m->latency = o->latency_s > 0 ? o->latency_s : m->latency;
    m->bandwidth = o->bandwidth > 0 ? o->bandwidth : m->bandwidth;
    m->read_rate = o->read_rate > 0 ? o->read_rate : m->read_rate;
    return SP_OK;
}

static sp_status list_costs(const sp_dataset *set, int64_t **cost, double *mean)
{
    double sum = 0;

    SP_TRY(SP_NEW(cost, set->n_samples, "the costs of samples"));
    for (int64_t i = 0; i < set->n_samples; i++) {
        (*cost)[i] = sp_dataset_cost(set, i);
        sum += (double)(*cost)[i];
    }
    *mean = sum / (double)set->n_samples;
    return SP_OK;
}

static sp_status model_run(bench *b, bench_training *t, model *m, int64_t **cost)
{
    sp_session *session = t->resources.session;
    sp_status rc = list_costs(&t->resources.train, cost, &m->mean_cost);

    SP_TRY(sp_comm_agree(session->comm, rc));
    m->cost = *cost;
    m->n_samples = t->resources.train.n_samples;
    SP_TRY(model_measure(b, t, m));
    if (b->comm->rank == 0) {
        print_known(b, m);
        rc = model_predict_all(b, m);
    }
    return sp_comm_agree(session->comm, rc);
}

sp_status bench_model(bench *b)
{
    const bench_options *o = b->options;
    /* Default if no ranks are measured: a network of 100 Gbit/s. */
    model m = {.latency = 2e-6,
               .bandwidth = 12.5e9,
               .storage_rate = o->storage_rate,
               .per_rank = o->per_rank};
    int64_t *cost = NULL;
    bench_training t;
    sp_status rc = bench_training_open(b, &t);

    if (rc == SP_OK)
        rc = model_run(b, &t, &m, &cost);
    rc = bench_training_close(b, &t, rc);
    free(cost);
    return rc;
}
