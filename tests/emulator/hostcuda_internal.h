/* Inside the emulator: fibers and blocks (hostcuda.cc), their stacks
 * (hostcuda_switch.cc), warp operations (hostcuda_warp.cc), tensor cores and the copies
 * that feed them (hostcuda_tensor.cc), products of warpgroups (hostcuda_wgmma.cc),
 * clusters of blocks (hostcuda_cluster.cc), shared memory (hostcuda_shared.cc), other
 * memory (hostcuda_memory.cc), what devices see of each other (hostcuda_peer.cc),
 * streams and the runtime's calls (hostcuda_runtime.cc). */
#ifndef HOSTCUDA_INTERNAL_H
#define HOSTCUDA_INTERNAL_H

#include "emulator/hostcuda.h"

#include <functional>
#include <mutex>
#include <vector>

struct hc_fiber;

/* A wgmma that is still to be computed. */
struct hc_product {
    uint64_t a, b; /* descriptors of its operands */
    int n, group;
    size_t sums; /* number of those that it adds to */
    bool is_transposed;
};

/* Registers of a thread that products under way add to. */
struct hc_sums {
    float *of;
    std::vector<float> value;
};

struct hc_warp {
    hc_fiber *lane[32];
    uint32_t live, waiting; /* lanes not yet done; lanes inside a collective */
    /* The rest is for wgmma (hostcuda_wgmma.cc). */
    std::vector<hc_product> products;
    int n_products, n_committed; /* issued; groups */
    int last_group = INT32_MAX;  /* of the groups under way; INT32_MAX: none */
    bool is_fenced;
    std::vector<unsigned> retired_at; /* barriers passed when a group was waited for */
};

/* A copy on its way to shared memory. */
struct hc_copy {
    void *to;
    const void *from;
    int bytes, group;
    bool has_landed;
    const void *pc;
};

/* The part of a fiber that every block begins anew, all zero. */
struct hc_thread {
    hc_view view; /* first: hc_self points here */
    void *sp;     /* stack pointer of the suspended fiber */
    char *stack;
    hc_warp *warp;
    bool is_done;
    int rank;         /* of its block in the cluster */
    const char *file; /* position of the barrier or collective that it is in */
    int line;
    hc_op op; /* the collective that it is in */
    uint32_t mask;
    uint64_t value, result;
    int from;
    void *to; /* result of a tensor operation */
    const void *operand;
    int n_groups;        /* of copies, committed */
    bool has_waited;     /* sp_grid_wait */
    unsigned arrived_in; /* at the cluster's barrier and not waited; 0: no */
    int arrived_at;      /* the line of that arrival */
    unsigned n_cluster_waits;
    unsigned
        arrived_since; /* barriers passed at the last arrival at an mbarrier, + 1 */
    void *fake;        /* the address sanitizer's stack */
};

struct hc_fiber : hc_thread {
    std::vector<hc_copy> copy;
    /* For wgmma (hostcuda_wgmma.cc): chunks that this thread is to pass on, and the
     * sums of products under way. */
    std::vector<void *> landed;
    std::vector<hc_sums> sums;
    /* For clusters (hostcuda_cluster.cc): the phases of each barrier that this thread
     * knows to have ended. */
    std::vector<unsigned> seen;
};

enum hc_order { HC_RANDOM, HC_UP, HC_DOWN };

struct hc_options {
    hc_order order;
    uint64_t seed;
    bool is_lazy;
    int watchdog_s;
};
extern hc_options hc_option;

/* Called for the race checker; NULL where it is not linked. */
struct hc_hooks {
    void (*allocated)(const void *data, size_t bytes);
    void (*freed)(const void *data, size_t bytes);
    void (*launched)(const hc_launch *launch);
    void (*fenced)(const hc_view *view);
    void (*accessed)(const hc_view *view, const void *data, size_t bytes, bool is_write,
                     const void *pc);
    /* A bulk copy of this thread will write there. */
    void (*brought)(const hc_view *view, const void *data, size_t bytes,
                    const void *pc);
};
extern hc_hooks hc_hook;

/* Ends the program after a line with the kernel and the finding. */
void hc_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Gives "block (..) thread (..) at file:line" in one of several static buffers. */
const char *hc_where(const hc_fiber *f);
uint64_t hc_random(uint64_t *state);

/* ---- hostcuda.cc ---- */
/* A launch on its way. */
struct hc_grid;
hc_grid *hc_grid_begin(const hc_launch &launch, uint64_t seed);
/* Tells whether earlier work of the stream may not have happened yet: then device
 * memory is closed when the grid begins, and it is open when the grid has ended. */
bool hc_is_early(const hc_grid *grid);
/* Runs a grid. False: its threads wait for another process (hc_poll), so it is to be
 * called again, by any thread. True: the grid has ended and is freed. */
bool hc_grid_go(hc_grid *grid);
hc_fiber *hc_current();
/* The same, which has come to this place of the source. */
hc_fiber *hc_current_at(const char *file, int line);
size_t hc_launch_shared_bytes(); /* that the present launch asks for */
bool hc_is_ahead(); /* before the grid's wait, where device memory is closed */
void hc_make_ready(hc_fiber *f);
void hc_switch_away(); /* from the current fiber, which is not ready */
bool hc_is_own_stack(const void *p);
bool hc_is_chance(int one_in);    /* never under fixed orders */
size_t hc_random_below(size_t n); /* 0 under fixed orders */
hc_fiber *hc_fiber_of(int rank, int thread);
bool hc_has_left(int rank); /* all threads of this block of the cluster are done */

/* ---- hostcuda_shared.cc ---- */
bool hc_shared_is_taken(); /* by any block that runs */
void hc_shared_drop();     /* those blocks have ended */

/* ---- hostcuda_switch.cc ---- */
/* Saves the registers on the stack at hand and its pointer in *save, and goes on with
 * the stack `to`. */
extern "C" void hc_switch(void **save, void *to);
/* Gives the pointer to begin with on a fresh stack below `top`, which calls entry. */
void *hc_first_frame(char *top, void (*entry)());

/* ---- hostcuda_warp.cc ---- */
/* A lane has left: collectives that waited for it alone complete. */
void hc_warp_left(hc_warp *w);

/* ---- hostcuda_sums.cc ---- */
/* Gives c + a[0] b[0] + ... + a[depth - 1] b[depth - 1] as the tensor cores of the
 * emulated device add. block: products that they add at a time. */
float hc_tensor_sum(float c, const float *a, const float *b, int depth, int block);
/* Products of operands of so many bytes that are added at a time; 0: all of an
 * instruction, and exactly. */
int hc_tensor_block(int operand_bytes);

/* ---- hostcuda_tensor.cc ---- */
/* Completes the operation of f, in which all lanes of its warp wait. */
void hc_tensor_complete(hc_warp *w, const hc_fiber *f);
void hc_copy_left(const hc_fiber *f); /* f is done */

/* ---- hostcuda_wgmma.cc ---- */
void hc_wgmma_begin(hc_warp *warps, int n); /* of a block */
void hc_wgmma_complete(hc_warp *w, const hc_fiber *f);
void hc_wgmma_copy_begins(hc_fiber *f, const void *to);
void hc_wgmma_copy_lands(hc_fiber *f, const void *to);
void hc_wgmma_stored(const void *to); /* by the current thread itself */
void hc_wgmma_loaded(const void *from);
void hc_wgmma_left(const hc_fiber *f);
void hc_wgmma_bulk_begins(const hc_fiber *f, const char *to, unsigned bytes);
/* phases: number of the barrier in whose phase it lands. */
void hc_wgmma_bulk_lands(const char *to, unsigned bytes, size_t phases, unsigned phase);

/* ---- hostcuda_launches.cc ---- */
extern hc_fiber *volatile hc_running; /* read on any thread; NULL: none */
void hc_set_watchdog(int seconds);
void hc_count_launch(const hc_launch *launch);
/* The most threads of a block of a kernel (__launch_bounds__), rounded up to warps. */
size_t hc_bound_of(const void *kernel);
void hc_count_let(bool lets_next); /* by a kernel that has ended */

/* ---- hostcuda_cluster.cc ---- */
/* size: blocks; n_threads: of all of them. The two blocks of a pair do not know each
 * other. */
void hc_cluster_begin(int size, int n_threads, bool is_pair);
/* A bulk copy lands; false: none is on its way. */
bool hc_cluster_stir();
/* Fails if the n bytes at p are of a barrier in shared memory. */
void hc_check_barriers(const char *p, size_t n, const hc_fiber *f);
/* Whether a thread may read what a bulk copy brought in a phase of a barrier: it has
 * waited for that, or another one of its block has before a barrier of the block. */
bool hc_has_seen(const hc_fiber *f, unsigned phases, unsigned phase);
void hc_cluster_left(const hc_fiber *f); /* f is done */
unsigned long hc_bulk_bytes();           /* read by bulk copies so far */

/* ---- hostcuda_device.cc ---- */
size_t hc_most_shared(); /* bytes of a block, static and of the launch together */

/* ---- hostcuda_runtime.cc ---- */
extern std::recursive_mutex &hc_lock; /* protects everything but fibers */
typedef std::lock_guard<std::recursive_mutex> hc_hold;
typedef std::unique_lock<std::recursive_mutex> hc_hold_loosely; /* across a wait */
void hc_loaded(const void *kernel);
void hc_all_loaded();
void hc_drain_all(hc_hold_loosely &h); /* runs until no stream has work left */
/* Returns the error. The runtime remembers that of each call that fails, "not ready"
 * too, until cudaGetLastError asks. The driver's calls (sp_vmm_...) are not among
 * them. */
cudaError_t hc_remember(cudaError_t error);
void hc_count_operations(int n); /* the calling thread has queued n more */
void hc_submit_run(cudaStream_t stream, const std::function<void()> &run);

/* ---- hostcuda_order.cc ---- called with the lock */
struct hc_stream_order; /* of a stream */
struct hc_point;        /* a place in a stream: all that was put into it so far */
hc_stream_order *hc_order_create();
void hc_order_destroy(hc_stream_order *o);
void hc_order_launch(hc_stream_order *o, uint32_t launch);
std::shared_ptr<const hc_point> hc_order_point(const hc_stream_order *o);
/* What comes into the stream from now on is behind that point. */
void hc_order_wait(hc_stream_order *o, const std::shared_ptr<const hc_point> &point);
/* The host knows that all before that point is complete. */
void hc_order_seen(const std::shared_ptr<const hc_point> &point);
/* Whether a launch that has run is ordered before another one. */
bool hc_is_ordered(uint32_t before, uint32_t after);

/* ---- hostcuda_memory.cc ---- */
/* One range of addresses for shared and device memory. Shared memory is first: a window
 * for each block of a cluster. */
enum : size_t { HC_SPACE = (size_t)1 << 36, HC_SHARED_SPACE = (size_t)1 << 24 };
enum : size_t { HC_WINDOW = 256 << 10 };
extern char *hc_space;  /* [HC_SPACE] */
extern char *hc_window; /* of the block whose thread runs */
void hc_fill_garbage(void *data, size_t bytes);
void hc_open_space(); /* device memory becomes accessible; counted */
void hc_close_space();
void hc_show_space(); /* it can be read until it is opened, which comes next */
bool hc_is_pinned(const void *data);
bool hc_reads_pageable(); /* HC_PAGEABLE */
/* Makes an allocation a file that other processes map (hostcuda_peer.cc); called with
 * the lock. */
bool hc_export(char *data, int64_t *fd, int64_t *bytes, int64_t *inode);
bool hc_import(const char *path, int64_t inode, size_t bytes, void **out);

/* A number in the environment. */
uint64_t hc_number(const char *name, uint64_t otherwise);

#endif
