/* The layer lists of the families: dummy, MinkUNet with the layer names of
 * MinkowskiEngine, and after it the U-Nets of other programs: spunet is Pointcept's
 * SpUNet-v1m1 (pointcept/models/sparse_unet/spconv_unet_v1m1_base.py), minkunet18w16,
 * 18w20, 18w32 and 34w32 are MinkUNet of spvnas and mmdet3d, with a stem of two
 * convolutions, and the channels that their widths (spvnas: cr) of 0.5, 0.64 and 1
 * give, rounded down. minkunet34v2w32 is mmdet3d's MinkUNet34v2, whose classifier reads
 * strides 16, 4 and 1 together, as OpenPCSeg's MinkUNet does.
 *
 *   conv0p1s1 --------------------------------------------------------- block8 final
 *     conv1p1s2 block1 -------------------------------- block7 convtr7p2s2
 *       conv2p2s2 block2 ---------------- block6 convtr6p4s2
 *         conv3p4s2 block3 ---- block5 convtr5p8s2
 *           conv4p8s2 block4 convtr4p16s2
 */
#include "base/sp_list.h"
#include "net/sp_graph.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct unet_kind {
    bool is_bottleneck;
    int blocks[8], planes[8]; /* blocks and channels of the four stages down, then up */
} unet_kind;

#define ONE  1, 1, 1, 1, 1, 1, 1, 1
#define TWO  2, 2, 2, 2, 2, 2, 2, 2
#define DEEP 2, 3, 4, 6, 2, 2, 2, 2
#define DOWN 32, 64, 128, 256

static const unet_kind unet[SP_DUMMY] = {
    [SP_MINKUNET14] = {false, {ONE}, {DOWN, 256, 128, 96, 96}},
    [SP_MINKUNET14A] = {false, {ONE}, {DOWN, 128, 128, 96, 96}},
    [SP_MINKUNET14B] = {false, {ONE}, {DOWN, 128, 128, 128, 128}},
    [SP_MINKUNET14C] = {false, {ONE}, {DOWN, 192, 192, 128, 128}},
    [SP_MINKUNET14D] = {false, {ONE}, {DOWN, 384, 384, 384, 384}},
    [SP_MINKUNET18] = {false, {TWO}, {DOWN, 256, 128, 96, 96}},
    [SP_MINKUNET18A] = {false, {TWO}, {DOWN, 128, 128, 96, 96}},
    [SP_MINKUNET18B] = {false, {TWO}, {DOWN, 128, 128, 128, 128}},
    [SP_MINKUNET18D] = {false, {TWO}, {DOWN, 384, 384, 384, 384}},
    [SP_MINKUNET34] = {false, {DEEP}, {DOWN, 256, 128, 96, 96}},
    [SP_MINKUNET34A] = {false, {DEEP}, {DOWN, 256, 128, 64, 64}},
    [SP_MINKUNET34B] = {false, {DEEP}, {DOWN, 256, 128, 64, 32}},
    [SP_MINKUNET34C] = {false, {DEEP}, {DOWN, 256, 128, 96, 96}},
    [SP_MINKUNET50] = {true, {DEEP}, {DOWN, 256, 128, 96, 96}},
    [SP_MINKUNET101] = {true, {2, 3, 4, 23, 2, 2, 2, 2}, {DOWN, 256, 128, 96, 96}},
};

typedef struct builder {
    sp_layer *layer;
    int n;
    double width;
    int expansion, channels; /* channels: of the trunk's last layer */
    bool is_short_of_memory;
} builder;

static int scaled(const builder *b, int planes)
{
    long n = lround(planes * b->width);

    return n < 1 ? 1 : (int)n;
}

/* Appends a layer that reads the one before it; the caller sets its other fields. */
static sp_layer *family_add(builder *b, const char *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static sp_layer *family_add(builder *b, const char *op, const char *format, ...)
{
    /* spare receives the fields of layers once memory has run out. */
    static _Thread_local sp_layer spare;
    sp_layer *l = &spare;
    va_list args;

    if (sp_list_grow(&b->layer, b->n, sizeof *b->layer))
        l = &b->layer[b->n++];
    else
        b->is_short_of_memory = true;
    *l = sp_layer_plain;
    snprintf(l->op, sizeof l->op, "%s", op);
    va_start(args, format);
    vsnprintf(l->name, sizeof l->name, format, args);
    va_end(args);
    return l;
}

static void family_read_from(builder *b, sp_layer *l, const char *name)
{
    if (sp_list_grow(&l->from.at, l->from.n, sizeof *l->from.at) &&
        (l->from.at[l->from.n] = strdup(name)))
        l->from.n++;
    else
        b->is_short_of_memory = true;
}

static sp_layer *add_conv(builder *b, const char *op, const char *name, int out,
                          int kernel, int stride)
{
    sp_layer *l = family_add(b, op, "%s", name);

    l->out = out;
    l->kernel = kernel;
    l->stride = stride;
    return l;
}

/* Appends a convolution, a batch norm and a ReLU. `name` is the convolution's; the
 * names of the others are "bn" and "relu" with the letters `end`. */
static void add_unit(builder *b, const char *op, const char *name, const char *end,
                     int out, int kernel, int stride)
{
    add_conv(b, op, name, out, kernel, stride);
    family_add(b, "batchnorm", "bn%s", end);
    family_add(b, "relu", "relu%s", end);
    b->channels = out;
}

static void family_add_block(builder *b, int stage, int i, int planes)
{
    static const int basic[] = {3, 3}, bottleneck[] = {1, 3, 1};
    const int *kernel = b->expansion > 1 ? bottleneck : basic;
    int n = b->expansion > 1 ? 3 : 2, out = planes * b->expansion;
    char input[SP_NAME], name[SP_NAME], sum[2][SP_NAME];
    sp_layer *l;

    snprintf(input, sizeof input, "%s", b->n ? b->layer[b->n - 1].name : "input");
    for (int k = 1; k <= n; k++) {
        snprintf(name, sizeof name, "block%d.%d.conv%d", stage, i, k);
        add_conv(b, "conv", name, k == n ? out : planes, kernel[k - 1], 1);
        family_add(b, "batchnorm", "block%d.%d.norm%d", stage, i, k);
        if (k < n)
            family_add(b, "relu", "block%d.%d.relu%d", stage, i, k);
    }
    snprintf(sum[0], SP_NAME, "block%d.%d.norm%d", stage, i, n);
    snprintf(sum[1], SP_NAME, "%s", input);
    if (b->channels != out) {
        snprintf(name, sizeof name, "block%d.%d.downsample.0", stage, i);
        l = add_conv(b, "conv", name, out, 1, 1);
        family_read_from(b, l, input);
        snprintf(sum[1], SP_NAME, "block%d.%d.downsample.1", stage, i);
        family_add(b, "batchnorm", "%s", sum[1]);
    }
    l = family_add(b, "add", "block%d.%d.add", stage, i);
    family_read_from(b, l, sum[0]);
    family_read_from(b, l, sum[1]);
    family_add(b, "relu", "block%d.%d.relu%d", stage, i, n);
    b->channels = out;
}

/* Writes the name of the layer that ends stage `stage` (0: the stem). */
static void stage_end(const builder *b, const unet_kind *u, int stage, char *to)
{
    if (stage == 0)
        snprintf(to, SP_NAME, "relu0");
    else
        snprintf(to, SP_NAME, "block%d.%d.relu%d", stage, u->blocks[stage - 1] - 1,
                 b->expansion > 1 ? 3 : 2);
}

static void add_unet(builder *b, const unet_kind *u, const sp_config *config,
                     int n_classes)
{
    char name[SP_NAME], end[SP_NAME], skip[SP_NAME];
    int down = config->net.kernel_down, skip_channels[4];
    sp_layer *l;

    b->expansion = u->is_bottleneck ? 4 : 1;
    add_unit(b, "conv", "conv0p1s1", "0", scaled(b, 32), config->net.stem_kernel, 1);
    for (int s = 1; s <= 4; s++) {
        skip_channels[s - 1] = b->channels;
        snprintf(name, sizeof name, "conv%dp%ds2", s, 1 << (s - 1));
        snprintf(end, sizeof end, "%d", s);
        add_unit(b, "conv", name, end, b->channels, down, 2);
        for (int i = 0; i < u->blocks[s - 1]; i++)
            family_add_block(b, s, i, scaled(b, u->planes[s - 1]));
    }
    for (int s = 4; s < 8; s++) {
        snprintf(name, sizeof name, "convtr%dp%ds2", s, 1 << (8 - s));
        snprintf(end, sizeof end, "tr%d", s);
        add_unit(b, "conv_transpose", name, end, scaled(b, u->planes[s]), down, 2);
        stage_end(b, u, 7 - s, skip);
        l = family_add(b, "concat", "cat%d", s);
        snprintf(end, sizeof end, "relutr%d", s);
        family_read_from(b, l, end);
        family_read_from(b, l, skip);
        b->channels += skip_channels[7 - s];
        for (int i = 0; i < u->blocks[s]; i++)
            family_add_block(b, s + 1, i, scaled(b, u->planes[s]));
    }
    l = add_conv(b, "conv", "final", n_classes, 1, 1);
    l->bias = 1;
}

static void add_dummy(builder *b, const sp_config *config, int n_classes)
{
    int down = config->net.kernel_down;
    sp_layer *l;

    add_unit(b, "conv", "conv1", "1", scaled(b, 32), 3, 1);
    add_unit(b, "conv", "conv2", "2", scaled(b, 64), down, 2);
    add_unit(b, "conv_transpose", "convtr3", "3", scaled(b, 32), down, 2);
    l = add_conv(b, "conv", "conv4", n_classes, 1, 1);
    l->bias = 1;
}

/* ---- the U-Nets of other programs ---- */

/* A family of residual U-Nets: `words` are the names of the parts of a block. */
typedef struct other_kind {
    int blocks[8], stem, planes[8];
    struct {
        const char *conv1, *norm1, *relu1, *conv2, *norm2, *short_conv, *short_norm;
    } words;
} other_kind;

#define SPVNAS                                                                         \
    {                                                                                  \
        "net.0", "net.1", "net.2", "net.3", "net.4", "downsample.0", "downsample.1"    \
    }
static const other_kind spunet = {
    {DEEP},
    32,
    {DOWN, 256, 128, 96, 96},
    {"conv1", "bn1", "relu1", "conv2", "bn2", "proj.0", "proj.1"}};
#define W16                                                                            \
    16,                                                                                \
    {                                                                                  \
        16, 32, 64, 128, 128, 64, 48, 48                                               \
    }
#define W20                                                                            \
    20,                                                                                \
    {                                                                                  \
        20, 40, 81, 163, 163, 81, 61, 61                                               \
    }
#define W32                                                                            \
    32,                                                                                \
    {                                                                                  \
        DOWN, 256, 128, 96, 96                                                         \
    }
static const other_kind double_stem[] = {
    [SP_MINKUNET18W16] = {{TWO}, W16, SPVNAS},
    [SP_MINKUNET18W20] = {{TWO}, W20, SPVNAS},
    [SP_MINKUNET18W32] = {{TWO}, W32, SPVNAS},
    [SP_MINKUNET34W32] = {{DEEP}, W32, SPVNAS},
    [SP_MINKUNET34V2W32] = {{DEEP}, W32, SPVNAS},
};

/* Appends a convolution, a batch norm and a ReLU, named at.from, at.from+1 ... */
static void add_numbered(builder *b, const char *op, const char *at, int from, int out,
                         int kernel, int stride)
{
    char name[SP_NAME + 16];

    snprintf(name, sizeof name, "%s.%d", at, from);
    add_conv(b, op, name, out, kernel, stride);
    family_add(b, "batchnorm", "%s.%d", at, from + 1);
    family_add(b, "relu", "%s.%d", at, from + 2);
    b->channels = out;
}

/* Appends a residual block; its layers' names begin with `at`. */
static void add_residual(builder *b, const other_kind *kind, const char *at, int out)
{
    char input[SP_NAME], name[2 * SP_NAME], norm[2 * SP_NAME];
    sp_layer *l;

    snprintf(input, sizeof input, "%s", b->n ? b->layer[b->n - 1].name : "");
    snprintf(name, SP_NAME, "%s.%s", at, kind->words.conv1);
    add_conv(b, "conv", name, out, 3, 1);
    family_add(b, "batchnorm", "%s.%s", at, kind->words.norm1);
    family_add(b, "relu", "%s.%s", at, kind->words.relu1);
    snprintf(name, SP_NAME, "%s.%s", at, kind->words.conv2);
    add_conv(b, "conv", name, out, 3, 1);
    snprintf(norm, SP_NAME, "%s.%s", at, kind->words.norm2);
    family_add(b, "batchnorm", "%s", norm);
    if (b->channels != out) {
        snprintf(name, SP_NAME, "%s.%s", at, kind->words.short_conv);
        l = add_conv(b, "conv", name, out, 1, 1);
        family_read_from(b, l, input);
        snprintf(input, SP_NAME, "%s.%s", at, kind->words.short_norm);
        family_add(b, "batchnorm", "%s", input);
    }
    l = family_add(b, "add", "%s.add", at);
    family_read_from(b, l, norm);
    family_read_from(b, l, input);
    family_add(b, "relu", "%s.relu", at);
    b->channels = out;
}

/* One step down: a convolution of stride 2 and the blocks of stage s, 0 to 3. */
static void add_stage_down(builder *b, const other_kind *kind, int kernel, int s)
{
    const bool is_spunet = kind == &spunet;
    const int out = scaled(b, kind->planes[s]);
    char at[SP_NAME];

    if (is_spunet)
        snprintf(at, sizeof at, "down.%d", s);
    else
        snprintf(at, sizeof at, "stage%d.0.net", s + 1);
    add_numbered(b, "conv", at, 0, is_spunet ? out : b->channels, kernel, 2);
    for (int i = 0; i < kind->blocks[s]; i++) {
        if (is_spunet)
            snprintf(at, sizeof at, "enc.%d.block%d", s, i);
        else
            snprintf(at, sizeof at, "stage%d.%d", s + 1, i + 1);
        add_residual(b, kind, at, out);
    }
}

/* One step up, s from 0 at the coarsest: a transposed convolution, the features of
 * layer `skip` and the blocks. SpUNet counts its decoder from the finest stage. */
static void add_stage_up(builder *b, const other_kind *kind, int kernel, int s,
                         const char *skip, int skip_channels)
{
    const bool is_spunet = kind == &spunet;
    const int out = scaled(b, kind->planes[4 + s]);
    char at[SP_NAME], name[SP_NAME];
    sp_layer *l;

    if (is_spunet)
        snprintf(at, sizeof at, "up.%d", 3 - s);
    else
        snprintf(at, sizeof at, "up%d.0.net", s + 1);
    add_numbered(b, "conv_transpose", at, 0, out, kernel, 2);
    snprintf(name, sizeof name, "%s", b->n ? b->layer[b->n - 1].name : "");
    l = is_spunet ? family_add(b, "concat", "dec.%d.cat", 3 - s)
                  : family_add(b, "concat", "up%d.cat", s + 1);
    family_read_from(b, l, name);
    family_read_from(b, l, skip);
    b->channels += skip_channels;
    for (int i = 0; i < kind->blocks[4 + s]; i++) {
        if (is_spunet)
            snprintf(at, sizeof at, "dec.%d.block%d", 3 - s, i);
        else
            snprintf(at, sizeof at, "up%d.1.%d", s + 1, i);
        add_residual(b, kind, at, out);
    }
}

/* Brings what layer `from` has at stride 1 << steps to the voxels of stride 1, by
 * copies step by step or by one interpolation. Writes the name of the last layer. */
static void add_upsample(builder *b, bool is_linear, const char *from, int steps,
                         char *end)
{
    const int n = is_linear ? 1 : steps;

    for (int i = 0; i < n; i++) {
        sp_layer *l = family_add(b, is_linear ? "interpolate" : "upsample", "head%d.%d",
                                 1 << steps, i);

        l->stride = 1 << steps / n;
        if (i == 0)
            family_read_from(b, l, from);
        snprintf(end, SP_NAME, "%s", l->name);
    }
}

/* The classifier's input: the outputs of strides 16 and 4 beside stride 1's. */
static void add_head_of_strides(builder *b, bool is_linear, char stage[3][SP_NAME],
                                const int channels[3])
{
    static const int steps[] = {4, 2};
    char end[2][SP_NAME] = {{0}};
    sp_layer *l;

    for (int i = 0; i < 2; i++)
        add_upsample(b, is_linear, stage[i], steps[i], end[i]);
    l = family_add(b, "concat", "head.cat");
    family_read_from(b, l, end[0]);
    family_read_from(b, l, end[1]);
    family_read_from(b, l, stage[2]);
    b->channels = channels[0] + channels[1] + channels[2];
}

static void add_other_unet(builder *b, const other_kind *kind, const sp_config *config,
                           const char *last, int n_classes)
{
    const int kernel = config->net.kernel_down;
    char skip[4][SP_NAME], stage[3][SP_NAME] = {{0}};
    int channels[4], of_stage[3] = {0};
    sp_layer *l;

    for (int s = 0; s < 4; s++) {
        channels[s] = b->channels;
        snprintf(skip[s], SP_NAME, "%s", b->n ? b->layer[b->n - 1].name : "");
        add_stage_down(b, kind, kernel, s);
    }
    for (int s = -1; s < 4; s++) { /* s is -1 at the bottom, where nothing is added */
        if (s >= 0)
            add_stage_up(b, kind, kernel, s, skip[3 - s], channels[3 - s]);
        if (s % 2 == 0)
            continue;
        snprintf(stage[(s + 1) / 2], SP_NAME, "%s",
                 b->n ? b->layer[b->n - 1].name : "");
        of_stage[(s + 1) / 2] = b->channels;
    }
    if (kind == &double_stem[SP_MINKUNET34V2W32])
        add_head_of_strides(b, config->net.upsample == SP_UPSAMPLE_TRILINEAR, stage,
                            of_stage);
    l = add_conv(b, "conv", last, n_classes, 1, 1);
    l->bias = 1;
}

static void add_spunet(builder *b, const sp_config *config, int n_classes)
{
    add_numbered(b, "conv", "conv_input", 0, scaled(b, 32), config->net.stem_kernel, 1);
    add_other_unet(b, &spunet, config, "final", n_classes);
}

static void add_double_stem(builder *b, const sp_config *config, int n_classes)
{
    const other_kind *kind = &double_stem[config->net.family];

    add_numbered(b, "conv", "stem", 0, scaled(b, kind->stem), 3, 1);
    add_numbered(b, "conv", "stem", 3, scaled(b, kind->stem), 3, 1);
    add_other_unet(b, kind, config, "classifier.0", n_classes);
}

sp_status sp_graph_family(const sp_config *config, int n_classes, sp_layer **layers,
                          int *n_layers)
{
    const sp_family family = config->net.family;
    builder b = {.width = config->net.width};

    assert(n_classes >= 1 && layers && n_layers);
    if (family == SP_DUMMY)
        add_dummy(&b, config, n_classes);
    else if (family == SP_SPUNET)
        add_spunet(&b, config, n_classes);
    else if (family >= SP_MINKUNET18W32)
        add_double_stem(&b, config, n_classes);
    else
        add_unet(&b, &unet[family], config, n_classes);
    *layers = b.layer;
    *n_layers = b.n;
    if (b.is_short_of_memory)
        return SP_FAIL(SP_EMEM, "net.family = \"%s\": out of memory",
                       sp_family_word[family]);
    return SP_OK;
}
