/* Race checker: kernels are compiled by clang with -fsanitize=thread, and the calls
 * that this puts before every access come here instead of to the sanitizer's own
 * library.
 *
 * The rule is exact, per byte: two accesses of one launch race if one of them writes,
 * not both are atomic, and either their blocks differ, or their threads differ within
 * one interval of __syncthreads and, inside a warp, of __syncwarp. Accesses of two
 * blocks are ordered by a word: after the first one its block has a fence and then an
 * atomic operation on the word; the other block reads the word after that and has a
 * fence before the second access. A barrier passes on to the thread with the fence what
 * others of its block did, and back. Two accesses of launches that nothing orders
 * (hostcuda_order.cc) race as well. Checked too: bounds, alignment, that kernels read
 * host memory in their arguments only, and that the part before the wait of a kernel
 * that was launched early writes nothing and reads nothing that the kernel before has
 * written.
 */
#include "emulator/hostcuda_internal.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>

/* The history of a byte, or of the four bytes of a word that nobody accessed in parts:
 * who wrote, who read last, and another thread that read before. */
struct record {
    uint64_t write, read, read_before;
    const void *write_pc, *read_pc;
    /* Numbers of the launches, 0 if there was none, and fences of the threads by then.
     */
    uint32_t written_by, read_by, read_before_by;
    uint16_t write_fences, read_fences, read_before_fences;
};

/* By offset in hc_space; memory where touched. Records outlive a block's shared memory,
 * since a stamp of another block or launch never races there: so giving that memory out
 * costs two short fills. */
enum : size_t { WORD = 4 };
static record *word_record; /* [HC_SPACE / WORD] */
static record *byte_record; /* [HC_SPACE], of the words that are split */
static bool *is_split;      /* [HC_SPACE / WORD] accessed in parts */
static bool *is_allocated;  /* [HC_SPACE] */
static const bool all_allocated[16] = {true, true, true, true, true, true, true, true,
                                       true, true, true, true, true, true, true, true};
static uint64_t launch_number;
static const hc_launch *launch;

/* ---- order by a word, between blocks ---- */

enum { BLOCK_THREADS = 1024 };

/* A block's atomic operation on a word, behind a fence. */
struct word_release {
    uint32_t block;
    unsigned thread, barriers;      /* passed before its thread's last fence */
    uint16_t fences;                /* of the thread so far */
    std::vector<uint16_t> of_block; /* of each thread of the block */
};

typedef std::vector<word_release> word_history;

/* A block's reading of a word with the first n of its releases. */
struct word_acquire {
    const void *place;
    const word_history *word;
    size_t n;
    unsigned thread;
    uint16_t fences;
    int barriers; /* passed before the thread's next fence; -1: there was none */
};

struct block_fences {
    uint16_t n[BLOCK_THREADS];
    unsigned barriers[BLOCK_THREADS]; /* passed before each thread's last fence */
    std::vector<word_acquire> acquired;
};

static std::map<uint32_t, block_fences> *fences;    /* of blocks that have any */
static std::map<const void *, word_history> *words; /* of the launch */
static const void *place_now;                       /* that is accessed */
extern char __executable_start, end;

/* A stamp: launch 12 bits | block 20 | thread 10 | barriers 12 | warp syncs 9 | atomic
 */
static inline uint64_t stamp_of(const hc_view *v, bool is_atomic)
{
    const uint64_t block =
        v->block.x +
        v->grid_dim.x * (v->block.y + (uint64_t)v->grid_dim.y * v->block.z);
    const uint64_t thread =
        v->thread.x + v->block_dim.x * (v->thread.y + v->block_dim.y * v->thread.z);

    return launch_number << 52 | (block & 0xfffff) << 32 | thread << 22 |
           (uint64_t)(v->barriers & 4095) << 10 | (uint64_t)(v->warp_syncs & 511) << 1 |
           is_atomic;
}

static inline uint32_t block_of(uint64_t stamp)
{
    return stamp >> 32 & 0xfffff;
}

static inline unsigned thread_of(uint64_t stamp)
{
    return stamp >> 22 & 1023;
}

static uint16_t fences_of(const hc_view *v, unsigned thread)
{
    const auto found = fences->find(block_of(stamp_of(v, false)));

    return found == fences->end() ? 0 : found->second.n[thread];
}

/* Whether a block's release is behind an access of that block. */
static bool is_released(const word_release &r, uint64_t access, uint16_t n)
{
    const unsigned t = thread_of(access);

    if (r.block != block_of(access))
        return false;
    if (t == r.thread)
        return n < r.fences;
    return (access >> 10 & 4095) < (r.barriers & 4095) || n < r.of_block[t];
}

/* Whether an access of another block is ordered before what the current thread does. */
static bool is_passed_on(uint64_t me, uint64_t other, uint16_t n)
{
    const auto own = fences->find(block_of(me));

    if (own == fences->end())
        return false;
    for (const word_acquire &a : own->second.acquired) {
        /* The word itself: its atomic operations have one order. */
        if (a.place == place_now && thread_of(me) == a.thread && (other & 1))
            return true;
        if (thread_of(me) == a.thread
                ? own->second.n[a.thread] <= a.fences
                : a.barriers < 0 || (me >> 10 & 4095) <= ((unsigned)a.barriers & 4095))
            continue;
        for (size_t i = 0; i < a.n; i++)
            if (is_released((*a.word)[i], other, n))
                return true;
    }
    return false;
}

/* The current thread reads the word at p atomically, or changes it. */
static void note_word(const void *p, bool is_change)
{
    if (!hc_self || !launch || (size_t)((const char *)p - hc_space) >= HC_SPACE)
        return;
    const uint64_t me = stamp_of(hc_self, true);
    const unsigned t = thread_of(me);
    const auto word = words->find(p);

    if (word != words->end() && !word->second.empty()) {
        std::vector<word_acquire> &all = (*fences)[block_of(me)].acquired;
        const word_acquire a = {p, &word->second,         word->second.size(),
                                t, fences_of(hc_self, t), -1};
        if (!all.empty() && all.back().word == a.word && all.back().thread == t &&
            all.back().fences == a.fences)
            all.back() = a;
        else
            all.push_back(a);
    }
    if (!is_change || !fences_of(hc_self, t))
        return;
    const block_fences &f = (*fences)[block_of(me)];
    (*words)[p].push_back({block_of(me), t, f.barriers[t], f.n[t],
                           std::vector<uint16_t>(f.n, f.n + BLOCK_THREADS)});
}

/* Whether the current thread's access a races with an earlier one, b, whose thread had
 * n fences. Shared memory of another block was at the same addresses before, and is no
 * other memory's business. */
static inline __attribute__((always_inline)) bool is_race(uint64_t a, uint64_t b,
                                                          bool is_shared, uint16_t n)
{
    if ((a ^ b) >> 52 || (a & b & 1))
        return false;
    if (block_of(a) != block_of(b))
        return !is_shared && !is_passed_on(a, b, n);
    if (thread_of(a) == thread_of(b) || ((a ^ b) >> 10 & 4095))
        return false;
    return thread_of(a) / 32 != thread_of(b) / 32 || !((a ^ b) >> 1 & 511);
}

/* Gives the source line of a code address, by addr2line where there is one. */
static void print_line(const void *pc)
{
    char command[256];

    snprintf(command, sizeof command, "addr2line -s -e /proc/%d/exe 0x%zx >&2",
             getpid(), (size_t)((const char *)pc - &__executable_start) - 1);
    if (system(command))
        fprintf(stderr, "code at %p\n", pc);
}

static void report(const char *what, uint64_t me, const void *pc, uint64_t other,
                   const void *other_pc)
{
    fprintf(stderr, "hostcuda: %s by thread %u of block %u at ", what, thread_of(me),
            block_of(me));
    print_line(pc);
    if (other_pc) {
        fprintf(stderr, "  and thread %u of block %u at ", thread_of(other),
                block_of(other));
        print_line(other_pc);
    }
    hc_fail("%s", what);
}

static bool is_between(const void *p, const void *begin, const void *stop)
{
    return (const char *)p >= (const char *)begin &&
           (const char *)p < (const char *)stop;
}

static void check_host_access(const void *p, const void *pc)
{
    const char *call = (const char *)launch->call.get();

    if (!hc_is_own_stack(p) && p != (const void *)&hc_self &&
        !is_between(p, hc_self, hc_self + 1) &&
        !is_between(p, call, call + launch->call_bytes) &&
        !is_between(p, &__executable_start, &end))
        report("access to host memory", stamp_of(hc_self, false), pc, 0, NULL);
}

/* An access of an earlier launch, which may run at the same time as the present one on
 * a device. */
static inline void check_order(uint32_t earlier, const char *what, uint64_t me,
                               const void *pc, uint64_t other, const void *other_pc)
{
    static uint32_t ordered, before; /* the last pair that was looked up */
    char text[100];

    if (!earlier || earlier == launch->number ||
        (earlier == ordered && before == launch->number))
        return;
    if (!hc_is_ordered(earlier, launch->number)) {
        snprintf(text, sizeof text,
                 "race: %s, by a launch that nothing orders with this", what);
        report(text, me, pc, other, other_pc);
    }
    ordered = earlier;
    before = launch->number;
}

static inline uint16_t my_fences(uint64_t me)
{
    if (fences->empty())
        return 0;
    const auto found = fences->find(block_of(me));

    return found == fences->end() ? 0 : found->second.n[thread_of(me)];
}

static inline void check_write(record *r, bool is_shared, uint64_t me, const void *pc)
{
    if (is_race(me, r->write, is_shared, r->write_fences))
        report("race: written twice", me, pc, r->write, r->write_pc);
    if (is_race(me, r->read, is_shared, r->read_fences))
        report("race: written after it was read", me, pc, r->read, r->read_pc);
    if (is_race(me, r->read_before, is_shared, r->read_before_fences))
        report("race: written after it was read", me, pc, r->read_before, r->read_pc);
    if (!is_shared) {
        check_order(r->written_by, "written twice", me, pc, r->write, r->write_pc);
        check_order(r->read_by, "written after it was read", me, pc, r->read,
                    r->read_pc);
        check_order(r->read_before_by, "written after it was read", me, pc,
                    r->read_before, r->read_pc);
    }
    r->write = me;
    r->write_pc = pc;
    r->written_by = launch->number;
    r->write_fences = my_fences(me);
}

static inline void check_read(record *r, bool is_shared, uint64_t me, const void *pc)
{
    if (is_race(me, r->write, is_shared, r->write_fences))
        report("race: read after it was written", me, pc, r->write, r->write_pc);
    if (!is_shared)
        check_order(r->written_by, "read after it was written", me, pc, r->write,
                    r->write_pc);
    if (thread_of(r->read) != thread_of(me) || block_of(r->read) != block_of(me) ||
        r->read_by != launch->number) {
        r->read_before = r->read;
        r->read_before_by = r->read_by;
        r->read_before_fences = r->read_fences;
    }
    r->read = me;
    r->read_pc = pc;
    r->read_by = launch->number;
    r->read_fences = my_fences(me);
}

/* The thread has not waited for the kernel before, which may be running. */
static void check_ahead(const record *r, bool is_write, uint64_t me, const void *pc)
{
    if (is_write)
        report("written ahead of sp_grid_wait", me, pc, 0, NULL);
    if (launch->before && r->written_by == launch->before)
        report("read ahead of sp_grid_wait, and the kernel before wrote it", me, pc, 0,
               NULL);
}

enum place { SHARED, DEVICE, DEVICE_AHEAD };

static inline void check_record(record *r, bool is_write, place at, uint64_t me,
                                const void *pc)
{
    const bool is_shared = at == SHARED;

    if (at == DEVICE_AHEAD)
        check_ahead(r, is_write, me, pc);
    if (is_write)
        check_write(r, is_shared, me, pc);
    else
        check_read(r, is_shared, me, pc);
}

/* From now on each byte of the word has a history of its own. */
static void split(size_t w)
{
    if (is_split[w])
        return;
    is_split[w] = true;
    for (size_t i = w * WORD; i < (w + 1) * WORD; i++)
        byte_record[i] = word_record[w];
}

static inline __attribute__((always_inline)) void check_bytes(const hc_view *view,
                                                              size_t at, size_t n,
                                                              bool is_write,
                                                              uint64_t me,
                                                              const void *pc)
{
    const bool is_ahead = launch->is_early && !((const hc_fiber *)view)->has_waited;
    const place place = at < HC_SHARED_SPACE ? SHARED
                        : is_ahead           ? DEVICE_AHEAD
                                             : DEVICE;

    assert(n <= sizeof all_allocated);
    /* All bytes at once: compilers make one comparison of it where n is known. */
    if (memcmp(is_allocated + at, all_allocated, n))
        report("access out of bounds", me, pc, 0, NULL);
    for (size_t w = at / WORD; w * WORD < at + n; w++) {
        size_t i = w * WORD, end = i + WORD;

        if (i < at || end > at + n)
            split(w);
        if (!is_split[w]) {
            check_record(&word_record[w], is_write, place, me, pc);
            continue;
        }
        for (i = i < at ? at : i, end = end > at + n ? at + n : end; i < end; i++)
            check_record(&byte_record[i], is_write, place, me, pc);
    }
}

/* Inlined where size and kind are known: it runs at every access of a kernel. */
static inline __attribute__((always_inline)) void check(const void *p, size_t n,
                                                        bool is_write, bool is_atomic,
                                                        const void *pc)
{
    const size_t at = (size_t)((const char *)p - hc_space);
    uint64_t me;

    if (!hc_self || !launch)
        return;
    if (at >= HC_SPACE) {
        check_host_access(p, pc);
        return;
    }
    me = stamp_of(hc_self, is_atomic);
    place_now = p;
    if ((uintptr_t)p % n)
        report("misaligned access", me, pc, 0, NULL);
    check_bytes(hc_self, at, n, is_write, me, pc);
    if (at >= HC_SHARED_SPACE)
        return;
    hc_check_barriers((const char *)p, n, hc_current());
    if (is_write)
        hc_wgmma_stored(p);
    else
        hc_wgmma_loaded(p);
}

/* ---- hooks ---- */

static void on_allocated(const void *data, size_t bytes)
{
    const size_t at = (size_t)((const char *)data - hc_space);

    memset(is_allocated + at, true, bytes);
    memset(is_split + at / WORD, false, (bytes + WORD - 1) / WORD);
}

static void on_freed(const void *data, size_t bytes)
{
    const size_t at = (size_t)((const char *)data - hc_space);

    memset(is_allocated + at, false, bytes);
    if (at >= HC_SHARED_SPACE)
        memset((void *)(word_record + at / WORD), 0,
               (bytes + WORD - 1) / WORD * sizeof(record));
}

/* Before a number comes again, what the launch that had it left of shared memory is
 * dropped. */
static void on_launched(const hc_launch *l)
{
    launch = l;
    launch_number = launch_number % 4095 + 1;
    if (launch_number == 1 &&
        madvise((void *)word_record, HC_SHARED_SPACE / WORD * sizeof *word_record,
                MADV_DONTNEED))
        hc_fail("records of the race checker");
    fences->clear();
    words->clear();
}

static void on_fenced(const hc_view *view)
{
    const uint64_t me = stamp_of(view, false);
    block_fences &f = (*fences)[block_of(me)];
    const unsigned t = thread_of(me);

    f.n[t]++;
    f.barriers[t] = view->barriers;
    for (word_acquire &a : f.acquired)
        if (a.thread == t && a.barriers < 0)
            a.barriers = (int)view->barriers;
}

/* Copies and ldmatrix, which the emulator does for a thread. */
static void on_accessed(const hc_view *view, const void *data, size_t bytes,
                        bool is_write, const void *pc)
{
    const size_t at = (size_t)((const char *)data - hc_space);
    const uint64_t me = stamp_of(view, false);

    place_now = data;
    if (at >= HC_SPACE)
        report("access to host memory", me, pc, 0, NULL);
    check_bytes(view, at, bytes, is_write, me, pc);
}

/* A bulk copy writes some time after its issue, which must follow what the block's
 * threads read there: after a barrier, or after arrivals at a barrier in shared memory,
 * which the issuing thread waits for. */
static void check_brought(const record *r, uint64_t me, const void *pc)
{
    const uint64_t read[] = {r->read, r->read_before};

    for (uint64_t other : read) {
        const bool is_ours = !((me ^ other) >> 52) && block_of(me) == block_of(other);
        if (is_ours && is_race(me, other, true, 0) &&
            hc_fiber_of(hc_current()->rank, (int)thread_of(other))->arrived_since !=
                hc_current()->view.barriers + 1)
            report("race: a bulk copy over what is read", me, pc, other, r->read_pc);
    }
}

static void on_brought(const hc_view *view, const void *data, size_t bytes,
                       const void *pc)
{
    const size_t at = (size_t)((const char *)data - hc_space);
    const uint64_t me = stamp_of(view, false);

    for (size_t i = at; i < at + bytes; i++) {
        if (!is_allocated[i])
            report("access out of bounds", me, pc, 0, NULL);
        check_brought(is_split[i / WORD] ? &byte_record[i] : &word_record[i / WORD], me,
                      pc);
    }
}

/* Gives addresses whose memory is zero, and is there once it is touched. */
static void *zeroes(size_t bytes)
{
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (m == MAP_FAILED)
        hc_fail("no addresses for the race checker's records");
    return m;
}

static struct start_race {
    start_race()
    {
        word_record = (record *)zeroes(HC_SPACE / WORD * sizeof *word_record);
        byte_record = (record *)zeroes(HC_SPACE * sizeof *byte_record);
        is_split = (bool *)zeroes(HC_SPACE / WORD);
        is_allocated = (bool *)zeroes(HC_SPACE);
        fences = new std::map<uint32_t, block_fences>();
        words = new std::map<const void *, word_history>();
        hc_hook = {on_allocated, on_freed,    on_launched,
                   on_fenced,    on_accessed, on_brought};
    }
} start_once;

/* ---- what clang calls ---- */

#define CALLER __builtin_return_address(0)
#define ACCESS(n)                                                                      \
    void __tsan_read##n(void *p)                                                       \
    {                                                                                  \
        check(p, n, false, false, CALLER);                                             \
    }                                                                                  \
    void __tsan_write##n(void *p)                                                      \
    {                                                                                  \
        check(p, n, true, false, CALLER);                                              \
    }                                                                                  \
    void __tsan_unaligned_read##n(void *p)                                             \
    {                                                                                  \
        check(p, n, false, false, CALLER);                                             \
    }                                                                                  \
    void __tsan_unaligned_write##n(void *p)                                            \
    {                                                                                  \
        check(p, n, true, false, CALLER);                                              \
    }
#define ATOMIC(bits, T)                                                                \
    T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int)                         \
    {                                                                                  \
        check((const void *)p, sizeof v, true, true, CALLER);                          \
        note_word((const void *)p, true);                                              \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                             \
    }

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
/* Atomic operations of the host: reference counts of launches, words that devices
 * see. */
uint64_t __tsan_atomic64_load(const volatile uint64_t *p, int)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
void __tsan_atomic64_store(volatile uint64_t *p, uint64_t value, int)
{
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_load(const volatile uint32_t *p, int)
{
    note_word((const void *)p, false);
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
uint8_t __tsan_atomic8_load(const volatile uint8_t *p, int)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
}
