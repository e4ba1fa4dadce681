/* make_ept IN.las FOLDER: writes LAS 1.4 as EPT with nodes of three levels, into a folder
 * that has ept-data and ept-hierarchy. Every tenth point is in the root and two tenths in
 * level 1, as is the first point of a child without its parent. The nodes from x = y = 1
 * of level 1 on have pages of their own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_number.h"
#include "base/sp_program.h"
#include "scan/laz/sp_laz.h"

enum { VLR = 54, LEVELS = 3, NODES = 1 + 8 + 64, HEAD = 8192 };

typedef struct ept {
    unsigned char *las; /* the whole file */
    size_t data;        /* bytes before its points */
    int record, format;
    int64_t n;
    double low[3], high[3], edge; /* of the points; of the cube */
    const char *folder;
    int64_t count[NODES];
    unsigned char *node; /* [n] the node of a point */
} ept;

static const int first_of[LEVELS + 1] = {0, 1, 9, NODES};

static const unsigned char *record_of(const ept *c, int64_t i)
{
    return c->las + c->data + (size_t)i * (size_t)c->record;
}

static double header_double(const ept *c, int at)
{
    double x;

    memcpy(&x, c->las + at, sizeof x);
    return x;
}

static int node_at(const ept *c, int64_t i, int level)
{
    const int side = 1 << level;
    int node = 0;

    for (int a = 2; a >= 0; a--) {
        const double x =
            (int32_t)sp_get32(record_of(c, i) + 4 * a) * header_double(c, 131 + 8 * a) +
            header_double(c, 155 + 8 * a);
        const int cell = (int)floor((x - c->low[a]) / c->edge * side);

        node = node * side + (cell < 0 ? 0 : cell >= side ? side - 1 : cell);
    }
    return first_of[level] + node;
}

static void deal(ept *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        int level = i % 10 == 0 ? 0 : i % 10 <= 2 ? 1 : 2;

        while (level > 0 && c->count[node_at(c, i, level - 1)] == 0)
            level--;
        c->node[i] = (unsigned char)node_at(c, i, level);
        c->count[c->node[i]]++;
    }
}

/* The name D-X-Y-Z of a node; its x and y. */
static const char *name_of(int node, char name[32], int xy[2])
{
    const int level = node < first_of[1] ? 0 : node < first_of[2] ? 1 : 2;
    const int side = 1 << level, k = node - first_of[level];

    xy[0] = k % side;
    xy[1] = k / side % side;
    snprintf(name, 32, "%d-%d-%d-%d", level, xy[0], xy[1], k / side / side);
    return name;
}

static FILE *create(const ept *c, const char *room, const char *name,
                    const char *ending)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s%s%s", c->folder, room, name, ending);
    return fopen(path, "wb+");
}

static unsigned char *put_vlr(unsigned char *to, const unsigned char *vlr)
{
    const size_t bytes = VLR + sp_get16(vlr + 20);

    memcpy(to, vlr, bytes);
    return to + bytes;
}

/* Header and VLRs of a node's file; the coordinate system is in ept.json. Returns the
 * bytes. */
static size_t make_head(const ept *c, int node, const sp_laz_format *format,
                        unsigned char head[HEAD])
{
    unsigned char laz[VLR + SP_LAZ_VLR_BYTES] = {0}, *to = head + sp_get16(c->las + 94);
    const unsigned char *vlr = c->las + sp_get16(c->las + 94);
    uint32_t n = 1;

    memset(head, 0, HEAD);
    memcpy(head, c->las, sp_get16(c->las + 94));
    for (uint32_t k = sp_get32(c->las + 100); k > 0; k--) {
        if (memcmp(vlr + 2, "LASF_Projection", 16) != 0) {
            to = put_vlr(to, vlr);
            n++;
        }
        vlr += VLR + sp_get16(vlr + 20);
    }
    snprintf((char *)laz + 2, 16, "%s", SP_LAZ_USER_ID);
    sp_put16(laz + 18, SP_LAZ_RECORD_ID);
    sp_put16(laz + 20, sp_laz_format_write(format, laz + VLR));
    to = put_vlr(to, laz);
    sp_put32(head + 96, (uint64_t)(to - head));
    sp_put32(head + 100, n);
    head[104] |= 0x80;
    sp_put32(head + 107, 0);
    sp_put64(head + 247, (uint64_t)c->count[node]);
    return (size_t)(to - head);
}

static sp_status write_node(const ept *c, int node)
{
    unsigned char head[HEAD];
    sp_laz_writer *laz = NULL;
    sp_laz_format format;
    char name[32];
    int xy[2];
    FILE *to = create(c, "ept-data/", name_of(node, name, xy), ".laz");
    sp_status rc;

    if (!to)
        return SP_FAIL(SP_EIO, "cannot create %s", name);
    sp_laz_format_default(&format, c->format, c->record);
    fwrite(head, 1, make_head(c, node, &format, head), to);
    rc = sp_laz_create(&laz, name, to, &format, 1);
    for (int64_t i = 0; i < c->n && rc == SP_OK; i++)
        if (c->node[i] == node)
            rc = sp_laz_write(laz, record_of(c, i), 1);
    if (rc == SP_OK)
        rc = sp_laz_finish(laz);
    sp_laz_abandon(laz);
    return sp_file_close(to) ? rc : SP_EIO;
}

/* The node of level 1 at x = y = 1 that a node belongs to; 0: it is in the root's
 * page. */
static int page_of(int node)
{
    char name[32];
    int xy[2], side;

    name_of(node, name, xy);
    side = node >= first_of[2] ? 2 : 1;
    if (node < first_of[1] || xy[0] / side != 1 || xy[1] / side != 1)
        return 0;
    return node < first_of[2] ? node
                              : first_of[1] + 3 + 4 * ((node - first_of[2]) / 16 / 2);
}

static bool write_page(const ept *c, int page)
{
    char name[32];
    int xy[2];
    FILE *to = create(c, "ept-hierarchy/", name_of(page, name, xy), ".json");
    const char *comma = "{";

    for (int k = 0; to && k < NODES; k++) {
        const bool is_page = page == 0 && page_of(k) == k && k > 0;

        if (c->count[k] == 0 || (page_of(k) != page && !is_page))
            continue;
        fprintf(to, "%s\n \"%s\": %d", comma, name_of(k, name, xy),
                is_page ? -1 : (int)c->count[k]);
        comma = ",";
    }
    if (to)
        fputs("}\n", to);
    return to && sp_file_close(to);
}

static bool write_json(const ept *c)
{
    FILE *to = create(c, "", "ept", ".json");

    if (!to)
        return false;
    fprintf(
        to,
        "{\"bounds\": [%.17g, %.17g, %.17g, %.17g, %.17g, %.17g],\n"
        " \"boundsConforming\": [%.17g, %.17g, %.17g, %.17g, %.17g, %.17g],\n"
        " \"dataType\": \"laszip\", \"hierarchyType\": \"json\", \"points\": %lld,\n"
        " \"srs\": {\"wkt\": \"LOCAL_CS[\\\"area\\\",UNIT[\\\"metre\\\",1]]\"},\n"
        " \"span\": 128, \"version\": \"1.1.0\", \"schema\": [\n",
        c->low[0], c->low[1], c->low[2], c->low[0] + c->edge, c->low[1] + c->edge,
        c->low[2] + c->edge, c->low[0], c->low[1], c->low[2], c->high[0], c->high[1],
        c->high[2], (long long)c->n);
    for (int a = 0; a < 3; a++)
        fprintf(
            to,
            "  {\"name\": \"%c\", \"type\": \"signed\", \"size\": 4, \"scale\": %.17g, "
            "\"offset\": %.17g},\n",
            "XYZ"[a], header_double(c, 131 + 8 * a), header_double(c, 155 + 8 * a));
    fputs("  {\"name\": \"Classification\", \"type\": \"unsigned\", \"size\": 1}]}\n",
          to);
    return sp_file_close(to);
}

static sp_status write_ept(ept *c)
{
    bool is_whole;

    for (int a = 0; a < 3; a++) {
        c->high[a] = header_double(c, 179 + 16 * a);
        c->low[a] = header_double(c, 187 + 16 * a);
        c->edge = fmax(c->edge, c->high[a] - c->low[a]);
    }
    deal(c);
    is_whole = write_json(c) && write_page(c, 0);
    for (int k = 0; k < NODES; k++) {
        if (c->count[k] > 0)
            SP_TRY(write_node(c, k));
        if (c->count[k] > 0 && k > 0 && page_of(k) == k)
            is_whole = is_whole && write_page(c, k);
    }
    return is_whole ? SP_OK : SP_FAIL(SP_EIO, "%s: cannot write", c->folder);
}

int main(int argc, char **argv)
{
    ept c = {0};
    char *las = NULL;
    sp_status rc;

    sp_program_begin("sptrain");
    if (argc != 3)
        return 2;
    rc = sp_file_read(argv[1], &las, NULL);
    if (rc == SP_OK) {
        c.las = (unsigned char *)las;
        c.data = sp_get32(c.las + 96);
        c.format = c.las[104];
        c.record = (int)sp_get16(c.las + 105);
        c.n = (int64_t)sp_get64(c.las + 247);
        c.folder = argv[2];
        c.node = malloc((size_t)c.n + 1);
        rc =
            c.node && c.data < HEAD / 2 ? write_ept(&c) : SP_FAIL(SP_EMEM, "no memory");
    }
    if (rc != SP_OK)
        fprintf(stderr, "%s\n", sp_error_last()->message);
    free(c.node);
    free(las);
    return rc;
}
