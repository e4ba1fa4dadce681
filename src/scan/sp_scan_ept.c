/* EPT, a folder with LAZ in an octree of files (Entwine Point Tile 1.1, entwine.io). A
 * node D-X-Y-Z has the points of its file; its children have other points.
 *
 *     ept.json                      the cube, the extent, the number of points, the system
 *     ept-hierarchy/D-X-Y-Z.json    {"D-X-Y-Z": points, ...} of nodes from this one on; -1:
 *                                   a file of this name goes on
 *     ept-data/D-X-Y-Z.laz          the points
 *
 * The scan is the first node's file with the records of all nodes, in the order of D, X,
 * Y and Z. Each node's file is opened when its rows are read. */
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "scan/sp_scan_las.h"

enum { KEY = 4 };

typedef struct ept_node {
    int32_t key[KEY]; /* D, X, Y, Z */
    int64_t n;        /* points; in the hierarchy -1: another file has it */
    int64_t first;    /* row of the first one */
} ept_node;

typedef struct sp_ept {
    sp_las las; /* the first node's file, for sp_las_of */
    sp_octree tree;
    ept_node *node;
    int64_t n_nodes;
    char *folder, *head; /* path before "ept-data"; of the first node's file */
    int64_t current;     /* the node that is open */
    sp_scan *open;       /* or NULL */
} sp_ept;

static sp_ept *ept_of(const sp_scan *scan)
{
    return (sp_ept *)scan->own;
}

/* ---- the hierarchy ---- */

/* FOLDER/ROOM/D-X-Y-Z.ENDING, malloc'd for the caller. */
static sp_status ept_path(const sp_ept *e, const char *room, const int32_t key[KEY],
                          const char *ending, char **path)
{
    if (asprintf(path, "%s%s/%d-%d-%d-%d%s", e->folder, room, key[0], key[1], key[2],
                 key[3], ending) >= 0)
        return SP_OK;
    *path = NULL;
    return SP_FAIL(SP_EMEM, "%s: no memory for a path", e->folder);
}

/* Reads a file with a JSON object; json_decref it. */
static sp_status ept_load(const char *path, json_t **object)
{
    SP_FREED char *text = NULL;
    json_error_t error;
    size_t bytes;

    SP_TRY(sp_file_read_input(path, &text, &bytes));
    *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*object)
        return SP_FAIL(SP_EDATA, "%s: no JSON: line %d: %s", path, error.line,
                       error.text);
    if (json_is_object(*object))
        return SP_OK;
    json_decref(*object);
    return SP_FAIL(SP_EDATA, "%s: expected a JSON object", path);
}

/* A name in this form only, since files are named after it. */
static bool ept_read_key(const char *name, int32_t key[KEY])
{
    char again[KEY * 12];

    if (sscanf(name, "%d-%d-%d-%d", &key[0], &key[1], &key[2], &key[3]) != KEY)
        return false;
    snprintf(again, sizeof again, "%d-%d-%d-%d", key[0], key[1], key[2], key[3]);
    if (strcmp(again, name) != 0 || key[0] < 0 || key[0] > SP_OCTREE_LEVELS)
        return false;
    for (int i = 1; i < KEY; i++)
        if (key[i] < 0 || key[i] >= INT64_C(1) << key[0])
            return false;
    return true;
}

/* Appends the nodes of a page, and notes which pages follow in `pages`. */
static sp_status ept_parse_page(sp_ept *e, const char *path, json_t *page,
                                json_t *pages)
{
    const char *name;
    json_t *value;

    json_object_foreach(page, name, value)
    {
        const int64_t n = json_is_integer(value) ? json_integer_value(value) : -2;
        ept_node node = {.n = n};

        if (!ept_read_key(name, node.key))
            return SP_FAIL(
                SP_EDATA,
                "%s: \"%s\" is no node: expected D-X-Y-Z with D from 0 to %d, "
                "and X, Y and Z below 2^D",
                path, name, SP_OCTREE_LEVELS);
        if (n < -1 || n > UINT32_MAX)
            return SP_FAIL(
                SP_EDATA, "%s: node %s: expected its number of points, up to %u, or -1",
                path, name, UINT32_MAX);
        if (n == -1 && json_object_get(pages, name))
            return SP_FAIL(SP_EDATA,
                           "%s: leads to ept-hierarchy/%s.json, which was read before",
                           path, name);
        if ((n == -1 && json_object_set_new(pages, name, json_true()) != 0) ||
            !sp_list_grow(&e->node, e->n_nodes, sizeof node))
            return SP_FAIL(SP_EMEM, "%s: no memory for its nodes", path);
        e->node[e->n_nodes++] = node;
    }
    return SP_OK;
}

static sp_status ept_read_page(sp_ept *e, const int32_t key[KEY], json_t *pages)
{
    SP_FREED char *path = NULL;
    json_t *page;
    sp_status rc;

    SP_TRY(ept_path(e, "ept-hierarchy", key, ".json", &path));
    SP_TRY(ept_load(path, &page));
    rc = ept_parse_page(e, path, page, pages);
    json_decref(page);
    return rc;
}

static int ept_compare(const void *a, const void *b)
{
    const ept_node *x = a, *y = b;

    for (int i = 0; i < KEY; i++)
        if (x->key[i] != y->key[i])
            return x->key[i] < y->key[i] ? -1 : 1;
    return 0;
}

/* Numbers the rows of the nodes that meet the window (NULL: all), and drops the others
 * and those without points. */
static void ept_number(sp_scan *scan, const double *window)
{
    sp_ept *e = ept_of(scan);
    int64_t n = 0;

    scan->n_points = 0;
    for (int64_t i = 0; i < e->n_nodes; i++) {
        ept_node node = e->node[i];

        if (node.n <= 0 ||
            (window && !sp_octree_meets(&e->tree, node.key[0], node.key + 1, window)))
            continue;
        node.first = scan->n_points;
        scan->n_points += node.n;
        e->node[n++] = node;
    }
    e->n_nodes = n;
}

/* Lists the nodes of all pages, which begin at the root. */
static sp_status ept_list(sp_scan *scan, int64_t n_points)
{
    static const int32_t root[KEY] = {0};
    sp_ept *e = ept_of(scan);
    json_t *pages = json_pack("{s:b}", "0-0-0-0", 1);
    sp_status rc = ept_read_page(e, root, pages);

    for (int64_t i = 0; rc == SP_OK && i < e->n_nodes; i++)
        if (e->node[i].n == -1) {
            const ept_node page = e->node[i]; /* the list moves */

            rc = ept_read_page(e, page.key, pages);
        }
    json_decref(pages);
    SP_TRY(rc);
    qsort(e->node, (size_t)e->n_nodes, sizeof *e->node, ept_compare);
    ept_number(scan, NULL);
    for (int64_t i = 1; i < e->n_nodes; i++) {
        const int32_t *k = e->node[i].key;

        if (ept_compare(&e->node[i - 1], &e->node[i]) == 0)
            return SP_FAIL(SP_EDATA, "%s: its hierarchy has the node %d-%d-%d-%d twice",
                           scan->path, k[0], k[1], k[2], k[3]);
    }
    if (scan->n_points != n_points || n_points == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: counts %" PRId64 " points, but its hierarchy %" PRId64
                       "; expected the same number, above 0",
                       scan->path, n_points, scan->n_points);
    return SP_OK;
}

void sp_ept_keep(sp_scan *scan, const double window[4])
{
    sp_ept *e = ept_of(scan);

    assert(scan->row == 0);
    sp_scan_close(e->open); /* its number changes */
    e->open = NULL;
    ept_number(scan, window);
}

/* ---- ept.json ---- */

/* Reads [xmin, ymin, zmin, xmax, ymax, zmax]; false if it is something else. */
static bool ept_read_bounds(const json_t *root, const char *name, double low[3],
                            double high[3])
{
    const json_t *list = json_object_get(root, name);

    if (json_array_size(list) != 6)
        return false;
    for (size_t a = 0; a < 3; a++) {
        const json_t *from = json_array_get(list, a), *to = json_array_get(list, a + 3);

        low[a] = json_number_value(from);
        high[a] = json_number_value(to);
        if (!json_is_number(from) || !json_is_number(to) ||
            !(low[a] <= high[a] && isfinite(high[a] - low[a])))
            return false;
    }
    return true;
}

static sp_status ept_expect(const sp_scan *scan, const json_t *root, const char *name,
                            const char *text)
{
    const char *found = json_string_value(json_object_get(root, name));

    if (found && strcmp(found, text) == 0)
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s: \"%s\" is \"%.40s\", expected \"%s\"", scan->path,
                   name, found ? found : "", text);
}

/* The coordinate system, if the nodes' files do not name it. */
static sp_status ept_read_system(sp_scan *scan, const json_t *srs)
{
    const char *wkt = json_string_value(json_object_get(srs, "wkt"));

    return wkt && !scan->unit && scan->epsg == 0 ? sp_las_unit_of_text(scan, wkt)
                                                 : SP_OK;
}

static sp_status ept_read_cube(sp_scan *scan, const json_t *root)
{
    sp_octree *tree = &ept_of(scan)->tree;
    double low[3], high[3];

    SP_TRY(ept_expect(scan, root, "dataType", "laszip"));
    SP_TRY(ept_expect(scan, root, "hierarchyType", "json"));
    if (!ept_read_bounds(root, "bounds", low, high))
        return SP_FAIL(SP_EDATA,
                       "%s: expected \"bounds\" [xmin, ymin, zmin, xmax, ymax, zmax]",
                       scan->path);
    if (!json_is_integer(json_object_get(root, "points")))
        return SP_FAIL(SP_EDATA, "%s: expected the number of \"points\"", scan->path);
    for (int a = 0; a < 2; a++) {
        tree->low[a] = low[a];
        tree->edge[a] = high[a] - low[a];
    }
    return SP_OK;
}

/* ---- the points ---- */

/* The nodes have records of one kind. */
static bool ept_is_alike(const sp_scan *scan, const sp_scan *node)
{
    const sp_las_header *a = &sp_las_of(scan)->header, *b = &sp_las_of(node)->header;

    return a->format == b->format && a->record_bytes == b->record_bytes &&
           memcmp(a->scale, b->scale, sizeof a->scale) == 0 &&
           memcmp(a->offset, b->offset, sizeof a->offset) == 0;
}

/* Opens the file of node i. */
static sp_status ept_open_node(sp_scan *scan, int64_t i)
{
    const sp_scan_options options = {.n_threads = scan->options.n_threads};
    SP_CLOSED_BY(sp_scan_done) sp_scan *node = NULL;
    sp_ept *e = ept_of(scan);
    SP_FREED char *path = NULL;

    sp_scan_close(e->open);
    e->open = NULL;
    SP_TRY(ept_path(e, "ept-data", e->node[i].key, ".laz", &path));
    if (sp_file_is_absent(path))
        return SP_FAIL(SP_EDATA,
                       "%s: no such file, expected %" PRId64 " points of a node of %s",
                       path, e->node[i].n, scan->path);
    SP_TRY(sp_scan_open(&node, path, &options));
    if (node->format != &sp_scan_laz || node->n_points != e->node[i].n)
        return SP_FAIL(SP_EDATA,
                       "%s: %s with %" PRId64 " points, expected LAZ with %" PRId64
                       ", as the hierarchy says",
                       path, node->format->name, node->n_points, e->node[i].n);
    if (e->head && !ept_is_alike(scan, node))
        return SP_FAIL(SP_EDATA,
                       "%s: expected the point format, record length, scale and offset "
                       "of %s",
                       path, e->head);
    e->current = i;
    e->open = node;
    node = NULL;
    return SP_OK;
}

/* The first node that begins at this row or after it. */
static int64_t ept_find(const sp_ept *e, int64_t row)
{
    int64_t low = 0, high = e->n_nodes;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (e->node[middle].first < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Opens the node of a row, unless reading goes on within one. */
static sp_status ept_go_to(sp_scan *scan, int64_t row)
{
    sp_ept *e = ept_of(scan);
    const ept_node *node = &e->node[e->current];
    int64_t i;

    if (e->open && e->open->row < node->n && node->first + e->open->row == row)
        return SP_OK;
    i = ept_find(e, row);
    assert(i < e->n_nodes && e->node[i].first == row && "reading begins at a node");
    return ept_open_node(scan, i);
}

static sp_status ept_fill(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    for (*n = 0; *n < max;) {
        sp_scan *node;
        int64_t got;

        SP_TRY(ept_go_to(scan, scan->row + *n));
        node = ept_of(scan)->open;
        SP_TRY(sp_scan_records(node, max - *n, to, &got));
        assert(got > 0);
        node->row += got;
        to += got * scan->record_bytes;
        *n += got;
    }
    return SP_OK;
}

static sp_status ept_limit(sp_scan *scan, int64_t *first, int64_t *end, bool *is_able)
{
    const sp_ept *e = ept_of(scan);
    const int64_t from = ept_find(e, *first), to = ept_find(e, *end);

    *is_able = true;
    *first = from < e->n_nodes ? e->node[from].first : scan->n_points;
    *end = to < e->n_nodes ? e->node[to].first : scan->n_points;
    return SP_OK;
}

/* Opens the first node's file as the scan's own one; messages about it have its path. */
static sp_status ept_open_head(sp_scan *scan)
{
    const int64_t n_points = scan->n_points;
    sp_ept *e = ept_of(scan);
    char *path = scan->path;
    sp_status rc;

    SP_TRY(ept_open_node(scan, 0));
    SP_TRY(ept_path(e, "ept-data", e->node[0].key, ".laz", &e->head));
    close(scan->fd);
    scan->path = e->head;
    rc = sp_scan_open_regular(scan);
    if (rc == SP_OK && scan->fd < 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot be found any more", scan->path);
    if (rc == SP_OK)
        rc = sp_scan_laz.open(scan);
    scan->path = path;
    scan->n_points = n_points;
    return rc;
}

static sp_status ept_open_with(sp_scan *scan, const json_t *root)
{
    SP_TRY(ept_read_cube(scan, root));
    SP_TRY(ept_list(scan, json_integer_value(json_object_get(root, "points"))));
    SP_TRY(ept_open_head(scan));
    scan->has_extent = ept_read_bounds(root, "boundsConforming", scan->low, scan->high);
    return ept_read_system(scan, json_object_get(root, "srs"));
}

static sp_status ept_open(sp_scan *scan)
{
    const size_t n = (size_t)(sp_file_name(scan->path) - scan->path);
    sp_ept *e = ept_of(scan);
    json_t *root;
    sp_status rc;

    SP_TRY(SP_NEW(&e->folder, n + 1, scan->path));
    memcpy(e->folder, scan->path, n);
    SP_TRY(ept_load(scan->path, &root));
    rc = ept_open_with(scan, root);
    json_decref(root);
    return rc;
}

static void ept_close(sp_scan *scan)
{
    sp_ept *e = ept_of(scan);

    sp_scan_laz.close(scan);
    sp_scan_close(e->open);
    free(e->node);
    free(e->folder);
    free(e->head);
}

/* Its copies are LAZ. */
const sp_scan_format sp_scan_ept = {.name = "LAZ",
                                    .endings = "ept.json",
                                    .help = "Entwine Point Tiles of LAZ",
                                    .own_bytes = sizeof(sp_ept),
                                    .open = ept_open,
                                    .fill = ept_fill,
                                    .limit = ept_limit,
                                    .close = ept_close};
