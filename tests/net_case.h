/* Small networks on small random samples, for the tests of sp_net; and the same
 * arithmetic in double by plain look-ups in the coordinates, written from the meaning
 * of the layers alone.
 */
#ifndef NET_CASE_H
#define NET_CASE_H

#include "test.h"

#include "sp_net.h"

enum { CASE_CLASSES = 3, CASE_FEATURES = 2 };

/* What sample `id` holds is a pure function of id and n. */
typedef struct case_sample {
    int64_t id;
    int n;         /* voxels; 0 is legal */
    bool is_blank; /* no voxel labelled */
} case_sample;

typedef struct net_case {
    sp_config config;
    sp_graph graph;
    sp_backend backend;
    sp_comm *comm;
    sp_net net;
    sp_buckets buckets;
    sp_net_loss_out loss;
    float smoothing, class_weight[CASE_CLASSES];
    sp_tensor logits;
    /* the batch */
    sp_arena arena;
    sp_batch batch;
    int32_t *coords; /* [n][3] in the order of the plan */
    int64_t *sample_id;
} net_case;

extern const char *const case_nets[]; /* decks' net.layers, NULL at the end */
/* Without relu, max_pool and dropout. */
extern const char *const case_smooth_net;

void case_open(net_case *c, const sp_backend_ops *ops, sp_comm *comm,
               const char *layers, const sp_net_options *options);
void case_close(net_case *c);
/* Batch of these samples; rows in plan order. */
void case_batch(net_case *c, const case_sample *samples, int n_samples);
/* Forward in training, loss, backward. Gradients are added to c->buckets. */
void case_step(net_case *c, bool is_last);

/* Dense double-precision network over the case's batch. */
typedef struct dense dense;
dense *dense_open(const net_case *c);
void dense_close(dense *d);
/* Sum of w l with batch statistics (or running ones). param [n_floats], running
 * [n_buffer_floats]; logits [n][CASE_CLASSES] is valid until the next call. */
double dense_loss(dense *d, const double *param, const float *running, bool is_training,
                  const double **logits);
/* Batch mean and biased variance of node's input in the last call, [c] each, and its
 * rows. */
int64_t dense_stats(const dense *d, int node, const double **mean, const double **var);

#endif
