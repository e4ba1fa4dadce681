#include "comm/sp_world.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_liveness.h"
#include "base/sp_signal.h"
#include "base/sp_thread.h"
#include "comm/sp_comm.h"
#include "comm/sp_world_internal.h"

/* GRACE_MS: how long a process may take to report its own failure after another one has
 * ended, and again to end by itself. LATER_S: rank 0 reports the missing ranks at the
 * limit of the start, so the others wait a little longer. */
enum { GRACE_MS = 1000, LATER_S = 10 };

static struct {
    sp_launcher_world is;
    int tether, pmi;
    pthread_t guard;
    bool has_guard;
    atomic_bool is_over;
} world = {.tether = -1, .pmi = -1};

static void sleep_ms(int ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&time, NULL);
}

/* ---- connecting with rank 0 ---- */

/* Waits at most ms for a line. */
static bool await_line(sp_world_link *link, int ms, char line[SP_WORLD_LINE])
{
    const double until_s = sp_world_now_s() + ms / 1000.0;

    while (link->fd >= 0 && sp_world_now_s() < until_s) {
        struct pollfd wait = {.fd = link->fd, .events = POLLIN};

        poll(&wait, 1, ms < 100 ? ms : 100);
        if (sp_world_hear(link, line))
            return true;
    }
    return false;
}

/* Connects with an address, which has 2 s to answer; -1: it does not. */
static int connect_with(const struct addrinfo *a)
{
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int flags, error = 0;
    socklen_t bytes = sizeof error;

    if (fd < 0)
        return -1;
    flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || poll(&wait, 1, SP_WORLD_ANSWER_MS) <= 0 ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0)) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_SETFL, flags);
    sp_world_options(fd);
    return fd;
}

/* Connects to rank 0 at this port and greets; the connection is in link. False: rank 0
 * of this run does not listen there. */
static bool reach_port(const struct addrinfo *address, char kind, sp_world_link *link)
{
    unsigned long long nonce, run;
    char line[SP_WORLD_LINE], host[64];
    const uint64_t node = sp_world_node(host);

    *link = (sp_world_link){.fd = connect_with(address)};
    if (link->fd < 0)
        return false;
    if (!await_line(link, SP_WORLD_ANSWER_MS, line) ||
        sscanf(line, "sptrain-world %llx %llx", &nonce, &run) != 2 ||
        run != sp_world_run(&world.is)) {
        sp_world_close(link);
        return false;
    }
    snprintf(line, sizeof line, "hello %llx %llx %d %d %c %llx %s\n", nonce, run,
             world.is.rank, world.is.size, kind, (unsigned long long)node, host);
    sp_world_say(link->fd, line);
    return true;
}

/* Connects to the port of a host, trying each of its addresses. is_known: the host's
 * name is. */
static bool reach_host(const char *host, int number, char kind, sp_world_link *link,
                       bool *is_known)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all;
    bool is_there = false;
    char port[16];

    snprintf(port, sizeof port, "%d", number);
    *is_known = getaddrinfo(host, port, &hints, &all) == 0;
    if (!*is_known)
        return false;
    for (struct addrinfo *a = all; a && !is_there; a = a->ai_next)
        is_there = reach_port(a, kind, link);
    freeaddrinfo(all);
    return is_there;
}

/* Has rank 0 a word for this process, or ended? It may give up between the two
 * connections of a process, for which it then has its reason. */
static bool has_word(const sp_world_link *tether)
{
    struct pollfd wait = {.fd = tether->fd, .events = POLLIN};

    return tether->used > 0 || poll(&wait, 1, SP_WORLD_ANSWER_MS) > 0;
}

/* Tries all ports of all addresses of MASTER_ADDR once. True: rank 0 has both
 * connections, or a word in *tether instead. */
static bool reach_rank_0(sp_world_link *tether, sp_world_link *pmi)
{
    const int first = sp_world_port(&world.is);
    bool is_there = false, is_known = true; /* or may be known a little later */

    for (int i = 0; i < SP_WORLD_PORTS && is_known && !is_there; i++) {
        is_there = reach_host(world.is.host, first + i, 't', tether, &is_known);
        if (is_there && !reach_host(world.is.host, first + i, 'p', pmi, &is_known)) {
            is_there = has_word(tether);
            if (!is_there)
                sp_world_close(tether);
        }
    }
    return is_there;
}

/* Waits until rank 0 sends "go". *is_back: it left before; it must be found again. */
static sp_status await_go(sp_world_link *tether, const sp_world_clock *clock,
                          bool *is_back)
{
    sp_world_clock later = *clock;
    char line[SP_WORLD_LINE];
    int code, at;

    later.limit_s += clock->limit_s > 0 ? LATER_S : 0;
    *is_back = false;
    while (!await_line(tether, 100, line)) {
        if (tether->fd < 0) {
            *is_back = true;
            return SP_OK;
        }
        SP_TRY(sp_signal_check());
        if (sp_world_is_late(&later))
            return SP_FAIL(SP_EMPI,
                           "RANK 0 at %s does not answer RANK %d any more; more time: "
                           "SP_START_S in the environment",
                           world.is.host, world.is.rank);
    }
    if (sscanf(line, "end %d %n", &code, &at) == 1)
        return SP_FAIL(code > 0 ? (sp_status)code : SP_EMPI, "%s", line + at);
    return SP_OK;
}

/* Fails if another process with RANK=0 of this run listens at this port of this host.
 * The hello of a second one ends the first one's start too. */
static sp_status refuse_second(int port)
{
    sp_world_link other = {.fd = -1};
    char line[SP_WORLD_LINE];
    int code, at;
    bool is_known;
    const bool is_there = reach_host("localhost", port, 't', &other, &is_known) &&
                          await_line(&other, SP_WORLD_ANSWER_MS, line) &&
                          sscanf(line, "end %d %n", &code, &at) == 1;

    sp_world_close(&other);
    return is_there ? SP_FAIL(SP_EUSAGE, "%s", line + at) : SP_OK;
}

static sp_status become_rank_0(sp_world_clock *clock)
{
    int listener, port;
    sp_status rc;

    SP_TRY(sp_world_listen(&world.is, &listener, &port));
    for (int taken = sp_world_port(&world.is); taken < port; taken++) {
        rc = refuse_second(taken);
        if (rc != SP_OK) {
            close(listener);
            return rc;
        }
    }
    return sp_world_serve(&world.is, clock, listener, port, &world.tether, &world.pmi);
}

static sp_status join_rank_0(sp_world_clock *clock)
{
    const int first = sp_world_port(&world.is);
    sp_world_link tether = {.fd = -1}, pmi = {.fd = -1};
    bool is_back = true;
    int pause_ms = 50;

    while (is_back) {
        sp_world_close(&pmi);
        while (!reach_rank_0(&tether, &pmi)) {
            SP_TRY(sp_signal_check());
            if (sp_world_is_late(clock))
                return SP_FAIL(
                    SP_EMPI,
                    "RANK 0 is missing: it did not answer at MASTER_ADDR=%s, "
                    "ports %d to %d, for %.0f s; more time: SP_START_S in "
                    "the environment",
                    world.is.host, first, first + SP_WORLD_PORTS - 1, clock->limit_s);
            if (sp_world_is_time_to_tell(clock))
                dprintf(STDERR_FILENO,
                        "sptrain: RANK %d waits for RANK 0 at MASTER_ADDR=%s, ports %d "
                        "to %d\n",
                        world.is.rank, world.is.host, first,
                        first + SP_WORLD_PORTS - 1);
            sleep_ms(pause_ms);
            pause_ms = pause_ms < 1000 ? 2 * pause_ms : 1000;
        }
        world.tether = tether.fd;
        world.pmi = pmi.fd;
        SP_TRY(await_go(&tether, clock, &is_back));
    }
    return SP_OK;
}

/* ---- the end of others ---- */

/* Ends this process, unless it does so itself within a while. */
static void leave_after(int code, const char *text)
{
    char host[64];

    for (int ms = 0; ms < GRACE_MS; ms += 50) {
        if (world.is_over)
            return;
        sleep_ms(50);
    }
    if (!sp_exit_requested()) {
        if (*text) {
            sp_world_node(host);
            dprintf(STDERR_FILENO, "sptrain: rank %d host %s: error: %s\n",
                    world.is.rank, host, text);
        }
        sp_exit_request(code);
    }
    sleep_ms(2 * GRACE_MS);
    if (!world.is_over)
        _exit(sp_exit_requested());
}

/* Waits for rank 0's message, or for its end. */
static void *guard(void *arg)
{
    sp_world_link tether = {.fd = world.tether};
    char line[SP_WORLD_LINE];
    int code = SP_EMPI, at = 0;

    while (tether.fd >= 0) {
        struct pollfd wait = {.fd = tether.fd, .events = POLLIN};

        poll(&wait, 1, -1);
        if (sp_world_hear(&tether, line) && sscanf(line, "end %d %n", &code, &at) == 1)
            break;
    }
    if (world.is_over)
        return arg;
    if (tether.fd < 0) /* which sp_world_hear has closed */
        leave_after(SP_EMPI, "rank 0 has ended before the run");
    else /* one process reports it for all */
        leave_after(code, world.is.rank == 0 ? line + at : "");
    return arg;
}

/* ---- start and end ---- */

/* Replaces variables of other launchers in the environment; their processes in between
 * have closed the descriptors. */
static sp_status use_pmi(void)
{
    static const char *const stale[] = {
        "PMI_PORT",        "PMI_ID",          "PMI_JOBID",
        "PMI_SPAWNED",     "HYDI_CONTROL_FD", "MPI_LOCALNRANKS",
        "MPI_LOCALRANKID", "PMIX_RANK",       "PMIX_NAMESPACE"};
    const struct {
        const char *name;
        int value;
    } own[] = {{"PMI_FD", world.pmi},
               {"PMI_RANK", world.is.rank},
               {"PMI_SIZE", world.is.size}};
    char text[16];

    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++)
        unsetenv(stale[i]);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        snprintf(text, sizeof text, "%d", own[i].value);
        if (setenv(own[i].name, text, 1) != 0)
            return SP_FAIL(SP_EMEM, "no memory for the environment");
    }
    return SP_OK;
}

sp_status sp_world_join(double limit_s)
{
    sp_world_clock clock = {.begun_s = sp_world_now_s(), .limit_s = limit_s};

    SP_TRY(sp_launcher_find_world(&world.is));
    if (world.is.size == 0)
        return SP_OK;
    if (strstr(sp_comm_library(), "Open MPI"))
        return SP_FAIL(SP_EUSAGE,
                       "WORLD_SIZE=%d: Open MPI makes no world of processes that "
                       "torchrun, or its variables, started: start with mpirun -n %d, "
                       "or unset WORLD_SIZE",
                       world.is.size, world.is.size);
    SP_TRY(world.is.rank == 0 ? become_rank_0(&clock) : join_rank_0(&clock));
    SP_TRY(use_pmi());
    world.has_guard = sp_thread_start(&world.guard, guard, NULL) == 0;
    return SP_OK;
}

void sp_world_leave(void)
{
    if (world.tether < 0)
        return;
    world.is_over = true;
    sp_world_say(world.tether, "bye\n");
    if (world.has_guard) {
        shutdown(world.tether, SHUT_RD);
        pthread_join(world.guard, NULL);
    }
    if (world.is.rank == 0)
        sp_world_serve_end();
    world.tether = -1;
}
