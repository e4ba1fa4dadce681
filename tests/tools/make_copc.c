/* make_copc IN.las OUT.copc.laz: writes LAS 1.4 as COPC: every tenth point in the root,
 * the others in nodes of level 2; a quarter of these is listed on a second page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_number.h"
#include "base/sp_program.h"
#include "scan/laz/sp_laz.h"

enum {
    VLR = 54,
    EVLR = 60,
    INFO = 160,
    ENTRY = 32,
    SIDE = 4,
    NODES = SIDE * SIDE * SIDE
};

typedef struct copc {
    unsigned char *las; /* the whole file */
    size_t head, data;  /* bytes of its header; of all before its points */
    int record, format;
    int64_t n;
    double low[3], edge; /* the cube */
    FILE *to;
    sp_laz_writer *laz;
    int node_of[NODES + 1]; /* the chunk of a node, the last one the root; -1: none */
} copc;

static const unsigned char *record_of(const copc *c, int64_t i)
{
    return c->las + c->data + (size_t)i * (size_t)c->record;
}

static int cell_of(const copc *c, int64_t i, int axis)
{
    double scale, offset, x;

    memcpy(&scale, c->las + 131 + 8 * axis, sizeof scale);
    memcpy(&offset, c->las + 155 + 8 * axis, sizeof offset);
    x = (int32_t)sp_get32(record_of(c, i) + 4 * axis) * scale + offset;
    x = floor((x - c->low[axis]) / c->edge * SIDE);
    return x < 0 ? 0 : x >= SIDE ? SIDE - 1 : (int)x;
}

/* The node of point i; NODES is the root. */
static int node_of(const copc *c, int64_t i)
{
    if (i % 10 == 0)
        return NODES;
    return cell_of(c, i, 0) + SIDE * (cell_of(c, i, 1) + SIDE * cell_of(c, i, 2));
}

static void put_vlr(unsigned char *b, const char *user, int id, size_t bytes)
{
    snprintf((char *)b + 2, 16, "%s", user);
    sp_put16(b + 18, (uint64_t)id);
    sp_put16(b + 20, bytes);
}

static sp_status write_chunks(copc *c)
{
    int n_chunks = 0;

    for (int k = NODES; k >= 0; k--) { /* chunks are not in the order of the keys */
        int64_t n = 0;

        for (int64_t i = 0; i < c->n; i++)
            if (node_of(c, i) == k) {
                SP_TRY(sp_laz_write(c->laz, record_of(c, i), 1));
                n++;
            }
        if (n > 0)
            SP_TRY(sp_laz_cut(c->laz));
        c->node_of[k] = n > 0 ? n_chunks++ : -1;
    }
    return sp_laz_finish(c->laz);
}

static unsigned char *put_entry(const copc *c, unsigned char *at, int level, int node)
{
    int64_t n;
    const sp_laz_place *chunk = sp_laz_written(c->laz, &n) + c->node_of[node];
    const int x = level ? node % SIDE : 0, y = level ? node / SIDE % SIDE : 0;

    sp_put32(at, (uint64_t)level);
    sp_put32(at + 4, (uint64_t)x);
    sp_put32(at + 8, (uint64_t)y);
    sp_put32(at + 12, (uint64_t)(level ? node / SIDE / SIDE : 0));
    sp_put64(at + 16, (uint64_t)chunk->at);
    sp_put32(at + 24, (uint64_t)chunk->bytes);
    sp_put32(at + 28, (uint64_t)chunk->n);
    return at + ENTRY;
}

/* Writes the two pages, and their places in the head. */
static void write_index(const copc *c, unsigned char *head, long at)
{
    static unsigned char page[2][ENTRY * (NODES + 2)], evlr[EVLR];
    unsigned char *end[2] = {page[0], page[1]};
    size_t bytes[2];

    if (c->node_of[NODES] >= 0)
        end[0] = put_entry(c, end[0], 0, NODES);
    for (int k = 0; k < NODES; k++)
        if (c->node_of[k] >= 0) {
            const int is_far = k % SIDE >= SIDE / 2 && k / SIDE % SIDE >= SIDE / 2;

            end[is_far] = put_entry(c, end[is_far], 2, k);
        }
    bytes[1] = (size_t)(end[1] - page[1]);
    if (bytes[1] > 0) { /* of level 1, at 1, 1 */
        sp_put32(end[0], 1);
        sp_put32(end[0] + 4, 1);
        sp_put32(end[0] + 8, 1);
        sp_put64(end[0] + 16,
                 (uint64_t)at + EVLR + (uint64_t)(end[0] - page[0]) + ENTRY);
        sp_put32(end[0] + 24, bytes[1]);
        sp_put32(end[0] + 28, UINT32_MAX);
        end[0] += ENTRY;
    }
    bytes[0] = (size_t)(end[0] - page[0]);
    snprintf((char *)evlr + 2, 16, "copc");
    sp_put16(evlr + 18, 1000);
    sp_put64(evlr + 20, bytes[0] + bytes[1]);
    fwrite(evlr, 1, sizeof evlr, c->to);
    fwrite(page[0], 1, bytes[0], c->to);
    fwrite(page[1], 1, bytes[1], c->to);
    sp_put64(head + 235, (uint64_t)at);
    sp_put32(head + 243, 1);
    sp_put64(head + c->head + VLR + 40, (uint64_t)at + EVLR);
    sp_put64(head + c->head + VLR + 48, bytes[0]);
}

static void measure(copc *c)
{
    for (int a = 0; a < 3; a++) {
        double high;

        memcpy(&high, c->las + 179 + 16 * a, sizeof high);
        memcpy(&c->low[a], c->las + 187 + 16 * a, sizeof c->low[a]);
        c->edge = fmax(c->edge, high - c->low[a]);
    }
}

static sp_status write_copc(copc *c, const char *path)
{
    unsigned char head[8192] = {0}, laz[SP_LAZ_VLR_BYTES], *at = head;
    const double half = c->edge / 2;
    sp_laz_format format;
    size_t n;

    sp_laz_format_default(&format, c->format, c->record);
    format.chunk_points = UINT32_MAX;
    n = sp_laz_format_write(&format, laz);
    memcpy(at, c->las, c->head);
    at += c->head;
    put_vlr(at, "copc", 1, INFO);
    for (int a = 0; a < 3; a++) {
        const double centre = c->low[a] + half;

        memcpy(at + VLR + 8 * a, &centre, sizeof centre);
    }
    memcpy(at + VLR + 24, &half, sizeof half);
    at += VLR + INFO;
    for (uint32_t k = sp_get32(c->las + 100), from = (uint32_t)c->head; k > 0; k--) {
        const size_t bytes = VLR + sp_get16(c->las + from + 20);

        memcpy(at, c->las + from, bytes);
        at += bytes;
        from += (uint32_t)bytes;
    }
    put_vlr(at, SP_LAZ_USER_ID, SP_LAZ_RECORD_ID, n);
    memcpy(at + VLR, laz, n);
    at += VLR + n;
    sp_put32(head + 96, (uint64_t)(at - head));
    sp_put32(head + 100, sp_get32(c->las + 100) + 2);
    head[104] |= 0x80;
    fwrite(head, 1, (size_t)(at - head), c->to);
    SP_TRY(sp_laz_create(&c->laz, path, c->to, &format, 1));
    SP_TRY(write_chunks(c));
    write_index(c, head, ftell(c->to));
    rewind(c->to);
    fwrite(head, 1, (size_t)(at - head), c->to);
    return SP_OK;
}

int main(int argc, char **argv)
{
    copc c = {0};
    char *las = NULL;
    sp_status rc;

    sp_program_begin("sptrain");
    if (argc != 3)
        return 2;
    rc = sp_file_read(argv[1], &las, NULL);
    c.to = rc == SP_OK ? fopen(argv[2], "wb+") : NULL;
    if (c.to) {
        c.las = (unsigned char *)las;
        c.head = sp_get16(c.las + 94);
        c.data = sp_get32(c.las + 96);
        c.format = c.las[104];
        c.record = (int)sp_get16(c.las + 105);
        c.n = (int64_t)sp_get64(c.las + 247);
        measure(&c);
        rc = write_copc(&c, argv[2]);
    }
    if (rc != SP_OK || !c.to)
        fprintf(stderr, "%s\n",
                rc != SP_OK ? sp_error_last()->message : "cannot write");
    sp_laz_abandon(c.laz);
    rc = c.to && fclose(c.to) == 0 ? rc : SP_EIO;
    free(las);
    return rc;
}
