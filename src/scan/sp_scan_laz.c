/* LAZ through the library of LASzip (3.0 or later), which is searched at run time and
 * not needed to build. Its points are put back into records of the LAS format that they
 * were compressed from, so that attributes are found as in LAS. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "scan/sp_scan_las.h"

/* The beginning of the library's point, as far as it is used; its C interface fixes the
 * layout. */
typedef struct laz_point {
    int32_t xyz[3];
    uint16_t intensity;
    uint8_t returns;     /* byte 14 of formats 0 to 5 */
    uint8_t class_flags; /* byte 15 of formats 0 to 5 */
    int8_t angle_rank;
    uint8_t user_data;
    uint16_t source;
    int16_t angle;
    uint8_t type_channel_flags; /* 2 bits type, 2 bits channel, 4 bits flags */
    uint8_t class_code;
    uint8_t returns_14; /* byte 14 of formats 6 to 10 */
    uint8_t padding[7];
    double gps_time;
    uint16_t rgbn[4];
    uint8_t wave[29];
    int32_t n_extra;
    uint8_t *extra;
} laz_point;

/* The library's functions, found by dlsym, and the reader of one file. */
typedef struct laz {
    void *library, *reader;
    int32_t (*create)(void **reader);
    int32_t (*open_reader)(void *reader, const char *path, int32_t *is_compressed);
    int32_t (*get_point_pointer)(void *reader, laz_point **point);
    int32_t (*seek_point)(void *reader, int64_t row);
    int32_t (*read_point)(void *reader);
    int32_t (*get_error)(void *reader, char **text);
    int32_t (*close_reader)(void *reader);
    int32_t (*destroy)(void *reader);
    laz_point *point;
    int format;
    bool is_open;
} laz;

static sp_status laz_fail(const sp_scan *scan, const laz *z, const char *what)
{
    char *text = NULL;

    if (z->reader)
        z->get_error(z->reader, &text);
    return SP_FAIL(SP_EDATA, "%s: cannot %s: %s", scan->path, what,
                   text ? text : "LASzip gives no reason");
}

static sp_status refuse(const sp_scan *scan, const char *why)
{
    return SP_FAIL(
        SP_EDATA,
        "%s: compressed (LAZ), and %s; install liblaszip 3, or decompress it: "
        "laszip -i %s -o FILE.las (or las2las, or pdal translate)",
        scan->path, why, scan->path);
}

static sp_status load(sp_scan *scan, laz *z)
{
    static const char *const name[] = {"liblaszip.so.8", "liblaszip.so",
                                       "liblaszip.dylib"};
    const struct {
        const char *name;
        void *to;
    } symbol[] = {{"laszip_create", &z->create},
                  {"laszip_open_reader", &z->open_reader},
                  {"laszip_get_point_pointer", &z->get_point_pointer},
                  {"laszip_seek_point", &z->seek_point},
                  {"laszip_read_point", &z->read_point},
                  {"laszip_get_error", &z->get_error},
                  {"laszip_close_reader", &z->close_reader},
                  {"laszip_destroy", &z->destroy}};

    for (size_t i = 0; i < sizeof name / sizeof *name && !z->library; i++)
        z->library = dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
    if (!z->library)
        return refuse(scan, "no LASzip library was found");
    for (size_t i = 0; i < sizeof symbol / sizeof *symbol; i++) {
        void *at = dlsym(z->library, symbol[i].name);

        if (!at)
            return refuse(scan, "the LASzip library found is older than 3.0");
        memcpy(symbol[i].to, &at, sizeof at);
    }
    return SP_OK;
}

sp_status sp_laz_open(sp_scan *scan, const sp_scan_options *options)
{
    laz *z = calloc(1, sizeof *z);
    sp_las_header header;
    int32_t is_compressed;

    (void)options;
    scan->own = z;
    if (!z)
        return SP_FAIL(SP_EMEM, "%s: no memory for LASzip", scan->path);
    SP_TRY(sp_las_open(scan, &header));
    z->format = header.format;
    SP_TRY(load(scan, z));
    if (z->create(&z->reader) != 0)
        return laz_fail(scan, z, "start LASzip");
    if (z->open_reader(z->reader, scan->path, &is_compressed) != 0)
        return laz_fail(scan, z, "open");
    z->is_open = true;
    if (z->get_point_pointer(z->reader, &z->point) != 0)
        return laz_fail(scan, z, "read");
    return SP_OK;
}

static void put16(unsigned char *to, unsigned x)
{
    to[0] = (unsigned char)x;
    to[1] = (unsigned char)(x >> 8);
}

static void put32(unsigned char *to, uint32_t x)
{
    put16(to, x & 0xffff);
    put16(to + 2, x >> 16);
}

static void put_time(unsigned char *to, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    put32(to, (uint32_t)bits);
    put32(to + 4, (uint32_t)(bits >> 32));
}

static void put_colour(unsigned char *to, const uint16_t *rgbn, int n)
{
    for (int i = 0; i < n; i++)
        put16(to + 2 * i, rgbn[i]);
}

/* Makes a record of formats 0 to 5. */
static void pack_old(const laz_point *p, int format, unsigned char *to)
{
    bool has_time = format != 0 && format != 2;
    int at = has_time ? 28 : 20;

    to[14] = p->returns;
    to[15] = p->class_flags;
    to[16] = (unsigned char)p->angle_rank;
    to[17] = p->user_data;
    put16(to + 18, p->source);
    if (has_time)
        put_time(to + 20, p->gps_time);
    if (format == 2 || format == 3 || format == 5) {
        put_colour(to + at, p->rgbn, 3);
        at += 6;
    }
    if (format >= 4)
        memcpy(to + at, p->wave, sizeof p->wave);
}

/* Makes a record of formats 6 to 10. */
static void pack_new(const laz_point *p, int format, unsigned char *to)
{
    unsigned channel = p->type_channel_flags >> 2 & 3,
             flags = p->type_channel_flags >> 4;
    int at = 30;

    to[14] = p->returns_14;
    to[15] = (unsigned char)(flags | channel << 4 | (p->returns & 0xc0));
    to[16] = p->class_code;
    to[17] = p->user_data;
    put16(to + 18, (uint16_t)p->angle);
    put16(to + 20, p->source);
    put_time(to + 22, p->gps_time);
    if (format == 7 || format == 8 || format == 10) {
        put_colour(to + at, p->rgbn, format == 7 ? 3 : 4);
        at += format == 7 ? 6 : 8;
    }
    if (format >= 9)
        memcpy(to + at, p->wave, sizeof p->wave);
}

static void pack(const sp_scan *scan, const laz *z, unsigned char *to)
{
    const laz_point *p = z->point;
    int standard = sp_las_bytes[z->format], extra = scan->record_bytes - standard;

    for (int a = 0; a < 3; a++)
        put32(to + 4 * a, (uint32_t)p->xyz[a]);
    put16(to + 12, p->intensity);
    (z->format < 6 ? pack_old : pack_new)(p, z->format, to);
    memset(to + standard, 0, (size_t)extra);
    if (p->extra && p->n_extra > 0)
        memcpy(to + standard, p->extra,
               (size_t)(p->n_extra < extra ? p->n_extra : extra));
}

sp_status sp_laz_fill(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    laz *z = scan->own;

    *n = scan->n_points - scan->row < max ? scan->n_points - scan->row : max;
    for (int64_t i = 0; i < *n; i++, to += scan->record_bytes) {
        if (z->read_point(z->reader) != 0)
            return laz_fail(scan, z, "decompress");
        pack(scan, z, to);
    }
    return SP_OK;
}

sp_status sp_laz_rewind(sp_scan *scan)
{
    laz *z = scan->own;

    return z->seek_point(z->reader, 0) == 0 ? SP_OK : laz_fail(scan, z, "seek");
}

void sp_laz_close(sp_scan *scan)
{
    laz *z = scan->own;

    if (z && z->is_open)
        z->close_reader(z->reader);
    if (z && z->reader)
        z->destroy(z->reader);
    if (z && z->library)
        dlclose(z->library);
}
