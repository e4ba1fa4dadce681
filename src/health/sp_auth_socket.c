#include "health/sp_auth_socket.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "base/sp_text.h"

enum { BACKLOG = 1024 };

/* ---- messages ---- */

typedef struct hello {
    char name[8]; /* "sptrain1" */
    int32_t rank, zero;
    uint8_t nonce[SP_AUTH_NONCE];
} hello;

typedef struct answer {
    uint8_t nonce[SP_AUTH_NONCE];
    uint64_t proof;
} answer;

typedef struct frame {
    uint64_t number;
    sp_status_frame status;
    uint64_t proof;
} frame;

_Static_assert(sizeof(hello) == 32 && sizeof(answer) == 24, "no padding");
_Static_assert(sizeof(sp_status_frame) == 136, "no padding");
_Static_assert(sizeof(frame) == SP_AUTH_FRAME, "no padding");

static const char name[8] = "sptrain1";

/* ---- keyed hashes ---- */

/* Each hash with the run's secret has its own purpose, so that no hash can be used as
 * another. */
enum { OF_ROOT, OF_RANK, OF_KEY_LOW, OF_KEY_HIGH };

static uint64_t hash(const sp_auth_socket *link, const sp_auth_socket_address *address,
                     int purpose)
{
    struct {
        int32_t purpose, rank;
        uint8_t nonce[2][SP_AUTH_NONCE];
    } text = {.purpose = purpose, .rank = link->rank};

    memcpy(text.nonce, link->nonce, sizeof text.nonce);
    return sp_siphash(address->secret, &text, sizeof text);
}

static void derive_key(sp_auth_socket *link, const sp_auth_socket_address *address)
{
    const uint64_t half[2] = {hash(link, address, OF_KEY_LOW),
                              hash(link, address, OF_KEY_HIGH)};

    memcpy(link->key, half, sizeof link->key);
}

/* Proof of a frame. Both directions use the same key, so the direction is part of the
 * hash. */
static uint64_t hash_frame(const sp_auth_socket *link, const frame *f, bool is_of_root)
{
    struct {
        uint64_t is_of_root, number;
        sp_status_frame status;
    } text = {.is_of_root = is_of_root, .number = f->number, .status = f->status};

    return sp_siphash(link->key, &text, sizeof text);
}

/* ---- bytes ---- */

/* Sends all bytes in one call; they fit into the buffer of a connection that carries
 * nothing else at that time. */
static bool send_all(const sp_auth_socket *link, const void *data, size_t bytes)
{
    return send(link->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

/* Receives into link->in; returns SP_AUTH_ARRIVED once `bytes` bytes have arrived. */
static sp_auth_socket_event link_receive(sp_auth_socket *link, size_t bytes)
{
    ssize_t n = recv(link->fd, link->in + link->n_in, bytes - link->n_in, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return SP_AUTH_NOTHING;
    if (n <= 0)
        return SP_AUTH_GONE;
    link->n_in += (size_t)n;
    if (link->n_in < bytes)
        return SP_AUTH_NOTHING;
    link->n_in = 0;
    return SP_AUTH_ARRIVED;
}

/* ---- connections ---- */

static void link_begin(sp_auth_socket *link, int fd, sp_auth_socket_stage stage)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    memset(link, 0, sizeof *link);
    link->fd = fd;
    link->stage = stage;
    link->rank = -1;
    link->since_s = sp_now_s();
}

bool sp_auth_socket_accept(sp_auth_socket *link, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    assert(listener >= 0);
    if (fd < 0)
        return false;
    link_begin(link, fd, SP_AUTH_HELLO);
    link->is_root = true;
    return true;
}

bool sp_auth_socket_connect(sp_auth_socket *link, const sp_auth_socket_address *address,
                            int i, int rank)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = address->port[i]};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert(0 <= i && (uint32_t)i < address->n);
    assert(rank > 0);
    if (fd < 0)
        return false;
    to.sin_addr.s_addr = address->ip[i];
    link_begin(link, fd, SP_AUTH_CONNECTING);
    link->rank = rank;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS)
        sp_auth_socket_close(link);
    return link->stage == SP_AUTH_CONNECTING;
}

void sp_auth_socket_close(sp_auth_socket *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->stage = SP_AUTH_CLOSED;
}

bool sp_auth_socket_is_proven(const sp_auth_socket *link)
{
    return link->stage == SP_AUTH_PROVEN || link->stage == SP_AUTH_OPEN;
}

/* ---- identification: rank r ---- */

static bool say_hello(sp_auth_socket *link)
{
    struct pollfd fd = {link->fd, POLLOUT, 0};
    hello h = {.rank = link->rank};
    int error = 0;
    socklen_t size = sizeof error;

    if (poll(&fd, 1, 0) == 0)
        return true; /* the connection is not yet established */
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error)
        return false;
    if (getrandom(link->nonce[0], SP_AUTH_NONCE, 0) != SP_AUTH_NONCE)
        return false;
    memcpy(h.name, name, sizeof h.name);
    memcpy(h.nonce, link->nonce[0], sizeof h.nonce);
    link->stage = SP_AUTH_ASKED;
    return send_all(link, &h, sizeof h);
}

static bool link_read_answer(sp_auth_socket *link,
                             const sp_auth_socket_address *address)
{
    sp_auth_socket_event event = link_receive(link, sizeof(answer));
    uint64_t proof;
    answer a;

    if (event != SP_AUTH_ARRIVED)
        return event == SP_AUTH_NOTHING;
    memcpy(&a, link->in, sizeof a);
    memcpy(link->nonce[1], a.nonce, sizeof a.nonce);
    if (a.proof != hash(link, address, OF_ROOT))
        return false;
    proof = hash(link, address, OF_RANK);
    derive_key(link, address);
    link->stage = SP_AUTH_PROVEN;
    return send_all(link, &proof, sizeof proof);
}

/* ---- identification: rank 0 ---- */

static bool link_read_hello(sp_auth_socket *link, const sp_auth_socket_address *address,
                            int size)
{
    sp_auth_socket_event event = link_receive(link, sizeof(hello));
    answer a;
    hello h;

    if (event != SP_AUTH_ARRIVED)
        return event == SP_AUTH_NOTHING;
    memcpy(&h, link->in, sizeof h);
    if (memcmp(h.name, name, sizeof name) != 0 || h.zero != 0 || h.rank < 1 ||
        h.rank >= size)
        return false;
    link->rank = h.rank;
    memcpy(link->nonce[0], h.nonce, sizeof h.nonce);
    if (getrandom(link->nonce[1], SP_AUTH_NONCE, 0) != SP_AUTH_NONCE)
        return false;
    memcpy(a.nonce, link->nonce[1], sizeof a.nonce);
    a.proof = hash(link, address, OF_ROOT);
    link->stage = SP_AUTH_PROOF;
    return send_all(link, &a, sizeof a);
}

static bool link_read_proof(sp_auth_socket *link, const sp_auth_socket_address *address)
{
    uint64_t proof;
    sp_auth_socket_event event = link_receive(link, sizeof proof);

    if (event != SP_AUTH_ARRIVED)
        return event == SP_AUTH_NOTHING;
    memcpy(&proof, link->in, sizeof proof);
    if (proof != hash(link, address, OF_RANK))
        return false;
    derive_key(link, address);
    link->stage = SP_AUTH_OPEN;
    return true;
}

bool sp_auth_socket_advance(sp_auth_socket *link, const sp_auth_socket_address *address,
                            int size)
{
    bool is_well = true;

    assert(size > 1);
    if (link->stage == SP_AUTH_CONNECTING)
        is_well = say_hello(link);
    if (is_well && link->stage == SP_AUTH_ASKED)
        is_well = link_read_answer(link, address);
    if (is_well && link->stage == SP_AUTH_HELLO)
        is_well = link_read_hello(link, address, size);
    if (is_well && link->stage == SP_AUTH_PROOF)
        is_well = link_read_proof(link, address);
    if (!is_well)
        sp_auth_socket_close(link);
    return is_well;
}

/* ---- frames ---- */

/* Sends the rest of an earlier frame. True when all of it is sent. */
static bool link_flush(sp_auth_socket *link)
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

void sp_auth_socket_send(sp_auth_socket *link, const sp_status_frame *status)
{
    frame f = {.status = *status};

    if (!sp_auth_socket_is_proven(link) || !link_flush(link))
        return;
    f.number = ++link->n_sent;
    f.proof = hash_frame(link, &f, link->is_root);
    memcpy(link->out, &f, sizeof f);
    link->n_out = sizeof f;
    link_flush(link);
}

static bool is_status(int code)
{
#define IS_CODE(name, value, text) code == (value) ||
    return SP_STATUS_LIST(IS_CODE) false;
}

/* True if every field is in its range. A proven frame comes from this program, but a
 * value out of range must neither index an array nor end a run. */
static bool are_sane(const sp_status_frame *s, int rank)
{
    return s->rank == rank && s->kind >= SP_FRAME_ALIVE && s->kind <= SP_FRAME_LEAVE &&
           is_status(s->code) && (s->kind != SP_FRAME_LEAVE || s->code != SP_OK) &&
           (s->is_waiting == 0 || s->is_waiting == 1) && s->work >= 0 &&
           s->waits >= 0 && s->phase >= 0 && s->phase < SP_AUTH_PHASES &&
           s->epoch >= 0 && s->step >= 0 && isfinite(s->own_s) && s->own_s >= 0 &&
           s->own_phase >= 0 && s->own_phase < SP_AUTH_PHASES &&
           sp_text_is_ascii(s->host, sizeof s->host);
}

sp_auth_socket_event sp_auth_socket_receive(sp_auth_socket *link,
                                            sp_status_frame *status)
{
    sp_auth_socket_event event;
    frame f;

    if (!sp_auth_socket_is_proven(link))
        return SP_AUTH_NOTHING;
    event = link_receive(link, sizeof f);
    if (event != SP_AUTH_ARRIVED)
        return event;
    memcpy(&f, link->in, sizeof f);
    if (f.proof != hash_frame(link, &f, !link->is_root) ||
        f.number != link->n_received + 1 ||
        !are_sane(&f.status, link->is_root ? link->rank : 0))
        return SP_AUTH_FOREIGN;
    link->n_received++;
    link->stage = SP_AUTH_OPEN;
    *status = f.status;
    return event;
}

/* ---- listening: rank 0, only at the addresses that the job needs ---- */

int sp_auth_socket_own_addresses(uint32_t ip[SP_AUTH_ADDRESSES])
{
    struct ifaddrs *all;
    int n = 0;

    if (getifaddrs(&all) != 0)
        return 0;
    for (struct ifaddrs *at = all; at && n < SP_AUTH_ADDRESSES; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET ||
            !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
            continue;
        ip[n++] =
            ((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr.s_addr;
    }
    freeifaddrs(all);
    return n;
}

static bool is_among(const uint32_t *ip, uint32_t n, uint32_t one)
{
    for (uint32_t i = 0; i < n; i++)
        if (ip[i] == one)
            return true;
    return false;
}

/* Returns the own address that the system would use to send to `peer`, or 0 if it has
 * no route. Nothing is sent. */
static uint32_t address_towards(uint32_t peer)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t size = sizeof to;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_found;

    to.sin_addr.s_addr = peer;
    is_found = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
               getsockname(fd, (struct sockaddr *)&to, &size) == 0;
    if (fd >= 0)
        close(fd);
    return is_found ? to.sin_addr.s_addr : 0;
}

/* Chooses the addresses to listen at. A peer's address that this host has too, as every
 * host has the address of its containers' bridge, leads to no other host. */
static void link_choose(sp_auth_socket_address *address, const uint32_t *peers,
                        int n_peers)
{
    uint32_t own[SP_AUTH_ADDRESSES];
    const uint32_t n_own = (uint32_t)sp_auth_socket_own_addresses(own);

    for (int i = 0; i < n_peers && address->n < SP_AUTH_ADDRESSES; i++) {
        uint32_t ip = is_among(own, n_own, peers[i]) ? 0 : address_towards(peers[i]);

        if (ip && !is_among(address->ip, address->n, ip))
            address->ip[address->n++] = ip;
    }
    if (address->n == 0)
        address->ip[address->n++] = htonl(INADDR_LOOPBACK);
}

static int link_listen_at(uint32_t ip, uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    at.sin_addr.s_addr = ip;
    if (fd >= 0 &&
        (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, BACKLOG) != 0 ||
         getsockname(fd, (struct sockaddr *)&at, &size) != 0)) {
        int error = errno;

        close(fd);
        errno = error;
        fd = -1;
    }
    *port = at.sin_port;
    return fd;
}

sp_status sp_auth_socket_listen(int *fd, sp_auth_socket_address *address,
                                const char *host, const uint32_t *peers, int n_peers)
{
    uint32_t n = 0;

    assert(fd && address && host);
    assert(n_peers >= 0 && (peers || n_peers == 0));
    memset(address, 0, sizeof *address);
    strncpy(address->host, host, sizeof address->host - 1);
    if (getrandom(address->secret, sizeof address->secret, 0) !=
        (ssize_t)sizeof address->secret)
        return SP_FAIL(SP_EIO, "watchdog: the system gives no random numbers: %s",
                       strerror(errno));
    link_choose(address, peers, n_peers);
    for (uint32_t i = 0; i < address->n; i++) {
        fd[n] = link_listen_at(address->ip[i], &address->port[n]);
        address->ip[n] = address->ip[i];
        n += fd[n] >= 0;
    }
    address->n = n;
    if (n == 0)
        return SP_FAIL(SP_EIO, "watchdog: cannot listen for the other ranks: %s",
                       strerror(errno));
    return SP_OK;
}

/* ---- SipHash ---- */

typedef struct siphash_state {
    uint64_t v0, v1, v2, v3;
} siphash_state;

static uint64_t siphash_rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* The SipRound of the paper, figure 2.1. */
static void siphash_mix(siphash_state *s, int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = siphash_rotate(s->v1, 13) ^ s->v0;
        s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
        s->v0 = siphash_rotate(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = siphash_rotate(s->v1, 17) ^ s->v2;
        s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
        s->v2 = siphash_rotate(s->v2, 32);
    }
}

/* The number that up to eight bytes form, the first byte lowest. */
static uint64_t siphash_number(const uint8_t *bytes, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum |= (uint64_t)bytes[i] << 8 * i;
    return sum;
}

static void siphash_absorb(siphash_state *s, uint64_t word)
{
    s->v3 ^= word;
    siphash_mix(s, 2);
    s->v0 ^= word;
}

uint64_t sp_siphash(const uint8_t key[SP_SIPHASH_KEY], const void *data, size_t bytes)
{
    const uint8_t *at = data;
    const uint64_t k0 = siphash_number(key, 8), k1 = siphash_number(key + 8, 8);
    siphash_state s = {
        k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
        k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    size_t i;

    assert(key && (data || bytes == 0));
    for (i = 0; i + 8 <= bytes; i += 8)
        siphash_absorb(&s, siphash_number(at + i, 8));
    /* The highest byte of the last word is the length modulo 256. */
    siphash_absorb(&s, siphash_number(at + i, bytes - i) | (uint64_t)(bytes & 0xff)
                                                               << 56);
    s.v2 ^= 0xff;
    siphash_mix(&s, 4);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
