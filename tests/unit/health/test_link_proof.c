/* A connection between watchdogs is open only to those who know the run's secret, says
 * nothing to others, and takes no frame twice, changed, or out of its range. */
#include "fixtures/test.h"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "health/sp_link.h"
#include "run/sp_heartbeat.h"
#include "health/sp_watchdog.h"

enum { SIZE = 4, RANK = 2 };

static int listener[SP_LINK_ADDRESSES];
static sp_link_address address;

BEFORE_ALL(open_door)
{
    OK(sp_link_listen(listener, &address, "here", NULL, 0));
}

static void await(int fd)
{
    struct pollfd ready = {fd, POLLIN, 0};

    assert_int_equal(poll(&ready, 1, -1), 1);
}

static bool is_decided(const sp_link *link)
{
    return link->stage == SP_LINK_CLOSED || sp_link_is_proven(link);
}

/* Both sides work until none has more to do; their stages then tell the outcome. */
static void let_talk(sp_link *rank, const sp_link_address *theirs, sp_link *root)
{
    /* Both are proven or closed soon; 20 more rounds would show them go on. */
    for (int i = 0; i < 20 || (i < 60000 && !(is_decided(rank) && is_decided(root)));
         i++) {
        if (rank->stage != SP_LINK_CLOSED && !sp_link_is_proven(rank))
            sp_link_advance(rank, theirs, SIZE);
        if (root->stage != SP_LINK_CLOSED && !sp_link_is_proven(root))
            sp_link_advance(root, &address, SIZE);
        poll(NULL, 0, 1);
    }
}

static void connect_both(sp_link *rank, const sp_link_address *theirs, sp_link *root)
{
    struct pollfd waits = {listener[0], POLLIN, 0};

    assert_true(sp_link_connect(rank, theirs, 0, RANK));
    assert_int_equal(poll(&waits, 1, -1), 1);
    assert_true(sp_link_accept(root, listener[0]));
    assert_false(sp_link_is_proven(rank));
    let_talk(rank, theirs, root);
}

static sp_link_event next(sp_link *link, sp_signs *signs)
{
    await(link->fd);
    return sp_link_receive(link, signs);
}

static const sp_signs sane = {
    .rank = RANK, .work = 7, .phase = SP_PHASE_READ, .step = 3, .host = "here"};

TEST(only_this_host_reaches_the_door)
{
    const uint8_t *ip = (const uint8_t *)&address.ip[0];

    assert_int_equal(address.n, 1);
    assert_int_equal(ip[0], 127);
}

TEST(those_who_know_the_secret_are_connected)
{
    sp_link rank, root;
    sp_signs signs;

    connect_both(&rank, &address, &root);
    assert_int_equal(root.stage, SP_LINK_OPEN);
    assert_int_equal(root.rank, RANK);
    assert_int_equal(rank.stage, SP_LINK_PROVEN);
    for (int i = 0; i < 3; i++) {
        sp_link_send(&rank, &sane);
        assert_int_equal(next(&root, &signs), SP_LINK_SIGNS);
        assert_memory_equal(&signs, &sane, sizeof sane);
    }
    signs.rank = 0;
    sp_link_send(&root, &signs);
    assert_int_equal(next(&rank, &signs), SP_LINK_SIGNS);
    assert_int_equal(rank.stage, SP_LINK_OPEN);
    sp_link_close(&rank);
    assert_int_equal(next(&root, &signs), SP_LINK_GONE);
    sp_link_close(&root);
}

TEST(another_secret_is_refused_by_both_sides)
{
    sp_link_address other = address;
    sp_link rank, root;

    other.secret[15] ^= 1;
    connect_both(&rank, &other, &root); /* rank r does not believe rank 0 */
    assert_int_equal(rank.stage, SP_LINK_CLOSED);
    assert_int_equal(root.stage, SP_LINK_CLOSED);
}

/* Rank 0 meets a plain connection that sends what `say` writes. */
static int stranger(sp_link *root)
{
    struct pollfd waits = {listener[0], POLLIN, 0};
    sp_link link;

    assert_true(sp_link_connect(&link, &address, 0, RANK));
    assert_int_equal(poll(&waits, 1, -1), 1);
    assert_true(sp_link_accept(root, listener[0]));
    return link.fd;
}

TEST(a_stranger_is_told_nothing_unasked)
{
    char word[256];
    sp_link root;
    int fd = stranger(&root);

    assert_true(sp_link_advance(&root, &address, SIZE));
    sp_link_send(&root, &sane); /* not before a proof */
    poll(NULL, 0, 20);
    assert_true(recv(fd, word, sizeof word, MSG_DONTWAIT) < 0);
    assert_false(sp_link_is_proven(&root));
    close(fd);
    await(root.fd);
    assert_false(sp_link_advance(&root, &address, SIZE));
}

/* Writes the hello of a rank, then 8 bytes of `proof`, or rank 0's own proof where it
 * is NULL. */
static void try_proof(const char *proof, int32_t rank, sp_link_stage want)
{
    struct {
        char name[8];
        int32_t rank, zero;
        char nonce[16];
    } hello = {.rank = rank};
    char answer[24] = "";
    sp_link root;
    int fd = stranger(&root);

    memcpy(hello.name, "sptrain1", 8);
    assert_int_equal(send(fd, &hello, sizeof hello, 0), sizeof hello);
    await(root.fd);
    sp_link_advance(&root, &address, SIZE);
    /* Who names no rank of this job gets no answer. */
    assert_int_equal(root.stage,
                     rank >= 1 && rank < SIZE ? SP_LINK_PROOF : SP_LINK_CLOSED);
    if (root.stage == SP_LINK_PROOF) {
        assert_int_equal(recv(fd, answer, sizeof answer, 0), sizeof answer);
        assert_int_equal(send(fd, proof ? proof : answer + 16, 8, 0), 8);
        await(root.fd);
        sp_link_advance(&root, &address, SIZE);
    }
    assert_int_equal(root.stage, want);
    sp_link_close(&root);
    close(fd);
}

TEST(a_proof_is_neither_guessed_nor_sent_back)
{
    try_proof("\0\0\0\0\0\0\0", RANK, SP_LINK_CLOSED);
    try_proof(NULL, RANK, SP_LINK_CLOSED);
    try_proof(NULL, 0, SP_LINK_CLOSED); /* no ranks have these numbers */
    try_proof(NULL, -1, SP_LINK_CLOSED);
    try_proof(NULL, SIZE, SP_LINK_CLOSED);
}

/* A rank connects and sends a frame; `act` changes the bytes that are about to be
 * sent. */
static void send_changed(void (*act)(sp_link *rank, sp_signs *signs))
{
    sp_signs signs = sane, got;
    CLOSED_BY(sp_link_close) sp_link rank, root;

    connect_both(&rank, &address, &root);
    sp_link_send(&rank, &signs);
    assert_int_equal(next(&root, &got), SP_LINK_SIGNS);
    act(&rank, &signs);
    sp_link_send(&rank, &signs);
    assert_int_equal(next(&root, &got), SP_LINK_FOREIGN);
}

#define CHANGE(function, ...)                                                          \
    static void function(sp_link *rank, sp_signs *signs)                               \
    {                                                                                  \
        (void)rank;                                                                    \
        (void)signs;                                                                   \
        __VA_ARGS__;                                                                   \
    }
CHANGE(repeat, rank->n_sent--)
CHANGE(leave_out, rank->n_sent++)
CHANGE(lose_key, rank->key[0] ^= 1)
CHANGE(turn_round, rank->is_root = true) /* a frame of rank 0, sent back to it */
CHANGE(another_rank, signs->rank = 1)
CHANGE(no_rank, signs->rank = 1 << 30)
CHANGE(no_kind, signs->kind = 3)
CHANGE(no_status, signs->code = 77)
CHANGE(no_phase, signs->phase = SP_PHASE_COUNT)
CHANGE(no_step, signs->step = -1)
CHANGE(no_flag, signs->is_waiting = 2)
CHANGE(no_time, signs->own_s = NAN)
CHANGE(no_phase_of_work, signs->own_phase = SP_PHASE_COUNT)
CHANGE(leave_with_success, signs->kind = SP_SIGNS_LEAVE)
CHANGE(escape_codes, signs->host[0] = '\033')
CHANGE(no_name_end, memset(signs->host, 'x', sizeof signs->host))

TEST(a_frame_is_taken_once_unchanged_and_in_range)
{
    void (*const acts[])(sp_link *, sp_signs *) = {
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
