/* Networks layer by layer: a stem, blocks that may be nested in a stage of half the
 * resolution, a head. A block reads what the block before it gave and declares its own
 * channels alone, so that any block can be left out. */
#include <string.h>

#include "torture/random/random.h"

typedef struct net {
    rnd_case *c;
    char *text;
    size_t size;
    int n;         /* layers so far */
    char last[24]; /* name of the last one */
    int channels;  /* of the last one; 0: those of the input */
    int level;
} net;

static void begin(net *b, const char *op)
{
    rnd_append(b->text, b->size, "%s  { name = \"l%d\"; op = \"%s\"; ",
               b->n ? ",\n" : "", b->n, op);
}

static void end(net *b)
{
    rnd_append(b->text, b->size, "}");
    snprintf(b->last, sizeof b->last, "l%d", b->n++);
}

/* Adds a layer with these fields and leaves its name in b->last. */
#define ADD(b, op, ...)                                                                \
    (begin(b, op), rnd_append((b)->text, (b)->size, __VA_ARGS__), end(b))

static int draw_channels(net *b, const char *at)
{
    static const int channels[] = {4, 3, 5, 8, 16};

    return channels[rnd_pick(b->c, 5, "%s.channels", at)];
}

/* Adds a batch norm, with numbers of its own or those of the deck. */
static void norm(net *b, const char *at)
{
    static const char *const fields[] = {
        "", "", "", "eps = 1e-3; momentum = 0.01; ", "momentum = 0.5; ", "eps = 0.1; "};

    ADD(b, "batchnorm", "%s", fields[rnd_pick(b->c, 6, "%s.norm.fields", at)]);
}

static void norm_and_act(net *b, const char *at)
{
    const int act = rnd_pick(b->c, 4, "%s.act", at);

    if (!rnd_chance(b->c, 25, "%s.no_norm", at))
        norm(b, at);
    if (act == 1)
        ADD(b, "relu", "%s", "");
    else if (act == 2)
        ADD(b, "leaky_relu", "%s", "");
    else if (act == 3)
        ADD(b, "leaky_relu", "slope = 0.2; ");
}

/* Adds a convolution that keeps the coordinates, of either kind. */
static void conv(net *b, const char *at, int channels)
{
    static const int kernels[] = {3, 1, 2, 3, 5};
    const int kernel = kernels[rnd_pick(b->c, 5, "%s.kernel", at)];
    const char *bias = rnd_chance(b->c, 30, "%s.bias", at) ? "bias = true; " : "";

    if (kernel == 1 && rnd_chance(b->c, 50, "%s.linear", at))
        ADD(b, "linear", "out = %d; %s", channels, bias);
    else
        ADD(b, rnd_chance(b->c, 20, "%s.transposed", at) ? "conv_transpose" : "conv",
            "out = %d; kernel = %d; %s", channels, kernel, bias);
    b->channels = channels;
}

/* Adds convolution, norm and activation, with a shortcut added where one is drawn. */
static void residual(net *b, const char *at)
{
    const int channels = draw_channels(b, at);
    char first[24];

    conv(b, at, channels);
    norm_and_act(b, at);
    if (!rnd_chance(b->c, 50, "%s.add", at))
        return;
    strcpy(first, b->last);
    ADD(b, "conv", "out = %d; kernel = 3; ", channels);
    norm_and_act(b, at);
    ADD(b, "add", "from = [\"%s\", \"%s\"]; ", b->last, first);
    if (rnd_chance(b->c, 50, "%s.relu", at))
        ADD(b, "relu", "%s", "");
}

/* Makes a row for each sample, spread over its voxels and concatenated or added. */
static void global(net *b, const char *at)
{
    const bool is_max = rnd_chance(b->c, 50, "%s.max", at);
    const int channels = b->channels;
    char first[24];

    strcpy(first, b->last);
    ADD(b, is_max ? "global_max_pool" : "global_avg_pool", "%s", "");
    if (rnd_chance(b->c, 50, "%s.linear", at))
        ADD(b, "linear", "out = %d; bias = true; ", channels);
    if (rnd_chance(b->c, 30, "%s.norm", at))
        norm(b, at);
    ADD(b, "broadcast", "%s", "");
    if (rnd_chance(b->c, 50, "%s.add", at)) {
        ADD(b, "add", "from = [\"%s\", \"%s\"]; ", first, b->last);
        return;
    }
    ADD(b, "concat", "from = [\"%s\", \"%s\"]; ", first, b->last);
    b->channels = 2 * channels;
}

static void block(net *b, const char *at)
{
    const int kind = rnd_pick(b->c, 6, "%s", at);

    if (kind == 1 || kind == 2)
        residual(b, at);
    else if (kind == 3)
        global(b, at);
    else if (kind == 4)
        ADD(b, "dropout", "%s", rnd_chance(b->c, 50, "%s.p", at) ? "p = 0.2; " : "");
    else if (kind == 5)
        norm_and_act(b, at);
}

/* Goes down by a convolution or a pool, adds blocks, goes up again, and joins the
 * result with the input. */
static void stage(net *b, int depth)
{
    const int stride = 2 << rnd_chance(b->c, 15, "net.down%d.four", depth);
    const int kernel = 2 + rnd_pick(b->c, 2, "net.down%d.kernel", depth);
    const int down = rnd_pick(b->c, 5, "net.down%d", depth), before = b->channels;
    char first[24], at[NAME_SIZE];

    if (down == 0 || b->level + (stride > 2 ? 2 : 1) > 4)
        return;
    strcpy(first, b->last);
    b->level += stride > 2 ? 2 : 1;
    snprintf(at, sizeof at, "net.down%d", depth);
    if (down < 3) {
        b->channels = draw_channels(b, at);
        ADD(b, "conv", "out = %d; kernel = %d; stride = %d; %s", b->channels, kernel,
            stride,
            kernel == 3 && stride == 2 && rnd_chance(b->c, 30, "%s.dilated", at)
                ? "coordinates = \"dilated\"; "
                : "");
        norm_and_act(b, at);
    } else if (rnd_chance(b->c, 50, "%s.pool", at)) {
        ADD(b, down == 3 ? "max_pool" : "avg_pool", "stride = %d; ", stride);
    } else {
        ADD(b, down == 3 ? "max_pool" : "avg_pool", "kernel = 3; stride = %d; ",
            stride);
    }
    snprintf(at, sizeof at, "net.inner%d", depth);
    block(b, at);
    if (depth < 2)
        stage(b, depth + 1);
    b->level -= stride > 2 ? 2 : 1;
    ADD(b, "conv_transpose", "out = %d; kernel = %d; stride = %d; ", before, kernel,
        stride);
    b->channels = before;
    if (rnd_chance(b->c, 50, "net.up%d.add", depth)) {
        ADD(b, "add", "from = [\"%s\", \"%s\"]; ", b->last, first);
    } else {
        ADD(b, "concat", "from = [\"%s\", \"%s\"]; ", b->last, first);
        b->channels = 2 * before;
    }
}

void rnd_layers_draw(rnd_case *c, char *text, size_t size)
{
    net b = {.c = c, .text = text, .size = size};

    if (rnd_chance(c, 50, "net.wild")) {
        rnd_wild_draw(c, text, size);
        return;
    }
    conv(&b, "net.stem", draw_channels(&b, "net.stem"));
    norm_and_act(&b, "net.stem");
    block(&b, "net.block0");
    stage(&b, 0);
    block(&b, "net.block1");
    if (rnd_chance(c, 15, "net.flat"))
        ADD(&b, "max_pool", "kernel = 3; stride = 1; ");
    if (rnd_chance(c, 60, "net.head.linear"))
        ADD(&b, "linear", "out = %d; bias = true; ", c->n_classes);
    else
        ADD(&b, "conv", "out = %d; kernel = 1; bias = true; ", c->n_classes);
}

void rnd_net_draw(rnd_case *c, uint64_t seed, int64_t index, int n_inputs,
                  int n_classes, char *text, size_t size)
{
    memset(c, 0, sizeof *c);
    c->seed = seed;
    c->index = index;
    c->n_inputs = n_inputs;
    c->n_classes = n_classes;
    *text = 0;
    rnd_layers_draw(c, text, size);
}
