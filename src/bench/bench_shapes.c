/* Synthetic coordinates to work on. The shapes differ in the number of neighbours of a
 * voxel, which decides the speed of sparse convolutions. In brackets: pairs of a 3^3
 * kernel for each voxel, counted at 50,000 voxels; for the lidar at 94,444, about one
 * turn.
 *
 *     terrain    heights of smooth noise, closed walls (8.9)
 *     surface    a room: floor, walls, furniture, with holes (8.7), like indoor scans
 *     random     uniform in a grid of 41 x 1600 x 1408 (1.01)
 *     lidar      a turning scanner of 64 beams on a street, cells of 5 cm (3.0)
 *
 * Each shape is a pure function of its name, n and seed.
 */
#include "bench/bench.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_rng.h"

/* A number uniform in [0, 1): element i of the stream `what`. */
static double unit(uint64_t seed, uint64_t what, uint64_t i)
{
    const uint64_t bits = sp_rng_mix(sp_rng_mix(seed << 8 ^ what) ^ i);

    return (double)(sp_rng_mix(bits) >> 11) * 0x1p-53;
}

static void set(int32_t *coords, int64_t i, int64_t x, int64_t y, int64_t z)
{
    coords[3 * i] = (int32_t)x;
    coords[3 * i + 1] = (int32_t)y;
    coords[3 * i + 2] = (int32_t)z;
}

/* ---- terrain: heights are smooth noise of several wavelengths ---- */

/* A number uniform in [-1, 1) at a lattice point of an octave. */
static double lattice(int octave, int64_t x, int64_t y)
{
    uint64_t bits = sp_rng_mix((uint64_t)octave << 56 ^ (uint64_t)(x + 1) << 28 ^
                               (uint64_t)(y + 1));

    return (double)(sp_rng_mix(bits) >> 11) * 0x1p-52 - 1;
}

static double height(int64_t x, int64_t y)
{
    /* Wavelength and amplitude in voxels: slopes of about one voxel a voxel. */
    static const double octave[][2] = {{64, 14}, {16, 4.5}, {5, 1.4}};
    double z = 0;

    for (int o = 0; o < 3; o++) {
        const double u = (double)x / octave[o][0], v = (double)y / octave[o][0];
        const int64_t i = (int64_t)u, j = (int64_t)v;
        const double s = u - (double)i, t = v - (double)j;
        const double a = s * s * (3 - 2 * s), b = t * t * (3 - 2 * t);
        const double low = lattice(o, i, j) * (1 - a) + lattice(o, i + 1, j) * a;
        const double high =
            lattice(o, i, j + 1) * (1 - a) + lattice(o, i + 1, j + 1) * a;
        z += octave[o][1] * (low * (1 - b) + high * b);
    }
    return z;
}

/* Writes the voxels of the column at (x, y) to at [most][3] and returns their number:
 * its height, and below it down to one above its lowest neighbour, so that walls are
 * closed. */
static int64_t column(int64_t x, int64_t y, int32_t *at, int64_t most)
{
    const int32_t top = (int32_t)height(x, y);
    int32_t low = top;
    int64_t n = 0;

    for (int side = 0; side < 4; side++) {
        const int64_t dx = side < 2 ? 2 * side - 1 : 0,
                      dy = side < 2 ? 0 : 2 * side - 5;
        const int32_t z =
            x + dx < 0 || y + dy < 0 ? top : (int32_t)height(x + dx, y + dy);
        low = z + 1 < low ? z + 1 : low;
    }
    for (int32_t z = low; z <= top && n < most; z++, n++)
        set(at, n, x, y, z);
    return n;
}

static sp_status terrain(int64_t n, uint64_t seed, int32_t *coords)
{
    /* Each seed has another place of one terrain. */
    const int64_t south = (int64_t)(seed % 64) * 4096;
    int64_t edge = 1, done = 0;

    while (edge * edge < n)
        edge++;
    for (int64_t y = 0; done < n; y++)
        for (int64_t x = 0; x < edge && done < n; x++)
            done += column(x, y + south, coords + 3 * done, n - done);
    return SP_OK;
}

/* ---- random ---- */

/* Draws n distinct sorted cells. Scaled sums of exponential steps are distributed like
 * sorted uniform numbers; adding i to number i makes all distinct. */
static sp_status uniform(int64_t n, uint64_t seed, int32_t *coords)
{
    enum { NZ = 41, NY = 1600, NX = 1408 };
    const double cells = (double)NX * NY * NZ;
    double sum = 0, at = 0;

    if (2.0 * (double)n > cells)
        return SP_FAIL(SP_EUSAGE, "--voxels %lld: the random shape has room for %.0f",
                       (long long)n, cells / 2);
    for (int64_t i = 0; i <= n; i++)
        sum -= log(1 - unit(seed, 1, (uint64_t)i));
    for (int64_t i = 0; i < n; i++) {
        at -= log(1 - unit(seed, 1, (uint64_t)i));
        const int64_t cell = (int64_t)(at / sum * (cells - (double)n)) + i;
        set(coords, i, cell % NX, cell / NX % NY, cell / NX / NY);
    }
    return SP_OK;
}

/* ---- surface ---- */

enum { BOXES = 12 };

typedef struct room {
    int64_t width, depth, height;
    int64_t box[BOXES][5]; /* x0, x1, y0, y1, height */
    uint64_t seed;
} room;

static room shapes_room_of(int64_t edge, uint64_t seed)
{
    room r = {.width = edge, .depth = edge * 4 / 5 + 1, .height = edge * 3 / 5 + 1};

    r.seed = seed;
    for (int i = 0; i < BOXES; i++) {
        double u[5];
        for (int j = 0; j < 5; j++)
            u[j] = unit(seed, 2, (uint64_t)(5 * i + j));
        r.box[i][0] = (int64_t)(u[0] * 0.8 * (double)r.width);
        r.box[i][1] = r.box[i][0] + (int64_t)((0.08 + 0.2 * u[1]) * (double)edge);
        r.box[i][2] = (int64_t)(u[2] * 0.8 * (double)r.depth);
        r.box[i][3] = r.box[i][2] + (int64_t)((0.08 + 0.2 * u[3]) * (double)edge);
        r.box[i][4] = 1 + (int64_t)((0.1 + 0.4 * u[4]) * (double)r.height);
    }
    return r;
}

/* The surface of the column at (x, y) reaches from *low to *high. */
static void column_of(const room *r, int64_t x, int64_t y, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    if (x == 0 || y == 0 || x == r->width - 1 || y == r->depth - 1)
        *high = r->height - 1;
    for (int i = 0; i < BOXES; i++) {
        const int64_t *b = r->box[i];
        const bool is_side = x == b[0] || x == b[1] || y == b[2] || y == b[3];

        if (x < b[0] || x > b[1] || y < b[2] || y > b[3] || b[4] <= *high)
            continue;
        *low = is_side ? 0 : b[4];
        *high = b[4];
    }
}

/* Returns the number of the room's voxels and writes the first n of them. */
static int64_t shapes_furnish(const room *r, int64_t n, int32_t *coords)
{
    const double hole = 0.115;
    int64_t done = 0, low, high;

    for (int64_t y = 0; y < r->depth; y++)
        for (int64_t x = 0; x < r->width; x++) {
            column_of(r, x, y, &low, &high);
            for (int64_t z = low; z <= high; z++) {
                const int64_t cell = (z * r->depth + y) * r->width + x;
                if (unit(r->seed, 3, (uint64_t)cell) < hole)
                    continue;
                if (done < n)
                    set(coords, done, x, y, z);
                done++;
            }
        }
    return done;
}

static sp_status surface(int64_t n, uint64_t seed, int32_t *coords)
{
    int64_t edge = (int64_t)sqrt((double)n / 4);
    room r;

    do {
        edge += 1 + edge / 64;
        r = shapes_room_of(edge, seed);
    } while (shapes_furnish(&r, n, coords) < n);
    return SP_OK;
}

/* ---- lidar ---- */

/* The obstacle in a direction from the scanner: distance and height in m; 0 without
 * one. */
static void facade(uint64_t seed, double turn, double *distance, double *top)
{
    static const struct {
        int sectors;
        /* share: probability; near to far and least to most: ranges of distance and
         * height. */
        double share, near, far, least, most;
    } kind[] = {{300, 0.2, 5, 30, 1.2, 2.2}, {70, 0.75, 8, 50, 3, 12}};

    *distance = *top = 0;
    for (uint64_t k = 0; k < 2; k++) {
        const uint64_t sector = (uint64_t)(turn * kind[k].sectors);
        const double u = unit(seed, 4 + k, 3 * sector);

        if (u > kind[k].share)
            continue;
        *distance = kind[k].near +
                    (kind[k].far - kind[k].near) * unit(seed, 4 + k, 3 * sector + 1);
        *top = kind[k].least +
               (kind[k].most - kind[k].least) * unit(seed, 4 + k, 3 * sector + 2);
        return;
    }
}

/* The cell that a ray meets, as a number that sorts by place; -1 if it meets no cell.
 * The constants of leaves and roughness are chosen so that voxels by level and pairs at
 * 94,444 voxels are about a real scan's. */
static int64_t shapes_cast(uint64_t seed, int64_t ray, int64_t n_rays)
{
    enum { BEAMS = 64 };
    const double eye = 1.73, range = 90, cell = 0.05;
    const double leaves = 0.2, rough = 0.65;
    const double tau = 6.283185307179586;
    const double turn = (double)(ray / BEAMS) / (double)(n_rays / BEAMS + 1);
    const double slope = tan((2.0 - 26.8 * (double)(ray % BEAMS) / BEAMS) * tau / 360);
    const double noise = rough * (unit(seed, 6, (uint64_t)ray) - 0.5);
    const double ground = slope < 0 ? -eye / slope : 1e9;
    double distance, top, at, z;

    facade(seed, turn, &distance, &top);
    at = top > 0 && distance < ground && eye + slope * distance < top ? distance
                                                                      : ground;
    if (unit(seed, 7, (uint64_t)ray) < leaves)
        at = fmin(at, 6 + 60 * unit(seed, 8, (uint64_t)ray));
    if (at > range)
        return -1;
    at += noise;
    z = eye + slope * at;
    const int64_t x = (int64_t)floor(at * cos(turn * tau) / cell) + (1 << 19),
                  y = (int64_t)floor(at * sin(turn * tau) / cell) + (1 << 19);
    return ((int64_t)floor(z / cell) + (1 << 19)) << 40 | y << 20 | x;
}

/* Writes the sorted distinct cells of n_rays rays to key and returns their number. */
static int64_t shapes_scan(uint64_t seed, int64_t n_rays, int64_t *key)
{
    int64_t n = 0, distinct = 0;

    for (int64_t i = 0; i < n_rays; i++) {
        key[n] = shapes_cast(seed, i, n_rays);
        n += key[n] >= 0;
    }
    qsort(key, (size_t)n, sizeof *key, sp_by_int64);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || key[i] != key[i - 1])
            key[distinct++] = key[i];
    return distinct;
}

/* Increases the rays of a turn until there are enough cells, and then picks n of them
 * at equal distances. */
static sp_status lidar(int64_t n, uint64_t seed, int32_t *coords)
{
    const int64_t mask = (1 << 20) - 1, half = 1 << 19;
    int64_t n_rays = n + n / 2 + 64, found = 0, *key = NULL;

    while (found < n) {
        free(key);
        SP_TRY(SP_NEW(&key, n_rays, "rays"));
        found = shapes_scan(seed, n_rays, key);
        n_rays += n_rays / 16;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = key[i * found / n];
        set(coords, i, (k & mask) - half, (k >> 20 & mask) - half, (k >> 40) - half);
    }
    free(key);
    return SP_OK;
}

/* ---- by name ---- */

sp_status bench_shape_make(const char *shape, int64_t n, uint64_t seed, int32_t *coords)
{
    assert(n >= 0 && (coords || n == 0));
    static const struct {
        const char *name;
        sp_status (*make)(int64_t n, uint64_t seed, int32_t *coords);
    } shapes[] = {{"terrain", terrain},
                  {"surface", surface},
                  {"random", uniform},
                  {"lidar", lidar}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shape ? shape : "terrain", shapes[i].name) == 0)
            return shapes[i].make(n, seed, coords);
    return SP_FAIL(SP_EUSAGE, "--shape %s: expected terrain, surface, random or lidar",
                   shape);
}
