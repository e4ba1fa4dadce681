/* A stranger on this machine, for tests/faults/test_run_strangers.sh: connects to every
 * socket that listens in its network namespace, as soon as it appears, and does harm.
 *
 *     stranger KIND SPARE SECONDS
 *
 * SPARE is a file of ports (one a line, decimal) that are left alone; nothing is done
 * before it is there. KIND is one of
 *
 *     backlog   fills the backlog of each abstract socket with five hexadecimal digits
 *     token     waits to be told something
 *     leave     says "leave" with code 0, as rank 1, with and without a hello
 *     close     connects and closes
 *     places    says hello as rank 1 and holds 300 connections
 *     idle      holds 1,000 connections
 *     garbage   sends random bytes
 *     replay    sends rank 0's own answers back to it as a proof
 *
 * With "own-" before it the same is done to a port of the stranger's own, and the
 * program's are left alone: what the connections take from the machine without touching
 * the program.
 *
 * At the end it prints "ports P connections C bytes B unasked U": how many it found,
 * and what it was told, U of it before it had said anything. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"

enum { MOST_PORTS = 64, MOST_HELD = 1000, PATIENCE_MS = 1500, LONGEST_NAP_MS = 64 };

/* Counted by all processes. */
static struct {
    int ports, connections, bytes, unasked;
} * count;

static int held[MOST_HELD], n_held;

typedef struct hello {
    char name[8];
    int32_t rank, zero;
    uint8_t nonce[16];
} hello;

static void nap(int ms)
{
    poll(NULL, 0, ms);
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct pollfd ready = {fd, POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 &&
        (errno != EINPROGRESS || poll(&ready, 1, 100) <= 0 ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error)) {
        close(fd);
        return -1;
    }
    __atomic_fetch_add(&count->connections, 1, __ATOMIC_RELAXED);
    return fd;
}

/* Receives until the time is over; returns the number of bytes. */
static int listen_for(int fd, void *data, size_t bytes, int ms)
{
    struct pollfd ready = {fd, POLLIN, 0};
    ssize_t n = poll(&ready, 1, ms) > 0 ? recv(fd, data, bytes, MSG_DONTWAIT) : 0;

    if (n < 0)
        n = 0;
    __atomic_fetch_add(&count->bytes, (int)n, __ATOMIC_RELAXED);
    return (int)n;
}

static void say(int fd, const void *data, size_t bytes)
{
    send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_hello(int fd)
{
    hello h = {.rank = 1};

    memcpy(h.name, "sptrain1", 8);
    say(fd, &h, sizeof h);
}

static void hold(int port, int n, bool with_hello)
{
    int fd;

    while (n-- > 0 && n_held < MOST_HELD && (fd = connect_to(port)) >= 0) {
        if (with_hello)
            say_hello(fd);
        held[n_held++] = fd;
    }
}

static void wait_to_be_told(int port)
{
    char word[512];
    int fd = connect_to(port);

    if (fd >= 0) {
        __atomic_fetch_add(&count->unasked,
                           listen_for(fd, word, sizeof word, PATIENCE_MS),
                           __ATOMIC_RELAXED);
        close(fd);
    }
}

/* Sends frames of "leave, code 0" of earlier versions (the token first) and of this
 * one, with the token, number and proof that this process received. */
static void say_leave(int port, bool with_hello)
{
    struct {
        uint64_t token;
        int32_t rank, kind, code, is_waiting;
        char rest[120];
    } frame = {.rank = 1, .kind = 2};
    char word[512] = "";
    int fd = connect_to(port);

    if (fd < 0)
        return;
    if (with_hello)
        say_hello(fd);
    listen_for(fd, word, sizeof word, with_hello ? 200 : PATIENCE_MS);
    if (with_hello)
        say(fd, word + 16, 8);
    memcpy(&frame.token, word, sizeof frame.token);
    say(fd, &frame, 136);
    frame.token = 1;
    say(fd, &frame, 144);
    listen_for(fd, word, sizeof word, 20);
    close(fd);
}

static void send_back(int port)
{
    uint8_t answer[2][24] = {{0}};
    int a = connect_to(port), b = connect_to(port);

    if (a >= 0 && b >= 0) {
        say_hello(a);
        listen_for(a, answer[0], 24, 200);
        say(a, answer[0] + 16, 8); /* its own proof */
        say_hello(b);              /* the same number again */
        listen_for(b, answer[1], 24, 200);
        say(b, answer[0] + 16, 8); /* the other connection's */
        listen_for(b, answer[1], 24, 20);
    }
    close(a);
    close(b);
}

static void send_garbage(int port)
{
    uint8_t bytes[4096];
    int fd = connect_to(port);

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rand();
    if (fd < 0)
        return;
    if (rand() % 2)
        memcpy(bytes, "sptrain1\1\0\0\0\0\0\0", 16);
    say(fd, bytes, 1 + (size_t)rand() % sizeof bytes);
    listen_for(fd, bytes, sizeof bytes, 2);
    close(fd);
}

static void act(const char *kind, int port)
{
    if (strcmp(kind, "token") == 0)
        wait_to_be_told(port);
    else if (strcmp(kind, "leave") == 0)
        say_leave(port, rand() % 2);
    else if (strcmp(kind, "close") == 0)
        close(connect_to(port));
    else if (strcmp(kind, "places") == 0)
        hold(port, 300, true);
    else if (strcmp(kind, "idle") == 0)
        hold(port, MOST_HELD, false);
    else if (strcmp(kind, "garbage") == 0)
        send_garbage(port);
    else if (strcmp(kind, "replay") == 0)
        send_back(port);
}

/* Reads the ports in the file; returns their number, -1 where there is no file. */
static int read_spared(const char *path, int *port)
{
    FILE *file = fopen(path, "r");
    int n = 0;

    if (!file)
        return -1;
    while (n < MOST_PORTS && fscanf(file, "%d", &port[n]) == 1)
        n++;
    fclose(file);
    return n;
}

static bool is_among(const int *port, int n, int one)
{
    for (int i = 0; i < n; i++)
        if (port[i] == one)
            return true;
    return false;
}

static bool goes_on(const char *spare, double end_s)
{
    return sp_now_s() < end_s && access(spare, R_OK) == 0;
}

/* Accepts and closes what connects, in a process of its own. Returns the port. */
static int open_own_port(const char *spare, double end_s)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct pollfd ready = {fd, POLLIN, 0};

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(fd, MOST_PORTS) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        exit(2);
    if (fork() == 0) {
        while (goes_on(spare, end_s))
            if (poll(&ready, 1, LONGEST_NAP_MS) > 0)
                close(accept(fd, NULL, NULL));
        _exit(0);
    }
    close(fd);
    return ntohs(at.sin_port);
}

/* Each port has a process of its own, so that a port that keeps us waiting holds up no
 * other. Of several, `only` (0: all). Returns whether there was a new one. */
static bool attack_new_ports(const char *kind, const char *spare, const int *spared,
                             int n_spared, int only, double end_s)
{
    static int seen[MOST_PORTS];
    FILE *file = fopen("/proc/net/tcp", "r");
    char line[512];
    unsigned port, state;
    bool is_new = false;

    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*d: %*x:%x %*x:%*x %x", &port, &state) != 2 || state != 10 ||
            is_among(spared, n_spared, (int)port) || (only != 0 && only != (int)port) ||
            is_among(seen, count->ports, (int)port) || count->ports == MOST_PORTS)
            continue;
        seen[count->ports++] = (int)port;
        is_new = true;
        if (fork() != 0)
            continue;
        srand((unsigned)getpid());
        for (; goes_on(spare, end_s); nap(1))
            act(kind, (int)port);
        _exit(0);
    }
    if (file)
        fclose(file);
    return is_new;
}

/* Returns whether a socket took a connection. */
static bool attack_abstract(void)
{
    FILE *file = fopen("/proc/net/unix", "r");
    char line[512], *at;
    const int before = n_held;

    while (file && fgets(line, sizeof line, file)) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};

        at = strchr(line, '@');
        if (!at || strspn(at + 1, "0123456789abcdef") != 5 || at[6] != '\n')
            continue;
        count->ports++;
        memcpy(to.sun_path + 1, at + 1, 5);
        for (int i = 0; i < 64 && n_held < MOST_HELD; i++) {
            int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

            if (connect(fd, (struct sockaddr *)&to,
                        offsetof(struct sockaddr_un, sun_path) + 6) != 0) {
                close(fd);
                break;
            }
            __atomic_fetch_add(&count->connections, 1, __ATOMIC_RELAXED);
            held[n_held++] = fd;
        }
    }
    if (file)
        fclose(file);
    return n_held != before;
}

/* Looks for sockets and attacks the new ones until the end. Looking costs the kernel
 * about a third of a millisecond, which no trainer can do anything about: where nothing
 * new appears it is done more and more rarely, so that what is measured is the attack.
 */
static void attack(const char *kind, const char *spare, const int *spared, int n_spared,
                   double end_s)
{
    const bool is_own = strncmp(kind, "own-", 4) == 0;
    const int only = is_own ? open_own_port(spare, end_s) : 0;
    int nap_ms = 1;

    kind += is_own ? 4 : 0;
    for (; goes_on(spare, end_s); nap(nap_ms)) {
        bool is_new;

        if (strcmp(kind, "backlog") == 0)
            is_new = !is_own && attack_abstract();
        else
            is_new = attack_new_ports(kind, spare, spared, n_spared, only, end_s);
        nap_ms = is_new ? 1 : 2 * nap_ms;
        nap_ms = nap_ms < LONGEST_NAP_MS ? nap_ms : LONGEST_NAP_MS;
    }
}

int main(int argc, char **argv)
{
    const double end_s = sp_now_s() + (argc == 4 ? atof(argv[3]) : 0);
    struct rlimit limit;
    int spared[MOST_PORTS], n_spared;

    if (argc != 4)
        return 2;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (count == MAP_FAILED)
        return 2;
    while ((n_spared = read_spared(argv[2], spared)) < 0 && sp_now_s() < end_s)
        nap(1);
    attack(argv[1], argv[2], spared, n_spared, end_s);
    while (wait(NULL) > 0)
        ;
    printf("ports %d connections %d bytes %d unasked %d\n", count->ports,
           count->connections, count->bytes, count->unasked);
    return 0;
}
