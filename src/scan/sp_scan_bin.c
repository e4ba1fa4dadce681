/* Recognizes the records of a .bin file by their values.
 *
 *     float32   x y z r | x y z r | x y z r      4: SemanticKITTI
 *               x y z i n | x y z i n | x y      5: nuScenes, n a ring
 *
 * Read with a wrong length each column mixes quantities of other kinds. So the length
 * with the most homogeneous columns is chosen: the mean logarithm of a column's
 * variance is least (the likelihood of a normal distribution for each column). This
 * fails for coordinates in map units, or one quantity in all columns; then the ranges
 * decide: a remission is 0 to 1, an intensity 0 to 255. */
#include "scan/sp_scan_bin.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

enum {
    LOOKED_AT = 1 << 18, /* numbers from the beginning of the file */
    MOST_COLUMNS = 8,
    LEAST_RECORDS = 8 /* for a meaningful variance */
};

/* The least cost of a wrong length, in the mean logarithm of the variance, and the part
 * that chance adds to it: this over the root of the number of records. */
#define CLEARLY 0.25
#define CHANCE  3.0
/* No coordinate is farther away, or nearer to zero without being zero. */
#define FARTHEST 1e8F
#define NEAREST  1e-30F

typedef struct numbers {
    const float *x;
    int64_t n;
} numbers;

/* ---- the meaning of the numbers ---- */

/* Are these integers of eight bytes, small ones, as masks and labels are? */
static bool are_int64(numbers all)
{
    bool has_value = false;

    for (int64_t i = 0; i < all.n; i++) {
        uint32_t bits;

        memcpy(&bits, &all.x[i], sizeof bits);
        if (i % 2 && bits != 0 && bits != UINT32_MAX)
            return false;
        has_value = has_value || (i % 2 == 0 && bits != 0 && bits < 1 << 24);
    }
    return has_value;
}

/* The share of numbers that are no lengths: as floats, integers are next to zero and
 * halves of doubles are anything. */
static double share_of_odd(numbers all)
{
    int64_t n = 0;

    for (int64_t i = 0; i < all.n; i++) {
        const float size = fabsf(all.x[i]);

        n += !(size == 0 || (size > NEAREST && size < FARTHEST));
    }
    return all.n > 0 ? (double)n / (double)all.n : 0;
}

/* The mean logarithm of the variance of each of k columns. */
static double spread_of(numbers all, int k)
{
    double sum[MOST_COLUMNS] = {0}, square[MOST_COLUMNS] = {0}, total = 0;
    double all_sum = 0, all_square = 0, floor_at;
    const int64_t rows = all.n / k;

    for (int64_t i = 0; i < rows * k; i++) {
        const double x = isfinite(all.x[i]) ? (double)all.x[i] : 0;

        sum[i % k] += x;
        square[i % k] += x * x;
        all_sum += x;
        all_square += x * x;
    }
    floor_at = 1e-8 * (all_square - all_sum * all_sum / (double)(rows * k)) /
               (double)(rows * k);
    for (int c = 0; c < k; c++) {
        const double v = (square[c] - sum[c] * sum[c] / (double)rows) / (double)rows;

        total += log(fmax(v, floor_at) + 1e-300);
    }
    return total / k;
}

/* The number of columns, 3 to 8, that makes them the most homogeneous; the least of
 * those that differ little, since twice the columns are as homogeneous. `by` becomes
 * how much better it is than 4. */
static int best_columns(numbers all, int64_t file_bytes, double *by)
{
    double least = INFINITY, spread[MOST_COLUMNS + 1];
    int best = 4;

    *by = 0;
    for (int k = 3; k <= MOST_COLUMNS; k++) {
        spread[k] = file_bytes % (4 * k) == 0 && all.n / k >= LEAST_RECORDS
                        ? spread_of(all, k)
                        : INFINITY;
        least = fmin(least, spread[k]);
    }
    if (isinf(least))
        return best;
    for (best = 3; spread[best] > least + CLEARLY / 4; best++)
        ;
    *by = isinf(spread[4]) ? INFINITY : spread[4] - spread[best];
    return best;
}

/* The least `by` of best_columns. */
static double clearly(numbers all, int k)
{
    return CLEARLY + CHANCE / sqrt(fmax(1, (double)(all.n / k)));
}

/* The range of column c of k. */
static void range_of(numbers all, int k, int c, float range[2])
{
    range[0] = INFINITY;
    range[1] = -INFINITY;
    for (int64_t i = c; i < all.n; i += k) {
        range[0] = fminf(range[0], all.x[i]);
        range[1] = fmaxf(range[1], all.x[i]);
    }
}

static bool are_rings(numbers all)
{
    for (int64_t i = 4; i < all.n; i += 5)
        if (!(all.x[i] >= 0 && all.x[i] <= 255 && all.x[i] == floorf(all.x[i])))
            return false;
    return true;
}

/* ---- the length of a record ---- */

static sp_status refuse_bin(const sp_scan *scan, const char *found)
{
    return SP_FAIL(
        SP_EDATA,
        "%s: %s, expected float32 x y z remission, from 0 to 1 (or to 255); "
        "say what each float32 of a point is: --columns x,y,z,... (- for one "
        "to pass over)",
        scan->path, found);
}

static sp_status bin_judge(const sp_scan *scan, numbers all, int *n)
{
    char found[160];
    float range[2];
    double by;
    const int best = best_columns(all, scan->file_bytes, &by);

    if (are_int64(all))
        return SP_FAIL(SP_EDATA,
                       "%s: holds integers of 8 bytes, as masks and labels are, "
                       "expected float32 x y z remission",
                       scan->path);
    if (share_of_odd(all) > 0.1)
        return refuse_bin(scan, "its numbers are not float32 coordinates");
    if (best == 5 && by > clearly(all, best) && are_rings(all)) {
        *n = 5;
        return SP_OK;
    }
    if (best != 4 && by > clearly(all, best)) {
        snprintf(found, sizeof found, "its points seem to have %d float32 each", best);
        return refuse_bin(scan, found);
    }
    if (scan->file_bytes % 16)
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " bytes, expected a multiple of 16 (float32 x y "
                       "z remission)",
                       scan->path, scan->file_bytes);
    range_of(all, 4, 3, range);
    if (range[0] < 0 || range[1] > 255) {
        snprintf(found, sizeof found, "the 4th numbers are %.4g to %.4g",
                 (double)range[0], (double)range[1]);
        return refuse_bin(scan, found);
    }
    *n = 4;
    return SP_OK;
}

static sp_status check_length(const sp_scan *scan, int n, const char *what)
{
    if (scan->file_bytes % (4 * n))
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " bytes, expected a multiple of %d (%s)",
                       scan->path, scan->file_bytes, 4 * n, what);
    return SP_OK;
}

/* Refuses a list of n columns for points that are SemanticKITTI's or nuScenes': a model
 * may have been trained on files of text with such a list. */
static sp_status check_listed(const sp_scan *scan, numbers all, int n)
{
    int found;

    if (bin_judge(scan, all, &found) != SP_OK || found == n || n > MOST_COLUMNS ||
        all.n / 8 < LEAST_RECORDS ||
        spread_of(all, n) < spread_of(all, found) + clearly(all, n))
        return SP_OK;
    return SP_FAIL(
        SP_EDATA,
        "%s: its points seem to have %d float32 each, but --columns %s lists "
        "%d",
        scan->path, found, scan->options.columns, n);
}

static int count_listed(const char *columns)
{
    int n = 1;

    for (const char *at = columns; (at = strchr(at, ',')); at++)
        n++;
    return n;
}

sp_status sp_scan_bin_columns(sp_scan *scan, int *n)
{
    const int64_t count = sp_least(scan->file_bytes / 4, LOOKED_AT);
    const char *listed = scan->options.columns;
    SP_FREED float *x = NULL;

    assert(scan->fd >= 0 && n);
    *n = listed ? count_listed(listed) : 5;
    if (!listed && sp_file_ends_in(scan->path, ".pcd.bin"))
        return check_length(scan, 5, "float32 x y z intensity ring, as in nuScenes");
    SP_TRY(SP_NEW(&x, count, scan->path));
    SP_TRY(sp_scan_pread(scan, x, (size_t)count * sizeof *x, 0));
    if (!listed)
        return bin_judge(scan, (numbers){x, count}, n);
    SP_TRY(check_listed(scan, (numbers){x, count}, *n));
    return check_length(scan, *n, "a float32 for each of --columns");
}
