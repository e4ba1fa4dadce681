/* Finds shards with different copies on different nodes: without checksums nothing else
 * would notice that ranks train on other labels.
 *
 * If a node sees the same inode, size and times as rank 0, it is the same file (of a
 * shared file system), and nothing is read. Otherwise the ranks of each node hash its
 * copies and compare the hashes with rank 0's node. A shard with /crc32c is identified
 * by these checksums, since each sample is compared with its own when it is read. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "data/sp_shard_internal.h"

/* Header only: no library to link. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Bytes that a rank reads at most, and at a time. Copies of more bytes are compared in
 * places that are spread evenly. */
enum { PIECE_BYTES = 1 << 20 };
#define MOST_BYTES ((int64_t)1 << 30)

/* Identifies a file without reading it. st_dev is left out, since each node mounts a
 * shared file system for itself. */
typedef struct file_mark {
    int64_t inode, bytes, modified_s, modified_ns, changed_s, changed_ns;
} file_mark;

/* The files as rank 0 sees them, and a node's copies. */
typedef struct copies {
    char host[64];    /* of rank 0 */
    file_mark *mark;  /* [n_shards] as rank 0's node sees the files */
    uint8_t *is_copy; /* [n_shards] some node sees another file */
    int64_t *hash;    /* [n_shards] of this node, or 0 */
    int64_t *first;   /* [n_shards] of rank 0's node */
} copies;

static sp_status copies_mark(const sp_dataset *set, file_mark *mark)
{
    struct stat st;

    for (int i = 0; i < set->n_shards; i++) {
        if (stat(set->shard[i].path, &st) != 0)
            return SP_FAIL(SP_EDATA, "%s: %s on this node, which rank 0 can read",
                           set->shard[i].path, strerror(errno));
        mark[i] =
            (file_mark){(int64_t)st.st_ino, st.st_size,        st.st_mtim.tv_sec,
                        st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
    }
    return SP_OK;
}

/* Compares what this node sees with what rank 0 sees. */
static sp_status copies_find(const sp_dataset *set, const sp_comm *comm, copies *c)
{
    SP_FREED file_mark *own = NULL;

    SP_TRY(SP_NEW(&own, set->n_shards, "the marks of files"));
    SP_TRY(copies_mark(set, own));
    for (int i = 0; i < set->n_shards; i++) {
        if (own[i].bytes != c->mark[i].bytes)
            return SP_FAIL(SP_EDATA,
                           "%s: %lld bytes on the node of rank %d, host %s, but %lld "
                           "on rank 0's, host %s: the nodes have different copies",
                           set->shard[i].path, (long long)own[i].bytes, comm->rank,
                           comm->host, (long long)c->mark[i].bytes, c->host);
        c->is_copy[i] = memcmp(&own[i], &c->mark[i], sizeof *own) != 0;
    }
    return SP_OK;
}

/* The bytes of a file that identify its samples: from *at on, *n of them. */
static void copies_extent(const sp_shard *shard, int64_t *at, int64_t *n)
{
    const sp_extent *crc = &shard->crc;
    const bool is_summed = crc->type_size > 0 && crc->at >= 0;

    *at = is_summed ? crc->at : 0;
    *n = is_summed ? crc->rows * crc->type_size : shard->file_bytes;
}

/* Hashes at most `most` of these bytes. */
static sp_status copies_hash(const sp_shard *shard, int64_t most, char *piece,
                             int64_t *hash)
{
    SP_CLOSED_BY(sp_file_done) int fd = -1;
    XXH64_state_t state;
    int64_t begin, n, step;

    copies_extent(shard, &begin, &n);
    step = n <= most ? PIECE_BYTES : sp_most(PIECE_BYTES, n / (most / PIECE_BYTES + 1));
    XXH64_reset(&state, 0);
    SP_TRY(sp_file_open(shard->path, O_RDONLY, &fd));
    for (int64_t at = 0; at < n; at += step) {
        const size_t bytes = (size_t)sp_least(PIECE_BYTES, n - at);

        SP_TRY(sp_file_read_at(fd, shard->path, piece, bytes, begin + at));
        XXH64_update(&state, piece, bytes);
        sp_liveness_count();
    }
    *hash = (int64_t)XXH64_digest(&state);
    return SP_OK;
}

/* Hashes this rank's share of the files that are copies. */
static sp_status copies_hash_share(const sp_dataset *set, const sp_comm *comm,
                                   copies *c)
{
    SP_FREED char *piece = NULL;
    int64_t all = 0, at, n;
    double share;
    int k = 0;

    SP_TRY(SP_NEW(&piece, PIECE_BYTES, "the comparison of shards"));
    for (int i = 0; i < set->n_shards; i++) {
        copies_extent(&set->shard[i], &at, &n);
        all += c->is_copy[i] ? n : 0;
    }
    share = (double)MOST_BYTES * comm->local_size / (double)sp_most(all, 1);
    if (share < 1)
        sp_log_info(
            "the nodes have copies of the shards, without checksums: %.2g %% of "
            "their bytes are compared",
            100 * share);
    for (int i = 0; i < set->n_shards; i++) {
        if (!c->is_copy[i] || k++ % comm->local_size != comm->local_rank)
            continue;
        copies_extent(&set->shard[i], &at, &n);
        if (copies_hash(&set->shard[i], share < 1 ? (int64_t)((double)n * share) : n,
                        piece, &c->hash[i]) != SP_OK)
            return SP_FAIL(SP_EDATA, "%s", sp_error_last()->message);
    }
    return SP_OK;
}

static sp_status copies_compare(const sp_dataset *set, const sp_comm *comm,
                                const copies *c)
{
    for (int i = 0; i < set->n_shards; i++)
        if (c->hash[i] != c->first[i])
            return SP_FAIL(SP_EDATA,
                           "%s: the copy on the node of rank %d, host %s, has other "
                           "content than that on rank 0's, host %s: ranks would train "
                           "on different data; copy the shards to all nodes again",
                           set->shard[i].path, comm->rank, comm->host, c->host);
    return SP_OK;
}

static sp_status copies_run(const sp_dataset *set, sp_comm *comm, copies *c)
{
    const size_t n = (size_t)set->n_shards;
    sp_status rc = SP_OK;

    snprintf(c->host, sizeof c->host, "%s", comm->host);
    if (comm->rank == 0)
        rc = copies_mark(set, c->mark);
    SP_TRY(sp_comm_agree(comm, rc));
    SP_TRY(sp_comm_bcast(comm, c->host, sizeof c->host, 0));
    SP_TRY(sp_comm_bcast(comm, c->mark, n * sizeof *c->mark, 0));
    if (comm->local_rank == 0)
        rc = copies_find(set, comm, c);
    SP_TRY(sp_comm_agree(comm, rc));
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, c->is_copy, n, SP_U8, SP_MAX));
    if (!memchr(c->is_copy, 1, n))
        return SP_OK;
    SP_TRY(sp_comm_agree(comm, copies_hash_share(set, comm, c)));
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_NODE, c->hash, n, SP_I64, SP_SUM));
    memcpy(c->first, c->hash, n * sizeof *c->first);
    SP_TRY(sp_comm_bcast(comm, c->first, n * sizeof *c->first, 0));
    return sp_comm_agree(comm, copies_compare(set, comm, c));
}

static void copies_free(copies *c)
{
    free(c->mark);
    free(c->is_copy);
    free(c->hash);
    free(c->first);
}

static sp_status copies_new(copies *c, int n)
{
    SP_TRY(SP_NEW(&c->mark, n, "the marks of files"));
    SP_TRY(SP_NEW(&c->is_copy, n, "the marks of files"));
    SP_TRY(SP_NEW(&c->hash, n, "the hashes of files"));
    return SP_NEW(&c->first, n, "the hashes of files");
}

sp_status sp_shard_compare_copies(const sp_dataset *set, sp_comm *comm)
{
    SP_CLOSED_BY(copies_free) copies c = {0};

    assert(set->n_shards > 0 && comm);
    SP_TRY(sp_comm_agree(comm, copies_new(&c, set->n_shards)));
    return copies_run(set, comm, &c);
}
