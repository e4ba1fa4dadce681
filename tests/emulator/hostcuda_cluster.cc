/* Clusters of blocks, barriers in shared memory (mbarrier) and bulk copies: meanings in
 * cuda/device/sp_cuda_cluster.h.
 *
 * The blocks of a cluster run at the same time, each with a window of hc_space for its
 * shared memory. A bulk copy lands in each of its blocks by itself: when it is issued,
 * later by chance, or when no thread can go on without it; until then its place holds
 * NaN. Found are
 *
 *     a phase that gets more arrivals, or other bytes, than it was made for
 *     a barrier that nobody made, or that is made again while it is used, and any other
 *     access to its bytes
 *     its use by other threads, or by bulk copies, before sp_mbarrier_fence passed it on, and
 *     by other threads with no barrier since
 *     waits that nobody ends, which are a deadlock
 *     a bulk copy over what a wgmma may still read, and a wgmma that reads what a bulk
 *     copy brings and its warp did not wait for (hostcuda_wgmma.cc)
 *     an arrival, a word or a copy for a block that has left, or leaves with no barrier
 *     of the cluster since
 *     any of these before a barrier of the cluster, since the block may not have begun
 *     a thread that leaves between its arrival at the cluster's barrier and its wait
 *     lanes of a warp that arrive there at different places
 */
#include "emulator/hostcuda_internal.h"

enum { FIRST = 1 }; /* no barrier of the cluster has ended yet */
enum { MOST_BYTES = (1 << 20) - 1 /* of a phase (PTX ISA, "Size and alignment") */ };

/* What its 8 bytes hold on a device is nobody's business: here they hold this, as long
 * as nobody writes there. */
static const uint64_t IS_BARRIER = 0x5a5a0000a5a5ffffu;

/* A barrier in shared memory. */
struct phases {
    const char *at;
    int arrivals, pending; /* of a phase; that the present one still lacks */
    long bytes;            /* announced and not yet come; negative: come before that */
    unsigned phase;        /* number of the present one */
    const hc_fiber *by;    /* the thread that made it, and */
    bool is_passed_on;     /* has passed it on, when it */
    unsigned barriers;     /* had passed so many, and */
    unsigned waits;        /* so many barriers of the cluster */
    std::vector<hc_fiber *> waiting;
    /* By phase: barriers that the first thread of its block to wait for it had passed.
     */
    std::vector<unsigned> waited;
};

struct bulk {
    char *to;
    const char *from;
    unsigned bytes, rank;
    const char *phases;
};

/* The cluster that runs. */
static struct cluster {
    std::vector<phases> all;
    std::vector<bulk> on_their_way;
    int size, n_threads; /* blocks; threads of all */
    bool is_pair;        /* two clusters of one block each run in turns */
    int n_arrived;       /* at the cluster's barrier */
    unsigned generation;
    std::vector<bool> is_relaxed; /* by generation: some thread arrived relaxed */
    /* The generation in which another block last reached for this one's memory. */
    unsigned reached[HC_MOST_BLOCKS];
    std::vector<hc_fiber *> waiting; /* for it */
} &C = *new cluster();

void hc_cluster_begin(int size, int n_threads, bool is_pair)
{
    C.all.clear();
    C.on_their_way.clear();
    C.waiting.clear();
    C.size = is_pair ? 1 : size;
    C.is_pair = is_pair;
    C.n_threads = n_threads;
    C.n_arrived = 0;
    C.generation = FIRST;
    C.is_relaxed.assign(FIRST + 1, false);
    memset(C.reached, 0, sizeof C.reached);
}

/* ---- addresses ---- */

unsigned sp_cluster_rank()
{
    return C.is_pair ? 0 : (unsigned)hc_current()->rank;
}

uint32_t hc_cluster_address(uint32_t at, unsigned rank)
{
    return at | (rank + 1) << 24;
}

char *hc_cluster_at(uint32_t address, const char *file, int line)
{
    const hc_fiber *f = hc_current_at(file, line);
    const int named = address >> 24 ? (int)(address >> 24) - 1 : (int)sp_cluster_rank();
    const int rank = C.is_pair ? f->rank : named;

    if (named >= C.size || (address & 0xffffff) >= HC_WINDOW)
        hc_fail("address %08x is in no shared memory of the cluster: %s", address,
                hc_where(f));
    if (hc_has_left(rank))
        hc_fail("block %d of the cluster has left: %s", rank, hc_where(f));
    if (rank != f->rank && C.generation == FIRST)
        hc_fail(
            "reaches for the shared memory of block %d of the cluster, which may not "
            "have begun: %s",
            rank, hc_where(f));
    if (rank != f->rank)
        C.reached[rank] = C.generation;
    return hc_space + (size_t)rank * HC_WINDOW + (address & 0xffffff);
}

void sp_cluster_put(uint32_t at, unsigned rank, uint32_t value, const char *file,
                    int line)
{
    memcpy(hc_cluster_at(hc_cluster_address(at, rank), file, line), &value,
           sizeof value);
}

/* ---- the cluster's barrier ---- */

static void arrive_in_cluster(const char *file, int line, bool is_relaxed)
{
    hc_fiber *f = hc_current_at(file, line);

    if (is_relaxed)
        C.is_relaxed[C.generation] = true;
    if (f->arrived_in)
        hc_fail("arrives twice at the cluster's barrier: %s", hc_where(f));
    f->arrived_in = C.generation;
    f->arrived_at = line;
    for (const hc_fiber *other : f->warp->lane) /* the instruction is "aligned" */
        if (other && other->arrived_in == C.generation && other->arrived_at != line)
            hc_fail("lanes arrive at the cluster's barrier at lines %d and %d: %s",
                    other->arrived_at, line, hc_where(f));
    if (++C.n_arrived < C.n_threads)
        return;
    C.n_arrived = 0;
    C.generation++;
    C.is_relaxed.push_back(false);
    for (hc_fiber *other : C.waiting)
        hc_make_ready(other);
    C.waiting.clear();
}

void sp_cluster_arrive(const char *file, int line)
{
    arrive_in_cluster(file, line, false);
}

void sp_cluster_arrive_relaxed(const char *file, int line)
{
    arrive_in_cluster(file, line, true);
}

/* A barrier with relaxed arrivals passes on no writes, so that it is not one of those
 * that the checks of memory count. */
void sp_cluster_wait(const char *file, int line)
{
    hc_fiber *f = hc_current_at(file, line);

    if (!f->arrived_in)
        hc_fail("waits at the cluster's barrier and did not arrive: %s", hc_where(f));
    if (f->arrived_in == C.generation) {
        C.waiting.push_back(f);
        hc_switch_away();
    }
    f->view.barriers += !C.is_relaxed[f->arrived_in];
    f->n_cluster_waits++;
    f->arrived_in = 0;
}

void hc_cluster_left(const hc_fiber *f)
{
    if (f->arrived_in)
        hc_fail("leaves before it has waited at the cluster's barrier: %s",
                hc_where(f));
    if (C.reached[f->rank] == C.generation)
        hc_fail("leaves with no barrier of the cluster since another block reached for "
                "its shared memory: %s",
                hc_where(f));
}

/* ---- phases ---- */

static phases *find(const char *at, const hc_fiber *f)
{
    for (phases &p : C.all) {
        if (p.at != at)
            continue;
        if (memcmp(at, &IS_BARRIER, sizeof IS_BARRIER))
            hc_fail("a barrier in shared memory was overwritten: %s", hc_where(f));
        return &p;
    }
    hc_fail("a barrier in shared memory that nobody made: %s", hc_where(f));
}

/* The same, for a thread or a bulk copy that uses it: both see it only when it has been
 * passed on. */
static phases *use(const char *at, const hc_fiber *f, bool is_copy)
{
    phases *p = find(at, f);

    if ((p->by != f || is_copy) && !p->is_passed_on)
        hc_fail("a barrier in shared memory that was not passed on by "
                "sp_mbarrier_fence: %s",
                hc_where(f));
    if (p->by->rank == f->rank && p->by != f && p->barriers >= f->view.barriers &&
        p->waits >= f->n_cluster_waits)
        hc_fail(
            "a barrier in shared memory that was passed on with no barrier since: %s",
            hc_where(f));
    return p;
}

/* Ends the phase that has all that it was made for. */
static void look(phases *p)
{
    if (p->pending > 0 || p->bytes != 0)
        return;
    p->phase++;
    p->pending = p->arrivals;
    for (hc_fiber *f : p->waiting)
        hc_make_ready(f);
    p->waiting.clear();
}

void hc_check_barriers(const char *p, size_t n, const hc_fiber *f)
{
    for (const phases &of : C.all)
        if (p < of.at + sizeof IS_BARRIER && of.at < p + n)
            hc_fail("access to a barrier in shared memory: %s", hc_where(f));
}

bool hc_has_seen(const hc_fiber *f, unsigned number, unsigned phase)
{
    const std::vector<unsigned> &waited = C.all[number].waited;

    return (f->seen.size() > number && f->seen[number] > phase) ||
           (phase < waited.size() && waited[phase] < f->view.barriers);
}

static void arrive(phases *p, const hc_fiber *f)
{
    if (p->pending == 0)
        hc_fail("more arrivals than the barrier's phase was made for: %s", hc_where(f));
    p->pending--;
    look(p);
}

void sp_mbarrier_init(uint32_t at, int arrivals, const char *file, int line)
{
    const hc_fiber *f = hc_current_at(file, line);
    const char *place = hc_cluster_at(at, file, line);

    if ((uintptr_t)place % 8 || arrivals <= 0)
        hc_fail("a barrier of %d arrivals at %08x: %s", arrivals, at, hc_where(f));
    for (const phases &p : C.all)
        if (p.at == place)
            hc_fail("a barrier in shared memory is made twice: %s", hc_where(f));
    memcpy(hc_cluster_at(at, file, line), &IS_BARRIER, sizeof IS_BARRIER);
    C.all.push_back({place, arrivals, arrivals, 0, 0, f, false, 0, 0, {}, {}});
}

void sp_mbarrier_fence()
{
    const hc_fiber *f = hc_current();

    for (phases &p : C.all)
        if (p.by == f) {
            p.is_passed_on = true;
            p.barriers = f->view.barriers;
            p.waits = f->n_cluster_waits;
        }
}

void sp_mbarrier_expect(uint32_t at, unsigned bytes, const char *file, int line)
{
    const hc_fiber *f = hc_current_at(file, line);
    phases *p;

    hc_maybe_yield();
    p = use(hc_cluster_at(at, file, line), f, false);
    p->bytes += (long)bytes;
    if (p->bytes > MOST_BYTES)
        hc_fail("a phase of %ld bytes, of which %d can be counted: %s", p->bytes,
                (int)MOST_BYTES, hc_where(f));
    arrive(p, f);
}

void hc_mbarrier_arrive(uint32_t address, const char *file, int line)
{
    const hc_fiber *f = hc_current_at(file, line);

    hc_maybe_yield();
    arrive(use(hc_cluster_at(address, file, line), f, false), f);
    hc_current()->arrived_since = f->view.barriers + 1;
}

void sp_mbarrier_wait(uint32_t at, unsigned parity, const char *file, int line)
{
    hc_fiber *f = hc_current_at(file, line);
    phases *p = use(hc_cluster_at(at, file, line), f, false);
    const size_t number = (size_t)(p - C.all.data());

    if (hc_is_chance(16))
        hc_cluster_stir();
    while ((C.all[number].phase & 1) == parity) {
        C.all[number].waiting.push_back(f);
        hc_switch_away();
    }
    f->seen.resize(C.all.size());
    f->seen[number] = C.all[number].phase;
    C.all[number].waited.resize(C.all[number].phase, f->view.barriers);
}

/* ---- bulk copies ---- */

static unsigned long n_bulk; /* bytes from device memory, each once */

unsigned long hc_bulk_bytes()
{
    return n_bulk;
}

static void land(const bulk &b, const hc_fiber *f)
{
    phases *p = find(b.phases, f);

    if (hc_has_left((int)b.rank))
        hc_fail("a bulk copy lands in block %u of the cluster, which has left", b.rank);
    memcpy(b.to, b.from, b.bytes);
    hc_wgmma_bulk_lands(b.to, b.bytes, (size_t)(p - C.all.data()), p->phase);
    p->bytes -= (long)b.bytes;
    look(p);
}

bool hc_cluster_stir()
{
    const hc_fiber *f = hc_current();
    const size_t n = C.on_their_way.size();
    size_t i = n ? hc_random_below(n) : 0;

    if (n == 0)
        return false;
    const bulk b = C.on_their_way[i];
    C.on_their_way.erase(C.on_their_way.begin() + (ptrdiff_t)i);
    land(b, f);
    return true;
}

void sp_copy_bulk(uint32_t to, const void *from, unsigned bytes, uint32_t at,
                  unsigned ranks, const char *file, int line)
{
    const hc_fiber *f = hc_current_at(file, line);

    if (to % 16 || (uintptr_t)from % 16 || bytes % 16 || !bytes || !ranks ||
        ranks >> C.size)
        hc_fail("bulk copy of %u bytes to blocks %x, or not aligned: %s", bytes, ranks,
                hc_where(f));
    n_bulk += bytes;
    for (unsigned e = 0; e < bytes && hc_hook.accessed; e += 16)
        hc_hook.accessed(&f->view, (const char *)from + e, 16, false,
                         __builtin_return_address(0));
    for (unsigned rank = 0; rank < (unsigned)C.size; rank++) {
        if (!(ranks >> rank & 1))
            continue;
        const bulk b = {hc_cluster_at(hc_cluster_address(to, rank), file, line),
                        (const char *)from, bytes, C.is_pair ? (unsigned)f->rank : rank,
                        hc_cluster_at(hc_cluster_address(at, rank), file, line)};
        use(b.phases, f, true);
        hc_check_barriers(b.to, bytes, f);
        if (hc_hook.brought)
            hc_hook.brought(&f->view, b.to, bytes, __builtin_return_address(0));
        hc_wgmma_bulk_begins(f, b.to, bytes);
        hc_fill_garbage(b.to, bytes);
        if (hc_is_chance(2))
            land(b, f);
        else
            C.on_their_way.push_back(b);
    }
}
