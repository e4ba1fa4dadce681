/* The choices of a deck: keys with one of a few words as value.
 *
 *     X(SP_SGD, "sgd") X(SP_ADAMW, "adamw")     a list below
 *       |-- the enum that sp_config holds       SP_CHOICE_VALUE, here
 *       |-- "sgd|adamw", the words of the key   SP_WORDS, in the table of keys
 *       `-- the word of a value, for printing   SP_CHOICE_WORD, sp_precision_word[] ...
 *
 * A word is converted when the deck is read, in any case of its letters; the rest of
 * the program compares values of the enum. A new word is a new entry of its list. The
 * order of a list is the order of the words in messages and in `sptrain --keys`.
 */
#ifndef SP_CHOICE_H
#define SP_CHOICE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SP_CHOICE_VALUE(value, word) value,
#define SP_CHOICE_WORD(value, word)  word,
#define SP_CHOICE_NAME(value, word)  "|" word
/* The words of a list as one text, "sgd|adamw". */
#define SP_WORDS(list) (&list(SP_CHOICE_NAME)[1])

/* data.on_error: the treatment of a damaged sample. */
#define SP_ON_ERRORS(X) X(SP_ON_ERROR_STOP, "stop") X(SP_ON_ERROR_SKIP, "skip")
typedef enum sp_on_error { SP_ON_ERRORS(SP_CHOICE_VALUE) } sp_on_error;

/* augment.mix: how a sample is mixed with another (data/sp_mix.h). */
#define SP_MIXINGS(X)                                                                  \
    X(SP_MIX_NONE, "none")                                                             \
    X(SP_MIX_3D, "mix3d")                                                              \
    X(SP_MIX_POLAR, "polarmix")                                                        \
    X(SP_MIX_LASER, "lasermix")                                                        \
    X(SP_MIX_LASERPOLAR, "laserpolarmix")
typedef enum sp_mixing { SP_MIXINGS(SP_CHOICE_VALUE) } sp_mixing;

/* augment.crop: the shape of the part that is left of a sample (data/sp_crop.h). */
#define SP_CROPS(X)                                                                    \
    X(SP_CROP_NONE, "none") X(SP_CROP_SPHERE, "sphere") X(SP_CROP_BOX, "box")
typedef enum sp_crop_shape { SP_CROPS(SP_CHOICE_VALUE) } sp_crop_shape;
extern const char *const sp_crop_shape_word[];

/* coordinates of a layer: which voxels a coarser tensor stride has. */
#define SP_COORDINATES(X) X(SP_COORDS_FLOOR, "floor") X(SP_COORDS_DILATED, "dilated")
typedef enum sp_coordinates { SP_COORDINATES(SP_CHOICE_VALUE) } sp_coordinates;

/* batch.per: the group of ranks that batch.size counts for. */
#define SP_PERS(X)                                                                     \
    X(SP_PER_WORLD, "world") X(SP_PER_NODE, "node") X(SP_PER_RANK, "rank")
typedef enum sp_per { SP_PERS(SP_CHOICE_VALUE) } sp_per;

/* net.family: the network if net.layers is not given. */
#define SP_FAMILIES(X)                                                                 \
    X(SP_MINKUNET14, "minkunet14")                                                     \
    X(SP_MINKUNET14A, "minkunet14A")                                                   \
    X(SP_MINKUNET14B, "minkunet14B")                                                   \
    X(SP_MINKUNET14C, "minkunet14C")                                                   \
    X(SP_MINKUNET14D, "minkunet14D")                                                   \
    X(SP_MINKUNET18, "minkunet18")                                                     \
    X(SP_MINKUNET18A, "minkunet18A")                                                   \
    X(SP_MINKUNET18B, "minkunet18B")                                                   \
    X(SP_MINKUNET18D, "minkunet18D")                                                   \
    X(SP_MINKUNET34, "minkunet34")                                                     \
    X(SP_MINKUNET34A, "minkunet34A")                                                   \
    X(SP_MINKUNET34B, "minkunet34B")                                                   \
    X(SP_MINKUNET34C, "minkunet34C")                                                   \
    X(SP_MINKUNET50, "minkunet50")                                                     \
    X(SP_MINKUNET101, "minkunet101")                                                   \
    X(SP_DUMMY, "dummy")                                                               \
    X(SP_SPUNET, "spunet")                                                             \
    X(SP_MINKUNET18W32, "minkunet18w32")                                               \
    X(SP_MINKUNET34W32, "minkunet34w32")                                               \
    X(SP_MINKUNET18W16, "minkunet18w16")                                               \
    X(SP_MINKUNET18W20, "minkunet18w20")                                               \
    X(SP_MINKUNET34V2W32, "minkunet34v2w32")
typedef enum sp_family { SP_FAMILIES(SP_CHOICE_VALUE) } sp_family;
extern const char *const sp_family_word[];

/* net.upsample: how coarse features come to the voxels of stride 1 in a head. */
#define SP_UPSAMPLES(X)                                                                \
    X(SP_UPSAMPLE_TRILINEAR, "trilinear") X(SP_UPSAMPLE_NEAREST, "nearest")
typedef enum sp_upsample { SP_UPSAMPLES(SP_CHOICE_VALUE) } sp_upsample;

/* train.optimizer */
#define SP_OPTIMIZERS(X) X(SP_SGD, "sgd") X(SP_ADAMW, "adamw")
typedef enum sp_optimizer { SP_OPTIMIZERS(SP_CHOICE_VALUE) } sp_optimizer;
extern const char *const sp_optimizer_word[];

/* train.schedule: the learning rate over the training (net/sp_optim.h). */
#define SP_SCHEDULES(X)                                                                \
    X(SP_CONSTANT, "constant")                                                         \
    X(SP_STEP, "step")                                                                 \
    X(SP_POLY, "poly")                                                                 \
    X(SP_COSINE, "cosine")                                                             \
    X(SP_ONECYCLE, "onecycle")
typedef enum sp_schedule { SP_SCHEDULES(SP_CHOICE_VALUE) } sp_schedule;
extern const char *const sp_schedule_word[];

/* train.lr_scale: how the learning rate grows with the batch of all ranks. */
#define SP_LR_SCALES(X)                                                                \
    X(SP_LR_NONE, "none")                                                              \
    X(SP_LR_LINEAR, "linear")                                                          \
    X(SP_LR_SQRT, "sqrt")
typedef enum sp_lr_scale { SP_LR_SCALES(SP_CHOICE_VALUE) } sp_lr_scale;

/* train.loss: the terms that a loss may have (compute/sp_loss.h). */
#define SP_LOSSES(X)                                                                   \
    X(SP_CROSS_ENTROPY, "cross_entropy")                                               \
    X(SP_LOVASZ, "lovasz")                                                             \
    X(SP_FOCAL, "focal")                                                               \
    X(SP_DICE, "dice")
typedef enum sp_loss_kind { SP_LOSSES(SP_CHOICE_VALUE) SP_N_LOSSES } sp_loss_kind;

/* train.lovasz_per: the voxels that are sorted together. */
#define SP_LOVASZ_PERS(X)                                                              \
    X(SP_LOVASZ_PER_SAMPLE, "sample") X(SP_LOVASZ_PER_STEP, "step")
typedef enum sp_lovasz_per { SP_LOVASZ_PERS(SP_CHOICE_VALUE) } sp_lovasz_per;

/* train.class_weights; SP_CW_LIST has no word: the key has numbers instead. */
#define SP_CLASS_WEIGHTS(X)                                                            \
    X(SP_CW_NONE, "none")                                                              \
    X(SP_CW_INVERSE, "inverse")                                                        \
    X(SP_CW_SQRT_INVERSE, "sqrt_inverse")                                              \
    X(SP_CW_LOG_INVERSE, "log_inverse")                                                \
    X(SP_CW_MEDIAN, "median_frequency")
typedef enum sp_class_weights {
    SP_CLASS_WEIGHTS(SP_CHOICE_VALUE) SP_CW_LIST
} sp_class_weights;

/* train.precision: the operands of products. fp32 uses them unchanged, tf32 rounds them
 * to 10 bits of mantissa, bf16 reads activations that are stored as bf16. Sums,
 * parameters, statistics, loss and weight gradients are fp32 or better in all three. */
#define SP_PRECISIONS(X) X(SP_FP32, "fp32") X(SP_TF32, "tf32") X(SP_BF16, "bf16")
typedef enum sp_precision { SP_PRECISIONS(SP_CHOICE_VALUE) } sp_precision;
extern const char *const sp_precision_word[];

/* train.bf16_sums: the order of sums of products in bf16 on CPUs: by twos, as
 * AVX512_BF16 does (cpu/bf16/bf16.h), or by 32, as AMX_BF16 does (cpu/bf16/tile.h).
 * auto: tiles if all ranks have AMX_BF16. */
#define SP_BF16_SUMS(X)                                                                \
    X(SP_SUMS_AUTO, "auto") X(SP_SUMS_PAIRS, "pairs") X(SP_SUMS_TILES, "tiles")
typedef enum sp_bf16_sums { SP_BF16_SUMS(SP_CHOICE_VALUE) } sp_bf16_sums;
extern const char *const sp_bf16_sums_word[];

/* run.wgmma: whether bf16 convolutions of many channels use the instructions of sm_90;
 * auto: if all ranks have them and their self-tests pass. */
#define SP_WGMMAS(X)                                                                   \
    X(SP_WGMMA_AUTO, "auto") X(SP_WGMMA_ON, "true") X(SP_WGMMA_OFF, "false")
typedef enum sp_wgmma_use { SP_WGMMAS(SP_CHOICE_VALUE) } sp_wgmma_use;

/* train.deterministic: bits repeat on the same ranks, on any ranks, or never. */
#define SP_DETERMINISTICS(X)                                                           \
    X(SP_DET_RUN, "run")                                                               \
    X(SP_DET_WORLD, "world")                                                           \
    X(SP_DET_OFF, "off")
typedef enum sp_deterministic { SP_DETERMINISTICS(SP_CHOICE_VALUE) } sp_deterministic;

/* run.device: the kind of device that all ranks compute on. */
#define SP_DEVICES(X)                                                                  \
    X(SP_DEVICE_AUTO, "auto")                                                          \
    X(SP_DEVICE_CUDA, "cuda")                                                          \
    X(SP_DEVICE_CPU, "cpu")
typedef enum sp_device_kind { SP_DEVICES(SP_CHOICE_VALUE) } sp_device_kind;

/* run.transport: the library that sums over ranks. */
#define SP_TRANSPORTS(X)                                                               \
    X(SP_TRANSPORT_AUTO, "auto")                                                       \
    X(SP_TRANSPORT_NCCL, "nccl")                                                       \
    X(SP_TRANSPORT_MPI, "mpi")
typedef enum sp_transport_kind { SP_TRANSPORTS(SP_CHOICE_VALUE) } sp_transport_kind;

/* run.reduce_wire: the type that gradients have between ranks. */
#define SP_REDUCE_WIRES(X) X(SP_REDUCE_FP32, "fp32") X(SP_REDUCE_BF16, "bf16")
typedef enum sp_reduce_wire { SP_REDUCE_WIRES(SP_CHOICE_VALUE) } sp_reduce_wire;

/* run.weights: the weights of a training that count, the plain ones or the averages of
 * train.ema. */
#define SP_WEIGHTS_USES(X) X(SP_WEIGHTS_PLAIN, "plain") X(SP_WEIGHTS_EMA, "ema")
typedef enum sp_weights_use { SP_WEIGHTS_USES(SP_CHOICE_VALUE) } sp_weights_use;

/* run.init_norm: the statistics for normalizing features if run.init_from gives the
 * weights. */
#define SP_INIT_NORMS(X) X(SP_INIT_NORM_DATA, "data") X(SP_INIT_NORM_SOURCE, "source")
typedef enum sp_init_norm { SP_INIT_NORMS(SP_CHOICE_VALUE) } sp_init_norm;

/* run.resume; SP_RESUME_FILE has no word: the key has the path of a checkpoint. */
#define SP_RESUMES(X) X(SP_RESUME_AUTO, "auto") X(SP_RESUME_NEVER, "never")
typedef enum sp_resume_from {
    SP_RESUMES(SP_CHOICE_VALUE) SP_RESUME_FILE
} sp_resume_from;

/* run.progress: draws a live line (report/sp_live.h); AUTO: on a terminal. */
#define SP_PROGRESSES(X)                                                               \
    X(SP_PROGRESS_AUTO, "auto")                                                        \
    X(SP_PROGRESS_ALWAYS, "always")                                                    \
    X(SP_PROGRESS_NEVER, "never")
typedef enum sp_progress_when { SP_PROGRESSES(SP_CHOICE_VALUE) } sp_progress_when;

/* The functions below act on words as one text, "a|b|c". sp_choice_find returns the
 * index of word, -1 if it is not in the text; case is ignored. sp_choice_name writes
 * name i to `to` [SP_NAME]; false if the text has fewer names. sp_choice_nearest writes
 * the name that is nearest to word. */
int sp_choice_find(const char *names, const char *word);
bool sp_choice_name(const char *names, int i, char *to);
void sp_choice_nearest(const char *names, const char *word, char *to);

#ifdef __cplusplus
}
#endif
#endif
