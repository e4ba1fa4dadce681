/* Hostile peers and broken connections of the watchdogs: a rank and rank 0 shake hands
 * and send frames while a middleman changes one message, or a peer proves to be a rank
 * and sends numbers that no rank has. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "health/sp_auth_socket.h"
#include "torture/fuzz/fuzz.h"

enum { SIZE = 4, RANK = 2, FRAMES = 3, ROUNDS = 12, MOST_BYTES = 8192 };

/* Two ends, each connected to a middleman. */
typedef struct line {
    sp_auth_socket rank, root;
    int of_rank, of_root; /* the middle's ends */
    sp_auth_socket_address address;
    int until;       /* messages that pass unchanged */
    bool is_changed; /* one has been changed */
    uint64_t *rng;
} line;

static void open_end(sp_auth_socket *link, int *middle, sp_auth_socket_stage stage)
{
    int ends[2];

    mutate_check(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0,
        "socketpair");
    memset(link, 0, sizeof *link);
    link->fd = ends[0];
    link->stage = stage;
    link->rank = -1;
    *middle = ends[1];
}

static void open_line(line *l, uint64_t *rng)
{
    memset(l, 0, sizeof *l);
    l->rng = rng;
    for (size_t i = 0; i < sizeof l->address.secret; i++)
        l->address.secret[i] = (uint8_t)mutate_next(rng);
    open_end(&l->rank, &l->of_rank, SP_AUTH_CONNECTING);
    l->rank.rank = RANK;
    open_end(&l->root, &l->of_root, SP_AUTH_HELLO);
    l->root.is_root = true;
}

static void close_line(line *l)
{
    sp_auth_socket_close(&l->rank);
    sp_auth_socket_close(&l->root);
    close(l->of_rank);
    close(l->of_root);
}

/* Passes the bytes that came from one end on to the other. */
static void pass(line *l, int from, int to)
{
    static unsigned char bytes[MOST_BYTES];
    ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    blob b;

    if (n <= 0)
        return;
    b = blob_copy((blob){bytes, (size_t)n});
    if (l->until-- == 0) {
        mutate_bytes(&b, l->rng);
        l->is_changed = b.n != (size_t)n || memcmp(b.at, bytes, b.n) != 0;
    }
    fuzz_size(b.n);
    if (send(to, b.at, b.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        l->until = -1; /* the other end has closed */
    free(b.at);
}

static void shake_hands(line *l)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (l->rank.stage != SP_AUTH_CLOSED)
            sp_auth_socket_advance(&l->rank, &l->address, SIZE);
        pass(l, l->of_rank, l->of_root);
        if (l->root.stage != SP_AUTH_CLOSED)
            sp_auth_socket_advance(&l->root, &l->address, SIZE);
        pass(l, l->of_root, l->of_rank);
    }
}

static sp_status_frame good_status(int rank, int number)
{
    return (sp_status_frame){.rank = rank,
                             .work = 10 + number,
                             .waits = 3,
                             .phase = 2,
                             .epoch = 1,
                             .step = 100 + number,
                             .own_s = 0.25,
                             .own_phase = 4,
                             .host = "node12"};
}

/* Checks that the frames that come are those that were sent, in order; returns their
 * number. */
static int receive_good(sp_auth_socket *link, int rank, int number)
{
    sp_status_frame got, want;

    while (sp_auth_socket_receive(link, &got) == SP_AUTH_ARRIVED) {
        want = good_status(rank, number++);
        if (memcmp(&got, &want, sizeof got) != 0)
            fuzz_fault("a frame was changed, and nobody noticed");
    }
    return number;
}

static bool run_changed(uint64_t *rng)
{
    int n_root = 0, n_rank = 0;
    line l;

    open_line(&l, rng);
    l.until = (int)mutate_below(rng, 3 + 2 * (FRAMES - 1)); /* more follow after it */
    shake_hands(&l);
    for (int i = 0; i < FRAMES; i++) {
        sp_status_frame of_rank = good_status(RANK, i), of_root = good_status(0, i);

        sp_auth_socket_send(&l.rank, &of_rank);
        pass(&l, l.of_rank, l.of_root);
        n_root = receive_good(&l.root, RANK, n_root);
        sp_auth_socket_send(&l.root, &of_root);
        pass(&l, l.of_root, l.of_rank);
        n_rank = receive_good(&l.rank, 0, n_rank);
    }
    close_line(&l);
    if (l.is_changed && n_root == FRAMES && n_rank == FRAMES)
        fuzz_fault("a message was changed, and all went on");
    return n_root > 0;
}

/* ---- a peer that is a rank, and hostile ---- */

static const field fields[] = {
    {0, 4, 'u'},  {4, 4, 'u'},  {8, 4, 'u'},   {12, 4, 'u'}, {16, 8, 'u'},
    {24, 8, 'u'}, {32, 8, 'u'}, {40, 8, 'u'},  {48, 8, 'u'}, {56, 8, 'f'},
    {64, 8, 'u'}, {72, 8, 'u'}, {128, 8, 'u'},
};

static void check_sane(const sp_status_frame *s)
{
    if (s->rank != RANK || s->kind < SP_FRAME_ALIVE || s->kind > SP_FRAME_LEAVE ||
        (s->kind == SP_FRAME_LEAVE && s->code == 0) || s->phase < 0 ||
        s->phase >= SP_AUTH_PHASES || s->epoch < 0 || s->step < 0 || s->work < 0 ||
        s->waits < 0 || !(s->own_s >= 0) || s->own_phase < 0 ||
        s->own_phase >= SP_AUTH_PHASES || !memchr(s->host, 0, sizeof s->host))
        fuzz_fault("rank %d, kind %d, code %d, phase %lld: taken", s->rank, s->kind,
                   s->code, (long long)s->phase);
}

static bool run_hostile(uint64_t *rng)
{
    sp_status_frame status = good_status(RANK, 0), got;
    blob b = blob_copy((blob){(unsigned char *)&status, sizeof status});
    bool is_taken;
    line l;

    open_line(&l, rng);
    l.until = -1;
    shake_hands(&l);
    if (l.root.stage != SP_AUTH_OPEN)
        fuzz_fault("ranks do not come together");
    for (size_t k = 1 + mutate_below(rng, 2); k > 0; k--)
        mutate_field(&b, fields, sizeof fields / sizeof *fields, rng);
    memcpy(&status, b.at, sizeof status);
    free(b.at);
    sp_auth_socket_send(&l.rank, &status);
    pass(&l, l.of_rank, l.of_root);
    is_taken = sp_auth_socket_receive(&l.root, &got) == SP_AUTH_ARRIVED;
    if (is_taken)
        check_sane(&got);
    close_line(&l);
    return is_taken;
}

static bool run(uint64_t *rng)
{
    return mutate_below(rng, 3) ? run_changed(rng) : run_hostile(rng);
}

const fuzz_kind fuzz_link = {"link", 40, NULL, run};
