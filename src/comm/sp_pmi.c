#include "comm/sp_pmi.h"

#include <assert.h>
#include <errno.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The client's lines have at most 1024 bytes; its names and values have these lengths,
 * as MPICH's launcher states them. */
enum { LINE = 2048, NAME_MAX_ = 64, VALUE_MAX = 1024, KVS_MAX = 256, MAPPING = 900 };
static const char kvs_name[] = "kvs_sptrain";

typedef struct pmi_peer {
    int fd;
    bool is_in_barrier, is_in_list; /* list: between mcmd= and endcmd */
    size_t used;
    char line[LINE];
} pmi_peer;

typedef struct pmi_entry {
    char *key, *value;
} pmi_entry;

struct sp_pmi {
    int n, n_in_barrier, aborted;
    void *table; /* of tsearch: pmi_entry by key */
    pmi_peer *peers;
};

/* ---- the table ---- */

static int entry_compare(const void *a, const void *b)
{
    return strcmp(((const pmi_entry *)a)->key, ((const pmi_entry *)b)->key);
}

static void entry_free(void *entry)
{
    free(((pmi_entry *)entry)->key);
    free(((pmi_entry *)entry)->value);
    free(entry);
}

static const char *table_find(const sp_pmi *pmi, char *key)
{
    const pmi_entry wanted = {.key = key};
    void *const *found = tfind(&wanted, &pmi->table, entry_compare);

    return found ? ((const pmi_entry *)*found)->value : NULL;
}

/* False: there is no memory, or the key has a value already. */
static bool table_add(sp_pmi *pmi, const char *key, const char *value)
{
    pmi_entry *entry = calloc(1, sizeof *entry);
    void **place = NULL;

    if (entry) {
        entry->key = strdup(key);
        entry->value = strdup(value);
        if (entry->key && entry->value)
            place = tsearch(entry, &pmi->table, entry_compare);
    }
    if (!place || *place != entry) {
        if (entry)
            entry_free(entry);
        return false;
    }
    return true;
}

/* ---- nodes ---- */

/* Writes the places of the ranks in MPICH's format: blocks of (first node, number of
 * nodes, ranks on each). Without it, or if it were too long for a line, MPICH compares
 * names of hosts, which pods of one name on several machines share. */
static void map_nodes(sp_pmi *pmi, const int *nodes)
{
    char text[MAPPING] = "(vector";
    int last = -1, n_nodes = 0, each = 0;

    for (int r = 0, next; r < pmi->n; r = next) {
        for (next = r; next < pmi->n && nodes[next] == nodes[r]; next++)
            ;
        if (last >= 0 && nodes[r] == last + n_nodes && next - r == each) {
            n_nodes++;
        } else {
            const size_t at = strlen(text);

            if (last >= 0)
                snprintf(text + at, sizeof text - at, ",(%d,%d,%d)", last, n_nodes,
                         each);
            last = nodes[r];
            n_nodes = 1;
            each = next - r;
        }
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), ",(%d,%d,%d))", last,
             n_nodes, each);
    if (strlen(text) < sizeof text - 1)
        table_add(pmi, "PMI_process_mapping", text);
}

/* ---- lines ---- */

__attribute__((format(printf, 2, 3))) static void peer_answer(pmi_peer *peer,
                                                              const char *format, ...)
{
    char line[LINE];
    va_list values;
    int n;

    va_start(values, format);
    n = vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    assert(0 < n && n < LINE - 1);
    line[n++] = '\n';
    for (int sent = 0; peer->fd >= 0 && sent < n;) {
        const ssize_t part =
            send(peer->fd, line + sent, (size_t)(n - sent), MSG_NOSIGNAL);

        if (part > 0)
            sent += (int)part;
        else if (part < 0 && errno == EINTR)
            continue;
        else
            break; /* its end is seen when it is read */
    }
}

/* Copies the word that follows NAME= in the line, or, of `value`, the rest of the line.
 * False if the line lacks it or it is longer than `bytes` allow. */
static bool line_read_word(const char *line, const char *name, char *word, size_t bytes)
{
    const size_t n = strlen(name);
    const char *at = line;

    while (at && (strncmp(at, name, n) != 0 || at[n] != '=')) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return false;
    at += n + 1;
    {
        const size_t length =
            strcmp(name, "value") == 0 ? strlen(at) : strcspn(at, " ");

        if (length >= bytes)
            return false;
        memcpy(word, at, length);
        word[length] = 0;
    }
    return true;
}

static void answer_put(sp_pmi *pmi, pmi_peer *peer)
{
    char key[NAME_MAX_ + 1], value[VALUE_MAX + 1];
    const bool is_put = line_read_word(peer->line, "key", key, sizeof key) &&
                        line_read_word(peer->line, "value", value, sizeof value) &&
                        table_add(pmi, key, value);

    peer_answer(peer, "cmd=put_result rc=%d msg=%s", is_put ? 0 : -1,
                is_put ? "success" : "refused");
}

static void answer_get(sp_pmi *pmi, pmi_peer *peer)
{
    char key[NAME_MAX_ + 1];
    const char *value = line_read_word(peer->line, "key", key, sizeof key)
                            ? table_find(pmi, key)
                            : NULL;

    if (value)
        peer_answer(peer, "cmd=get_result rc=0 msg=success value=%s", value);
    else
        peer_answer(peer, "cmd=get_result rc=-1 msg=key_not_found value=unknown");
}

static void enter_barrier(sp_pmi *pmi, pmi_peer *peer)
{
    pmi->n_in_barrier += !peer->is_in_barrier;
    peer->is_in_barrier = true;
    if (pmi->n_in_barrier < pmi->n)
        return;
    pmi->n_in_barrier = 0;
    for (int r = 0; r < pmi->n; r++) {
        pmi->peers[r].is_in_barrier = false;
        peer_answer(&pmi->peers[r], "cmd=barrier_out");
    }
}

/* Answers one line. False if it is not PMI-1. */
static bool answer_line(sp_pmi *pmi, pmi_peer *peer)
{
    char cmd[32], code[16];

    if (strncmp(peer->line, "mcmd=", 5) == 0 || peer->is_in_list) {
        peer->is_in_list = strcmp(peer->line, "endcmd") != 0;
        if (!peer->is_in_list)
            peer_answer(peer, "cmd=spawn_result rc=-1");
        return true;
    }
    if (!line_read_word(peer->line, "cmd", cmd, sizeof cmd))
        return false;
    if (strcmp(cmd, "init") == 0)
        peer_answer(peer, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    else if (strcmp(cmd, "get_maxes") == 0)
        peer_answer(peer, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d",
                    KVS_MAX, NAME_MAX_, VALUE_MAX);
    else if (strcmp(cmd, "get_appnum") == 0)
        peer_answer(peer, "cmd=appnum appnum=0");
    else if (strcmp(cmd, "get_universe_size") == 0)
        peer_answer(peer, "cmd=universe_size size=%d", pmi->n);
    else if (strcmp(cmd, "get_my_kvsname") == 0)
        peer_answer(peer, "cmd=my_kvsname kvsname=%s", kvs_name);
    else if (strcmp(cmd, "put") == 0)
        answer_put(pmi, peer);
    else if (strcmp(cmd, "get") == 0)
        answer_get(pmi, peer);
    else if (strcmp(cmd, "barrier_in") == 0)
        enter_barrier(pmi, peer);
    else if (strcmp(cmd, "finalize") == 0)
        peer_answer(peer, "cmd=finalize_ack");
    else if (strcmp(cmd, "abort") == 0) {
        const bool has_code = line_read_word(peer->line, "exitcode", code, sizeof code);

        if (!pmi->aborted)
            pmi->aborted = has_code && atoi(code) ? atoi(code) : SP_EMPI;
    } else if (strcmp(cmd, "lookup_name") == 0)
        peer_answer(peer, "cmd=lookup_result info=notfound rc=-1");
    else
        return false;
    return true;
}

static void pmi_peer_close(pmi_peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
}

void sp_pmi_serve(sp_pmi *pmi, int rank)
{
    pmi_peer *peer = &pmi->peers[rank];
    ssize_t n =
        recv(peer->fd, peer->line + peer->used, LINE - 1 - peer->used, MSG_DONTWAIT);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        pmi_peer_close(peer);
        return;
    }
    peer->used += (size_t)n;
    for (char *end; (end = memchr(peer->line, '\n', peer->used));) {
        const size_t length = (size_t)(end - peer->line) + 1;

        *end = 0;
        if (!answer_line(pmi, peer)) {
            pmi_peer_close(peer);
            return;
        }
        peer->used -= length;
        memmove(peer->line, peer->line + length, peer->used);
    }
    if (peer->used == LINE - 1)
        pmi_peer_close(peer);
}

/* ---- start and end ---- */

sp_status sp_pmi_create(sp_pmi **pmi, int n, const int *fds, const int *nodes)
{
    sp_pmi *new = calloc(1, sizeof *new);

    assert(n > 0 && fds && nodes);
    *pmi = NULL;
    if (new)
        new->peers = calloc((size_t)n, sizeof *new->peers);
    if (!new || !new->peers) {
        for (int r = 0; r < n; r++)
            close(fds[r]);
        free(new);
        return SP_FAIL(SP_EMEM, "no memory to bring %d ranks together", n);
    }
    new->n = n;
    for (int r = 0; r < n; r++)
        new->peers[r].fd = fds[r];
    map_nodes(new, nodes);
    *pmi = new;
    return SP_OK;
}

void sp_pmi_destroy(sp_pmi *pmi)
{
    if (!pmi)
        return;
    for (int r = 0; r < pmi->n; r++)
        pmi_peer_close(&pmi->peers[r]);
    tdestroy(pmi->table, entry_free);
    free(pmi->peers);
    free(pmi);
}

int sp_pmi_fd(const sp_pmi *pmi, int rank)
{
    return pmi->peers[rank].fd;
}

int sp_pmi_aborted(const sp_pmi *pmi)
{
    return pmi->aborted;
}
