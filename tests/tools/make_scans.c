/* make_scans FILE EXTENT TILES SEED [foot]: writes synthetic labelled points
 * (scan/scene/sp_scene.h) as a scan, whose ending says how: .las, .bin with its .label,
 * .txt. TILES x TILES squares of EXTENT metres lie side by side. LAS says that its unit
 * is the metre, or the US survey foot.
 *
 * LAS is version 1.4 with points of format 6 and all that a copy has to keep: flags
 * beside the class, a described and an undocumented extra byte, VLRs, bytes before the
 * points, an EVLR behind them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/scan_files.h"
#include "base/sp_program.h"
#include "scan/scene/sp_scene.h"

enum { HEADER = 375, VLR_HEAD = 54, EVLR_HEAD = 60, EXTRA = 192, KEYS = 24 };
enum { RECORD = 30 + 3, METRE = 9001, SURVEY_FOOT = 9003 };

/* Codes of ground, vegetation, building, vehicle, wire. */
static const int code_of[SP_SCENE_CLASSES] = {2, 5, 6, 64, 14};

typedef struct output {
    FILE *to, *label;
    enum { LAS, BIN, TEXT } kind;
    int64_t n;
    int unit; /* GeoTIFF's code */
    double low[3], high[3];
} output;

static void put_float(FILE *to, double x)
{
    unsigned char b[4];

    scan_put(b, x, 'f', 4, false);
    fwrite(b, 1, 4, to);
}

/* ---- LAS ---- */

enum {
    VLRS = VLR_HEAD + 20 + VLR_HEAD + KEYS + VLR_HEAD + EXTRA,
    GAP = 7,
    POINTS_AT = HEADER + VLRS + GAP
};

static void write_head(output *o)
{
    unsigned char b[POINTS_AT] = {0}, *vlr = b + HEADER;
    const scan_las las = {4, 6, POINTS_AT, 3, RECORD, o->n, 0.01};
    const double offset[3] = {700000, 6270000, 0};
    /* A projected system, and its unit. */
    const int keys[KEYS / 2] = {1, 1, 0, 2, 1024, 0, 1, 1, 3076, 0, 1, 0};

    scan_put_las(b, &las);
    for (int a = 0; a < 3; a++) {
        scan_put(b + 155 + 8 * a, offset[a], 'f', 8, false);
        scan_put(b + 179 + 16 * a, o->high[a] + offset[a], 'f', 8, false);
        scan_put(b + 187 + 16 * a, o->low[a] + offset[a], 'f', 8, false);
    }
    scan_put(b + 235, POINTS_AT + o->n * RECORD, 'u', 8, false);
    scan_put(b + 243, 1, 'u', 4, false);
    scan_put(b + 255, o->n, 'u', 8, false);
    scan_put_vlr(vlr, "make_scans", 7, 20);
    memcpy(vlr + VLR_HEAD, "kept byte for byte.", 19);
    vlr += VLR_HEAD + 20;
    scan_put_vlr(vlr, "LASF_Projection", 34735, KEYS);
    for (int i = 0; i < KEYS / 2; i++)
        scan_put(vlr + VLR_HEAD + 2 * i, keys[i], 'u', 2, false);
    scan_put(vlr + VLR_HEAD + KEYS - 2, o->unit, 'u', 2, false);
    vlr += VLR_HEAD + KEYS;
    scan_put_vlr(vlr, "LASF_Spec", 4, EXTRA);
    vlr[VLR_HEAD + 2] = 3; /* uint16 */
    memcpy(vlr + VLR_HEAD + 4, "deviation", 9);
    memset(b + HEADER + VLRS, 0xa5, GAP);
    rewind(o->to);
    fwrite(b, 1, sizeof b, o->to);
}

static void write_evlr(output *o)
{
    unsigned char b[EVLR_HEAD + 11] = {0};

    memcpy(b + 2, "make_scans", 10);
    scan_put(b + 18, 8, 'u', 2, false);
    scan_put(b + 20, 11, 'u', 8, false);
    memcpy(b + EVLR_HEAD, "kept behind", 11);
    fwrite(b, 1, sizeof b, o->to);
}

static void write_record(output *o, const double *p, int code, double intensity,
                         int returns)
{
    unsigned char b[RECORD] = {0};

    for (int a = 0; a < 3; a++)
        scan_put(b + 4 * a, p[a] * 100, 'i', 4, false);
    scan_put(b + 12, intensity * 60000, 'u', 2, false);
    b[14] = (unsigned char)(1 | returns << 4);
    b[15] = (unsigned char)(o->n % 7 == 0 ? 4 : 0); /* withheld */
    b[16] = (unsigned char)code;
    b[17] = (unsigned char)(o->n % 251);
    scan_put(b + 20, 42, 'u', 2, false);
    scan_put(b + 22, 1e8 + (double)o->n * 1e-5, 'f', 8, false);
    scan_put(b + 30, o->n % 65521, 'u', 2, false);
    b[32] = (unsigned char)(o->n % 253);
    fwrite(b, 1, sizeof b, o->to);
}

/* ---- all ---- */

static void write_point(output *o, const double *p, int label, double intensity,
                        int returns)
{
    const int code = label < 0 ? 1 : code_of[label];
    unsigned char b[4];

    for (int a = 0; a < 3; a++) {
        o->low[a] = o->n == 0 || p[a] < o->low[a] ? p[a] : o->low[a];
        o->high[a] = o->n == 0 || p[a] > o->high[a] ? p[a] : o->high[a];
    }
    if (o->kind == LAS) {
        write_record(o, p, code, intensity, returns);
    } else if (o->kind == TEXT) {
        fprintf(o->to, "%.2f %.2f %.2f %.4f %d %d\n", p[0], p[1], p[2], intensity,
                returns, code);
    } else {
        for (int a = 0; a < 3; a++)
            put_float(o->to, p[a]);
        put_float(o->to, intensity);
        scan_put(b, code | 9 << 16, 'u', 4, false);
        fwrite(b, 1, 4, o->label);
    }
    o->n++;
}

static sp_status write_tile(output *o, double extent, int x, int y, uint64_t seed)
{
    const sp_scene_options options = {.seed = seed, .extent = extent};
    SP_CLOSED_BY(sp_scene_points_destroy) sp_scene_points scene = {0};

    SP_TRY(sp_scene_scan(&options, x << 16 | y, &scene));
    for (int64_t i = 0; i < scene.n; i++) {
        const float *f = scene.features + SP_SCENE_FEATURES * i;
        double p[3] = {scene.xyz[3 * i] + x * extent, scene.xyz[3 * i + 1] + y * extent,
                       scene.xyz[3 * i + 2]};

        write_point(o, p, scene.label[i], (double)f[0], (int)f[2]);
    }
    return SP_OK;
}

static bool open_output(output *o, const char *path)
{
    const char *dot = strrchr(path, '.');
    char label[4096];

    o->kind = dot && strcmp(dot, ".las") == 0   ? LAS
              : dot && strcmp(dot, ".bin") == 0 ? BIN
                                                : TEXT;
    o->to = fopen(path, "wb");
    if (o->kind == BIN) {
        snprintf(label, sizeof label, "%.*s.label", (int)(dot - path), path);
        o->label = fopen(label, "wb");
    }
    if (!o->to || (o->kind == BIN && !o->label))
        return false;
    if (o->kind == LAS)
        write_head(o);
    if (o->kind == TEXT)
        fputs("x y z intensity number_of_returns label\n", o->to);
    return true;
}

int main(int argc, char **argv)
{
    output o = {.unit = argc == 6 ? SURVEY_FOOT : METRE};
    int tiles = argc == 5 || argc == 6 ? atoi(argv[3]) : 0;
    sp_status rc = SP_OK;

    sp_program_begin("sptrain");
    if (tiles < 1 || !open_output(&o, argv[1]))
        return 2;
    for (int y = 0; y < tiles; y++)
        for (int x = 0; x < tiles && rc == SP_OK; x++)
            rc = write_tile(&o, atof(argv[2]), x, y, (uint64_t)atoi(argv[4]));
    if (o.kind == LAS) {
        write_evlr(&o);
        write_head(&o);
    }
    if (o.label)
        fclose(o.label);
    printf("%lld points\n", (long long)o.n);
    return fclose(o.to) != 0 ? 4 : (int)rc;
}
