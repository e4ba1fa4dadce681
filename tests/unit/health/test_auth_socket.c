/* A connection between watchdogs is open only to those who know the run's secret, says
 * nothing to others, and takes no frame twice, changed, or out of its range. */
#include "fixtures/test.h"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "health/sp_auth_socket.h"
#include "health/sp_watchdog.h"
#include "run/sp_heartbeat.h"

enum { SIZE = 4, RANK = 2 };

static int listener[SP_AUTH_ADDRESSES];
static sp_auth_socket_address address;

BEFORE_ALL(open_door)
{
    OK(sp_auth_socket_listen(listener, &address, "here", NULL, 0));
}

static void await(int fd)
{
    struct pollfd ready = {fd, POLLIN, 0};

    assert_int_equal(poll(&ready, 1, -1), 1);
}

static bool is_decided(const sp_auth_socket *link)
{
    return link->stage == SP_AUTH_CLOSED || sp_auth_socket_is_proven(link);
}

/* Both sides work until none has more to do; their stages then tell the outcome. */
static void let_talk(sp_auth_socket *rank, const sp_auth_socket_address *theirs,
                     sp_auth_socket *root)
{
    /* Both are proven or closed soon; 20 more rounds would show them go on. */
    for (int i = 0; i < 20 || (i < 60000 && !(is_decided(rank) && is_decided(root)));
         i++) {
        if (rank->stage != SP_AUTH_CLOSED && !sp_auth_socket_is_proven(rank))
            sp_auth_socket_advance(rank, theirs, SIZE);
        if (root->stage != SP_AUTH_CLOSED && !sp_auth_socket_is_proven(root))
            sp_auth_socket_advance(root, &address, SIZE);
        poll(NULL, 0, 1);
    }
}

static void connect_both(sp_auth_socket *rank, const sp_auth_socket_address *theirs,
                         sp_auth_socket *root)
{
    struct pollfd waits = {listener[0], POLLIN, 0};

    assert_true(sp_auth_socket_connect(rank, theirs, 0, RANK));
    assert_int_equal(poll(&waits, 1, -1), 1);
    assert_true(sp_auth_socket_accept(root, listener[0]));
    assert_false(sp_auth_socket_is_proven(rank));
    let_talk(rank, theirs, root);
}

static sp_auth_socket_event next(sp_auth_socket *link, sp_status_frame *status)
{
    await(link->fd);
    return sp_auth_socket_receive(link, status);
}

static const sp_status_frame sane = {
    .rank = RANK, .work = 7, .phase = SP_PHASE_READ, .step = 3, .host = "here"};

TEST(only_this_host_reaches_the_door)
{
    const uint8_t *ip = (const uint8_t *)&address.ip[0];

    assert_int_equal(address.n, 1);
    assert_int_equal(ip[0], 127);
}

TEST(those_who_know_the_secret_are_connected)
{
    sp_auth_socket rank, root;
    sp_status_frame status;

    connect_both(&rank, &address, &root);
    assert_int_equal(root.stage, SP_AUTH_OPEN);
    assert_int_equal(root.rank, RANK);
    assert_int_equal(rank.stage, SP_AUTH_PROVEN);
    for (int i = 0; i < 3; i++) {
        sp_auth_socket_send(&rank, &sane);
        assert_int_equal(next(&root, &status), SP_AUTH_ARRIVED);
        assert_memory_equal(&status, &sane, sizeof sane);
    }
    status.rank = 0;
    sp_auth_socket_send(&root, &status);
    assert_int_equal(next(&rank, &status), SP_AUTH_ARRIVED);
    assert_int_equal(rank.stage, SP_AUTH_OPEN);
    sp_auth_socket_close(&rank);
    assert_int_equal(next(&root, &status), SP_AUTH_GONE);
    sp_auth_socket_close(&root);
}

TEST(another_secret_is_refused_by_both_sides)
{
    sp_auth_socket_address other = address;
    sp_auth_socket rank, root;

    other.secret[15] ^= 1;
    connect_both(&rank, &other, &root); /* rank r does not believe rank 0 */
    assert_int_equal(rank.stage, SP_AUTH_CLOSED);
    assert_int_equal(root.stage, SP_AUTH_CLOSED);
}

/* Rank 0 meets a plain connection that sends what `say` writes. */
static int stranger(sp_auth_socket *root)
{
    struct pollfd waits = {listener[0], POLLIN, 0};
    sp_auth_socket link;

    assert_true(sp_auth_socket_connect(&link, &address, 0, RANK));
    assert_int_equal(poll(&waits, 1, -1), 1);
    assert_true(sp_auth_socket_accept(root, listener[0]));
    return link.fd;
}

TEST(a_stranger_is_told_nothing_unasked)
{
    char word[256];
    sp_auth_socket root;
    int fd = stranger(&root);

    assert_true(sp_auth_socket_advance(&root, &address, SIZE));
    sp_auth_socket_send(&root, &sane); /* not before a proof */
    poll(NULL, 0, 20);
    assert_true(recv(fd, word, sizeof word, MSG_DONTWAIT) < 0);
    assert_false(sp_auth_socket_is_proven(&root));
    close(fd);
    await(root.fd);
    assert_false(sp_auth_socket_advance(&root, &address, SIZE));
}

/* Writes the hello of a rank, then 8 bytes of `proof`, or rank 0's own proof where it
 * is NULL. */
static void try_proof(const char *proof, int32_t rank, sp_auth_socket_stage want)
{
    struct {
        char name[8];
        int32_t rank, zero;
        char nonce[16];
    } hello = {.rank = rank};
    char answer[24] = "";
    sp_auth_socket root;
    int fd = stranger(&root);

    memcpy(hello.name, "sptrain1", 8);
    assert_int_equal(send(fd, &hello, sizeof hello, 0), sizeof hello);
    await(root.fd);
    sp_auth_socket_advance(&root, &address, SIZE);
    /* Who names no rank of this job gets no answer. */
    assert_int_equal(root.stage,
                     rank >= 1 && rank < SIZE ? SP_AUTH_PROOF : SP_AUTH_CLOSED);
    if (root.stage == SP_AUTH_PROOF) {
        assert_int_equal(recv(fd, answer, sizeof answer, 0), sizeof answer);
        assert_int_equal(send(fd, proof ? proof : answer + 16, 8, 0), 8);
        await(root.fd);
        sp_auth_socket_advance(&root, &address, SIZE);
    }
    assert_int_equal(root.stage, want);
    sp_auth_socket_close(&root);
    close(fd);
}

TEST(a_proof_is_neither_guessed_nor_sent_back)
{
    try_proof("\0\0\0\0\0\0\0", RANK, SP_AUTH_CLOSED);
    try_proof(NULL, RANK, SP_AUTH_CLOSED);
    try_proof(NULL, 0, SP_AUTH_CLOSED); /* no ranks have these numbers */
    try_proof(NULL, -1, SP_AUTH_CLOSED);
    try_proof(NULL, SIZE, SP_AUTH_CLOSED);
}

/* A rank connects and sends a frame; `act` changes the bytes that are about to be
 * sent. */
static void send_changed(void (*act)(sp_auth_socket *rank, sp_status_frame *status))
{
    sp_status_frame status = sane, got;
    CLOSED_BY(sp_auth_socket_close) sp_auth_socket rank, root;

    connect_both(&rank, &address, &root);
    sp_auth_socket_send(&rank, &status);
    assert_int_equal(next(&root, &got), SP_AUTH_ARRIVED);
    act(&rank, &status);
    sp_auth_socket_send(&rank, &status);
    assert_int_equal(next(&root, &got), SP_AUTH_FOREIGN);
}

#define CHANGE(function, ...)                                                          \
    static void function(sp_auth_socket *rank, sp_status_frame *status)                \
    {                                                                                  \
        (void)rank;                                                                    \
        (void)status;                                                                  \
        __VA_ARGS__;                                                                   \
    }
CHANGE(repeat, rank->n_sent--)
CHANGE(leave_out, rank->n_sent++)
CHANGE(lose_key, rank->key[0] ^= 1)
CHANGE(turn_round, rank->is_root = true) /* a frame of rank 0, sent back to it */
CHANGE(another_rank, status->rank = 1)
CHANGE(no_rank, status->rank = 1 << 30)
CHANGE(no_kind, status->kind = 3)
CHANGE(no_status, status->code = 77)
CHANGE(no_phase, status->phase = SP_PHASE_COUNT)
CHANGE(no_step, status->step = -1)
CHANGE(no_flag, status->is_waiting = 2)
CHANGE(no_time, status->own_s = NAN)
CHANGE(no_phase_of_work, status->own_phase = SP_PHASE_COUNT)
CHANGE(leave_with_success, status->kind = SP_FRAME_LEAVE)
CHANGE(escape_codes, status->host[0] = '\033')
CHANGE(no_name_end, memset(status->host, 'x', sizeof status->host))

TEST(a_frame_is_taken_once_unchanged_and_in_range)
{
    void (*const acts[])(sp_auth_socket *, sp_status_frame *) = {
        repeat,           leave_out,    lose_key,    turn_round,
        another_rank,     no_rank,      no_kind,     no_status,
        no_phase,         no_step,      no_flag,     no_time,
        no_phase_of_work, escape_codes, no_name_end, leave_with_success};

    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        send_changed(acts[i]);
}

static int count_sockets(void)
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *entry;
    char path[300], target[64];
    int n = 0;

    assert_non_null(all);
    while ((entry = readdir(all))) {
        ssize_t bytes;

        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        bytes = readlink(path, target, sizeof target);
        n += bytes > 7 && memcmp(target, "socket:", 7) == 0;
    }
    closedir(all);
    return n;
}

TEST(one_rank_has_no_port)
{
    const int before = count_sockets();
    sp_watchdog *watchdog;
    sp_comm comm;
    CLOSED_BY(sp_run_close) sp_run run;

    sp_comm_open_self(&comm);
    OK(sp_run_open(&run, "", &comm));
    OK(sp_watchdog_start(&watchdog, &run, 60, 60));
    assert_non_null(watchdog);
    assert_int_equal(count_sockets(), before);
    sp_watchdog_stop(watchdog, SP_OK);
}
