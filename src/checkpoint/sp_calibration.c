#include "checkpoint/sp_calibration.h"
#include "base/sp_list.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    PARALLEL_FROM = 1 << 12,
    REVISION = 2 /* the first one had no number, but a byte of 0 or 1 in its place */
};

/* ---- memory ---- */

bool sp_calibration_has_room(int64_t n_classes, int64_t n_features)
{
    return n_features <= SP_CALIBRATION_FEATURES &&
           n_classes * n_features * n_features <= SP_CALIBRATION_NUMBERS;
}

static sp_status calibration_allot(sp_calibration *c)
{
    const size_t n = (size_t)c->n_features, n_classes = (size_t)c->n_classes;

    SP_TRY(SP_NEW(&c->whiten, n_classes * n * n, "a calibration"));
    SP_TRY(SP_NEW(&c->mean, n_classes * n, "a calibration"));
    SP_TRY(SP_NEW(&c->count, n_classes, "a calibration"));
    return SP_NEW(&c->quantile, SP_CALIBRATION_STEPS, "a calibration");
}

sp_status sp_calibration_create(sp_calibration **calibration, int n_classes,
                                int n_features)
{
    sp_calibration *c;

    assert(n_classes >= 1 && n_features >= 0);
    SP_TRY(SP_NEW(calibration, 1, "a calibration"));
    c = *calibration;
    c->temperature = 1;
    c->n_classes = n_classes;
    c->n_features = n_features;
    return calibration_allot(c);
}

void sp_calibration_destroy(sp_calibration *c)
{
    if (!c)
        return;
    free(c->whiten);
    free(c->mean);
    free(c->count);
    free(c->quantile);
    free(c);
}

/* ---- distances ---- */

double sp_calibration_temperature(const sp_calibration *c)
{
    return c ? c->temperature : 1;
}

double sp_calibration_scale(const float *f, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)f[i] * (double)f[i];
    return sum > 0 ? 1 / sqrt(sum) : 0;
}

/* The square of the distance of f, times scale, from class k; at least `most` if it is
 * not below that. */
static double square_from(const sp_calibration *c, int k, const float *f, double scale,
                          double most)
{
    const size_t n = (size_t)c->n_features;
    const double *w = c->whiten + (size_t)k * n * n, *mean = c->mean + (size_t)k * n;
    double square = 0;

    for (size_t i = 0; i < n && square < most; i++, w += n) {
        double sum = 0;

        for (size_t j = 0; j <= i; j++)
            sum += w[j] * (double)f[j];
        square += (sum * scale - mean[i]) * (sum * scale - mean[i]);
    }
    return square;
}

void sp_calibration_distances(const sp_calibration *c, const float *f, int64_t n,
                              uint64_t *distance)
{
    assert(c->n_features > 0 && (n == 0 || (f && distance)));
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        const float *own = f + i * c->n_features;
        const double scale = sp_calibration_scale(own, c->n_features);
        double least = (double)SP_CALIBRATION_MOST * SP_CALIBRATION_MOST;

        for (int k = 0; k < c->n_classes; k++)
            if (c->count[k] > 0)
                least = fmin(least, square_from(c, k, own, scale, least));
        distance[i] = (uint64_t)(sqrt(least) * SP_CALIBRATION_UNITS + 0.5);
    }
}

double sp_calibration_threshold(const sp_calibration *c, double q)
{
    const double at = q * SP_CALIBRATION_STEPS;
    const int i = at < SP_CALIBRATION_STEPS ? (int)at : SP_CALIBRATION_STEPS - 1;

    assert(0 <= q && q <= 1);
    return c->quantile[i] + (at - i) * (c->quantile[i + 1] - c->quantile[i]);
}

/* ---- bytes ---- */

void sp_calibration_serialize(sp_serial *serial, sp_calibration **calibration)
{
    int revision = REVISION;
    sp_calibration *c;

    if (!sp_serial_struct(serial, (void **)calibration, sizeof **calibration))
        return;
    c = *calibration;
    sp_serial_bytes(serial, &c->temperature, sizeof c->temperature);
    sp_serial_bytes(serial, &c->n_classes, sizeof c->n_classes);
    sp_serial_bytes(serial, &c->n_features, sizeof c->n_features);
    sp_serial_bytes(serial, &revision, sizeof revision);
    if (serial->rc == SP_OK && revision != REVISION)
        serial->rc = SP_FAIL(SP_EDATA, "a calibration of another version");
    if (serial->rc == SP_OK &&
        !(c->temperature > 0 && isfinite(c->temperature) && c->n_classes >= 1 &&
          c->n_classes <= SP_CALIBRATION_CLASSES && c->n_features >= 0 &&
          sp_calibration_has_room(c->n_classes, c->n_features)))
        serial->rc = SP_FAIL(SP_EDATA, "a calibration of %d classes, %d features",
                             c->n_classes, c->n_features);
    if (serial->rc != SP_OK)
        return;
    sp_serial_array(serial, (void **)&c->count, c->n_classes, sizeof *c->count);
    sp_serial_array(serial, (void **)&c->quantile, SP_CALIBRATION_STEPS + 1,
                    sizeof *c->quantile);
    sp_serial_array(serial, (void **)&c->mean, (int64_t)c->n_classes * c->n_features,
                    sizeof *c->mean);
    sp_serial_array(serial, (void **)&c->whiten,
                    (int64_t)c->n_classes * c->n_features * c->n_features,
                    sizeof *c->whiten);
    if (serial->rc == SP_OK && !(c->count && c->quantile && c->mean && c->whiten))
        serial->rc = SP_FAIL(SP_EDATA, "a calibration without its numbers");
}
