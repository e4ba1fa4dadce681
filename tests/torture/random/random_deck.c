/* Decks: every key that may change a result, and some that must not. */
#include <string.h>

#include "torture/random/random.h"

#define PUT(c, ...) rnd_append((c)->deck, sizeof(c)->deck, __VA_ARGS__)

/* Writes "key = value;" with one of the values, which are separated by blanks. */
static int put_choice(rnd_case *c, const char *name, const char *values)
{
    const char *key = strchr(name, '.') + 1, *at = values;
    int n = 1, choice;

    for (const char *v = values; *v; v++)
        n += *v == ' ';
    choice = rnd_pick(c, n, "%s", name);
    for (int i = 0; i < choice; i++)
        at = strchr(at, ' ') + 1;
    PUT(c, "%s = %.*s; ", key, (int)strcspn(at, " "), at);
    return choice;
}

static bool put_flag(rnd_case *c, const char *name, bool plain)
{
    const bool is_other = rnd_chance(c, 50, "%s", name);

    PUT(c, "%s = %s; ", strchr(name, '.') + 1, is_other != plain ? "true" : "false");
    return is_other != plain;
}

/* ---- data ---- */

void rnd_deck_files(rnd_case *c, const rnd_set *set, const char *folder, char *text,
                    size_t size)
{
    if (rnd_chance(c, 50, "%s.glob", set->name)) {
        snprintf(text, size, "[\"%s%s-*.h5\"]", folder, set->name);
        return;
    }
    *text = 0;
    for (int i = 0; i < set->n_shards; i++) {
        FREED char *name = rnd_shard_name(c, set, i);

        rnd_append(text, size, "%s\"%s%s\"", i ? "," : "[", folder, name);
    }
    rnd_append(text, size, "]");
}

/* Writes all columns in order, or some of them in any order. */
static void put_columns(rnd_case *c)
{
    int at = rnd_pick(c, c->n_features, "data.features.first");
    const int n = 1 + rnd_pick(c, c->n_features, "data.features.n");

    c->n_inputs = c->n_features;
    c->color = at;
    if (!rnd_chance(c, 35, "data.features"))
        return;
    c->n_inputs = n;
    PUT(c, "features = [");
    for (int i = 0; i < n; i++, at = (at + c->n_features - 1) % c->n_features)
        PUT(c, "%s\"f%d\"", i ? ", " : "", at);
    PUT(c, "]; ");
}

static void draw_data(rnd_case *c)
{
    static const int merged[] = {1, 2, 3};
    char text[1024];
    int factor = 1;

    PUT(c, "data : { ");
    rnd_deck_files(c, &c->train, "", text, sizeof text);
    PUT(c, "train = %s; ", text);
    rnd_deck_files(c, &c->val, "", text, sizeof text);
    PUT(c, "val = %s;\n  ", text);
    if (rnd_chance(c, 25, "data.voxel_size"))
        factor = merged[rnd_pick(c, 3, "data.voxel_size.factor")];
    c->is_coarse = factor > 1;
    PUT(c, "voxel_size = %.17g; ", factor * c->voxel_size);
    put_columns(c);
    put_flag(c, "data.normalize", true);
    put_choice(c, "data.readers", "2 1 3 5");
    put_choice(c, "data.planners", "1 1 2 3");
    put_flag(c, "data.verify", true);
    PUT(c, "};\n");
}

/* Lengths are some of the voxels' edge. */
static void put_lengths(rnd_case *c)
{
    static const char *const name[] = {"shift", "noise", "noise_clip"};
    static const double factor[] = {0, 0, 0.3, 5};
    const double edge = 3 * c->voxel_size; /* at least that of the network's voxels */

    for (int i = 0; i < 3; i++)
        PUT(c, "%s = %.17g; ", name[i],
            edge * factor[rnd_pick(c, 4, "augment.%s", name[i])] + 0.0);
    if (rnd_chance(c, 30, "augment.elastic"))
        PUT(c, "elastic = [%.17g, %.17g, %.17g, %.17g]; ", 2 * edge, edge, 5 * edge,
            3 * edge);
}

static void put_crop(rnd_case *c)
{
    const double edge = 12 * c->voxel_size;
    const int shape = rnd_pick(c, 4, "augment.crop"); /* 0, 3: the whole sample */
    const int bounds = rnd_pick(c, 3, "augment.crop_size");

    if (shape == 1 || shape == 2)
        PUT(c, "crop = \"%s\"; ", shape == 1 ? "sphere" : "box");
    if (shape == 1 && bounds)
        PUT(c, "crop_size = [%.17g]; ", edge / 2);
    if (shape == 2 && bounds)
        PUT(c, "crop_size = [%.17g, %.17g, 0]; ", edge, edge);
    if (bounds != 1)
        PUT(c, "crop_voxels = 40; ");
    put_choice(c, "augment.crop_p", "1.0 1.0 0.5");
    if (rnd_chance(c, 15, "augment.range"))
        PUT(c, "range = [-1e6, -1e6, %.17g, 1e6, 1e6, 1e6]; ", 4 * c->voxel_size);
}

/* Any column may be a colour; its scale is known with /feature_mean only. */
static void put_colors(rnd_case *c)
{
    if (!rnd_chance(c, 25, "augment.color"))
        return;
    PUT(c, "color_columns = [\"f%d\"]; color_max = 2.0; ", c->color);
    put_choice(c, "augment.color_contrast", "0.0 0.5 1.0");
    put_choice(c, "augment.color_blend", "0.0 0.3");
    put_choice(c, "augment.color_shift", "0.0 0.2");
    put_choice(c, "augment.color_jitter", "0.0 0.1");
    put_choice(c, "augment.color_drop", "0.0 0.2");
}

/* Objects of some classes of the training's own shards (rnd_bank_make). */
static void put_paste(rnd_case *c)
{
    c->has_bank = rnd_chance(c, 20, "augment.paste");
    if (!c->has_bank)
        return;
    PUT(c, "paste = \"bank.h5\"; ");
    put_choice(c, "augment.paste_p", "1.0 1.0 0.5");
    put_choice(c, "augment.paste_classes", "[] [] [\"1\"]");
    put_choice(c, "augment.paste_count", "5 1 20");
    put_choice(c, "augment.paste_voxels", "20000 20000 60");
}

static void draw_augment(rnd_case *c)
{
    PUT(c, "augment : { ");
    put_flag(c, "augment.flip", false);
    put_flag(c, "augment.rotate_z", false);
    PUT(c, "scale = %s; ", rnd_chance(c, 50, "augment.scale") ? "[0.9, 1.1]" : "[]");
    put_choice(c, "augment.drop", "0.0 0.0 0.1 0.5");
    put_choice(c, "augment.jitter", "0.0 0.0 0.01 0.2");
    put_choice(c, "augment.rotate_max", "180.0 180.0 0.0 20.0 90.0");
    put_choice(c, "augment.rotate_p", "1.0 1.0 0.5");
    put_choice(c, "augment.tilt", "0.0 0.0 3.0");
    put_choice(c, "augment.tilt_p", "1.0 0.5");
    put_lengths(c);
    put_choice(c, "augment.elastic_p", "1.0 0.5");
    put_choice(c, "augment.drop_p", "1.0 1.0 0.2");
    put_choice(c, "augment.mix",
               "\"none\" \"none\" \"mix3d\" \"polarmix\" \"laserpolarmix\"");
    put_choice(c, "augment.mix_p", "0.8 0.3 1.0");
    put_choice(c, "augment.mix_classes", "[] [\"0\"] [\"1\",\"0\"]");
    put_choice(c, "augment.mix_bands", "[3,4,5,6] [2]");
    put_crop(c);
    put_paste(c);
    put_colors(c);
    PUT(c, "};\n");
}

/* ---- batch and network ---- */

static void draw_batch(rnd_case *c)
{
    static const char *const per[] = {"world", "world", "node", "rank"};
    const bool is_world = c->is_world || rnd_first_way(c) == 'h';
    const int scope = is_world ? 0 : rnd_pick(c, 4, "batch.per");
    int budget;

    PUT(c, "batch : { ");
    put_choice(c, "batch.size", "2 1 3 4 5 7");
    PUT(c, "per = \"%s\"; ", per[scope]);
    put_choice(c, "batch.eval_size", "4 1 2 3 7 16");
    put_flag(c, "batch.balance", true);
    budget = rnd_first_way(c) == 'h' || rnd_first_way(c) == 'f'
                 ? 0
                 : put_choice(c, "batch.voxel_budget", "0 0 0 60 150 400");
    put_choice(c, "batch.accumulate", "1 1 2 3");
    PUT(c, "};\n");
    PUT(c, "eval : { ");
    put_choice(c, "eval.views", "1 1 1 2 9");
    c->is_ranged = rnd_chance(c, 15, "eval.range");
    if (c->is_ranged)
        PUT(c, "range = [-1e6, -1e6, %.17g, 1e6, 1e6, 1e6]; ", 4 * c->voxel_size);
    PUT(c, "};\n");
    c->is_rankless = scope < 2 && budget < 3;
}

static void draw_net(rnd_case *c)
{
    static const char families[] =
        "\"dummy\" \"minkunet14A\" \"minkunet18\" \"minkunet14\" \"minkunet14B\" "
        "\"minkunet14C\" \"minkunet14D\" \"minkunet18A\" \"minkunet18B\" "
        "\"minkunet18D\" \"minkunet34\" \"minkunet34A\" \"minkunet34B\" "
        "\"minkunet34C\" \"minkunet50\" \"minkunet101\"";
    char layers[DECK_SIZE / 2] = "";

    PUT(c, "net : { ");
    if (rnd_chance(c, 50, "net.layers")) {
        rnd_layers_draw(c, layers, sizeof layers);
        PUT(c, "layers = (\n%s ); ", layers);
    } else {
        if (rnd_chance(c, 60, "net.family.any"))
            put_choice(c, "net.family", families);
        else
            PUT(c, "family = \"dummy\"; ");
        put_choice(c, "net.width", "0.0625 0.05 0.03 0.125");
        put_choice(c, "net.stem_kernel", "3 1 2 5");
        put_choice(c, "net.kernel_down", "2 3");
        put_choice(c, "net.upsample", "\"trilinear\" \"nearest\"");
    }
    put_choice(c, "net.bn_eps", "1e-5 1e-5 1e-3 0.1");
    put_choice(c, "net.bn_momentum", "0.1 0.1 0.01 1.0");
    PUT(c, "};\n");
}

/* ---- training ---- */

static void put_class_weights(rnd_case *c)
{
    const int kind = rnd_pick(c, 6, "train.class_weights");

    if (kind == 2 && rnd_chance(c, 50, "train.class_weights.more")) {
        PUT(c, "class_weights = \"%s\"; ",
            rnd_chance(c, 50, "train.class_weights.log") ? "log_inverse"
                                                         : "median_frequency");
        return;
    }

    if (kind == 3 || kind == 4)
        PUT(c, "class_weights = \"%s\"; ", kind == 3 ? "inverse" : "sqrt_inverse");
    if (kind != 5)
        return;
    PUT(c, "class_weights = [");
    for (int i = 0; i < c->n_classes; i++)
        PUT(c, "%s%g", i ? ", " : "", 0.5 * (i % 4));
    PUT(c, "]; ");
}

static void put_adamw(rnd_case *c)
{
    PUT(c, "optimizer = \"adamw\"; lr = 0.003; ");
    if (rnd_chance(c, 40, "train.betas"))
        PUT(c, "betas = [0.8, 0.99]; ");
    put_choice(c, "train.adamw_eps", "1e-8 1e-8 1e-4");
}

static void draw_optimizer(rnd_case *c)
{
    if (rnd_chance(c, 40, "train.optimizer"))
        put_adamw(c);
    else
        put_choice(c, "train.lr", "0.02 0.05 0.005");
    put_choice(c, "train.momentum", "0.9 0.0 0.5");
    if (!put_flag(c, "train.nesterov", true))
        put_choice(c, "train.dampening", "0.0 0.1 0.5");
    put_choice(c, "train.weight_decay", "1e-4 0.0 0.01");
    put_flag(c, "train.decay_norm", true);
    put_choice(c, "train.grad_clip", "0.0 0.0 1.0 0.1");
}

/* The number of layers of the deck that have parameters; the k-th one's name is written
 * to `name`. */
static int find_layer(const rnd_case *c, int k, char name[NAME_SIZE])
{
    static const char *const ops[] = {"conv", "batchnorm", "linear"};
    int n = 0;

    for (const char *at = c->deck; (at = strstr(at, "{ name = \"")); at++) {
        const char *layer = at + strlen("{ name = \""), *op = strstr(at, "op = \"");
        bool has_weights = false;

        for (size_t i = 0; op && i < sizeof ops / sizeof *ops; i++)
            has_weights = has_weights ||
                          strncmp(op + strlen("op = \""), ops[i], strlen(ops[i])) == 0;
        if (has_weights && n++ == k)
            snprintf(name, NAME_SIZE, "%.*s", (int)strcspn(layer, "\""), layer);
    }
    return n;
}

/* Freezes some layers, but never all: the network has more than one. */
static void put_freeze(rnd_case *c)
{
    static const char *const dummy[] = {"bn1", "conv1", "conv2", "conv"};
    static const char *const minkunet[] = {"bn0", "conv0", "block1", "block"};
    const int choice = rnd_pick(c, 4, "train.freeze.layer");
    char name[NAME_SIZE] = "";
    int n;

    if (!rnd_chance(c, 15, "train.freeze"))
        return;
    n = find_layer(c, -1, name);
    if (n > 0)
        find_layer(c, (choice * 5 + 1) % n, name);
    else
        snprintf(name, sizeof name, "%s",
                 strstr(c->deck, "\"dummy\"") ? dummy[choice] : minkunet[choice]);
    PUT(c, "freeze = [\"%s\"]; ", name);
}

static void put_schedule(rnd_case *c)
{
    switch (put_choice(c, "train.schedule",
                       "\"constant\" \"step\" \"poly\" \"cosine\" \"onecycle\"")) {
    case 1:
        if (rnd_chance(c, 50, "train.milestones"))
            PUT(c, "milestones = [0.2, 0.4, 0.8]; ");
        put_choice(c, "train.gamma", "0.1 0.5");
        break;
    case 2:
        put_choice(c, "train.poly_power", "0.9 0.9 2.0");
        break;
    case 3:
        put_choice(c, "train.cosine_floor", "0.0 0.0 0.1");
        break;
    case 4:
        put_choice(c, "train.pct_start", "0.0 0.0 0.05 0.5");
        put_choice(c, "train.div_factor", "25.0 10.0");
        put_choice(c, "train.final_div_factor", "1e4 100.0");
        if (rnd_chance(c, 50, "train.cycle_momentum"))
            PUT(c, "cycle_momentum = [0.85, 0.95]; ");
        break;
    default:
        break;
    }
    put_choice(c, "train.warmup_steps", "0 1 2 3");
    if (!strstr(c->deck, "\"onecycle\""))
        put_choice(c, "train.warmup_factor", "0.0 0.0 0.1");
}

static void put_loss(rnd_case *c)
{
    static const char *const loss[] = {
        "\"focal\"", "\"dice\"", "\"lovasz\"",
        "( { name = \"cross_entropy\"; weight = 1.0; }, "
        "{ name = \"lovasz\"; weight = 0.5; } )",
        "( \"cross_entropy\", \"lovasz\", \"focal\", \"dice\" )"};

    if (!rnd_chance(c, 20, "train.loss"))
        return;
    PUT(c, "loss = %s; ", loss[rnd_pick(c, 5, "train.loss.terms")]);
    put_choice(c, "train.focal_gamma", "2.0 0.0 0.5");
}

static void draw_train(rnd_case *c)
{
    PUT(c, "train : { ");
    if (rnd_chance(c, 30, "train.epochs"))
        PUT(c, "epochs = %d; ", 1 + rnd_pick(c, 3, "train.epochs.n"));
    else
        put_choice(c, "train.steps", rnd_first_way(c) == 'f' ? "3" : "4 3 5 6 7");
    draw_optimizer(c);
    PUT(c, "\n  ");
    put_schedule(c);
    put_choice(c, "train.lr_scale", "\"none\" \"linear\" \"sqrt\"");
    put_class_weights(c);
    put_choice(c, "train.label_smoothing", "0.0 0.0 0.1");
    put_loss(c);
    put_choice(c, rnd_pick(c, 3, "train.average") ? "train.ema" : "train.average_tail",
               "0.0 0.0 0.0 0.9");
    if (c->is_world || rnd_first_way(c) == 'h')
        PUT(c, "bn_scope = \"world\"; ");
    else if (put_choice(c, "train.bn_scope", "\"world\" \"node\" \"rank\"") == 2)
        c->is_rankless = false;
    put_choice(c, "train.seed", "1 2 12345678901");
    if (rnd_chance(c, 20, "train.precision"))
        PUT(c, "precision = \"bf16\"; ");
    put_freeze(c);
    put_flag(c, "train.recompute", false);
    PUT(c, "deterministic = \"%s\"; };\n",
        c->is_world ? "world"
        : c->is_off ? "off"
                    : "run");
}

static void draw_run(rnd_case *c)
{
    PUT(c, "run : { log_every = 1; keep = 100; device = \"cpu\"; dir = \"a\"; ");
    put_choice(c, "run.eval_every", "1 1 2 0");
    put_choice(c, "run.checkpoint_every", "1 2 3 0");
    put_choice(c, "run.threads", c->ranks > 1 ? "1" : "1 1 2");
    put_choice(c, "run.bucket_mb", "16 0.0001 0.001 0.02");
    put_flag(c, "run.overlap", true);
    put_choice(c, "run.rank_logs", "false false false true");
    PUT(c, "};\n");
}

static void draw_deck(rnd_case *c)
{
    const char way = rnd_first_way(c);

    c->is_world = way == 'c' || rnd_chance(c, 15, "train.deterministic.world");
    c->is_off = !c->is_world && strchr("defg", way) &&
                rnd_chance(c, 15, "train.deterministic.off");
    c->ranks = way == 'f' ? 0 : rnd_pick(c, 4, "ranks"); /* 0: without a launcher */
    draw_data(c);
    draw_augment(c);
    draw_batch(c);
    draw_net(c);
    draw_train(c);
    draw_run(c);
    c->has_eval = c->val.has_labels && !strstr(c->deck, "eval_every = 0;");
    c->has_init = rnd_chance(c, 12, "run.init_from");
}

void rnd_case_draw(rnd_case *c, const rnd_options *options, int64_t index,
                   const char *takes, const char *plain)
{
    memset(c, 0, sizeof *c);
    c->options = options;
    c->seed = (uint64_t)options->seed;
    c->index = index;
    c->takes = takes;
    c->plain = plain;
    rnd_data_draw(c);
    draw_deck(c);
}
