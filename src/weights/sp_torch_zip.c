/* PyTorch's file since 1.6: a zip archive with its members stored, not compressed.
 *
 *     NAME/data.pkl       the object, with persistent ids for storages
 *     NAME/data/KEY       the bytes of storage KEY
 *     NAME/byteorder      "little" or "big" (since 2.1)
 *     NAME/version, NAME/.format_version, NAME/.storage_alignment ...
 *
 * Sources: PKWARE's APPNOTE (zip, zip64), torch/serialization.py. */
#include "weights/sp_torch.h"

#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

enum {
    END_BYTES = 22, /* of the end record, without its comment */
    MOST_COMMENT = 65535,
    ENTRY_BYTES = 46, /* of an entry of the directory */
    LOCAL_BYTES = 30, /* of a member's own header */
    MOST_MEMBERS = 1 << 18
};

typedef struct zip_member {
    sp_pickle_text name;
    const unsigned char *bytes;
    size_t n_bytes;
} zip_member;

typedef struct zip_file {
    const sp_tensors *file;
    const unsigned char *bytes;
    size_t n_bytes;
    int64_t n;
    zip_member *member;    /* sorted by name */
    sp_pickle_text prefix; /* "NAME/" */
} zip_file;

static sp_status zip_damage(const zip_file *z, size_t at, const char *what)
{
    return SP_FAIL(SP_EDATA, "%s: zip, byte %zu: %s", z->file->path, at, what);
}

/* ---- the directory ---- */

/* Finds the directory by the end record, which may have a comment after it, or by the
 * one of zip64 before that. */
static sp_status find_directory(const zip_file *z, size_t *at, uint64_t *n)
{
    size_t end = z->n_bytes, tried = 0;
    uint64_t offset;

    do {
        if (end < END_BYTES || tried++ > MOST_COMMENT)
            return zip_damage(z, z->n_bytes, "no end record: the file is cut off");
        end--;
    } while (end + END_BYTES > z->n_bytes || sp_get32(z->bytes + end) != 0x06054b50);
    *n = sp_get16(z->bytes + end + 10);
    offset = sp_get32(z->bytes + end + 16);
    if (end >= 20 && sp_get32(z->bytes + end - 20) == 0x07064b50) {
        const uint64_t far = sp_get64(z->bytes + end - 20 + 8);

        if (far > z->n_bytes || z->n_bytes - far < 56 ||
            sp_get32(z->bytes + far) != 0x06064b50)
            return zip_damage(z, end - 20, "no end record of zip64 where it should be");
        *n = sp_get64(z->bytes + far + 32);
        offset = sp_get64(z->bytes + far + 48);
    }
    if (offset > end || *n > MOST_MEMBERS || *n > (end - offset) / ENTRY_BYTES)
        return zip_damage(z, end, "a directory outside of the file");
    *at = (size_t)offset;
    return SP_OK;
}

/* Replaces sizes and place of 2^32 - 1 by the numbers of the zip64 field among the
 * extra fields of an entry. */
static void read_zip64(const unsigned char *extra, size_t n, uint64_t *size,
                       uint64_t *packed, uint64_t *place)
{
    while (n >= 4) {
        const size_t length = sp_get16(extra + 2);
        const unsigned char *at = extra + 4, *end;

        if (length > n - 4)
            return;
        end = at + length;
        if (sp_get16(extra) == 1)
            for (int i = 0; i < 3; i++) {
                uint64_t *to = i == 0 ? size : i == 1 ? packed : place;

                if (*to == 0xffffffff && end - at >= 8) {
                    *to = sp_get64(at);
                    at += 8;
                }
            }
        extra += 4 + length;
        n -= 4 + length;
    }
}

static sp_status add_member(zip_file *z, size_t at, uint64_t size, uint64_t packed,
                            uint64_t place, sp_pickle_text name)
{
    const unsigned char *local = z->bytes + place;
    size_t from;

    if (place > z->n_bytes || z->n_bytes - place < LOCAL_BYTES ||
        sp_get32(local) != 0x04034b50)
        return zip_damage(z, at, "a member that is not where the directory says");
    from = (size_t)place + LOCAL_BYTES + sp_get16(local + 26) + sp_get16(local + 28);
    if (size != packed || from > z->n_bytes || size > z->n_bytes - from)
        return zip_damage(z, at, "a member outside of the file");
    z->member[z->n++] = (zip_member){name, z->bytes + from, (size_t)size};
    return SP_OK;
}

static sp_status read_entry(zip_file *z, size_t *at)
{
    const unsigned char *e = z->bytes + *at;
    uint64_t size, packed, place;
    size_t n_name, n_extra, n_all;

    if (z->n_bytes - *at < ENTRY_BYTES || sp_get32(e) != 0x02014b50)
        return zip_damage(z, *at, "expected an entry of the directory");
    n_name = sp_get16(e + 28);
    n_extra = sp_get16(e + 30);
    n_all = ENTRY_BYTES + n_name + n_extra + sp_get16(e + 32);
    if (n_all > z->n_bytes - *at)
        return zip_damage(z, *at, "an entry of the directory outside of the file");
    if (sp_get16(e + 10) != 0)
        return zip_damage(z, *at,
                          "a compressed member; PyTorch stores them as they are");
    packed = sp_get32(e + 20);
    size = sp_get32(e + 24);
    place = sp_get32(e + 42);
    read_zip64(e + ENTRY_BYTES + n_name, n_extra, &size, &packed, &place);
    SP_TRY(add_member(z, *at, size, packed, place,
                      (sp_pickle_text){(const char *)e + ENTRY_BYTES, n_name}));
    *at += n_all;
    return SP_OK;
}

static int compare_texts(sp_pickle_text a, sp_pickle_text b)
{
    const size_t n = a.n < b.n ? a.n : b.n;
    const int order = memcmp(a.at, b.at, n);

    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int compare_members(const void *a, const void *b)
{
    const zip_member *x = a, *y = b;

    return compare_texts(x->name, y->name);
}

static sp_status read_directory(zip_file *z)
{
    uint64_t n = 0;
    size_t at = 0;

    SP_TRY(find_directory(z, &at, &n));
    SP_TRY(SP_NEW(&z->member, n, z->file->path));
    for (uint64_t i = 0; i < n; i++)
        SP_TRY(read_entry(z, &at));
    qsort(z->member, (size_t)z->n, sizeof *z->member, compare_members);
    return SP_OK;
}

/* ---- members ---- */

/* Finds the member PREFIX + folder + key; NULL if it does not exist. */
static const zip_member *find_member(const zip_file *z, const char *folder,
                                     sp_pickle_text key)
{
    const size_t n = z->prefix.n + strlen(folder) + key.n;
    char *name = malloc(n + 1);
    zip_member want = {.name = {name, n}};
    const zip_member *found = NULL;

    if (name) {
        memcpy(name, z->prefix.at, z->prefix.n);
        memcpy(name + z->prefix.n, folder, strlen(folder));
        memcpy(name + n - key.n, key.at, key.n);
        found =
            bsearch(&want, z->member, (size_t)z->n, sizeof *z->member, compare_members);
    }
    free(name);
    return found;
}

static sp_status find_zip_storage(void *arg, sp_pickle_text key,
                                  const unsigned char **bytes, size_t *n_bytes)
{
    const zip_file *z = arg;
    const zip_member *m = find_member(z, "data/", key);

    if (!m)
        return SP_FAIL(SP_EDATA, "%s: storage %.*s is missing", z->file->path,
                       (int)(key.n < 40 ? key.n : 40), key.at);
    *bytes = m->bytes;
    *n_bytes = m->n_bytes;
    return SP_OK;
}

/* Finds NAME/data.pkl, which gives the prefix of the other names. */
static sp_status find_pickle(zip_file *z, const zip_member **found)
{
    static const char pickle[] = "data.pkl";
    const size_t end = sizeof pickle - 1;

    *found = NULL;
    for (int64_t i = 0; i < z->n; i++) {
        const sp_pickle_text name = z->member[i].name;

        if (name.n < end || memcmp(name.at + name.n - end, pickle, end) != 0 ||
            (name.n > end && name.at[name.n - end - 1] != '/'))
            continue;
        if (*found)
            return SP_FAIL(SP_EDATA, "%s: zip: has two members data.pkl",
                           z->file->path);
        *found = &z->member[i];
        z->prefix = (sp_pickle_text){name.at, name.n - end};
    }
    return *found ? SP_OK
                  : SP_FAIL(SP_EDATA,
                            "%s: a zip file without data.pkl: no file of "
                            "PyTorch",
                            z->file->path);
}

static sp_status parse_zip(sp_tensors *file, zip_file *z)
{
    const zip_member *pickle = NULL, *order;
    SP_CLOSED_BY(sp_pickle_destroy) sp_pickle p = {.path = file->path};
    size_t end;

    SP_TRY(read_directory(z));
    SP_TRY(find_pickle(z, &pickle));
    order = find_member(z, "", (sp_pickle_text){"byteorder", 9});
    file->is_swapped =
        order &&
        sp_pickle_is((sp_pickle_text){(const char *)order->bytes, order->n_bytes},
                     "big");
    p.bytes = pickle->bytes;
    p.n_bytes = pickle->n_bytes;
    SP_TRY(sp_pickle_run(&p, 0, &end));
    return sp_torch_collect(file, &p, find_zip_storage, z);
}

sp_status sp_torch_zip_parse(sp_tensors *file)
{
    zip_file z = {.file = file,
                  .bytes = (const unsigned char *)file->bytes,
                  .n_bytes = file->n_bytes};
    sp_status rc;

    file->container = "PyTorch";
    rc = parse_zip(file, &z);
    free(z.member);
    return rc;
}
