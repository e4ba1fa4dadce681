/* The server of PMI-1 answers as MPICH's launcher does, and drops who says other things. */
#include "fixtures/test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "comm/sp_pmi.h"

typedef struct pmi_case {
    sp_pmi *pmi;
    int rank[3]; /* the ranks' ends of the sockets */
} pmi_case;

static void open_case(pmi_case *c, const int *nodes)
{
    int fds[3];

    for (int r = 0; r < 3; r++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        c->rank[r] = pair[0];
        fds[r] = pair[1];
    }
    OK(sp_pmi_create(&c->pmi, 3, fds, nodes));
}

static void close_case(pmi_case *c)
{
    sp_pmi_destroy(c->pmi);
    for (int r = 0; r < 3; r++)
        close(c->rank[r]);
}

/* What has arrived at a rank's end; "" if nothing has. */
static const char *heard(pmi_case *c, int rank)
{
    static char text[8192];
    const ssize_t n = recv(c->rank[rank], text, sizeof text - 1, MSG_DONTWAIT);

    text[n > 0 ? n : 0] = 0;
    return text;
}

static const char *ask(pmi_case *c, int rank, const char *line)
{
    assert_int_equal(write(c->rank[rank], line, strlen(line)), (ssize_t)strlen(line));
    sp_pmi_serve(c->pmi, rank);
    return heard(c, rank);
}

TEST(names_and_values_are_shared)
{
    const int nodes[3] = {0, 0, 0};
    pmi_case c;

    open_case(&c, nodes);
    assert_string_equal(ask(&c, 0, "cmd=init pmi_version=1 pmi_subversion=1\n"),
                        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    assert_string_equal(ask(&c, 1, "cmd=get_universe_size\n"),
                        "cmd=universe_size size=3\n");
    assert_string_equal(ask(&c, 1, "cmd=put kvsname=k key=a value=x y=z\n"),
                        "cmd=put_result rc=0 msg=success\n");
    assert_string_equal(ask(&c, 2, "cmd=get kvsname=k key=a\n"),
                        "cmd=get_result rc=0 msg=success value=x y=z\n");
    assert_non_null(strstr(ask(&c, 2, "cmd=put kvsname=k key=a value=b\n"), "rc=-1"));
    assert_non_null(strstr(ask(&c, 2, "cmd=get kvsname=k key=b\n"), "rc=-1"));
    /* Two lines at once, and one in pieces. */
    assert_string_equal(ask(&c, 0, "cmd=get_appnum\ncmd=get_my"),
                        "cmd=appnum appnum=0\n");
    assert_string_equal(ask(&c, 0, "_kvsname\n"),
                        "cmd=my_kvsname kvsname=kvs_sptrain\n");
    close_case(&c);
}

TEST(a_barrier_waits_for_all)
{
    const int nodes[3] = {0, 0, 0};
    pmi_case c;

    open_case(&c, nodes);
    for (int round = 0; round < 2; round++) {
        assert_string_equal(ask(&c, 0, "cmd=barrier_in\n"), "");
        assert_string_equal(ask(&c, 2, "cmd=barrier_in\n"), "");
        assert_string_equal(ask(&c, 1, "cmd=barrier_in\n"), "cmd=barrier_out\n");
        assert_string_equal(heard(&c, 0), "cmd=barrier_out\n");
        assert_string_equal(heard(&c, 2), "cmd=barrier_out\n");
    }
    close_case(&c);
}

TEST(nodes_are_told_in_blocks)
{
    static const struct {
        int nodes[3];
        const char *text;
    } cases[] = {{{0, 0, 0}, "(vector,(0,1,3))"},
                 {{0, 1, 2}, "(vector,(0,3,1))"},
                 {{0, 0, 1}, "(vector,(0,1,2),(1,1,1))"},
                 {{0, 1, 0}, "(vector,(0,2,1),(0,1,1))"}};
    char line[200];
    pmi_case c;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_case(&c, cases[i].nodes);
        snprintf(line, sizeof line, "cmd=get_result rc=0 msg=success value=%s\n",
                 cases[i].text);
        assert_string_equal(ask(&c, 0, "cmd=get kvsname=k key=PMI_process_mapping\n"),
                            line);
        close_case(&c);
    }
}

TEST(an_abort_keeps_its_code)
{
    const int nodes[3] = {0, 0, 0};
    pmi_case c;

    open_case(&c, nodes);
    assert_int_equal(sp_pmi_aborted(c.pmi), 0);
    ask(&c, 1, "cmd=abort exitcode=5\n");
    ask(&c, 0, "cmd=abort exitcode=7\n");
    assert_int_equal(sp_pmi_aborted(c.pmi), 5);
    close_case(&c);
}

TEST(other_words_end_the_connection)
{
    const int nodes[3] = {0, 0, 0};
    char long_text[4000];
    pmi_case c;

    open_case(&c, nodes);
    ask(&c, 0, "GET / HTTP/1.1\n");
    assert_int_equal(sp_pmi_fd(c.pmi, 0), -1);
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    ask(&c, 1, long_text);
    assert_int_equal(sp_pmi_fd(c.pmi, 1), -1);
    assert_non_null(strstr(ask(&c, 2, "mcmd=spawn\nnprocs=1\nendcmd\n"), "rc=-1"));
    assert_true(sp_pmi_fd(c.pmi, 2) >= 0);
    close_case(&c);
}
