/* Scans with codes as SemanticKITTI labels and as PLY. */
#include "vox/vox_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool put_little(FILE *to, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++)
        if (putc((int)(bits >> 8 * i & 255), to) == EOF)
            return false;
    return true;
}

/* Writes a number in the type that the header announces. */
static bool put_number(FILE *to, double x, char kind, int size)
{
    uint64_t bits = 0;
    float f = (float)x;
    uint32_t low;

    if (kind == 'f' && size == 4) {
        memcpy(&low, &f, sizeof low);
        bits = low;
    } else if (kind == 'f') {
        memcpy(&bits, &x, sizeof bits);
    } else {
        bits = (uint64_t)(int64_t)x;
    }
    return put_little(to, bits, size);
}

sp_status vox_write_label(const char *path, const int32_t *code, int64_t n)
{
    FILE *to = fopen(path, "wb");
    bool is_good = to != NULL;

    for (int64_t i = 0; is_good && i < n; i++)
        is_good = put_little(to, (uint32_t)code[i], 4);
    if ((to && fclose(to) != 0) || !is_good)
        return SP_FAIL(SP_EIO, "%s: cannot write: %s", path, strerror(errno));
    return SP_OK;
}

enum { MAX_PROPERTIES = 512 };

/* The attributes of a PLY other than x y z and the label. */
typedef struct layout {
    int n;
    const char *name[MAX_PROPERTIES];
    char kind[MAX_PROPERTIES];
    int size[MAX_PROPERTIES];
} layout;

static void lay_out(const sp_scan *scan, const vox_options *o, layout *l)
{
    const char *name;
    char kind;
    int size;

    l->n = 0;
    for (int i = 0; (name = sp_scan_attribute(scan, i, &kind, &size)); i++) {
        bool is_axis = strlen(name) == 1 && strchr("xyzXYZ", *name);

        if (!*name || is_axis || strcasecmp(name, "label") == 0 ||
            strcasecmp(name, "scalar_label") == 0 || l->n == MAX_PROPERTIES ||
            (o->label_field && strcasecmp(name, o->label_field) == 0))
            continue;
        l->name[l->n] = name;
        l->kind[l->n] = kind;
        l->size[l->n++] = size;
    }
}

static const char *type_name(char kind, int size)
{
    if (kind == 'f')
        return size == 4 ? "float" : "double";
    return size == 1   ? (kind == 'u' ? "uchar" : "char")
           : size == 2 ? (kind == 'u' ? "ushort" : "short")
                       : (kind == 'u' ? "uint" : "int");
}

/* Writes a name as one word of printable characters. It may come from a hostile file,
 * and a newline in it would add lines to the header. */
static void put_name(FILE *to, const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        putc(*c <= ' ' || *c == 0x7f ? '_' : *c, to);
}

static void put_header(FILE *to, const layout *l, int64_t n)
{
    fprintf(to,
            "ply\nformat binary_little_endian 1.0\nelement vertex %" PRId64
            "\nproperty double x\nproperty double y\nproperty double z\n",
            n);
    for (int i = 0; i < l->n; i++) {
        fprintf(to, "property %s ", type_name(l->kind[i], l->size[i]));
        put_name(to, l->name[i]);
        putc('\n', to);
    }
    fputs("property int label\nend_header\n", to);
}

static sp_status put_points(FILE *to, sp_scan *scan, const layout *l,
                            const int32_t *code, int64_t n, sp_scan_points *points)
{
    SP_TRY(sp_scan_select(scan, l->n, l->name));
    SP_TRY(sp_scan_rewind(scan));
    do {
        SP_TRY(sp_scan_next(scan, SP_SCAN_BLOCK, points));
        if (points->first_row + points->n > n)
            return SP_FAIL(SP_EDATA, "%s: more than the %" PRId64 " points counted",
                           sp_scan_path(scan), n);
        for (int64_t i = 0; i < points->n; i++) {
            for (int a = 0; a < 3; a++)
                put_number(to, points->xyz[3 * i + a], 'f', 8);
            for (int k = 0; k < l->n; k++)
                put_number(to, points->attr[i * l->n + k], l->kind[k], l->size[k]);
            put_number(to, code[points->first_row + i], 'i', 4);
        }
    } while (points->n > 0);
    return SP_OK;
}

sp_status vox_write_ply(const char *path, const vox_options *o, sp_scan *scan,
                        const int32_t *code, int64_t n)
{
    sp_scan_points points = {0};
    FILE *to = fopen(path, "wb");
    sp_status rc;
    layout l;

    if (!to)
        return SP_FAIL(SP_EIO, "%s: cannot create: %s", path, strerror(errno));
    lay_out(scan, o, &l);
    put_header(to, &l, n);
    rc = put_points(to, scan, &l, code, n, &points);
    if ((ferror(to) | fclose(to)) && rc == SP_OK)
        rc = SP_FAIL(SP_EIO, "%s: cannot write: %s", path, strerror(errno));
    sp_scan_points_destroy(&points);
    return rc;
}
