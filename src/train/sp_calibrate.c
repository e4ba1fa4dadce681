/* `sptrain calibrate`: what a model's probabilities and features mean on labelled data.
 *
 *     pass 1   data.val --> confidence at coarse temperatures; sums of each class
 *                           --> means and covariances of the last layer's features
 *     pass 2   data.val --> confidence at temperatures around the best;
 *                           distances, mean over the surroundings --> quantiles
 *
 *     rank 0   checkpoint with /calibration in place of the old one
 *
 * The best temperature has the least calibration error and no less likelihood than
 * temperature 1. The greatest likelihood makes up for few voxels that are wrong with
 * confidence, at borders of objects for example, and leaves all others with too little
 * of it (tests/results/doubt.txt).
 *
 * Sums of a sample are formed in the order of its rows, and added over samples and
 * ranks as whole numbers (base/sp_exact.h). So the result is the same on any number of
 * ranks. */
#include "train/sp_train.h"

#include <assert.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_exact.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "checkpoint/sp_calibration.h"
#include "h5/sp_h5.h"
#include "predict/sp_nearby.h"
#include "train/sp_calibrate_confidence.h"
#include "train/sp_calibrate_moments.h"
#include "train/sp_evaluate.h"
#include "train/sp_members.h"
#include "weights/sp_packed.h"

enum {
    COARSE = 33,     /* temperatures 2^(k/4) of pass 1, from 2^-3 on */
    COARSE_ONE = 12, /* the one of 1 */
    FINE = 33,       /* 2^(k/64) around the best of them */
    MOST = COARSE > FINE ? COARSE : FINE,
    DISTANCE_BITS = 12, /* of a float that bins of distances do not tell apart */
    DISTANCE_BINS = 1 << (31 - DISTANCE_BITS)
};

typedef struct calibration_pass {
    sp_infer *infer;
    sp_calibration *calibration;
    sp_arena arena; /* of a batch */
    bool is_second;
    int n_classes, n_features; /* features 0: not known yet, or not found */
    double temperature[MOST];
    int n_temperatures;
    int64_t n_voxels, n_correct;
    int64_t *likelihood; /* [n_temperatures][SP_EXACT_WIDE] of minus its logarithm */
    sp_confidence_bins bins[MOST]; /* [n_temperatures] */
    int64_t *count;                /* [classes] */
    int64_t *sums; /* [n_sums][SP_EXACT_LIMBS] of features, then of their products */
    size_t n_sums;
    double *sample_sum; /* [n_sums] of the sample at hand */
    int64_t *distances; /* [DISTANCE_BINS] */
    int edge;           /* stored voxels of a cell of the surroundings */
    sp_nearby nearby;
} calibration_pass;

/* ---- a voxel ---- */

/* Minus the logarithm of the probability of class y at 1 / T = b, and the greatest
 * probability. z is above its maximum by 0. */
static double voxel_loss(const float *z, int c, int y, double b, double top,
                         double *confidence)
{
    double total = 0;

    for (int j = 0; j < c; j++)
        total += exp(((double)z[j] - top) * b);
    *confidence = 1 / total;
    return log(total) - ((double)z[y] - top) * b;
}

/* Adds a voxel of class y to the sums over temperatures; loss [n_temperatures]. */
static void count_voxel(calibration_pass *p, const float *z, int y, double *loss)
{
    const int c = p->n_classes;
    double confidence;
    int top = 0;

    for (int j = 1; j < c; j++)
        top = z[j] > z[top] ? j : top;
    p->n_voxels++;
    p->n_correct += top == y;
    for (int t = 0; t < p->n_temperatures; t++) {
        loss[t] +=
            voxel_loss(z, c, y, 1 / p->temperature[t], (double)z[top], &confidence);
        sp_confidence_count(&p->bins[t], confidence, top == y);
    }
}

/* Adds the features of a voxel of class y, with length 1, and their products. */
static void sum_features(calibration_pass *p, const float *f, int y)
{
    const int d = p->n_features;
    const size_t width = (size_t)d, n_products = width * (width + 1) / 2;
    double *sum = p->sample_sum + (size_t)y * width;
    double *product =
        p->sample_sum + (size_t)p->n_classes * width + (size_t)y * n_products;
    const double scale = sp_calibration_scale(f, d);

    for (int i = 0; i < d; i++) {
        const double x = scale * (double)f[i];

        sum[i] += x;
        for (int j = 0; j <= i; j++)
            *product++ += x * scale * (double)f[j];
    }
}

static void count_distance(calibration_pass *p, uint64_t units)
{
    const float distance = (float)units / SP_CALIBRATION_UNITS;
    uint32_t bits;

    memcpy(&bits, &distance, sizeof bits); /* floats above 0 rise as their bits do */
    p->distances[bits >> DISTANCE_BITS]++;
}

/* ---- a batch ---- */

/* Makes room for the features once their number is known. */
static sp_status expect_features(calibration_pass *p, const sp_net_features *f,
                                 const sp_net_rows *rows)
{
    const size_t d = (size_t)f->c, c = (size_t)p->n_classes;

    if (p->is_second || p->n_features || f->n != rows->n || f->c < 1 ||
        !sp_calibration_has_room(p->n_classes, f->c))
        return SP_OK;
    p->n_features = f->c;
    p->n_sums = c * d + c * (d * (d + 1) / 2);
    SP_TRY(SP_NEW(&p->sums, p->n_sums * SP_EXACT_LIMBS, "the sums of features"));
    return SP_NEW(&p->sample_sum, p->n_sums, "the sums of features");
}

static void calibrate_sample(calibration_pass *p, const sp_net_rows *rows,
                             const sp_net_features *f, int b)
{
    double loss[MOST] = {0};
    const bool has_sums = p->n_features > 0 && !p->is_second;

    if (has_sums)
        memset(p->sample_sum, 0, p->n_sums * sizeof *p->sample_sum);
    for (int32_t i = rows->sample_row[b]; i < rows->sample_row[b + 1]; i++) {
        const float *z = rows->logits + (size_t)i * (size_t)p->n_classes;
        const float *own = f->data + (size_t)i * (size_t)p->n_features;

        if (rows->labels[i] < 0)
            continue;
        count_voxel(p, z, rows->labels[i], loss);
        p->count[rows->labels[i]]++;
        if (has_sums)
            sum_features(p, own, rows->labels[i]);
    }
    sp_exact_add_wide(p->likelihood, loss, (size_t)p->n_temperatures);
    if (has_sums)
        sp_exact_add_f64(p->sums, p->sample_sum, p->n_sums); /* lengths are 1 */
}

/* Counts the distances of the labelled voxels of sample b from their classes, as label
 * computes them: of stored voxels, with the surroundings that have no label too. */
static sp_status measure_sample(calibration_pass *p, const sp_batch *batch,
                                const sp_net_rows *rows, const uint64_t *distance,
                                int b)
{
    const sp_sample *sample = &batch->sample[b];
    const int32_t *row_of = batch->row_of + batch->row_of_at[b];
    int32_t *coords, *row;
    uint64_t *x;
    int64_t n = 0;

    SP_TRY(SP_ALLOC(&p->arena, 3 * (size_t)sample->n + 1, &coords));
    SP_TRY(SP_ALLOC(&p->arena, (size_t)sample->n + 1, &row));
    SP_TRY(SP_ALLOC(&p->arena, (size_t)sample->n + 1, &x));
    for (int64_t i = 0; i < sample->n; i++) {
        if (row_of[i] < 0)
            continue;
        memcpy(coords + 3 * n, sample->coords + 3 * i, 3 * sizeof *coords);
        row[n] = row_of[i];
        x[n++] = distance[row_of[i]];
    }
    SP_TRY(sp_nearby_mean(&p->nearby, coords, n, p->edge, x));
    for (int64_t i = 0; i < n; i++)
        if (rows->labels[row[i]] >= 0)
            count_distance(p, x[i]);
    return SP_OK;
}

static sp_status measure_batch(calibration_pass *p, const sp_batch *batch,
                               const sp_net_rows *rows, const sp_net_features *f)
{
    uint64_t *distance;

    SP_TRY(SP_ALLOC(&p->arena, (size_t)rows->n + 1, &distance));
    sp_calibration_distances(p->calibration, f->data, rows->n, distance);
    for (int b = 0; b < rows->n_samples; b++)
        SP_TRY(measure_sample(p, batch, rows, distance, b));
    return SP_OK;
}

static sp_status calibrate_batch(void *arg, const sp_batch *batch)
{
    calibration_pass *p = arg;
    sp_net *net = &p->infer->network.net;
    sp_net_features *f = &net->features;
    char what[SP_ERROR_MESSAGE / 2] = "";
    sp_net_rows rows;

    SP_TRY(sp_signal_check());
    sp_arena_reset(&p->arena);
    f->n = 0;
    SP_TRY(sp_net_forward(net, batch, false, NULL));
    SP_TRY(sp_net_fetch_rows(net, batch, &p->arena, &rows));
    if (batch->n_samples > 0)
        sp_dataset_print_sample(&p->infer->data.val, batch->sample_id[0], what,
                                sizeof what);
    SP_TRY(sp_members_check_finite(net->graph,
                                   (sp_tensor){.data = (float *)(uintptr_t)rows.logits,
                                               .n = rows.n,
                                               .c = rows.n_classes,
                                               .ld = rows.n_classes},
                                   what));
    if (!rows.labels)
        return SP_FAIL(SP_EUSAGE, "calibrate: the network's outputs are no voxels");
    SP_TRY(expect_features(p, f, &rows));
    for (int b = 0; b < rows.n_samples; b++)
        calibrate_sample(p, &rows, f, b);
    return p->is_second && p->n_features > 0 ? measure_batch(p, batch, &rows, f)
                                             : SP_OK;
}

/* ---- passes ---- */

static sp_status calibrate_all(void *arg)
{
    const calibration_pass *p = arg;
    const sp_evaluator *e = &p->infer->evaluator;
    const sp_status rc = sp_evaluator_run(e, &e->val, calibrate_batch, arg);

    return rc == SP_ELIMIT ? SP_OK : rc; /* agreed on afterwards */
}

/* Sums n whole numbers over the ranks. */
static sp_status sum_ranks(const calibration_pass *p, void *x, size_t n)
{
    return sp_comm_allreduce(p->infer->session.comm, SP_SCOPE_WORLD, x, n, SP_I64,
                             SP_SUM);
}

/* Ranks without samples have not seen how many features there are. */
static sp_status agree_features(calibration_pass *p)
{
    sp_comm *comm = p->infer->session.comm;
    int64_t most = p->n_features;
    sp_net_features f;
    sp_net_rows rows = {0};

    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &most, 1, SP_I64, SP_MAX));
    f = (sp_net_features){.c = (int)most};
    return sp_comm_agree(comm, most ? expect_features(p, &f, &rows) : SP_OK);
}

static sp_status run_calibration_pass(calibration_pass *p)
{
    sp_session *s = &p->infer->session;

    memset(p->likelihood, 0,
           (size_t)p->n_temperatures * SP_EXACT_WIDE * sizeof *p->likelihood);
    memset(p->count, 0, (size_t)p->n_classes * sizeof *p->count);
    memset(p->bins, 0, sizeof p->bins);
    p->n_voxels = p->n_correct = 0;
    sp_session_run_or_abort(s, calibrate_all, p);
    SP_TRY(sp_comm_agree(s->comm, sp_signal_check()));
    SP_TRY(sum_ranks(p, p->likelihood, (size_t)p->n_temperatures * SP_EXACT_WIDE));
    SP_TRY(sum_ranks(p, p->count, (size_t)p->n_classes));
    SP_TRY(sum_ranks(p, p->bins, sizeof p->bins / (sizeof(int64_t))));
    SP_TRY(sum_ranks(p, &p->n_voxels, 1));
    return sum_ranks(p, &p->n_correct, 1);
}

/* Minus the mean logarithm of the probability of the labels. */
static double mean_loss(const calibration_pass *p, int t)
{
    double loss;

    sp_exact_get_wide(p->likelihood + (size_t)t * SP_EXACT_WIDE, &loss, 1);
    return loss / (double)p->n_voxels;
}

/* The temperature of the least calibration error, of several the one nearest to 1, among
 * those with a mean loss of at most `most`. */
static int best_temperature(const calibration_pass *p, double most)
{
    double least = INFINITY;
    int best = 0;

    for (int t = 0; t < p->n_temperatures; t++) {
        const double error = sp_confidence_error(&p->bins[t], p->n_voxels);
        const double far = fabs(log(p->temperature[t]));

        if (mean_loss(p, t) <= most &&
            (error < least ||
             (error == least && far < fabs(log(p->temperature[best]))))) {
            least = error;
            best = t;
        }
    }
    return best;
}

/* ---- features ---- */

/* Rank 0's numbers on all ranks, whatever processors these have. */
static sp_status share_features(const calibration_pass *p)
{
    sp_comm *comm = p->infer->session.comm;
    const sp_calibration *c = p->calibration;
    const size_t d = (size_t)c->n_features;

    SP_TRY(sp_comm_bcast(comm, c->whiten,
                         (size_t)c->n_classes * d * d * sizeof *c->whiten, 0));
    return sp_comm_bcast(comm, c->mean, (size_t)c->n_classes * d * sizeof *c->mean, 0);
}

/* Creates the calibration from the sums of the first pass. */
static sp_status find_classes(calibration_pass *p)
{
    SP_FREED double *sum = NULL;
    sp_calibration *c;
    sp_status rc = sp_calibration_create(&p->calibration, p->n_classes, p->n_features);

    if (rc == SP_OK)
        rc = SP_NEW(&sum, p->n_sums, "the sums of features");
    if (rc == SP_OK)
        rc = SP_NEW(&p->distances, DISTANCE_BINS, "distances");
    SP_TRY(sp_comm_agree(p->infer->session.comm, rc));
    c = p->calibration;
    for (int k = 0; k < p->n_classes; k++)
        c->count[k] = (double)p->count[k];
    if (p->n_features > 0) {
        SP_TRY(sum_ranks(p, p->sums, p->n_sums * SP_EXACT_LIMBS));
        sp_exact_get_f64(p->sums, sum, p->n_sums);
        if (!sp_calibrate_moments(c, sum, p->n_voxels))
            p->n_features = c->n_features = 0;
        SP_TRY(share_features(p));
    }
    if (p->n_features == 0)
        sp_log_warn0("the last layer's features have no covariances, or more than %d "
                     "numbers of them: --doubtful-features will not know this model",
                     SP_CALIBRATION_NUMBERS);
    return SP_OK;
}

/* The distance at the upper end of a bin. */
static double bin_distance(int64_t bin)
{
    const uint32_t bits = (uint32_t)(bin + 1) << DISTANCE_BITS;
    float distance;

    memcpy(&distance, &bits, sizeof distance);
    return isfinite(distance) ? (double)distance : (double)__FLT_MAX__;
}

static sp_status find_quantiles(calibration_pass *p)
{
    sp_calibration *c = p->calibration;
    int64_t below = 0, bin = 0, n = 0;

    if (c->n_features == 0)
        return SP_OK;
    SP_TRY(sum_ranks(p, p->distances, DISTANCE_BINS));
    for (int k = 0; k < DISTANCE_BINS; k++)
        n += p->distances[k];
    for (int q = 0; q <= SP_CALIBRATION_STEPS; q++) {
        const double want = (double)q / SP_CALIBRATION_STEPS * (double)n;

        while (bin + 1 < DISTANCE_BINS &&
               ((double)(below + p->distances[bin]) < want || p->distances[bin] == 0))
            below += p->distances[bin++];
        c->quantile[q] = bin_distance(bin);
    }
    return SP_OK;
}

/* ---- results ---- */

static void choose_temperatures(calibration_pass *p, double around)
{
    p->n_temperatures = p->is_second ? FINE : COARSE;
    for (int t = 0; t < p->n_temperatures; t++)
        p->temperature[t] = p->is_second ? around * exp2((t - FINE / 2) / 64.0)
                                         : exp2((t - COARSE_ONE) / 4.0);
}

static sp_status find_temperature(calibration_pass *p)
{
    double nll, ece, factor;
    int best, at;

    SP_TRY(sp_voxel_factor(p->infer->session.config, &p->infer->data.val, &factor));
    p->edge = SP_CALIBRATION_EDGE * (int)factor;
    choose_temperatures(p, 1);
    SP_TRY(run_calibration_pass(p));
    if (p->n_voxels == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: no voxel of data.val has a label, expected one at least",
                       p->infer->data.val.shard[0].path);
    SP_TRY(agree_features(p));
    nll = mean_loss(p, COARSE_ONE);
    best = best_temperature(p, nll);
    ece = sp_confidence_error(&p->bins[COARSE_ONE], p->n_voxels);
    SP_TRY(find_classes(p));
    p->is_second = true;
    choose_temperatures(p, p->temperature[best]);
    SP_TRY(run_calibration_pass(p));
    SP_TRY(find_quantiles(p));
    at = best_temperature(p, nll);
    p->calibration->temperature = p->temperature[at];
    sp_log_info("temperature=%.4f voxels=%lld accuracy=%.4f nll=%.5f -> %.5f "
                "ece=%.5f -> %.5f",
                p->temperature[at], (long long)p->n_voxels,
                (double)p->n_correct / (double)p->n_voxels, nll, mean_loss(p, at), ece,
                sp_confidence_error(&p->bins[at], p->n_voxels));
    if (best == 0 || best == COARSE - 1)
        sp_log_warn0("the best temperature lies at the end of the range that is tried");
    return SP_OK;
}

static sp_status calibrate(sp_infer *infer)
{
    const sp_dataset *val = &infer->data.val;
    const int n_classes = infer->network.n_classes;
    sp_net *net = &infer->network.net;
    sp_comm *comm = infer->session.comm;
    SP_FREED calibration_pass *p = NULL;
    sp_status rc = SP_NEW(&p, 1, "a calibration");

    if (rc == SP_OK && !val->has_labels)
        rc = SP_FAIL(SP_EDATA, "%s: /labels is absent, expected for calibration",
                     val->shard[0].path);
    SP_TRY(sp_comm_agree(comm, rc));
    p->infer = infer;
    p->n_classes = n_classes;
    rc = SP_NEW(&p->likelihood, COARSE * SP_EXACT_WIDE, "a calibration");
    if (rc == SP_OK)
        rc = SP_NEW(&p->count, n_classes, "a calibration");
    if (rc == SP_OK)
        rc = sp_arena_create(&p->arena, 0, "features");
    rc = sp_comm_agree(comm, rc);
    net->features.arena = &p->arena;
    if (rc == SP_OK)
        rc = find_temperature(p);
    net->features.arena = NULL;
    if (rc == SP_OK && comm->rank == 0)
        rc = sp_checkpoint_write_calibration(infer->path, p->calibration);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        sp_log_info("%s has the calibration", infer->path);
    sp_arena_destroy(&p->arena);
    sp_calibration_destroy(p->calibration);
    free(p->likelihood);
    free(p->count);
    free(p->sums);
    free(p->sample_sum);
    sp_nearby_destroy(&p->nearby);
    free(p->distances);
    return rc;
}

/* ---- command line ---- */

/* The folder of the run that has this checkpoint; a folder of its own beside a file
 * that is in no run. */
static void name_run(const char *path, char dir[PATH_MAX])
{
    char text[PATH_MAX], *folder;

    snprintf(text, sizeof text, "%s", path);
    folder = dirname(text);
    if (strcmp(sp_file_name(folder), "checkpoints") == 0)
        snprintf(dir, PATH_MAX, "%s/..", folder);
    else
        snprintf(dir, PATH_MAX, "%s/.sptrain", folder);
}

/* Rank 0: finds the checkpoint of RUN and reads the deck that it has. */
static sp_status read_run(sp_config *config, const char *run, int n, char **overrides)
{
    char dir[PATH_MAX], path[PATH_MAX], text[2][PATH_MAX + 32];
    static char plain[3][24] = {"eval.views=1", "eval.merge=false", "eval.members=[]"};
    sp_checkpoint_state state = {0};
    SP_FREED char **word = NULL;
    struct sp_h5 *file = NULL;
    sp_status rc;

    SP_TRY(SP_NEW(&word, n + 5, "the command line"));
    rc = sp_packed_is(run)
             ? SP_FAIL(SP_EUSAGE,
                       "%s is a packed model: calibrate the checkpoint, and export it "
                       "again",
                       run)
             : sp_checkpoint_open_model(&file, run, SP_INTACT, path);
    snprintf(dir, sizeof dir, "%s", run);
    if (rc == SP_OK && strcmp(path, run) == 0)
        name_run(path, dir);
    if (rc == SP_OK)
        rc = sp_checkpoint_read_open_state(file, &state, NULL);
    sp_h5_close(file);
    if (rc == SP_OK && !state.deck)
        rc = SP_FAIL(SP_EUSAGE, "%s holds only weights: calibrate a checkpoint", path);
    memcpy(word, overrides, (size_t)n * sizeof *word);
    snprintf(text[0], sizeof text[0], "run.dir=%s", dir);
    snprintf(text[1], sizeof text[1], "run.checkpoint=%s", path);
    for (int i = 0; i < 2; i++)
        word[n + i] = text[i];
    for (int i = 0; i < 3; i++)
        word[n + 2 + i] = plain[i];
    if (rc == SP_OK)
        rc = sp_config_parse(config, state.deck, path, n + 5, word);
    sp_checkpoint_state_destroy(&state);
    return rc;
}

static sp_status check_words(int argc, char **argv)
{
    if (argc < 2)
        return SP_FAIL(SP_EUSAGE,
                       "calibrate: expected RUN, a run folder or a checkpoint");
    for (int i = 2; i < argc; i++)
        if (argv[i][0] == '-' || !strchr(argv[i], '='))
            return SP_FAIL(SP_EUSAGE, "calibrate: %s: expected SECTION.KEY=VALUE",
                           argv[i]);
    return SP_OK;
}

sp_status sp_calibrate(int argc, char **argv, sp_comm *comm)
{
    sp_config config = {0};
    sp_command command = {.name = "calibrate",
                          .deck = "command line",
                          .n_overrides = argc > 2 ? argc - 2 : 0,
                          .overrides = argv + 2,
                          .config = &config,
                          .comm = comm};
    SP_FREED sp_infer *infer = NULL;
    sp_status rc = SP_NEW(&infer, 1, "a model");

    if (rc == SP_OK)
        rc = check_words(argc, argv);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        rc = sp_config_bcast(
            &config, comm,
            comm->rank == 0 ? read_run(&config, argv[1], argc - 2, argv + 2) : SP_OK);
    if (rc == SP_OK) {
        rc = sp_infer_open(infer, &command, false);
        if (rc == SP_OK)
            rc = calibrate(infer);
        rc = sp_infer_close(infer, rc);
    } else if (comm->rank == 0) {
        sp_log_error(sp_error_last());
    }
    sp_config_destroy(&config);
    return rc;
}
