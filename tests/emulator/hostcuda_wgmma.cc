/* Products of warpgroups (wgmma.mma_async): meanings in cuda/device/sp_cuda_wgmma.h.
 *
 * They read shared memory from their issue to the wait that they are finished by, past
 * what orders the threads' own accesses. Each warp of the four computes its 16 rows, at
 * the issue or at the wait, as chance has it; until the wait its sums are NaN. Chunks
 * of 16 bytes remember who brought them and which products read them, so that these are
 * found, in whatever order threads run:
 *
 *     a product reads a chunk whose copy was not waited for, or was not passed on by
 *     its thread's sp_fence_async, or without a barrier behind that
 *     a product reads a chunk of a bulk copy and no lane of its warp has waited for it
 *     a copy overwrites a chunk before all warps that read it have waited, or without a
 *     barrier behind that
 *     sums are touched without a fence of their registers, or never waited for
 *     warps of a warpgroup disagree in their descriptors or in the number of products
 *
 *     a bulk copy overwrites what a thread wrote and did not pass on
 *     a thread reads what a bulk copy brings and it did not wait for
 *
 * What threads store and load themselves is seen where the race checker is linked. */
#include "emulator/hostcuda_internal.h"

enum { CHUNK = 16, CHUNKS = HC_MOST_BLOCKS * HC_WINDOW / CHUNK };
enum { WARPGROUPS = 8, IN_GROUP = 4 };
enum chunk_state : uint8_t {
    UNTOUCHED,
    ON_ITS_WAY,
    LANDED,
    PASSED_ON,
    BULK_ON_ITS_WAY,
    BROUGHT /* by a bulk copy */
};

struct alignas(64) chunk {
    unsigned turn; /* number of the block that the other fields belong to */
    chunk_state state;
    const hc_fiber *by;
    unsigned barriers;    /* barriers that thread had passed then */
    unsigned phases;      /* the barrier in shared memory that a bulk copy told, and */
    unsigned phase;       /* the number of its phase */
    int read[WARPGROUPS]; /* last group of products that read it, -1: none */
};

struct call {
    uint64_t a, b;
    int n;
    int16_t is_transposed, is_at_once; /* no byte between them: calls are compared */
};

/* The products of the cluster's warpgroups. */
static std::vector<call> *const issued = new std::vector<call>[WARPGROUPS];
static chunk chunks[CHUNKS];
static unsigned turn = 1;
static hc_warp *warps; /* of the cluster */
static int n_warps;
static unsigned long n_issued;

void hc_wgmma_begin(hc_warp *warp, int n)
{
    turn++;
    warps = warp;
    n_warps = n;
    for (int i = 0; i < WARPGROUPS; i++)
        issued[i].clear();
}

static int warp_of(const hc_fiber *f)
{
    return (int)(f->warp - warps);
}

/* Gives the chunk at an address, NULL where no product could read it. */
static chunk *chunk_at(const void *p)
{
    const size_t at = (size_t)((const char *)p - hc_space) / CHUNK;
    chunk *c = &chunks[at];

    if (at >= (size_t)CHUNKS)
        return NULL;
    if (c->turn != turn) {
        c->turn = turn;
        c->state = UNTOUCHED;
        for (int i = 0; i < WARPGROUPS; i++)
            c->read[i] = -1;
    }
    return c;
}

/* ---- who writes ---- */

static bool is_read(const chunk *c)
{
    for (int i = 0; i < WARPGROUPS; i++)
        if (c->read[i] >= 0)
            return true;
    return false;
}

static void check_read(const chunk *c, const hc_fiber *f, int i)
{
    for (int w = i * IN_GROUP; w < (i + 1) * IN_GROUP && w < n_warps; w++) {
        const std::vector<unsigned> &at = warps[w].retired_at;

        if ((size_t)c->read[i] >= at.size())
            hc_fail("what a wgmma may still read is overwritten: %s", hc_where(f));
        if (f->warp != &warps[w] && f->rank == warps[w].lane[0]->rank &&
            at[(size_t)c->read[i]] >= f->view.barriers)
            hc_fail("what a wgmma of another warp read is overwritten with no barrier "
                    "since: %s",
                    hc_where(f));
    }
}

static void write_chunk(const hc_fiber *f, chunk *c, chunk_state state)
{
    if (c->state == BULK_ON_ITS_WAY)
        hc_fail("a bulk copy on its way is overwritten: %s", hc_where(f));
    for (int i = 0; i < WARPGROUPS; i++)
        if (c->read[i] >= 0) {
            check_read(c, f, i);
            c->read[i] = -1;
        }
    c->state = state;
    c->by = f;
}

void hc_wgmma_copy_begins(hc_fiber *f, const void *to)
{
    chunk *c = chunk_at(to);

    if (c)
        write_chunk(f, c, ON_ITS_WAY);
}

/* A bulk copy writes through the async proxy, which may come before what threads have
 * written there, unless they passed it on. */
static void check_passed_on(const hc_fiber *f, const chunk *c)
{
    if (c->state == ON_ITS_WAY || c->state == LANDED)
        hc_fail("a bulk copy over what a thread has written and not passed on by "
                "sp_fence_async: %s",
                hc_where(f));
    if (c->state == PASSED_ON && c->by != f && c->by->rank == f->rank &&
        c->barriers >= f->view.barriers)
        hc_fail("a bulk copy over what a thread passed on with no barrier since: %s",
                hc_where(f));
}

void hc_wgmma_bulk_begins(const hc_fiber *f, const char *to, unsigned bytes)
{
    for (unsigned e = 0; e < bytes; e += CHUNK)
        if (chunk *c = chunk_at(to + e)) {
            check_passed_on(f, c);
            write_chunk(f, c, BULK_ON_ITS_WAY);
        }
}

void hc_wgmma_bulk_lands(const char *to, unsigned bytes, size_t phases, unsigned phase)
{
    for (unsigned e = 0; e < bytes; e += CHUNK)
        if (chunk *c = chunk_at(to + e)) {
            c->state = BROUGHT;
            c->phases = (unsigned)phases;
            c->phase = phase;
        }
}

static void land(hc_fiber *f, chunk *c)
{
    c->state = LANDED;
    f->landed.push_back(c);
}

void hc_wgmma_copy_lands(hc_fiber *f, const void *to)
{
    chunk *c = chunk_at(to);

    if (c && c->by == f)
        land(f, c);
}

void hc_wgmma_stored(const void *to)
{
    hc_fiber *f = hc_current();
    chunk *c = chunk_at(to);

    if (!c || (c->state == LANDED && c->by == f && !is_read(c)))
        return;
    write_chunk(f, c, LANDED);
    land(f, c);
}

void hc_wgmma_loaded(const void *from)
{
    const hc_fiber *f = hc_current();
    const chunk *c = chunk_at(from);

    if (c && (c->state == BULK_ON_ITS_WAY ||
              (c->state == BROUGHT && !hc_has_seen(f, c->phases, c->phase))))
        hc_fail("a thread reads what a bulk copy brings and it did not wait for: %s",
                hc_where(f));
}

void sp_fence_async()
{
    hc_fiber *f = hc_current();

    for (void *p : f->landed) {
        chunk *c = (chunk *)p;
        if (c->turn != turn || c->state != LANDED || c->by != f)
            continue;
        c->state = PASSED_ON;
        c->barriers = f->view.barriers;
    }
    f->landed.clear();
}

/* ---- operands ---- */

/* An operand by its descriptor (PTX ISA, "Matrix Descriptor Format"): bits 0-13 start
 * address, 16-29 leading and 32-45 stride byte offset, each over 16; 49-51 base offset;
 * 62-63 swizzle, 1: 128 bytes, 2: 64. An atom has eight rows of so many bytes, and address
 * bits 4-6, or 4-5, are exchanged by exclusive or with bits 7-9, or 7-8.
 *
 * K-major: a row of A, or a column of B, is a row of an atom, eight of them are an atom,
 * atoms lie the stride apart, the leading offset is unused. Transposed (M- or N-major): an
 * element of the inner dimension is a row of an atom, which has 64 rows of A; the next
 * eight elements lie the stride, the next 64 rows the leading offset further. */
struct operand {
    uint64_t descriptor;
    bool is_transposed;
};

/* Bytes of a row of an atom. */
static uint64_t atom_row(operand o)
{
    return o.descriptor >> 62 == 2 ? 64 : 128;
}

static char *address_at(operand o, uint64_t at, const hc_fiber *f)
{
    const uint64_t row = atom_row(o), atom = 8 * row;
    const uint64_t start = (o.descriptor & 0x3fff) << 4;
    const uint64_t stride = (o.descriptor >> 32 & 0x3fff) << 4;
    const uint64_t leading = o.is_transposed ? (o.descriptor >> 16 & 0x3fff) << 4 : 0;

    if ((o.descriptor >> 62 != 1 && (o.descriptor >> 62 != 2 || o.is_transposed)) ||
        (o.descriptor & 0x3fffc000c000c000u))
        hc_fail(
            "descriptor %016llx: only swizzles of 128 bytes, or 64 of rows, without "
            "a base offset are emulated: %s",
            (unsigned long long)o.descriptor, hc_where(f));
    if (stride % atom || leading % atom || start % atom >= (o.is_transposed ? 1 : row))
        hc_fail("descriptor %016llx: atoms do not lie at multiples of %d bytes: %s",
                (unsigned long long)o.descriptor, (int)atom, hc_where(f));
    at += start;
    at ^= (at >> 7 & (row / 16 - 1)) << 4;
    if (at + CHUNK > HC_WINDOW)
        hc_fail("wgmma reads beyond shared memory: %s", hc_where(f));
    return hc_space + (size_t)f->rank * HC_WINDOW + at;
}

/* The chunk with element k of row `row`. */
static char *address_of(operand o, int row, int k, const hc_fiber *f)
{
    const uint64_t stride = (o.descriptor >> 32 & 0x3fff) << 4;
    const uint64_t leading = (o.descriptor >> 16 & 0x3fff) << 4;
    const int outer = o.is_transposed ? k : row, inner = o.is_transposed ? row : k;

    return address_at(o,
                      (uint64_t)(outer / 8) * stride +
                          (uint64_t)(outer % 8) * atom_row(o) +
                          (uint64_t)(o.is_transposed ? inner / 64 : 0) * leading +
                          (uint64_t)(inner % 64 / 8) * CHUNK,
                      f);
}

/* Whether a lane of the warp has waited for the phase in which a bulk copy landed. */
static bool has_waited(const hc_warp *w, const chunk *c)
{
    for (const hc_fiber *lane : w->lane)
        if (lane->seen.size() > c->phases && lane->seen[c->phases] > c->phase)
            return true;
    return false;
}

static void check_chunk(const chunk *c, const hc_fiber *f)
{
    static const char *const why[] = {
        "", "a copy brings and nobody waited for",
        "is there, but was not passed on by sp_fence_async"};

    if (c->state == ON_ITS_WAY || c->state == LANDED)
        hc_fail("wgmma reads what %s: %s", why[c->state], hc_where(f));
    if (c->state == BULK_ON_ITS_WAY || (c->state == BROUGHT && !has_waited(f->warp, c)))
        hc_fail("wgmma reads what a bulk copy brings and its warp did not wait for: %s",
                hc_where(f));
    if (c->state == PASSED_ON && c->barriers >= f->view.barriers)
        hc_fail("wgmma reads what a thread passed on with no barrier since: %s",
                hc_where(f));
}

/* Records that the bytes of rows first .. first + n - 1 are read from now to the
 * wait. A chunk has eight elements of the contiguous dimension. */
static void begin_reading(operand o, int first, int n, const hc_fiber *f)
{
    const int rows = o.is_transposed ? 8 : 1, ks = o.is_transposed ? 1 : 8;

    for (int r = first; r < first + n; r += rows)
        for (int k = 0; k < 16; k += ks) {
            chunk *c = chunk_at(address_of(o, r, k, f));
            check_chunk(c, f);
            c->read[warp_of(f) / IN_GROUP] = f->warp->n_committed;
        }
}

static void take(operand o, int row, const hc_fiber *f, float (&to)[16])
{
    const int n = o.is_transposed ? 1 : 8; /* adjacent ones */

    for (int k = 0; k < 16; k += n) {
        uint16_t bits[8];
        memcpy(bits, address_of(o, row, k, f) + (o.is_transposed ? row % 8 * 2 : 0),
               (size_t)n * sizeof *bits);
        for (int e = 0; e < n; e++)
            to[k + e] = __uint_as_float((uint32_t)bits[e] << 16);
    }
}

/* A column of the warp's 16 rows (compute), as a device's tensor cores add. */
static void compute_in_blocks(float **sums, const float (*a)[16], const float *b, int c,
                              int block)
{
    for (int r = 0; r < 16; r++) {
        float *d = &sums[r % 8 * 4 + c % 8 / 2][c / 8 * 4 + r / 8 * 2 + c % 2];
        *d = hc_tensor_sum(*d, a[r], b, 16, block);
    }
}

/* The warp's 16 rows of D += A B. Element (row g, column 8 j + 2 t) of a warp's rows is
 * d[4 j] of lane 4 g + t, the next column d[4 j + 1], eight rows on d[4 j + 2], [3]. */
static void compute(hc_warp *w, const hc_product &p)
{
    const int block = hc_tensor_block(2);
    const hc_fiber *f = w->lane[0];
    const int row0 = warp_of(f) % IN_GROUP * 16;
    float rows[16][16], b[16], *sums[32];
    double a[16][16]; /* by k, then row */

    for (int i = 0; i < 32; i++)
        sums[i] = w->lane[i]->sums[p.sums].value.data();
    for (int r = 0; r < 16; r++) {
        take({p.a, p.is_transposed}, row0 + r, f, rows[r]);
        for (int k = 0; k < 16; k++)
            a[k][r] = rows[r][k];
    }
    for (int c = 0; c < p.n; c++) {
        take({p.b, p.is_transposed}, c, f, b);
        if (block)
            compute_in_blocks(sums, rows, b, c, block);
        for (int half = 0; half < 2 && !block; half++) {
            double sum[8] = {}; /* in registers, once the loop over them is unrolled */
            for (int k = 0; k < 16; k++)
#pragma GCC unroll 8
                for (int g = 0; g < 8; g++)
                    sum[g] += a[k][half * 8 + g] * b[k];
            for (int g = 0; g < 8; g++) {
                float *d = &sums[g * 4 + c % 8 / 2][c / 8 * 4 + half * 2 + c % 2];
                *d = (float)(*d + sum[g]);
            }
        }
    }
}

/* ---- the operations, when all lanes of a warp have come ---- */

static void check_same(hc_warp *w, const call &c, const hc_fiber *f)
{
    std::vector<call> &all = issued[warp_of(f) / IN_GROUP];
    const size_t i = (size_t)w->n_products++;

    for (int lane = 0; lane < 32; lane++)
        if (memcmp(w->lane[lane]->operand, &c, sizeof c))
            hc_fail("lanes disagree in a wgmma: %s", hc_where(f));
    for (int k = 0; k < IN_GROUP; k++) {
        const int other = warp_of(f) / IN_GROUP * IN_GROUP + k;
        if (other >= n_warps || (!warps[other].live && i == all.size()))
            hc_fail("wgmma without all warps of a warpgroup: %s", hc_where(f));
    }
    if (i == all.size())
        all.push_back(c);
    if (all[i].a != c.a || all[i].b != c.b || all[i].n != c.n ||
        all[i].is_transposed != c.is_transposed)
        hc_fail("warps of a warpgroup disagree in a wgmma: %s", hc_where(f));
}

static void give_sums(hc_warp *w)
{
    for (int i = 0; i < 32; i++) {
        hc_fiber *lane = w->lane[i];
        for (const hc_sums &s : lane->sums)
            memcpy(s.of, s.value.data(), s.value.size() * sizeof(float));
        lane->sums.clear();
    }
}

/* Finds the sums that a lane's product adds to, or takes them over; returns their
 * number. The products under way add to the same sums, or to others beside them. */
static size_t take_sums(hc_fiber *lane, size_t n)
{
    float *d = (float *)lane->to;
    size_t i = 0;

    for (; i < lane->sums.size(); i++) {
        const hc_sums &s = lane->sums[i];
        if (s.of == d && s.value.size() == n)
            break;
        if (d < s.of + s.value.size() && s.of < d + n)
            hc_fail("wgmma with other sums than those under way: %s", hc_where(lane));
    }
    if (i == lane->sums.size())
        lane->sums.push_back({d, std::vector<float>(d, d + n)});
    hc_fill_garbage(d, n * sizeof *d);
    return i;
}

static void issue(hc_warp *w, const hc_fiber *f)
{
    const call c = *(const call *)f->operand;
    const bool is_transposed = c.is_transposed != 0;
    hc_product p = {c.a, c.b, c.n, w->n_committed, 0, is_transposed};

    n_issued++;
    check_same(w, c, f);
    if (!w->is_fenced)
        hc_fail("wgmma without a fence of its registers: %s", hc_where(f));
    for (int i = 0; i < 32; i++)
        p.sums = take_sums(w->lane[i], (size_t)c.n / 2);
    begin_reading({c.a, is_transposed}, warp_of(f) % IN_GROUP * 16, 16, f);
    begin_reading({c.b, is_transposed}, 0, c.n, f);
    if (c.is_at_once || (w->products.empty() && hc_is_chance(2)))
        compute(w, p);
    else
        w->products.push_back(p);
    if (c.is_at_once)
        give_sums(w);
    else
        w->last_group = w->n_committed;
}

/* Completes all but the latest n groups. */
static void retire(hc_warp *w, const hc_fiber *f, int n)
{
    size_t done = 0;

    while (done < w->products.size() && w->products[done].group < w->n_committed - n)
        compute(w, w->products[done++]);
    w->products.erase(w->products.begin(), w->products.begin() + (long)done);
    while ((int)w->retired_at.size() < w->n_committed - n)
        w->retired_at.push_back(f->view.barriers);
    if (w->last_group >= (int)w->retired_at.size())
        return;
    give_sums(w);
    w->last_group = INT32_MAX;
    w->is_fenced = false;
}

void hc_wgmma_complete(hc_warp *w, const hc_fiber *f)
{
    switch (f->op) {
    case HC_WGMMA_FENCE:
        w->is_fenced = true;
        break;
    case HC_WGMMA_COMMIT:
        w->n_committed++;
        break;
    case HC_WGMMA_WAIT:
        retire(w, f, (int)f->value);
        break;
    default:
        issue(w, f);
    }
}

void hc_wgmma_left(const hc_fiber *f)
{
    const hc_warp *w = f->warp;

    if (!f->sums.empty())
        hc_fail("a thread leaves before its wgmma are done: %s", hc_where(f));
    if (w < warps || w >= warps + n_warps)
        return; /* products of a suspended block, which has no shared memory */
    if (w->n_products != (int)issued[warp_of(f) / IN_GROUP].size())
        hc_fail("a warp leaves out a wgmma of its warpgroup: %s", hc_where(f));
}

/* ---- what kernels call ---- */

void hc_wgmma(float *d, int n, uint64_t a, uint64_t b, bool is_transposed,
              bool is_at_once, const char *file, int line)
{
    const call c = {a, b, n, is_transposed, is_at_once};

    hc_tensor(HC_WGMMA, d, &c, 0, file, line);
}

uint32_t sp_shared_address(const void *p)
{
    return (uint32_t)((const char *)p - hc_window);
}

unsigned long hc_wgmma_count()
{
    return n_issued;
}

void sp_trap(const char *file, int line)
{
    hc_fail("trap at %s:%d", file, line);
}
