#include "deck/sp_deck_keys.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"
#include "base/sp_word_table.h"

/* Offset and bytes of a field. */
#define AT(field) offsetof(sp_config, field), sizeof((sp_config *)0)->field

/* The words of train.bn_scope are the first scopes' words. */
_Static_assert(SP_SCOPE_RANK == 0 && SP_SCOPE_NODE == 1 && SP_SCOPE_WORLD == 2,
               "rank|node|world");

/* clang-format off */
const sp_key sp_deck_key[] = {
/* section, name, type, field, default, range, unit, names, help */
{"data", "train", SP_KEY_TEXTS, AT(data.train), "[\"input/sample/train-*.h5\"]", NULL,
 NULL, NULL, "shards to train on: paths or globs"},
{"data", "val", SP_KEY_TEXTS, AT(data.val), "[\"input/sample/val-*.h5\"]", NULL, NULL,
 NULL, "shards to evaluate and predict: paths or globs"},
{"data", "test", SP_KEY_TEXTS, AT(data.test), "[]", NULL, NULL, NULL,
 "shards that a training evaluates once, at its end, with its best weights"},
{"data", "val_sets", SP_KEY_TEXTS, AT(data.val_sets), "[]", NULL, NULL, NULL,
 "further sets evaluated after data.val and reported by name: \"NAME=FILES\""},
{"data", "folds", SP_KEY_INT, AT(data.folds), "0", "[0, 10000]", "folds", NULL,
 "cross-validation: number of folds that the files of data.train are dealt to, by "
 "name; 0, 1: off"},
{"data", "fold", SP_KEY_INT, AT(data.fold), "0", "[0, 9999]", NULL, NULL,
 "the fold, from 0, that is evaluated in place of data.val and not trained on"},
{"data", "voxel_size", SP_KEY_REAL, AT(data.voxel_size), "0.5", "(0, 1e9]", "m", NULL,
 "edge of a voxel: the shards' edge, or a multiple of it"},
{"data", "features", SP_KEY_TEXTS, AT(data.features), "[]", NULL, NULL, NULL,
 "feature columns by name; []: all, in the shards' order"},
{"data", "normalize", SP_KEY_BOOL, AT(data.normalize), "true", NULL, NULL, NULL,
 "use (x - feature_mean) / feature_std if the shards have these"},
{"data", "readers", SP_KEY_INT, AT(data.readers), "2", "[1, 64]", "threads", NULL,
 "threads of a rank that read ahead"},
{"data", "planners", SP_KEY_INT, AT(data.planners), "1", "[1, 16]", "threads", NULL,
 "threads of a rank that augment and voxelize ahead, each a batch of its own"},
{"data", "verify", SP_KEY_BOOL, AT(data.verify), "true", NULL, NULL, NULL,
 "compare checksums if the shards have them"},
{"data", "on_error", SP_KEY_CHOICE, AT(data.on_error), "\"stop\"", NULL, NULL,
 SP_WORDS(SP_ON_ERRORS), "at a damaged sample end the run, or leave it out with a "
 "warning"},

{"augment", "flip", SP_KEY_BOOL, AT(augment.flip), "true", NULL, NULL, NULL,
 "mirror x and y, each with probability 1/2"},
{"augment", "rotate_z", SP_KEY_BOOL, AT(augment.rotate_z), "true", NULL, NULL, NULL,
 "turn about z, by augment.rotate_max with probability augment.rotate_p"},
{"augment", "rotate_max", SP_KEY_REAL, AT(augment.rotate_max), "180", "[0, 180]",
 "degrees", NULL, "greatest angle of the turn about z, to either side"},
{"augment", "rotate_p", SP_KEY_REAL, AT(augment.rotate_p), "1", "[0, 1]", NULL, NULL,
 "probability that a sample is turned about z"},
{"augment", "tilt", SP_KEY_REAL, AT(augment.tilt), "0", "[0, 90]", "degrees", NULL,
 "greatest angle of turns about x and about y, to either side"},
{"augment", "tilt_p", SP_KEY_REAL, AT(augment.tilt_p), "1", "[0, 1]", NULL, NULL,
 "probability of each of these two turns"},
{"augment", "scale", SP_KEY_REALS, AT(augment.scale), "[0.95, 1.05]", "(0, inf)", NULL,
 NULL, "[low, high] of the scaling factor that is drawn; []: no scaling"},
{"augment", "shift", SP_KEY_REAL, AT(augment.shift), "0", "[0, inf)", "m", NULL,
 "standard deviation, in each axis, of the shift of a sample"},
{"augment", "elastic", SP_KEY_REALS, AT(augment.elastic), "[]", "[0, inf)", "m", NULL,
 "[granularity, magnitude, ...] of elastic distortions, such as [0.2, 0.4, 0.8, 1.6]"},
{"augment", "elastic_p", SP_KEY_REAL, AT(augment.elastic_p), "1", "[0, 1]", NULL, NULL,
 "probability that a sample is distorted"},
{"augment", "noise", SP_KEY_REAL, AT(augment.noise), "0", "[0, inf)", "m", NULL,
 "standard deviation, in each axis, of noise on the positions of voxels"},
{"augment", "noise_clip", SP_KEY_REAL, AT(augment.noise_clip), "0", "[0, inf)", "m",
 NULL, "greatest noise on a position in each axis; 0: no bound"},
{"augment", "drop", SP_KEY_REAL, AT(augment.drop), "0.1", "[0, 1)", NULL, NULL,
 "probability that a voxel is left out"},
{"augment", "drop_p", SP_KEY_REAL, AT(augment.drop_p), "1", "[0, 1]", NULL, NULL,
 "probability that voxels of a sample are left out at all"},
{"augment", "jitter", SP_KEY_REAL, AT(augment.jitter), "0.01", "[0, inf)", NULL, NULL,
 "standard deviation of noise on normalized features"},
{"augment", "mix", SP_KEY_CHOICE, AT(augment.mix), "\"none\"", NULL, NULL,
 SP_WORDS(SP_MIXINGS), "mix samples with others: laid over each other (mix3d), half of "
 "the azimuths exchanged and objects pasted (polarmix), every second band of "
 "inclinations exchanged (lasermix), or one of the last two (laserpolarmix)"},
{"augment", "mix_p", SP_KEY_REAL, AT(augment.mix_p), "0.8", "[0, 1]", NULL, NULL,
 "probability that a sample is mixed"},
{"augment", "mix_classes", SP_KEY_TEXTS, AT(augment.mix_classes), "[]", NULL, NULL,
 NULL, "classes that polarmix pastes, by name or number; []: no class"},
{"augment", "mix_bands", SP_KEY_REALS, AT(augment.mix_bands), "[3, 4, 5, 6]",
 "[2, 64]", "bands", NULL,
 "lasermix: numbers of bands of inclination; one of them is drawn"},
{"augment", "mix_inclination", SP_KEY_REALS, AT(augment.mix_inclination), "[-25, 3]",
 "[-90, 90]", "degrees", NULL,
 "lasermix: [low, high], the inclinations that the bands divide equally"},
{"augment", "mix_sensor", SP_KEY_REALS, AT(augment.mix_sensor), "[0, 0, 0]",
 "[-1e9, 1e9]", "m", NULL,
 "polarmix, lasermix: x, y and z of the sensor in the scans' coordinates"},
{"augment", "range", SP_KEY_REALS, AT(augment.range), "[]", "[-1e9, 1e9]", "m", NULL,
 "[x0, y0, z0, x1, y1, z1]: leave out voxels outside of this box of the scans' "
 "coordinates; []: keep all"},
{"augment", "crop", SP_KEY_CHOICE, AT(augment.crop), "\"none\"", NULL, NULL,
 SP_WORDS(SP_CROPS), "keep only a part of a sample, around a voxel that is drawn"},
{"augment", "crop_size", SP_KEY_REALS, AT(augment.crop_size), "[]", "[0, 1e9]", "m",
 NULL, "size of the part: [radius] of a sphere, [x, y, z] edges of a box (0: no bound "
 "in this axis); []: no bound"},
{"augment", "crop_voxels", SP_KEY_INT64, AT(augment.crop_voxels), "0", "[0, 1e15]",
 "voxels", NULL, "most stored voxels of the part, the nearest ones; 0: no bound"},
{"augment", "crop_p", SP_KEY_REAL, AT(augment.crop_p), "1", "[0, 1]", NULL, NULL,
 "probability that a sample is cropped"},
{"augment", "paste", SP_KEY_TEXT, AT(augment.paste), "\"\"", NULL, NULL, NULL,
 "paste objects of this shard of spvox bank into samples; \"\": paste nothing"},
{"augment", "paste_p", SP_KEY_REAL, AT(augment.paste_p), "1", "[0, 1]", NULL, NULL,
 "probability that objects are pasted into a sample"},
{"augment", "paste_classes", SP_KEY_TEXTS, AT(augment.paste_classes), "[]", NULL, NULL,
 NULL, "classes of the pasted objects, by name or number; []: all that the bank has"},
{"augment", "paste_count", SP_KEY_INT, AT(augment.paste_count), "5", "[1, 1000]",
 "objects", NULL, "objects that are pasted into a sample, as far as places are found"},
{"augment", "paste_voxels", SP_KEY_INT64, AT(augment.paste_voxels), "20000", "[1, 1e9]",
 "voxels", NULL, "most voxels that are pasted into a sample"},
{"augment", "color_columns", SP_KEY_TEXTS, AT(augment.color_columns), "[]", NULL, NULL,
 NULL, "feature columns that are colours; []: red, green and blue"},
{"augment", "color_max", SP_KEY_REAL, AT(augment.color_max), "0", "[0, 1e9]", NULL,
 NULL, "value of full colour in these columns; 0: 1, 255 or 65535, by their means"},
{"augment", "color_contrast", SP_KEY_REAL, AT(augment.color_contrast), "0", "[0, 1]",
 NULL, NULL, "probability that the contrast of a sample's colours is stretched"},
{"augment", "color_blend", SP_KEY_REAL, AT(augment.color_blend), "0", "[0, 1]", NULL,
 NULL, "share of the stretched colours, the rest are the sample's; 0: it is drawn"},
{"augment", "color_shift", SP_KEY_REAL, AT(augment.color_shift), "0", "[0, 1]", NULL,
 NULL, "greatest number that is added to each colour of a sample, of full colour"},
{"augment", "color_shift_p", SP_KEY_REAL, AT(augment.color_shift_p), "0.95", "[0, 1]",
 NULL, NULL, "probability that color_shift changes a sample"},
{"augment", "color_jitter", SP_KEY_REAL, AT(augment.color_jitter), "0", "[0, 1]", NULL,
 NULL, "standard deviation of noise on the colours of each voxel, of full colour"},
{"augment", "color_jitter_p", SP_KEY_REAL, AT(augment.color_jitter_p), "0.95",
 "[0, 1]", NULL, NULL, "probability that color_jitter changes a sample"},
{"augment", "color_drop", SP_KEY_REAL, AT(augment.color_drop), "0", "[0, 1]", NULL,
 NULL, "probability that all colours of a sample are 0"},

{"batch", "size", SP_KEY_INT, AT(batch.size), "16", "[1, inf)", "samples", NULL,
 "samples of one optimizer step, of the ranks that batch.per names"},
{"batch", "per", SP_KEY_CHOICE, AT(batch.per), "\"world\"", NULL, NULL,
 SP_WORDS(SP_PERS), "ranks whose samples batch.size counts: all, a node's, or one"},
{"batch", "eval_size", SP_KEY_INT, AT(batch.eval_size), "16", "[1, inf)", "samples",
 NULL, "samples of one evaluation batch of all ranks"},
{"batch", "balance", SP_KEY_BOOL, AT(batch.balance), "true", NULL, NULL, NULL,
 "deal samples to ranks by cost, not by count"},
{"batch", "voxel_budget", SP_KEY_INT64, AT(batch.voxel_budget), "0", "[0, 1e15]",
 "voxels", NULL, "most voxels that a rank holds at a time; 0: no bound"},
{"batch", "accumulate", SP_KEY_INT, AT(batch.accumulate), "1", "[1, inf)",
 "micro-batches", NULL, "micro-batches that a step is cut into"},

{"eval", "merge", SP_KEY_BOOL, AT(eval.merge), "false", NULL, NULL, NULL,
 "merge the predictions of overlapping blocks, point by point"},
{"eval", "views", SP_KEY_INT, AT(eval.views), "1", "[1, 24]", "views", NULL,
 "turned, mirrored and scaled views whose mean is predicted; 1: as stored"},
{"eval", "range", SP_KEY_REALS, AT(eval.range), "[]", "[-1e9, 1e9]", "m", NULL,
 "[x0, y0, z0, x1, y1, z1]: evaluations leave out voxels outside of this box of the "
 "scans' coordinates; []: keep all"},
{"eval", "members", SP_KEY_TEXTS, AT(eval.members), "[]", NULL, NULL, NULL,
 "further models for eval and predict, whose probabilities are averaged with the first "
 "one's: run folders, checkpoints or packed models"},

{"net", "family", SP_KEY_CHOICE, AT(net.family), "\"minkunet18\"", NULL, NULL,
 SP_WORDS(SP_FAMILIES), "network, unless net.layers gives one"},
{"net", "width", SP_KEY_REAL, AT(net.width), "1.0", "(0, 64]", NULL, NULL,
 "factor on all numbers of channels of the family"},
{"net", "stem_kernel", SP_KEY_INT, AT(net.stem_kernel), "5", "[1, 7]", "voxels", NULL,
 "kernel of the first convolution (minkunet, spunet)"},
{"net", "kernel_down", SP_KEY_INT, AT(net.kernel_down), "2", "[1, 7]", "voxels", NULL,
 "kernel of the convolutions of stride 2; 3 by default for dummy"},
{"net", "upsample", SP_KEY_CHOICE, AT(net.upsample), "\"trilinear\"", NULL, NULL,
 SP_WORDS(SP_UPSAMPLES), "how minkunet34v2w32's last layer reads strides 16 and 4"},
{"net", "bn_eps", SP_KEY_REAL, AT(net.bn_eps), "1e-5", SP_BN_EPS_RANGE, NULL, NULL,
 "number that batch norms add to the variance; 1e-3 by default for spunet"},
{"net", "bn_momentum", SP_KEY_REAL, AT(net.bn_momentum), "0.1", SP_BN_MOMENTUM_RANGE,
 NULL, NULL,
 "share of a batch in the new running statistics of batch norms; 0.01 by default for "
 "spunet"},
{"net", "grid", SP_KEY_INTS, AT(net.grid), "[]", "[1, 1048576]", "voxels", NULL,
 "x, y, z extent of a grid from voxel 0 that dilated coordinates do not leave; "
 "[]: without bound"},
{"net", "layers", SP_KEY_LAYERS, AT(net.layers), "()", NULL, NULL, NULL,
 "the network, at most 10000 layers, in place of net.family (below)"},

{"train", "epochs", SP_KEY_INT, AT(train.epochs), "30", "[1, inf)", "epochs", NULL,
 "length of the training where train.steps is 0"},
{"train", "steps", SP_KEY_INT64, AT(train.steps), "0", "[0, 1e12]", "steps", NULL,
 "optimizer steps to train; 0: by train.epochs"},
{"train", "optimizer", SP_KEY_CHOICE, AT(train.optimizer), "\"sgd\"", NULL, NULL,
 SP_WORDS(SP_OPTIMIZERS), "update rule"},
{"train", "lr", SP_KEY_REAL, AT(train.lr), "0.1", "[0, inf)", NULL, NULL,
 "learning rate, before train.lr_scale"},
{"train", "momentum", SP_KEY_REAL, AT(train.momentum), "0.9", "[0, 1)", NULL, NULL,
 "momentum of sgd"},
{"train", "dampening", SP_KEY_REAL, AT(train.dampening), "0.0", "[0, 1)", NULL, NULL,
 "share of the gradient that sgd keeps out of its momentum"},
{"train", "nesterov", SP_KEY_BOOL, AT(train.nesterov), "true", NULL, NULL, NULL,
 "use Nesterov's form of momentum in sgd"},
{"train", "betas", SP_KEY_REALS, AT(train.betas), "[0.9, 0.999]", "[0, 1)", NULL, NULL,
 "shares that adamw's first and second moment keep in a step"},
{"train", "adamw_eps", SP_KEY_REAL, AT(train.adamw_eps), "1e-8", "[1e-16, 1]", NULL,
 NULL, "number that adamw adds to the root of the second moment"},
{"train", "weight_decay", SP_KEY_REAL, AT(train.weight_decay), "1e-4", "[0, inf)", NULL,
 NULL, "weight decay; sgd adds it to the gradient, adamw applies it to the weights"},
{"train", "decay_norm", SP_KEY_BOOL, AT(train.decay_norm), "true", NULL, NULL, NULL,
 "apply weight decay to batch norm's scale and shift too"},
{"train", "schedule", SP_KEY_CHOICE, AT(train.schedule), "\"cosine\"", NULL, NULL,
 SP_WORDS(SP_SCHEDULES), "course of the learning rate over the training"},
{"train", "warmup_steps", SP_KEY_INT64, AT(train.warmup_steps), "100", "[0, 1e12]",
 "steps", NULL, "steps in which the learning rate rises linearly at the start"},
{"train", "warmup_factor", SP_KEY_REAL, AT(train.warmup_factor), "0.0", "[0, 1]", NULL,
 NULL, "factor of the learning rate in the first step of that rise; 0: 1 / "
 "train.warmup_steps"},
{"train", "milestones", SP_KEY_REALS, AT(train.milestones), "[0.5, 0.75]", "(0, 1)",
 NULL, NULL, "parts of the training after which step multiplies the learning rate by "
 "train.gamma"},
{"train", "gamma", SP_KEY_REAL, AT(train.gamma), "0.1", "(0, 1]", NULL, NULL,
 "factor of the learning rate at each of train.milestones"},
{"train", "poly_power", SP_KEY_REAL, AT(train.poly_power), "0.9", "(0, 100]", NULL,
 NULL, "power of poly"},
{"train", "cosine_floor", SP_KEY_REAL, AT(train.cosine_floor), "0.0", "[0, 1]", NULL,
 NULL, "factor of the learning rate at which cosine ends"},
{"train", "pct_start", SP_KEY_REAL, AT(train.pct_start), "0.0", "[0, 1]", NULL, NULL,
 "part of the training in which onecycle rises; 0: the part of train.warmup_steps, or "
 "0.3 if they are 0"},
{"train", "div_factor", SP_KEY_REAL, AT(train.div_factor), "25.0", "[1, 1e9]", NULL,
 NULL, "onecycle begins at the learning rate divided by this"},
{"train", "final_div_factor", SP_KEY_REAL, AT(train.final_div_factor), "1e4",
 "[1, 1e12]", NULL, NULL, "onecycle ends at its beginning divided by this"},
{"train", "cycle_momentum", SP_KEY_REALS, AT(train.cycle_momentum), "[]", "[0, 1)",
 NULL, NULL, "[low, high]: in onecycle momentum, or adamw's first beta, falls from "
 "high to low and returns; []: it stays"},
{"train", "lr_scale", SP_KEY_CHOICE, AT(train.lr_scale), "\"none\"", NULL, NULL,
 SP_WORDS(SP_LR_SCALES), "multiply the learning rate by effective batch over "
 "batch.size, or its root"},
{"train", "grad_clip", SP_KEY_REAL, AT(train.grad_clip), "0.0", "[0, inf)", NULL, NULL,
 "greatest norm of the gradient; 0: no bound"},
{"train", "loss", SP_KEY_LOSS, AT(train.loss), "\"cross_entropy\"", NULL, NULL,
 SP_WORDS(SP_LOSSES), "loss: one term, or a list of { name; weight; } that are added"},
{"train", "focal_gamma", SP_KEY_REAL, AT(train.focal_gamma), "2.0", "[0, 100]", NULL,
 NULL, "exponent of 1 - p in the focal loss"},
{"train", "lovasz_per", SP_KEY_CHOICE, AT(train.lovasz_per), "\"sample\"", NULL, NULL,
 SP_WORDS(SP_LOVASZ_PERS), "voxels that lovasz sorts together; step: all of a step, "
 "which needs one rank and one micro-batch"},
{"train", "class_weights", SP_KEY_WEIGHTS, AT(train.class_weights), "\"none\"",
 "[0, 1e9]", NULL, SP_WORDS(SP_CLASS_WEIGHTS),
 "weight of each class, from its frequency or a list of numbers"},
{"train", "label_smoothing", SP_KEY_REAL, AT(train.label_smoothing), "0.0", "[0, 1]",
 NULL, NULL, "part of the target spread over all classes"},
{"train", "ema", SP_KEY_REAL, AT(train.ema), "0.0", "[0, 1)", NULL, NULL,
 "share of the old average in an exponential average of weights and running "
 "statistics, such as 0.999; 0: no average"},
{"train", "average_tail", SP_KEY_REAL, AT(train.average_tail), "0.0", "[0, 1)", NULL,
 NULL,
 "share of the training, at its end: weights and running statistics of its steps are "
 "averaged equally, in place of train.ema; 0: no average"},
{"train", "freeze", SP_KEY_TEXTS, AT(train.freeze), "[]", NULL, NULL, NULL,
 "layers that keep their weights: the beginnings of their names"},
{"train", "lr_layers", SP_KEY_TEXTS, AT(train.lr_layers), "[]", NULL, NULL, NULL,
 "factors of the learning rate: \"PREFIX=FACTOR\" for the layers whose names begin so"},
{"train", "bn_scope", SP_KEY_CHOICE, AT(train.bn_scope), "\"world\"", NULL, NULL,
 "rank|node|world", "ranks over whose voxels batch statistics are taken"},
{"train", "precision", SP_KEY_CHOICE, AT(train.precision), "\"fp32\"", NULL, NULL,
 SP_WORDS(SP_PRECISIONS), "arithmetic of the convolutions; bf16 stores activations so "
 "too; the CPU has no tf32"},
{"train", "bf16_sums", SP_KEY_CHOICE, AT(train.bf16_sums), "\"auto\"", NULL, NULL,
 SP_WORDS(SP_BF16_SUMS), "order of sums in bf16 on CPUs, which decides their last "
 "bits; tiles: the order of AMX, slow elsewhere; auto: tiles if all ranks have AMX"},
{"train", "recompute", SP_KEY_BOOL, AT(train.recompute), "false", NULL, NULL, NULL,
 "compute about half of the activations again in the backward pass instead of keeping "
 "them: less memory, more time, the same results"},
{"train", "seed", SP_KEY_INT64, AT(train.seed), "1", NULL, NULL, NULL,
 "seed of weights, shuffle, augmentation and dropout"},
{"train", "deterministic", SP_KEY_CHOICE, AT(train.deterministic), "\"run\"", NULL,
 NULL, SP_WORDS(SP_DETERMINISTICS),
 "repeat the same bits on as many ranks, on any number of ranks, or not"},
{"train", "nonfinite_limit", SP_KEY_INT, AT(train.nonfinite_limit), "10", "[0, inf)",
 "steps", NULL, "non-finite steps in a row that end the run; 0: never"},

{"run", "dir", SP_KEY_TEXT, AT(run.dir), "\"runs/default\"", NULL, NULL, NULL,
 "run folder: metrics, checkpoints, predictions"},
{"run", "device", SP_KEY_CHOICE, AT(run.device), "\"auto\"", NULL, NULL,
 SP_WORDS(SP_DEVICES), "where to compute"},
{"run", "devices", SP_KEY_INTS, AT(run.devices), "[]", "[0, 1023]", NULL, NULL,
 "local rank i uses the i-th of these devices; []: device i"},
{"run", "threads", SP_KEY_INT, AT(run.threads), "0", "[0, 4096]", "threads", NULL,
 "threads of a rank on the CPU; 0: cores of the node divided by its ranks"},
{"run", "memory_mb", SP_KEY_REAL, AT(run.memory_mb), "0", "[0, 1e9]", "MiB", NULL,
 "memory that a rank may use; steps that need more are cut into micro-batches; 0: its "
 "device's memory"},
{"run", "oversubscribe", SP_KEY_BOOL, AT(run.oversubscribe), "false", NULL, NULL, NULL,
 "let several ranks share a device"},
{"run", "wgmma", SP_KEY_CHOICE, AT(run.wgmma), "\"auto\"", NULL, NULL,
 SP_WORDS(SP_WGMMAS),
 "compute bf16 convolutions of many channels by wgmma, an instruction of sm_90 "
 "devices; auto: if all ranks have it, and both a child process that tries it first "
 "and the self-test at the start succeed"},
{"run", "transport", SP_KEY_CHOICE, AT(run.transport), "\"auto\"", NULL, NULL,
 SP_WORDS(SP_TRANSPORTS),
 "library that sums over ranks; auto: NCCL where each rank has a device, else MPI"},
{"run", "reduce_wire", SP_KEY_CHOICE, AT(run.reduce_wire), "\"fp32\"", NULL, NULL,
 SP_WORDS(SP_REDUCE_WIRES),
 "type in which NCCL sends gradients; bf16 halves the bytes and rounds the sums"},
{"run", "bucket_mb", SP_KEY_REAL, AT(run.bucket_mb), "16", "(0, 4096]", "MiB", NULL,
 "size of a bucket of gradients that are summed together"},
{"run", "overlap", SP_KEY_BOOL, AT(run.overlap), "true", NULL, NULL, NULL,
 "sum gradients while the backward pass goes on"},
{"run", "eval_every", SP_KEY_INT, AT(run.eval_every), "1", "[0, inf)", "epochs", NULL,
 "epochs between evaluations, the last one is at the end; 0: no evaluation, at "
 "the end neither"},
{"run", "log_every", SP_KEY_INT, AT(run.log_every), "10", "[0, inf)", "steps", NULL,
 "steps between lines of the log; 0: once an epoch"},
{"run", "checkpoint_every", SP_KEY_INT, AT(run.checkpoint_every), "0", "[0, inf)",
 "steps", NULL, "steps between checkpoints; 0: once an epoch"},
{"run", "keep", SP_KEY_INT, AT(run.keep), "3", "[1, inf)", "files", NULL,
 "newest checkpoints that are kept, in addition to best.h5"},
{"run", "resume", SP_KEY_RESUME, AT(run.resume), "\"auto\"", NULL, NULL, NULL,
 "auto, never, or the path of a checkpoint"},
{"run", "checkpoint", SP_KEY_TEXT, AT(run.checkpoint), "\"\"", NULL, NULL, NULL,
 "checkpoint, run folder or packed model for eval, predict; empty: that of run.dir"},
{"run", "init_from", SP_KEY_TEXT, AT(run.init_from), "\"\"", NULL, NULL, NULL,
 "file with the weights to start from; empty: random"},
{"run", "init_skip", SP_KEY_TEXTS, AT(run.init_skip), "[]", NULL, NULL, NULL,
 "layers that do not get weights of run.init_from: the beginnings of their names"},
{"run", "init_norm", SP_KEY_CHOICE, AT(run.init_norm), "\"data\"", NULL, NULL,
 SP_WORDS(SP_INIT_NORMS), "normalize features by the statistics of data.train, or by "
 "those that the file of run.init_from was trained with"},
{"run", "weights", SP_KEY_CHOICE, AT(run.weights), "\"plain\"", NULL, NULL,
 SP_WORDS(SP_WEIGHTS_USES), "weights that best.h5 is chosen by, and that eval, predict "
 "and label take; ema: the averages of train.ema"},
{"run", "logits", SP_KEY_BOOL, AT(run.logits), "false", NULL, NULL, NULL,
 "write the network's output into the predictions too"},
{"run", "rank_logs", SP_KEY_BOOL, AT(run.rank_logs), "false", NULL, NULL, NULL,
 "write a log file for each rank into the run folder"},
{"run", "log_dir", SP_KEY_TEXT, AT(run.log_dir), "\"\"", NULL, NULL, NULL,
 "folder of the ranks' logs, which are then written; \"\": logs in run.dir, with "
 "run.rank_logs"},
{"run", "progress", SP_KEY_CHOICE, AT(run.progress), "\"auto\"", NULL, NULL,
 SP_WORDS(SP_PROGRESSES), "one line that renews itself instead of the lines of steps; "
 "auto: on a terminal"},
{"run", "tensorboard", SP_KEY_BOOL, AT(run.tensorboard), "false", NULL, NULL, NULL,
 "write event files of TensorBoard into the run folder too"},
{"run", "pictures", SP_KEY_BOOL, AT(run.pictures), "false", NULL, NULL, NULL,
 "draw the best, the median and the worst sample of each evaluation into the run "
 "folder"},
{"run", "report_every", SP_KEY_INT, AT(run.report_every), "0", "[0, inf)",
 "evaluations", NULL, "renew report.html and the pictures in the run folder; 0: never"},
{"run", "after_save", SP_KEY_TEXT, AT(run.after_save), "\"\"", NULL, NULL, NULL,
 "command run with the path of each new checkpoint, of best.h5, metrics.jsonl and "
 "report.html, and at the end of event files, pictures and deck.resolved"},
{"run", "watchdog_s", SP_KEY_REAL, AT(run.watchdog_s), "60", "[0, 1e9]", "s", NULL,
 "seconds without progress of a rank until the run is ended; 0: never"},
{"run", "file_wait_s", SP_KEY_REAL, AT(run.file_wait_s), "900", "[0, 1e9]", "s", NULL,
 "seconds that a rank may wait for the file system until run.watchdog_s counts"},
{"run", "time_limit_s", SP_KEY_REAL, AT(run.time_limit_s), "0", "[0, 1e9]", "s", NULL,
 "seconds until a training saves and ends with status 75; 0: no limit"},
};
/* clang-format on */

const int sp_deck_n_keys = sizeof sp_deck_key / sizeof sp_deck_key[0];
_Static_assert(sizeof sp_deck_key / sizeof sp_deck_key[0] <= SP_MAX_KEYS,
               "SP_MAX_KEYS");

const char *const sp_config_kept_by_resume[] = {
    "net.family", "net.width",  "net.stem_kernel", "net.kernel_down",
    "net.bn_eps", "net.layers", "net.grid",        "net.upsample",
    "batch.size", "batch.per",  "train.seed",      "run.weights",
    NULL};

/* Keys read from a checkpoint's deck: the network, its loss, and the augmentation of
 * its samples, which gives the views that the network knows. */
const char *const sp_config_kept_by_model[] = {"net.layers",
                                               "net.family",
                                               "net.width",
                                               "net.stem_kernel",
                                               "net.kernel_down",
                                               "net.bn_eps",
                                               "net.grid",
                                               "data.features",
                                               "net.upsample",
                                               "data.voxel_size",
                                               "augment.flip",
                                               "augment.rotate_z",
                                               "augment.scale",
                                               "augment.rotate_max",
                                               "train.label_smoothing",
                                               "train.loss",
                                               "train.focal_gamma",
                                               "run.weights",
                                               NULL};

/* The keys that are paths: a "~/" in them is the user's folder. */
const char *const sp_deck_paths[] = {
    "data.train", "data.val",      "run.dir",     "augment.paste", "run.checkpoint",
    "run.resume", "run.init_from", "run.log_dir", "eval.members",  NULL};

static void deck_path_of(const sp_key *key, char *to)
{
    snprintf(to, SP_NAME, "%s.%s", key->section, key->name);
}

const sp_key *sp_deck_find(const char *path)
{
    char name[SP_NAME];

    assert(path);
    for (int i = 0; i < sp_deck_n_keys; i++) {
        deck_path_of(&sp_deck_key[i], name);
        if (!strcmp(name, path))
            return &sp_deck_key[i];
    }
    return NULL;
}

bool sp_deck_is_section(const char *name)
{
    for (int i = 0; i < sp_deck_n_keys; i++)
        if (!strcmp(sp_deck_key[i].section, name))
            return true;
    return false;
}

bool sp_deck_in_range(const char *range, double value)
{
    char *end;
    const double lo = sp_text_to_number(range + 1, &end);
    const double hi = sp_text_to_number(end + 1, &end);

    assert(range[0] == '[' || range[0] == '(');
    return isfinite(value) && (range[0] == '[' ? value >= lo : value > lo) &&
           (*end == ']' ? value <= hi : value < hi);
}

const char *sp_deck_nearest_section(const char *word)
{
    const char *best = sp_deck_key[0].section;

    for (int i = 0; i < sp_deck_n_keys; i++)
        if (sp_word_distance(word, sp_deck_key[i].section) <
            sp_word_distance(word, best))
            best = sp_deck_key[i].section;
    return best;
}

/* Distance of a key from a misspelt path. A right name in a wrong section is nearer
 * than a misspelt name in the right section, and that is nearer than any other key. */
static int key_distance(const sp_key *key, const char *path)
{
    const char *dot = strchr(path, '.'), *name = dot ? dot + 1 : path;
    char section[SP_NAME];

    snprintf(section, sizeof section, "%.*s", dot ? (int)(dot - path) : 0, path);
    return 4 * sp_word_distance(name, key->name) +
           (dot && strcmp(section, key->section)) +
           (dot ? sp_word_distance(section, key->section) : 0);
}

const sp_key *sp_deck_nearest_key(const char *path)
{
    const sp_key *best = &sp_deck_key[0];

    for (int i = 1; i < sp_deck_n_keys; i++)
        if (key_distance(&sp_deck_key[i], path) < key_distance(best, path))
            best = &sp_deck_key[i];
    return best;
}

const char *sp_deck_type_name(sp_key_type type)
{
    static const char *const name[] = {[SP_KEY_TEXT] = "text",
                                       [SP_KEY_RESUME] = "text",
                                       [SP_KEY_CHOICE] = "name",
                                       [SP_KEY_TEXTS] = "list of texts",
                                       [SP_KEY_BOOL] = "true|false",
                                       [SP_KEY_INT] = "integer",
                                       [SP_KEY_INT64] = "integer",
                                       [SP_KEY_REAL] = "number",
                                       [SP_KEY_REALS] = "numbers",
                                       [SP_KEY_INTS] = "integers",
                                       [SP_KEY_LOSS] = "name or groups",
                                       [SP_KEY_WEIGHTS] = "name or numbers",
                                       [SP_KEY_LAYERS] = "list of groups"};

    return name[type];
}

void sp_deck_print_keys(FILE *to)
{
    char path[SP_NAME];

    fprintf(to, "%-24s %-16s %-28s %-10s %-14s %s\n", "key", "type", "default", "range",
            "unit", "meaning");
    for (int i = 0; i < sp_deck_n_keys; i++) {
        const sp_key *k = &sp_deck_key[i];

        deck_path_of(k, path);
        fprintf(to, "%-24s %-16s %-28s %-10s %-14s %s", path,
                sp_deck_type_name(k->type), k->standard, k->range ? k->range : "-",
                k->unit ? k->unit : "-", k->help);
        if (k->names)
            fprintf(to, " (%s)", k->names);
        putc('\n', to);
    }
}
