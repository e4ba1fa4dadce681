/* The lines, names and times that the processes of sp_world.h share. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "comm/sp_world_internal.h"

void sp_world_say(int fd, const char *line)
{
    size_t n = strlen(line);

    while (fd >= 0 && n > 0) {
        const ssize_t part = send(fd, line, n, MSG_NOSIGNAL);

        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            return; /* the reader sees the end */
        line += part;
        n -= (size_t)part;
    }
}

void sp_world_close(sp_world_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->used = 0;
}

bool sp_world_hear(sp_world_link *link, char line[SP_WORLD_LINE])
{
    char *end = memchr(link->line, '\n', link->used);

    if (!end) {
        const ssize_t n = recv(link->fd, link->line + link->used,
                               SP_WORLD_LINE - link->used, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (n <= 0) {
            sp_world_close(link);
            return false;
        }
        link->used += (size_t)n;
        end = memchr(link->line, '\n', link->used);
        if (!end && link->used == SP_WORLD_LINE)
            sp_world_close(link);
        if (!end)
            return false;
    }
    *end = 0;
    memcpy(line, link->line, (size_t)(end - link->line) + 1);
    link->used -= (size_t)(end - link->line) + 1;
    memmove(link->line, end + 1, link->used);
    return true;
}

void sp_world_options(int fd)
{
    const int on = 1, idle_s = 30, every_s = 10, times = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

/* ---- names ---- */

static uint64_t world_hash(uint64_t hash, const char *text)
{
    for (; *text; text++) /* FNV-1a */
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash * 0x100000001b3u;
}

uint64_t sp_world_run(const sp_launcher_world *is)
{
    return world_hash(world_hash(0xcbf29ce484222325u, is->run), is->attempt);
}

/* Distinguishes nodes as hash_node of sp_comm_find.c does. */
uint64_t sp_world_node(char host[64])
{
    const char *slurm = getenv("SLURMD_NODENAME");
    char shm[32];

    memset(host, 0, 64);
    gethostname(host, 63);
    snprintf(shm, sizeof shm, "%llu", (unsigned long long)sp_machine_shm());
    return world_hash(
        world_hash(world_hash(world_hash(0xcbf29ce484222325u, host), sp_machine_boot()),
                   slurm ? slurm : ""),
        shm);
}

int sp_world_port(const sp_launcher_world *is)
{
    return is->port + is->has_agent;
}

/* ---- the clock of the start ---- */

double sp_world_now_s(void)
{
    return sp_clock_s(CLOCK_MONOTONIC);
}

bool sp_world_is_late(const sp_world_clock *clock)
{
    return clock->limit_s > 0 && sp_world_now_s() - clock->begun_s > clock->limit_s;
}

bool sp_world_is_time_to_tell(sp_world_clock *clock)
{
    const bool is_now = !clock->is_told && clock->limit_s > 0 &&
                        sp_world_now_s() - clock->begun_s > clock->limit_s / 4;

    clock->is_told |= is_now;
    return is_now;
}
