#include "base/sp_liveness.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/sp_log.h"

static atomic_llong work, waits;
static _Atomic double waited_s, wait_begin_s; /* written by the thread that waits */
static atomic_bool is_waiting;
static atomic_int n_in_files;      /* calls of the file system under way */
static _Atomic double file_turn_s; /* when the latest one began or ended */
static atomic_int leave_code;
static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER; /* protects heard */
static uint64_t *heard;

void sp_liveness_count(void)
{
    atomic_fetch_add_explicit(&work, 1, memory_order_relaxed);
}

void sp_liveness_wait_begin(void)
{
    atomic_store_explicit(&wait_begin_s, sp_now_s(), memory_order_relaxed);
    atomic_store_explicit(&is_waiting, true, memory_order_relaxed);
}

void sp_liveness_wait_poll(void)
{
    atomic_fetch_add_explicit(&waits, 1, memory_order_relaxed);
}

void sp_liveness_wait_end(void)
{
    atomic_store_explicit(&is_waiting, false, memory_order_relaxed);
    waited_s = waited_s + sp_now_s() - wait_begin_s;
    sp_liveness_count();
}

void sp_liveness_file_begin(void)
{
    atomic_store_explicit(&file_turn_s, sp_now_s(), memory_order_relaxed);
    atomic_fetch_add(&n_in_files, 1);
}

void sp_liveness_file_end(void)
{
    atomic_store_explicit(&file_turn_s, sp_now_s(), memory_order_relaxed);
    atomic_fetch_sub(&n_in_files, 1);
}

void sp_liveness_read(sp_liveness *liveness)
{
    liveness->work = atomic_load(&work);
    liveness->waits = atomic_load(&waits);
    liveness->is_waiting = atomic_load(&is_waiting);
    liveness->waited_s = waited_s;
    liveness->file_s = atomic_load(&n_in_files) > 0 ? sp_now_s() - file_turn_s : 0;
}

void sp_exit_request(int code)
{
    assert(code != 0);
    atomic_store(&leave_code, code);
    pthread_mutex_lock(&hearing);
    if (heard)
        __atomic_store_n(heard, (uint64_t)code, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&hearing);
}

void sp_exit_set_flag(uint64_t *word)
{
    pthread_mutex_lock(&hearing);
    heard = word;
    pthread_mutex_unlock(&hearing);
}

int sp_exit_requested(void)
{
    return atomic_load_explicit(&leave_code, memory_order_relaxed);
}
