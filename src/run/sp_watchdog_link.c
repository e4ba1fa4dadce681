#include "config.h"

#include "run/sp_watchdog_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- where rank 0 is ---- */

static void find_addresses(sp_link_address *address)
{
    struct ifaddrs *all, *at;

    address->ip[address->n++] = htonl(INADDR_LOOPBACK);
    if (getifaddrs(&all) != 0)
        return;
    for (at = all; at && address->n < SP_LINK_ADDRESSES; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET ||
            !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
            continue;
        address->ip[address->n++] =
            ((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr.s_addr;
    }
    freeifaddrs(all);
}

sp_status sp_link_listen(int *fd, sp_link_address *address, const char *host)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t size = sizeof any;

    memset(address, 0, sizeof *address);
    strncpy(address->host, host, sizeof address->host - 1);
    if (getrandom(&address->token, sizeof address->token, 0) < 0)
        address->token = (uint64_t)getpid();
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&any, sizeof any) != 0 ||
        listen(*fd, 1024) != 0 ||
        getsockname(*fd, (struct sockaddr *)&any, &size) != 0) {
        int error = errno;

        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return SP_FAIL(SP_EIO, "watchdog: cannot listen: %s", strerror(error));
    }
    address->port = any.sin_port;
    find_addresses(address);
    return SP_OK;
}

/* ---- connections ---- */

static int prepare(int fd)
{
    int on = 1;

    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int sp_link_accept(int listener)
{
    return prepare(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

static int connect_to(uint32_t ip, uint16_t port, int wake, double limit_s)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd wait[2] = {{fd, POLLOUT, 0}, {wake, POLLIN, 0}};
    int error = 0;
    socklen_t size = sizeof error;

    to.sin_addr.s_addr = ip;
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 &&
        (errno != EINPROGRESS || poll(wait, 2, (int)(1e3 * limit_s)) <= 0 ||
         !wait[0].revents || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ||
         error)) {
        close(fd);
        return -1;
    }
    return prepare(fd);
}

int sp_link_connect(const sp_link_address *address, const char *host, int wake,
                    double limit_s)
{
    int first = strcmp(address->host, host) == 0 ? 0 : 1, fd = -1;

    for (int i = first; i < address->n && fd < 0; i++)
        fd = connect_to(address->ip[i], address->port, wake, limit_s);
    return fd;
}

void sp_link_close(sp_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

/* ---- frames ---- */

/* What an earlier send left; true when nothing is left. */
static bool flush(sp_link *link)
{
    ssize_t n;

    while (link->n_out > 0) {
        n = send(link->fd, link->out, link->n_out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        link->n_out -= (size_t)n;
        memmove(link->out, link->out + n, link->n_out);
    }
    return true;
}

void sp_link_send(sp_link *link, const sp_signs *signs)
{
    if (link->fd < 0 || !flush(link))
        return;
    memcpy(link->out, signs, sizeof *signs);
    link->n_out = sizeof *signs;
    flush(link);
}

bool sp_link_receive(sp_link *link, sp_signs *signs, bool *is_closed)
{
    ssize_t n;

    *is_closed = false;
    if (link->fd < 0)
        return false;
    n = recv(link->fd, link->in + link->n_in, sizeof *signs - link->n_in, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        *is_closed = true;
        return false;
    }
    link->n_in += (size_t)n;
    if (link->n_in < sizeof *signs)
        return false;
    memcpy(signs, link->in, sizeof *signs);
    signs->host[sizeof signs->host - 1] = 0;
    link->n_in = 0;
    return true;
}
