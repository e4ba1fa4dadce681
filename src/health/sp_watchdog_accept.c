/* Connection of the ranks: the listeners of rank 0, which strangers may find too, and
 * the way of the other ranks to them. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "health/sp_watchdog_internal.h"

enum { ACCEPTS = 64 }; /* connections accepted at a time */

#define CONNECT_S 3.0  /* time that one address is tried */
#define RETRY_S   1.0  /* pause between rounds over the addresses */
#define ALONE_S   15.0 /* time without a connection before a warning */
#define PROOF_S   1.0  /* time within which a connection must prove to be a rank's */
#define PAUSE_S   0.05 /* pause of the listeners after a stranger */

/* ---- open ---- */

/* Raises the limit of open files: rank 0 of a large job holds a connection to each
 * rank. */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Rank 0 collects the addresses of the other hosts, which one rank of each sends.
 * *peers [*n] is malloc'd; *n is 0 on other ranks. Collective. */
static sp_status gather_hosts(sp_comm *comm, uint32_t **peers, int *n)
{
    uint32_t own[SP_AUTH_ADDRESSES];
    size_t bytes = 0, n_all = 0;
    void *all = NULL;

    if (comm->node != comm->node_of_rank[0] && comm->local_rank == 0)
        bytes = (size_t)sp_auth_socket_own_addresses(own) * sizeof *own;
    SP_TRY(sp_comm_gather(comm, own, bytes, &all, &n_all));
    *n = (int)(n_all / sizeof **peers);
    *peers = all;
    return SP_OK;
}

sp_status sp_watchdog_listen(sp_watchdog *w)
{
    sp_comm *comm = w->run->comm;
    uint32_t *peers = NULL;
    int n = 0;

    assert(w->run->comm->size > 1);
    if (comm->n_nodes > 1)
        SP_TRY(gather_hosts(comm, &peers, &n));
    if (comm->rank == 0) {
        raise_file_limit();
        if (sp_auth_socket_listen(w->listener, &w->address, comm->host, peers, n) !=
            SP_OK)
            sp_log_warn("%s", sp_error_last()->message);
        w->n_listeners = (int)w->address.n;
    }
    free(peers);
    return sp_comm_bcast(comm, &w->address, sizeof w->address, 0);
}

/* ---- rank 0: who connects ---- */

void sp_watchdog_stop_listening(sp_watchdog *w)
{
    for (int i = 0; i < w->n_listeners; i++)
        close(w->listener[i]);
    w->n_listeners = 0;
}

static void drop_fresh(sp_watchdog *w, int i)
{
    sp_auth_socket_close(&w->fresh[i]);
    w->fresh[i] = w->fresh[--w->n_fresh];
}

/* Drops a stranger and pauses the listeners, so that strangers that connect without end
 * cannot keep the thread busy. */
static void meet_stranger(sp_watchdog *w, int i, double now)
{
    drop_fresh(w, i);
    w->accepts_from_s = now + PAUSE_S;
}

/* Closes the listeners once every rank has connected, since no other connection is
 * expected. */
static void close_when_complete(sp_watchdog *w)
{
    for (int r = 1; r < w->n_rows; r++)
        if (w->row[r].state == SP_WATCHED_ABSENT)
            return;
    sp_watchdog_stop_listening(w);
    while (w->n_fresh > 0)
        drop_fresh(w, 0);
}

/* Moves a connection that has proven to be a rank's to its row. From this answer on the
 * other side knows that a closed connection without an end frame means a death. */
static void welcome(sp_watchdog *w, int i)
{
    sp_watched *r = &w->row[w->fresh[i].rank];
    sp_status_frame status;

    if (r->state != SP_WATCHED_ABSENT) {
        drop_fresh(w, i);
        return;
    }
    r->link = w->fresh[i];
    w->fresh[i] = w->fresh[--w->n_fresh];
    r->state = SP_WATCHED_LINKED;
    r->heard_s = r->changed_s = r->worked_s = sp_now_s();
    sp_watchdog_collect(w, &status, SP_FRAME_ALIVE, 0);
    sp_auth_socket_send(&r->link, &status);
    close_when_complete(w);
}

static void receive_fresh(sp_watchdog *w, double now)
{
    for (int i = w->n_fresh - 1; i >= 0 && i < w->n_fresh; i--) {
        sp_auth_socket *link = &w->fresh[i];

        if (!sp_auth_socket_advance(link, &w->address, w->run->comm->size))
            meet_stranger(w, i, now);
        else if (link->stage == SP_AUTH_OPEN)
            welcome(w, i);
        else if (now - link->since_s > PROOF_S)
            meet_stranger(w, i, now);
    }
}

/* Drops the oldest connection that has sent nothing if all places are used. False: all
 * have sent hello, so each is admitted or dropped within PROOF_S; new connections wait
 * until then. */
static bool make_place(sp_watchdog *w, double now)
{
    int eldest = -1;

    if (w->n_fresh < w->n_places)
        return true;
    for (int i = 0; i < w->n_fresh; i++)
        if (w->fresh[i].stage == SP_AUTH_HELLO &&
            (eldest < 0 || w->fresh[i].since_s < w->fresh[eldest].since_s))
            eldest = i;
    if (eldest >= 0)
        meet_stranger(w, eldest, now);
    w->accepts_from_s = now + PAUSE_S;
    return eldest >= 0;
}

static void accept_some(sp_watchdog *w, double now)
{
    int n = 0;

    for (int i = 0; i < w->n_listeners; i++)
        while (n < ACCEPTS && make_place(w, now) &&
               sp_auth_socket_accept(&w->fresh[w->n_fresh], w->listener[i])) {
            w->n_fresh++;
            n++;
        }
}

void sp_watchdog_accept(sp_watchdog *w)
{
    double now = sp_now_s();

    if (now >= w->accepts_from_s)
        accept_some(w, now);
    receive_fresh(w, now);
}

double sp_watchdog_accept_s(const sp_watchdog *w)
{
    if (w->n_listeners > 0 && sp_now_s() < w->accepts_from_s)
        return PAUSE_S;
    return w->n_fresh > 0 ? PROOF_S / 4 : INFINITY;
}

/* ---- the other ranks: the way to rank 0 ---- */

static void try_next_address(sp_watchdog *w, double now)
{
    sp_auth_socket *link = &w->row[0].link;

    while (w->at_address < w->address.n)
        if (sp_auth_socket_connect(link, &w->address, (int)w->at_address++,
                                   w->run->comm->rank))
            return;
    w->at_address = 0;
    w->next_try_s = now + RETRY_S;
}

static void go_on_connecting(sp_watchdog *w, double now)
{
    sp_auth_socket *link = &w->row[0].link;
    sp_status_frame status;

    if (link->stage == SP_AUTH_CLOSED && now >= w->next_try_s)
        try_next_address(w, now);
    if (link->stage == SP_AUTH_CLOSED || sp_auth_socket_is_proven(link))
        return;
    if (!sp_auth_socket_advance(link, &w->address, w->run->comm->size))
        return;
    if (sp_auth_socket_is_proven(link)) {
        sp_watchdog_collect(w, &status, SP_FRAME_ALIVE, 0);
        sp_auth_socket_send(link, &status);
    } else if (now - link->since_s > CONNECT_S) {
        sp_auth_socket_close(link);
    }
}

/* A connection that rank 0 closed before its first frame is tried again. */
void sp_watchdog_connect(sp_watchdog *w, double now)
{
    sp_watched *root = &w->row[0];

    assert(w->run->comm->rank != 0);
    if (root->state != SP_WATCHED_ABSENT || w->address.n == 0)
        return;
    go_on_connecting(w, now);
    if (w->has_warned || now - w->begin_s <= ALONE_S ||
        sp_auth_socket_is_proven(&root->link))
        return;
    sp_log_warn("watchdog: cannot connect to rank 0 on %s; it is watched through "
                "heartbeat.bin if the run folder is shared",
                w->address.host);
    w->has_warned = true;
}
