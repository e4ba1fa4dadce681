/* Wild networks, in which any layer may read any other before it, and the input: what
 * the orderly ones of random_layers.c do not have. Layers that nothing reads are joined
 * at the end. */
#include <string.h>

#include "torture/random/random.h"

enum { MOST_LAYERS = 128, MOST_CHANNELS = 24, INPUT = -1, SAMPLES = -1 };

/* The output of a layer. */
typedef struct value {
    int level; /* SAMPLES: a row for each sample, pooled on level `pooled` */
    int pooled, channels;
    bool is_read;
} value;

typedef struct net {
    rnd_case *c;
    char *text;
    size_t size;
    int n; /* layers so far, named l0, l1, ... */
    value of[MOST_LAYERS];
} net;

static value value_of(const net *b, int i)
{
    return i == INPUT ? (value){.channels = b->c->n_inputs, .is_read = true} : b->of[i];
}

#define PUT(b, ...) rnd_append((b)->text, (b)->size, __VA_ARGS__)

/* Adds a layer that reads these others and gives `out`. Returns its number. */
static int add(net *b, const char *op, const int *from, int n_from, value out,
               const char *fields)
{
    PUT(b, "%s  { name = \"l%d\"; op = \"%s\"; from = [", b->n ? ",\n" : "", b->n, op);
    for (int k = 0; k < n_from; k++) {
        if (from[k] == INPUT)
            PUT(b, "%s\"input\"", k ? ", " : "");
        else
            PUT(b, "%s\"l%d\"", k ? ", " : "", from[k]);
        if (from[k] != INPUT)
            b->of[from[k]].is_read = true;
    }
    PUT(b, "]; %s}", fields);
    out.is_read = false;
    if (value_of(b, from[0]).level == SAMPLES)
        out.pooled = value_of(b, from[0]).pooled;
    b->of[b->n] = out;
    return b->n++;
}

static int draw_channels(net *b, const char *at)
{
    const int channels[] = {4, b->c->n_inputs, 1, 2, 3, 5, 8};

    return channels[rnd_pick(b->c, 7, "%s.channels", at)];
}

/* Draws a layer on this level that has `least` to `most` channels. INPUT where there is
 * none. */
static int draw_from(net *b, int level, int least, int most, const char *at)
{
    int found[MOST_LAYERS + 1], n = 0;

    for (int i = b->n - 1; i >= INPUT; i--) {
        const value v = value_of(b, i);

        if (v.level == level && least <= v.channels && v.channels <= most)
            found[n++] = i;
    }
    if (n == 0 || (found[n - 1] == INPUT && rnd_chance(b->c, 25, "%s.input", at)))
        return INPUT;
    return found[rnd_pick(b->c, n, "%s.from", at)];
}

/* Adds a convolution of any kind that leads to a level; along a level where they are
 * equal. */
static int conv(net *b, int x, int level, int channels, const char *at)
{
    static const int flat[] = {3, 1, 2, 3, 5};
    value v = value_of(b, x);
    const int steps = level - v.level;
    const int kernel = steps         ? 2 + rnd_pick(b->c, 2, "%s.kernel", at)
                       : v.level < 0 ? 1
                                     : flat[rnd_pick(b->c, 5, "%s.kernel", at)];
    const bool is_back =
        steps < 0 || (steps == 0 && rnd_chance(b->c, 20, "%s.transposed", at));
    const char *bias = rnd_chance(b->c, 30, "%s.bias", at) ? "true" : "false";
    char fields[96];

    v.level = level;
    v.channels = channels;
    if (kernel == 1 && rnd_chance(b->c, 50, "%s.linear", at)) {
        snprintf(fields, sizeof fields, "out = %d; bias = %s; ", channels, bias);
        return add(b, "linear", &x, 1, v, fields);
    }
    snprintf(fields, sizeof fields, "out = %d; kernel = %d; stride = %d; bias = %s; ",
             channels, kernel, 1 << (steps < 0 ? -steps : steps), bias);
    return add(b, is_back ? "conv_transpose" : "conv", &x, 1, v, fields);
}

/* Adds a layer to others, itself among them, or places it beside them. */
static void join(net *b, int x, const char *at)
{
    const bool is_sum = rnd_chance(b->c, 60, "%s.add", at);
    const int n = 2 + rnd_pick(b->c, 3, "%s.n", at), c = value_of(b, x).channels;
    const int place = rnd_pick(b->c, n, "%s.place", at);
    value v = value_of(b, x);
    int from[4];

    v.channels = is_sum ? c : 0;
    for (int k = 0; k < n; k++) {
        char input[NAME_SIZE];

        snprintf(input, sizeof input, "%.24s.%d", at, k);
        from[k] = k == place ? x
                             : draw_from(b, v.level, is_sum ? c : 1,
                                         is_sum ? c : MOST_CHANNELS, input);
        v.channels += is_sum ? 0 : value_of(b, from[k]).channels;
    }
    if (v.channels <= MOST_CHANNELS)
        add(b, is_sum ? "add" : "concat", from, n, v, "");
}

/* Adds a pool: over neighbours, down, or of whole samples. */
static void pool(net *b, int x, int steps, const char *at)
{
    const bool is_max = rnd_chance(b->c, 50, "%s.max", at);
    const int kernel = 2 + rnd_pick(b->c, 2, "%s.kernel", at);
    value v = value_of(b, x);
    char fields[64];

    if (v.level < 0)
        return;
    if (rnd_chance(b->c, 30, "%s.global", at)) {
        v.pooled = v.level;
        v.level = SAMPLES;
        add(b, is_max ? "global_max_pool" : "global_avg_pool", &x, 1, v, "");
        return;
    }
    v.level += steps;
    snprintf(fields, sizeof fields, "kernel = %d; stride = %d; ", kernel, 1 << steps);
    if (steps > 0 && rnd_chance(b->c, 30, "%s.no_kernel", at))
        snprintf(fields, sizeof fields, "stride = %d; ", 1 << steps);
    add(b, is_max ? "max_pool" : "avg_pool", &x, 1, v, fields);
}

/* Brings a layer to the voxels that it came from, as far as it goes in one layer. */
static void bring_back(net *b, int x, const char *at)
{
    value v = value_of(b, x);

    if (v.level > 0 && v.level < 3 && rnd_chance(b->c, 30, "%s.copy", at)) {
        char fields[32];

        snprintf(fields, sizeof fields, "stride = %d; ", 1 << v.level);
        v.level = 0;
        add(b, rnd_chance(b->c, 50, "%s.linear", at) ? "interpolate" : "upsample", &x,
            1, v, fields);
        return;
    }
    if (v.level > 0) {
        conv(b, x, 0, draw_channels(b, at), at);
        return;
    }
    v.level = v.pooled;
    add(b, "broadcast", &x, 1, v, "");
}

static void move(net *b, int x, const char *at)
{
    const int level = value_of(b, x).level;
    const int steps = 1 + rnd_chance(b->c, 15, "%s.four", at);

    if (level < 0 || (level > 0 && rnd_chance(b->c, 50, "%s.up", at)))
        bring_back(b, x, at);
    else if (level + steps > 3)
        return;
    else if (rnd_chance(b->c, 50, "%s.pool", at))
        pool(b, x, steps, at);
    else
        conv(b, x, level + steps, draw_channels(b, at), at);
}

/* Adds an operation that changes no shape; n: which. */
static void unary(net *b, int x, int n, const char *at)
{
    static const char *const op[] = {"batchnorm", "relu", "batchnorm", "dropout",
                                     "leaky_relu"};
    static const char *const slope[] = {"", "slope = 0.2; ", "slope = -0.3; ",
                                        "slope = 0.0; "};
    const char *fields = n == 3   ? "p = 0.3; "
                         : n == 4 ? slope[rnd_pick(b->c, 4, "%s.slope", at)]
                                  : "";

    add(b, op[n], &x, 1, value_of(b, x), fields);
}

/* Adds a norm, what it is added to, and an activation: one pass of the network. */
static void residual(net *b, int x, const char *at)
{
    const value v = value_of(b, x);
    const int y = add(b, "batchnorm", &x, 1, v, "");
    const int other = draw_from(b, v.level, v.channels, v.channels, at);
    const bool is_turned = rnd_chance(b->c, 50, "%s.turned", at);

    add(b, "add", is_turned ? (int[]){other, y} : (int[]){y, other}, 2, v, "");
    if (rnd_chance(b->c, 50, "%s.relu", at))
        unary(b, b->n - 1, rnd_chance(b->c, 30, "%s.leaky", at) ? 4 : 1, at);
}

static void layer(net *b, int number)
{
    char at[NAME_SIZE];
    int x = b->n - 1, kind;

    snprintf(at, sizeof at, "net.w%d", number);
    if (rnd_chance(b->c, 40, "%s.far", at))
        x = b->n - 1 - rnd_pick(b->c, b->n + 1, "%s.back", at);
    kind = rnd_pick(b->c, 17, "%s", at);
    if (kind < 3)
        conv(b, x, value_of(b, x).level, draw_channels(b, at), at);
    else if (kind < 8)
        unary(b, x, kind - 3, at);
    else if (kind < 11)
        join(b, x, at);
    else if (kind < 14)
        residual(b, x, at);
    else if (kind == 14)
        pool(b, x, 0, at);
    else
        move(b, x, at);
}

/* Joins the layers that nothing reads into one, at stride 1. */
static int gather(net *b)
{
    int last = INPUT;

    for (int i = 0; i < b->n; i++) {
        value v = value_of(b, i);

        if (v.is_read)
            continue;
        if (v.level != 0) {
            bring_back(b, i, "net.end");
            continue;
        }
        if (last != INPUT) { /* the concat comes later in this loop */
            v.channels += value_of(b, last).channels;
            add(b, "concat", (int[]){last, i}, 2, v, "");
        }
        last = last == INPUT ? i : INPUT;
    }
    return last;
}

/* Ends with a head, with a sum, or with columns of which others may be read before. */
static void end(net *b)
{
    const int classes = b->c->n_classes, x = gather(b);
    const int other = draw_from(b, 0, 1, classes - 1, "net.end");
    int from[2] = {x, other}, kind = rnd_pick(b->c, 4, "net.end.kind");
    const value v = {.channels = classes};

    if (kind == 2 && value_of(b, other).channels < classes) {
        from[1] = conv(b, x, 0, classes - value_of(b, other).channels, "net.end.part");
        from[0] = other;
        add(b, "concat", from, 2, v, "");
    } else {
        from[0] = conv(b, x, 0, classes, "net.end.part");
        if (kind == 1) {
            from[1] = draw_from(b, 0, classes, classes, "net.end.sum");
            if (value_of(b, from[1]).channels == classes)
                add(b, "add", from, 2, v, "");
        }
    }
    if (kind == 3)
        unary(b, b->n - 1, rnd_pick(b->c, 5, "net.end.last"), "net.end.last");
}

void rnd_wild_draw(rnd_case *c, char *text, size_t size)
{
    net b = {.c = c, .text = text, .size = size};
    const int n = 1 + rnd_pick(c, 16, "net.w");

    for (int i = 0; i < n; i++)
        layer(&b, i);
    end(&b);
}
