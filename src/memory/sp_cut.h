/* How steps and evaluations are cut so that a rank keeps to its memory.
 *
 *     memory | fixed | activations          | batches, scratch | the same    |
 *            |       | of the larger: both  | of training      | of evaluation |
 *
 * Arenas grow to their largest use and stay so; a step with large activations and
 * another with large batches meet in memory. So each part has a room of its own, and
 * the samples that a rank holds at a time fit into both. An evaluation beside a
 * training uses the training's activations; for its batches an eighth is set aside, or
 * what its largest sample needs.
 *
 * What a sample takes is foreseen from the index alone, so that every rank cuts every
 * step alike without a message: its voxels at each level from /cost, else in the ratios
 * of the largest sample's plan. Plans of some samples, as augmentation leaves them,
 * tell how much more than foreseen there can be. All of it is a function of deck, data
 * and memory. On the host a sample that does not fit by itself is refused before it is
 * read; on a device it runs alone, as far as that goes.
 */
#ifndef SP_CUT_H
#define SP_CUT_H

#include "data/sp_sampler.h"
#include "memory/sp_foresee.h"

typedef enum sp_cut_part {
    SP_ACTIVATIONS,
    SP_BATCHES,
    SP_SCRATCH,
    SP_PARTS
} sp_cut_part;

/* The budget of a training, or of its evaluations. */
typedef struct sp_budget {
    sp_foreseer foreseer;
    sp_sampler *sampler;     /* borrowed; NULL: there is none */
    const sp_dataset *set;   /* the sampler's */
    sp_load like;            /* of the largest sample, as stored */
    double excess;           /* most bytes of a plan over those foreseen */
    int64_t empty[SP_PARTS]; /* what a batch without samples takes */
    /* [n_samples] foreseen so far, without excess; activations 0: not yet. Of the
     * thread that deals, once the loader is in use. */
    int64_t (*known)[SP_PARTS];
    int64_t room[2];           /* bytes of activations, of the rest; 0: no bound */
    int64_t dearest[SP_PARTS]; /* most on a rank, as the deck cuts */
    int64_t largest[2];        /* most of any sample; of activations, of the rest */
    int part; /* what the sampler is told; SP_PARTS: against the rooms */
    int n_micro, n_micro_asked; /* of the dearest step: as cut, and by the deck alone */
} sp_budget;

/* Zeroed: nothing is bounded. Not to be moved while open. */
typedef struct sp_cut {
    int64_t memory; /* bytes that a rank may use, the same on all ranks; 0: no bound */
    sp_foreseen_fixed fixed;
    sp_budget train, eval;
} sp_cut;

/* The part of a device's memory that is for us: all but a sixteenth, which drivers and
 * libraries need (1 GiB at least; of small devices an eighth); whole MiB. */
int64_t sp_cut_memory_of(int64_t device_bytes);

/* Collective, agreed: bounds what the samplers deal, before they are in use. train,
 * eval: NULL for none. memory 0: no bound, and nothing is read; else some samples are
 * read on rank 0. SP_EDATA, SP_EIO; SP_EMEM, of the host, names a sample that does not
 * fit. *who (may be NULL): the rank that failed. Close after failure too. */
sp_status sp_cut_open(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                      sp_sampler *eval, sp_comm *comm, int64_t memory, int *who);
/* The same without a bound, to tell what the steps of the deck would take: fixed and
 * dearest. */
sp_status sp_cut_foresee(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                         sp_sampler *eval, sp_comm *comm, int *who);
void sp_cut_close(sp_cut *cut);

/* Bytes that the dearest steps take, evaluations included. */
int64_t sp_cut_need(const sp_cut *cut);
/* Rank 0 says how much memory there is, of device_bytes (0: of the host), what the
 * dearest training step needs, and how it is cut. Nothing without a bound. */
void sp_cut_print(const sp_cut *cut, int64_t device_bytes);
/* Local: memory has run out (SP_EMEM, raised last) over these samples: the same with
 * whose they are, what was foreseen, and what there is. */
sp_status sp_cut_explain(const sp_cut *cut, const sp_budget *budget,
                         const int64_t *sample, int n);

#endif
