/* Rank 0's side of sp_world.h: the processes come, are served, and leave. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_signal.h"
#include "base/sp_thread.h"
#include "comm/sp_pmi.h"
#include "comm/sp_world_internal.h"

/* STRANGERS: connections without a greeting. PATIENCE_S: how long rank 0, at its own
 * end, waits for the others to leave. */
enum { STRANGERS = 64, PATIENCE_S = 20 };

/* A process of the world. */
typedef struct world_member {
    sp_world_link tether;
    int pmi_fd;    /* -1: not connected, or the server's (sp_pmi.h) */
    uint64_t node; /* the hash of its node's name */
    char host[64];
    bool has_left;
} world_member;

static struct {
    sp_launcher_world is;
    world_member *members; /* [is.size] */
    sp_pmi *pmi;
    pthread_t thread;
    bool is_started;
} server;

/* ---- the processes come ---- */

/* Listens for all addresses of this host; -1: the port is taken. */
static int world_listen_at(int port, int n_waiting)
{
    const int on = 1, off = 0;
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                                     .sin6_addr = in6addr_any,
                                     .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_ANY),
                                     .sin_port = htons((uint16_t)port)};

    for (int i = 0; i < 2; i++) {
        const int fd = socket(i == 0 ? AF_INET6 : AF_INET,
                              SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (i == 0)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(fd, i == 0 ? (const struct sockaddr *)&six : (const void *)&four,
                 i == 0 ? sizeof six : sizeof four) == 0 &&
            listen(fd, n_waiting) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

static bool has_come(int rank)
{
    const world_member *m = &server.members[rank];

    return m->pmi_fd >= 0 && m->tether.fd >= 0;
}

/* Writes the missing ranks, as "1, 3 to 5"; "" if all have. */
static void list_missing(char *text, size_t bytes)
{
    text[0] = 0;
    for (int r = 0, last; r < server.is.size; r = last + 1) {
        const size_t at = strlen(text);

        last = r;
        if (has_come(r))
            continue;
        while (last + 1 < server.is.size && !has_come(last + 1))
            last++;
        snprintf(text + at, bytes - at, at ? ", %d" : "%d", r);
        if (last > r)
            snprintf(text + strlen(text), bytes - strlen(text), " to %d", last);
    }
}

/* Reads a connection's greeting: "hello NONCE RUN RANK SIZE KIND NODE HOST". A
 * connection that sends anything else is closed. */
static sp_status world_read_hello(sp_world_link *link, const char *line, uint64_t nonce)
{
    unsigned long long said, run, node;
    char kind, host[64];
    int rank, size;
    world_member *m;

    if (sscanf(line, "hello %llx %llx %d %d %c %llx %63s", &said, &run, &rank, &size,
               &kind, &node, host) != 7 ||
        said != nonce || run != sp_world_run(&server.is)) {
        sp_world_close(link);
        return SP_OK;
    }
    if (size != server.is.size)
        return SP_FAIL(SP_EUSAGE,
                       "WORLD_SIZE is %d for RANK 0, and %d for RANK %d on host %s",
                       server.is.size, size, rank, host);
    if (rank < 0 || rank >= size) {
        sp_world_close(link);
        return SP_OK;
    }
    m = &server.members[rank];
    if (kind == 't' ? m->tether.fd >= 0 : m->pmi_fd >= 0)
        return SP_FAIL(SP_EUSAGE,
                       "two processes have RANK=%d (hosts %s and %s): each needs a "
                       "number of its own, and two runs on a host need different "
                       "MASTER_PORT",
                       rank, m->host, host);
    snprintf(m->host, sizeof m->host, "%s", host);
    m->node = node;
    if (kind == 't')
        m->tether = *link;
    else
        m->pmi_fd = link->fd;
    link->fd = -1;
    return SP_OK;
}

/* A process with a wrong greeting receives the reason, as all others do. */
static sp_status answer_hello(sp_world_link *link, const char *line, uint64_t nonce)
{
    const sp_status rc = world_read_hello(link, line, nonce);
    char answer[SP_WORLD_LINE];

    if (rc != SP_OK) {
        snprintf(answer, sizeof answer, "end %d %.400s\n", (int)rc,
                 sp_error_last()->message);
        sp_world_say(link->fd, answer);
    }
    return rc;
}

/* Accepts connections and greets them, while there is a place for one. Others wait
 * until a stranger has identified itself or has been silent for too long. */
static void greet(int listener, sp_world_link strangers[STRANGERS], uint64_t nonce)
{
    char line[SP_WORLD_LINE];

    snprintf(line, sizeof line, "sptrain-world %llx %llx\n", (unsigned long long)nonce,
             (unsigned long long)sp_world_run(&server.is));
    for (int i = 0; i < STRANGERS; i++) {
        sp_world_link *w = &strangers[i];

        if (w->fd >= 0)
            continue;
        w->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (w->fd < 0)
            return;
        w->used = 0;
        w->until_s = sp_world_now_s() + SP_WORLD_ANSWER_MS / 1000.0;
        sp_world_options(w->fd);
        sp_world_say(w->fd, line);
    }
}

/* Each process has two connections with this one. */
static void allow_connections(int n)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max &&
        files.rlim_cur < (rlim_t)(2 * n + 256)) {
        files.rlim_cur = files.rlim_max < (rlim_t)(2 * n + 256) ? files.rlim_max
                                                                : (rlim_t)(2 * n + 256);
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* A process that ends while it waits may be started again. */
static void forget_gone(world_member *m)
{
    char line[SP_WORLD_LINE];

    if (m->tether.fd < 0)
        return;
    sp_world_hear(&m->tether, line);
    if (m->tether.fd < 0 && m->pmi_fd >= 0) {
        close(m->pmi_fd);
        m->pmi_fd = -1;
    }
}

/* Receives from the connections for at most 0.1 s. */
static sp_status hear_all(int listener, sp_world_link strangers[STRANGERS],
                          uint64_t nonce)
{
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    char line[SP_WORLD_LINE];
    int n_open = 0;

    for (int i = 0; i < STRANGERS; i++)
        n_open += strangers[i].fd >= 0;
    poll(&wait, 1, n_open ? 10 : 100);
    greet(listener, strangers, nonce);
    for (int i = 0; i < STRANGERS; i++) {
        sp_world_link *w = &strangers[i];

        if (w->fd >= 0 && sp_world_hear(w, line))
            SP_TRY(answer_hello(w, line, nonce));
        if (w->fd >= 0 && sp_world_now_s() > w->until_s)
            sp_world_close(w);
    }
    for (int r = 1; r < server.is.size; r++)
        forget_gone(&server.members[r]);
    return SP_OK;
}

static sp_status wait_for_members(int listener, int port, sp_world_clock *clock,
                                  sp_world_link strangers[STRANGERS])
{
    uint64_t nonce = 0;
    char missing[200];

    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        nonce = (uint64_t)(1e9 * sp_world_now_s()) ^ (uint64_t)getpid() << 40;
    for (;;) {
        SP_TRY(hear_all(listener, strangers, nonce));
        list_missing(missing, sizeof missing);
        if (!*missing)
            return SP_OK;
        SP_TRY(sp_signal_check());
        if (sp_world_is_late(clock))
            return SP_FAIL(SP_EMPI,
                           "the %d processes of WORLD_SIZE have not come together for "
                           "%.0f s; missing: RANK %s, which did not reach port %d of "
                           "RANK 0; more time: SP_START_S in the environment",
                           server.is.size, clock->limit_s, missing, port);
        if (sp_world_is_time_to_tell(clock))
            dprintf(STDERR_FILENO,
                    "sptrain: RANK 0 waits at port %d for RANK %s of WORLD_SIZE=%d\n",
                    port, missing, server.is.size);
    }
}

/* Connects rank 0 with itself. */
static sp_status join_own(int *tether, int *pmi)
{
    world_member *m = &server.members[0];
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return SP_FAIL(SP_EMPI, "no sockets: %s", strerror(errno));
    m->tether.fd = pair[0];
    *tether = pair[1];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return SP_FAIL(SP_EMPI, "no sockets: %s", strerror(errno));
    m->pmi_fd = pair[0];
    *pmi = pair[1];
    m->node = sp_world_node(m->host);
    return SP_OK;
}

/* ---- the processes are served, and leave ---- */

/* Informs all other processes that the world ends with this status. */
static void end_all(int code, const char *text)
{
    char line[SP_WORLD_LINE];

    snprintf(line, sizeof line, "end %d %.400s\n", code, text);
    for (int r = 0; r < server.is.size; r++)
        sp_world_say(server.members[r].tether.fd, line);
}

/* Receives from a tether. True: the process has ended without a word. */
static bool is_lost(world_member *m)
{
    char line[SP_WORLD_LINE];

    while (m->tether.fd >= 0 && sp_world_hear(&m->tether, line))
        m->has_left |= strcmp(line, "bye") == 0;
    if (m->has_left)
        sp_world_close(&m->tether);
    return m->tether.fd < 0 && !m->has_left;
}

static int wait_for_words(struct pollfd *waits)
{
    const int n = server.is.size;

    for (int r = 0; r < n; r++) {
        waits[r] = (struct pollfd){.fd = server.members[r].tether.fd, .events = POLLIN};
        waits[n + r] =
            (struct pollfd){.fd = sp_pmi_fd(server.pmi, r), .events = POLLIN};
    }
    return poll(waits, 2 * (nfds_t)n, 1000);
}

/* Handles the received lines. Returns the number of processes that have not ended. */
static int serve_all(struct pollfd *waits, bool *is_ending)
{
    const int n = server.is.size;
    int n_left = 0;

    for (int r = 0; r < n; r++) {
        world_member *m = &server.members[r];
        char text[200];

        if (waits[n + r].revents && sp_pmi_fd(server.pmi, r) >= 0)
            sp_pmi_serve(server.pmi, r);
        if (!*is_ending && sp_pmi_aborted(server.pmi)) {
            *is_ending = true;
            end_all(sp_pmi_aborted(server.pmi), "");
        }
        if (waits[r].revents && m->tether.fd >= 0 && is_lost(m) && !*is_ending) {
            *is_ending = true;
            snprintf(text, sizeof text, "rank %d on host %s has ended before the run",
                     r, m->host);
            end_all(SP_EMPI, text);
        }
        /* MPICH 4.2 says its last words as the process ends, after its goodbye, and
         * crashes in there if nobody answers. Rank 0 itself cannot wait for its own. */
        n_left += m->tether.fd >= 0 || (r > 0 && sp_pmi_fd(server.pmi, r) >= 0);
    }
    return n_left;
}

static void *world_serve(void *arg)
{
    struct pollfd *waits = arg;
    bool is_ending = false;
    double until_s = 0;

    for (int n_left = server.is.size; n_left > 0;) {
        if (wait_for_words(waits) > 0)
            n_left = serve_all(waits, &is_ending);
        if (!server.members[0].has_left)
            continue;
        if (until_s == 0)
            until_s = sp_world_now_s() + PATIENCE_S;
        if (sp_world_now_s() > until_s)
            break;
    }
    free(waits);
    return NULL;
}

/* Hands the sockets over to PMI and lets the processes continue. */
static sp_status world_let_go(void)
{
    const int n = server.is.size;
    int *fds = calloc(2 * (size_t)n, sizeof *fds), n_nodes = 0;
    struct pollfd *waits = calloc(2 * (size_t)n, sizeof *waits);
    sp_status rc = SP_EMEM;

    if (fds && waits) {
        for (int r = 0; r < n; r++) {
            int same = 0;

            while (server.members[same].node != server.members[r].node)
                same++;
            fds[n + r] = same < r ? fds[n + same] : n_nodes++;
            fds[r] = server.members[r].pmi_fd;
        }
        rc = sp_pmi_create(&server.pmi, n, fds, fds + n);
        for (int r = 0; rc == SP_OK && r < n; r++)
            server.members[r].pmi_fd = -1;
    } else
        SP_FAIL(SP_EMEM, "no memory to bring %d ranks together", n);
    free(fds);
    if (rc == SP_OK && sp_thread_start(&server.thread, world_serve, waits) != 0)
        rc = SP_FAIL(SP_EMEM, "no thread to serve %d ranks", n);
    if (rc != SP_OK) {
        free(waits);
        return rc;
    }
    server.is_started = true;
    for (int r = 1; r < n; r++)
        sp_world_say(server.members[r].tether.fd, "go\n");
    return SP_OK;
}

static void forget_all(void)
{
    for (int r = 0; server.members && r < server.is.size; r++) {
        sp_world_close(&server.members[r].tether);
        if (server.members[r].pmi_fd >= 0)
            close(server.members[r].pmi_fd);
    }
    free(server.members);
    sp_pmi_destroy(server.pmi);
    memset(&server, 0, sizeof server);
}

sp_status sp_world_listen(const sp_launcher_world *is, int *listener, int *port)
{
    const int first = sp_world_port(is);

    for (*port = first; *port < first + SP_WORLD_PORTS; ++*port) {
        *listener = world_listen_at(*port, 2 * is->size + STRANGERS);
        if (*listener >= 0)
            return SP_OK;
    }
    return SP_FAIL(SP_EUSAGE,
                   "MASTER_PORT=%d: neither this port nor one of the %d after it is "
                   "free on this host",
                   is->port, SP_WORLD_PORTS - 1);
}

static sp_status create_members(const sp_launcher_world *is)
{
    server.is = *is;
    SP_TRY(SP_NEW(&server.members, is->size, "the ranks of the world"));
    for (int r = 0; r < is->size; r++)
        server.members[r].tether.fd = server.members[r].pmi_fd = -1;
    return SP_OK;
}

sp_status sp_world_serve(const sp_launcher_world *is, sp_world_clock *clock,
                         int listener, int port, int *tether, int *pmi)
{
    sp_world_link *strangers = malloc(STRANGERS * sizeof *strangers);
    sp_status rc = strangers
                       ? create_members(is)
                       : SP_FAIL(SP_EMEM, "no memory for %d connections", STRANGERS);

    for (int i = 0; strangers && i < STRANGERS; i++)
        strangers[i].fd = -1;
    allow_connections(is->size);
    if (rc == SP_OK)
        rc = join_own(tether, pmi);
    if (rc == SP_OK)
        rc = wait_for_members(listener, port, clock, strangers);
    close(listener);
    for (int i = 0; strangers && i < STRANGERS; i++)
        sp_world_close(&strangers[i]);
    free(strangers);
    if (rc == SP_OK)
        rc = world_let_go();
    if (rc != SP_OK) {
        if (server.members)
            end_all((int)rc, sp_error_last()->message);
        forget_all();
    }
    return rc;
}

void sp_world_serve_end(void)
{
    if (!server.is_started)
        return;
    pthread_join(server.thread, NULL);
    forget_all();
}
