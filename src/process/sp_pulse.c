#include "process/sp_pulse.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

static atomic_llong work, waits, waited_ns, wait_begin_ns;
static atomic_bool is_waiting;
static atomic_int leave_code;
static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER; /* protects heard */
static uint64_t *heard;

static long long now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void sp_pulse_beat(void)
{
    atomic_fetch_add_explicit(&work, 1, memory_order_relaxed);
}

void sp_pulse_wait_begin(void)
{
    atomic_store_explicit(&wait_begin_ns, now_ns(), memory_order_relaxed);
    atomic_store_explicit(&is_waiting, true, memory_order_relaxed);
}

void sp_pulse_wait_turn(void)
{
    atomic_fetch_add_explicit(&waits, 1, memory_order_relaxed);
}

void sp_pulse_wait_end(void)
{
    long long spent = now_ns() - atomic_load(&wait_begin_ns);

    atomic_store_explicit(&is_waiting, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&waited_ns, spent, memory_order_relaxed);
    sp_pulse_beat();
}

void sp_pulse_read(sp_pulse *pulse)
{
    pulse->work = atomic_load(&work);
    pulse->waits = atomic_load(&waits);
    pulse->is_waiting = atomic_load(&is_waiting);
    pulse->waited_s = 1e-9 * (double)atomic_load(&waited_ns);
}

void sp_pulse_leave(int code)
{
    assert(code != 0);
    atomic_store(&leave_code, code);
    pthread_mutex_lock(&hearing);
    if (heard)
        __atomic_store_n(heard, (uint64_t)code, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&hearing);
}

void sp_pulse_hear(uint64_t *word)
{
    pthread_mutex_lock(&hearing);
    heard = word;
    pthread_mutex_unlock(&hearing);
}

int sp_pulse_leaving(void)
{
    return atomic_load_explicit(&leave_code, memory_order_relaxed);
}
