/* The ranks' common work: they meet, exchange slots of shared memory, and sum. */
#define _GNU_SOURCE
#include "emulator/nccl_double/nccl_double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- elements ---- */

size_t type_bytes(int type)
{
    return type == BFLOAT16 ? 2 : type == FLOAT32 ? 4 : 8;
}

static float widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t narrow(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    bits += 0x7fffu + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}

static void add(void *to, const void *from, size_t n, int type)
{
    for (size_t i = 0; i < n; i++) {
        if (type == FLOAT32)
            ((float *)to)[i] += ((const float *)from)[i];
        else if (type == FLOAT64)
            ((double *)to)[i] += ((const double *)from)[i];
        else if (type == INT64)
            ((int64_t *)to)[i] += ((const int64_t *)from)[i];
        else
            ((uint16_t *)to)[i] =
                narrow(widen(((uint16_t *)to)[i]) + widen(((const uint16_t *)from)[i]));
    }
}

/* ---- meeting ---- */

int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1000000 * (int64_t)t.tv_sec + t.tv_nsec / 1000;
}

static void set_error(comm *c, int code, const char *text)
{
    snprintf(c->error, sizeof c->error, "%s", text);
    atomic_store(&c->state, code);
}

/* Returns false where the communicator ends or another rank has failed. */
static bool may_go_on(comm *c)
{
    char text[80];
    int failed = atomic_load(&c->all->failed_rank);

    if (failed && atomic_load(&c->state) < 2) {
        snprintf(text, sizeof text, "stand-in: rank %d closed its connection",
                 failed - 1);
        set_error(c, REMOTE_ERROR, text);
    }
    return !failed && !atomic_load(&c->must_stop);
}

static bool barrier(comm *c)
{
    c->round++;
    atomic_store(&c->all->rank[c->rank].round, c->round);
    for (int r = 0; r < c->size; r++)
        while (atomic_load(&c->all->rank[r].round) < c->round) {
            if (!may_go_on(c))
                return false;
            usleep(50);
        }
    return true;
}

static bool meet(comm *c)
{
    int fd = shm_open(c->name, O_RDWR | O_CREAT, 0600);

    if (fd < 0 || ftruncate(fd, sizeof *c->all) != 0) {
        set_error(c, SYSTEM_ERROR, "stand-in: no shared memory");
        return false;
    }
    c->all = mmap(NULL, sizeof *c->all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->all == MAP_FAILED) {
        c->all = NULL;
        set_error(c, SYSTEM_ERROR, "stand-in: no shared memory");
        return false;
    }
    atomic_fetch_add(&c->all->n_arrived, 1);
    while (atomic_load(&c->all->n_arrived) < c->size) {
        if (!may_go_on(c))
            return false;
        usleep(50);
    }
    shm_unlink(c->name); /* all have it open; the others' attempts fail */
    return true;
}

/* ---- sums ---- */

static bool is_agreed(comm *c, const job *j)
{
    char text[200];

    for (int r = 0; r < c->size; r++)
        if (c->all->rank[r].count != j->count || c->all->rank[r].type != j->type) {
            snprintf(text, sizeof text,
                     "stand-in: rank %d sums %llu of type %d, rank %d %llu of type %d",
                     c->rank, (unsigned long long)j->count, j->type, r,
                     (unsigned long long)c->all->rank[r].count, c->all->rank[r].type);
            set_error(c, INVALID_USAGE, text);
            return false;
        }
    return true;
}

/* Sums slot by slot, in the order of the ranks. */
static bool sum(comm *c, job *j)
{
    const size_t each = type_bytes(j->type), most = SLOT_BYTES / each;

    c->all->rank[c->rank].count = j->count;
    c->all->rank[c->rank].type = j->type;
    if (!barrier(c) || !is_agreed(c, j))
        return false;
    for (uint64_t done = 0; done < j->count; done += most) {
        const size_t n = j->count - done < most ? j->count - done : most;
        char *mine = j->data + done * each;

        memcpy(c->all->data[c->rank], mine, n * each);
        if (!barrier(c))
            return false;
        memcpy(mine, c->all->data[0], n * each);
        for (int r = 1; r < c->size; r++)
            add(mine, c->all->data[r], n, j->type);
        if (!barrier(c))
            return false;
    }
    return barrier(c);
}

static bool take_time(comm *c, const job *j)
{
    const char *text = getenv("NCCL_DOUBLE_SLOW");
    double kib = 0, ms = 0;

    if (!text || sscanf(text, "%lf:%lf", &kib, &ms) != 2 ||
        (double)(j->count * type_bytes(j->type)) < 1024 * kib)
        return true;
    c->slow_until_us = now_us() + (int64_t)(1000 * ms);
    while (now_us() < c->slow_until_us && may_go_on(c))
        usleep(200);
    return may_go_on(c);
}

static bool do_sum(comm *c, job *j)
{
    static bool is_wrong;
    const int64_t behind = c->slow_until_us - j->told_us;

    note("sum %d: stood %lld us", j->number, (long long)(behind > 0 ? behind : 0));
    if (is_to_fail("absent", j->number))
        while (!atomic_load(&c->must_stop))
            usleep(1000);
    if (is_to_fail("error", j->number) || is_to_fail("remote", j->number)) {
        set_error(c, SYSTEM_ERROR, "stand-in: socket of the network closed");
        if (is_to_fail("remote", j->number))
            atomic_store(&c->all->failed_rank, 1 + c->rank);
        return false;
    }
    if (!take_time(c, j) || !sum(c, j))
        return false;
    is_wrong = is_wrong || is_to_fail("wrong", j->number);
    if (is_wrong)
        j->data[type_bytes(j->type) - 1] ^= 1;
    return true;
}

comm *comm_split(comm *c, int color, int key)
{
    char name[ID_BYTES];
    int rank = 0, size = 0;

    c->all->rank[c->rank].color = color;
    c->all->rank[c->rank].key = key;
    if (!barrier(c))
        return NULL;
    for (int r = 0; r < c->size; r++) {
        const int its_key = c->all->rank[r].key;

        if (c->all->rank[r].color != color)
            continue;
        size++;
        rank += its_key < key || (its_key == key && r < c->rank);
    }
    if (!barrier(c))
        return NULL;
    snprintf(name, sizeof name, "%.90s.%d.%d", c->name, c->n_splits++, color);
    note("split color %d: rank %d of %d", color, rank, size);
    return comm_start(name, rank, size);
}

/* ---- the thread ---- */

static job *pop(comm *c)
{
    job *j;

    pthread_mutex_lock(&c->lock);
    j = c->first;
    if (j)
        c->first = j->next;
    atomic_store(&c->is_busy, j != NULL);
    pthread_mutex_unlock(&c->lock);
    return j;
}

static void *work(void *arg)
{
    comm *c = arg;
    bool is_well;
    job *j;

    if (is_to_fail("init", 1)) {
        usleep(50000);
        set_error(c, SYSTEM_ERROR, "stand-in: no device can be reached");
        return NULL;
    }
    is_well = meet(c);
    if (is_well)
        atomic_store(&c->state, SUCCESS);
    while (is_well && !atomic_load(&c->must_stop)) {
        j = pop(c);
        if (!j) {
            is_well = may_go_on(c);
            usleep(100);
            continue;
        }
        is_well = do_sum(c, j);
        while (!is_well && !atomic_load(&c->must_stop))
            usleep(1000);
        atomic_store(&j->is_done, true); /* also where aborted: the device goes on */
    }
    while ((j = pop(c)))
        atomic_store(&j->is_done, true);
    return NULL;
}

comm *comm_start(const char *name, int rank, int size)
{
    comm *c = calloc(1, sizeof *c);

    snprintf(c->name, sizeof c->name, "%s", name);
    c->rank = rank;
    c->size = size;
    atomic_store(&c->state, IN_PROGRESS);
    pthread_mutex_init(&c->lock, NULL);
    if (pthread_create(&c->thread, NULL, work, c) != 0) {
        free(c);
        return NULL;
    }
    return c;
}

void comm_push(comm *c, job *j)
{
    pthread_mutex_lock(&c->lock);
    j->next = NULL;
    if (c->first)
        c->last->next = j;
    else
        c->first = j;
    c->last = j;
    pthread_mutex_unlock(&c->lock);
}

void comm_stop(comm *c)
{
    atomic_store(&c->must_stop, true);
    pthread_join(c->thread, NULL);
    if (c->all)
        munmap(c->all, sizeof *c->all);
    shm_unlink(c->name);
}
