#include "weights/sp_naming.h"

#include <assert.h>
#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_list.h"

/* ---- our own names ---- */

/* A parameter's name in parts: its layer, and weight, bias, running_mean or
 * running_var. */
typedef struct name_parts {
    char layer[SP_NAME];
    const char *leaf;
    bool is_norm;
} name_parts;

static name_parts split_name(const sp_graph *graph, const sp_param *p)
{
    name_parts parts = {.leaf = strrchr(p->name, '/') + 1,
                        .is_norm = graph->node[p->node].op == SP_OP_BATCHNORM};

    snprintf(parts.layer, sizeof parts.layer, "%.*s", (int)(parts.leaf - 1 - p->name),
             p->name);
    return parts;
}

void sp_naming_ours(const sp_param *p, char key[SP_TENSOR_NAME])
{
    snprintf(key, SP_TENSOR_NAME, "%s", p->name);
    *strrchr(key, '/') = '.';
}

/* ---- other programs ---- */

/* "kernel" for the weight of a convolution of MinkowskiEngine and TorchSparse. */
static const char *leaf_of_kernel(const name_parts *parts)
{
    return !parts->is_norm && strcmp(parts->leaf, "weight") == 0 ? "kernel"
                                                                 : parts->leaf;
}

/* MinkowskiEngine wraps a batch norm of torch, which it calls bn. */
static void print_me_key(const char *layer, const name_parts *parts, char *key)
{
    snprintf(key, SP_TENSOR_NAME, "%s.%s%s", layer, parts->is_norm ? "bn." : "",
             leaf_of_kernel(parts));
}

static bool has_layer(const sp_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (strcmp(graph->node[i].name, name) == 0)
            return true;
    return false;
}

/* The names of layers of a double-stem family (net/sp_family.c) are spvnas's own. */
static bool is_double_stem(const sp_graph *graph)
{
    return has_layer(graph, "stem.3") && has_layer(graph, "classifier.0");
}

static bool name_of_spvnas(const sp_graph *graph, const name_parts *parts, char *key)
{
    const bool is_head = strcmp(parts->layer, "classifier.0") == 0;

    snprintf(key, SP_TENSOR_NAME, "%s.%s", parts->layer,
             is_head ? parts->leaf : leaf_of_kernel(parts));
    return is_double_stem(graph);
}

static bool name_of_pointcept(const sp_graph *graph, const name_parts *parts, char *key)
{
    const bool is_spunet =
        has_layer(graph, "conv_input.0") && has_layer(graph, "down.0.0");

    if (is_spunet)
        snprintf(key, SP_TENSOR_NAME, "%s.%s", parts->layer, parts->leaf);
    else
        print_me_key(parts->layer, parts, key);
    return is_spunet || has_layer(graph, "conv0p1s1");
}

/* Part `unit` of a residual block of mmdet3d: 0 and 3 are convolutions, 1 and 4 batch
 * norms; a shortcut has 0 and 1. TorchSparse's block has the numbers themselves. */
static void name_in_block(sp_layout_kind backend, bool is_shortcut, int unit, char *to)
{
    const bool is_me = backend == SP_LAYOUT_MINKOWSKI;
    const char *norm = is_me ? "norm" : "bn";

    if (is_shortcut)
        snprintf(to, SP_NAME, "downsample.%s%d", is_me ? "net." : "", unit);
    else if (backend == SP_LAYOUT_TORCHSPARSE)
        snprintf(to, SP_NAME, "net.%d", unit);
    else
        snprintf(to, SP_NAME, "%s%d", unit % 3 == 0 ? "conv" : norm, 1 + unit / 3);
}

/* mmdet3d's name of a layer of a double-stem family; "" if it has no name. */
static void mmdet_layer(sp_layout_kind backend, const char *layer, char to[3 * SP_NAME])
{
    const char *net =
        backend == SP_LAYOUT_SPCONV2 || backend == SP_LAYOUT_SPCONV1 ? "" : "net.";
    char part[SP_NAME];
    int s, j, unit, end = 0;

    *to = '\0';
    if (sscanf(layer, "stem.%d%n", &unit, &end) == 1 && !layer[end])
        snprintf(to, 3 * SP_NAME, "backbone.conv_input.%d.%s%d", unit / 3, net,
                 unit % 3);
    else if (sscanf(layer, "stage%d.0.net.%d%n", &s, &unit, &end) == 2 && !layer[end])
        snprintf(to, 3 * SP_NAME, "backbone.encoder.%d.0.%s%d", s - 1, net, unit);
    else if (sscanf(layer, "up%d.0.net.%d%n", &s, &unit, &end) == 2 && !layer[end])
        snprintf(to, 3 * SP_NAME, "backbone.decoder.%d.0.%s%d", s - 1, net, unit);
    else if (sscanf(layer, "stage%d.%d.net.%d%n", &s, &j, &unit, &end) == 3 ||
             sscanf(layer, "stage%d.%d.downsample.%d%n", &s, &j, &unit, &end) == 3) {
        name_in_block(backend, strstr(layer, "downsample"), unit, part);
        snprintf(to, 3 * SP_NAME, "backbone.encoder.%d.%d.%s", s - 1, j, part);
    } else if (sscanf(layer, "up%d.1.%d.net.%d%n", &s, &j, &unit, &end) == 3 ||
               sscanf(layer, "up%d.1.%d.downsample.%d%n", &s, &j, &unit, &end) == 3) {
        name_in_block(backend, strstr(layer, "downsample"), unit, part);
        snprintf(to, 3 * SP_NAME, "backbone.decoder.%d.1.%d.%s", s - 1, j, part);
    } else if (strcmp(layer, "classifier.0") == 0)
        snprintf(to, 3 * SP_NAME, "decode_head.conv_seg");
}

static bool name_of_mmdet3d(const sp_naming *naming, const sp_graph *graph,
                            const name_parts *parts, char *key)
{
    sp_layout_kind backend = naming->layout.kind;
    const bool is_head = strcmp(parts->layer, "classifier.0") == 0;
    char layer[3 * SP_NAME];

    if (backend == SP_LAYOUT_OURS)
        backend = SP_LAYOUT_TORCHSPARSE;
    mmdet_layer(backend, parts->layer, layer);
    if (is_head || backend == SP_LAYOUT_SPCONV1 || backend == SP_LAYOUT_SPCONV2)
        snprintf(key, SP_TENSOR_NAME, "%s.%s", layer, parts->leaf);
    else if (backend == SP_LAYOUT_MINKOWSKI)
        print_me_key(layer, parts, key);
    else
        snprintf(key, SP_TENSOR_NAME, "%s.%s", layer, leaf_of_kernel(parts));
    return layer[0] && is_double_stem(graph);
}

bool sp_naming_key(const sp_naming *naming, const sp_graph *graph, const sp_param *p,
                   char key[SP_TENSOR_NAME])
{
    const name_parts parts = split_name(graph, p);

    switch (naming->kind) {
    case SP_NAMING_ME:
        print_me_key(parts.layer, &parts, key);
        return true;
    case SP_NAMING_POINTCEPT:
        return name_of_pointcept(graph, &parts, key);
    case SP_NAMING_MMDET3D:
        return name_of_mmdet3d(naming, graph, &parts, key);
    case SP_NAMING_SPVNAS:
    case SP_NAMING_OPENPCSEG:
        return name_of_spvnas(graph, &parts, key);
    case SP_NAMING_OURS:
    case SP_NAMING_MAP:
        break;
    }
    sp_naming_ours(p, key);
    return true;
}

bool sp_naming_is_linear(const sp_naming *naming, const sp_graph *graph,
                         const sp_param *p, const char *key)
{
    const sp_node *node = &graph->node[p->node];
    const size_t end = strlen(key), leaf = strlen(".weight");

    if (!sp_layout_is_kernel(graph, p) || node->kernel != 1 ||
        naming->layout.kind == SP_LAYOUT_OURS)
        return false;
    if (naming->layout.kind != SP_LAYOUT_MINKOWSKI &&
        naming->layout.kind != SP_LAYOUT_TORCHSPARSE)
        return strcmp(node->name, "classifier.0") == 0;
    return end > leaf && strcmp(key + end - leaf, ".weight") == 0;
}

/* ---- prefix ---- */

/* Counts the graph's parameters that the file has under prefix and name. */
static int count_found(const sp_naming *naming, const sp_graph *graph,
                       const sp_tensors *file, const char *prefix)
{
    char key[SP_TENSOR_NAME], whole[2 * SP_TENSOR_NAME];
    int n = 0;

    for (int i = 0; i < graph->n_params; i++)
        if (sp_naming_key(naming, graph, &graph->param[i], key)) {
            snprintf(whole, sizeof whole, "%s%s", prefix, key);
            n += sp_tensors_find(file, whole) != NULL;
        }
    return n;
}

/* True if "ema" is a word of the prefix, as in "ema." and "state_dict_ema.": an average of
 * the weights, beside which the file may have the weights themselves. */
static bool is_average(const char *prefix)
{
    for (const char *at = prefix; (at = strstr(at, "ema")); at++)
        if ((at == prefix || !isalpha((unsigned char)at[-1])) &&
            !isalpha((unsigned char)at[3]))
            return true;
    return false;
}

static bool is_better_prefix(const char *a, const char *b)
{
    return is_average(a) == is_average(b) ? strlen(a) < strlen(b) : is_average(b);
}

void sp_naming_find_prefix(const sp_naming *naming, const sp_graph *graph,
                           const sp_tensors *file, char prefix[SP_TENSOR_NAME],
                           char other[SP_TENSOR_NAME])
{
    /* parameters used to search for prefixes, and prefixes tried */
    enum { TRIED = 3, MOST_PREFIXES = 64 };
    char key[SP_TENSOR_NAME], candidate[SP_TENSOR_NAME];
    int most = 0, n_tried = 0;

    prefix[0] = other[0] = '\0';
    for (int i = 0; i < graph->n_params && i < TRIED; i++) {
        if (!sp_naming_key(naming, graph, &graph->param[i], key))
            continue;
        for (int t = 0; t < file->n && n_tried < MOST_PREFIXES; t++) {
            const char *name = file->at[t].name;
            const size_t n = strlen(name), end = strlen(key);
            int found;

            if (n < end || strcmp(name + n - end, key) != 0 ||
                (n > end && name[n - end - 1] != '.'))
                continue;
            n_tried++;
            snprintf(candidate, sizeof candidate, "%.*s", (int)(n - end), name);
            found = count_found(naming, graph, file, candidate);
            if (found < most || (most > 0 && strcmp(candidate, prefix) == 0))
                continue;
            snprintf(other, SP_TENSOR_NAME, "%s", found > most ? "" : prefix);
            if (found > most || is_better_prefix(candidate, prefix))
                snprintf(prefix, SP_TENSOR_NAME, "%s", candidate);
            else
                snprintf(other, SP_TENSOR_NAME, "%s", candidate);
            most = found;
        }
    }
}

/* ---- map files ---- */

typedef struct sp_naming_rule {
    regex_t pattern;
    char *replacement;
} sp_naming_rule;

static sp_status add_rule(sp_naming *naming, const char *path, int line,
                          const char *pattern, const char *replacement)
{
    char whole[2 * SP_TENSOR_NAME], text[200];
    sp_naming_rule *rule;
    int code;

    if (!sp_list_grow(&naming->rule, naming->n_rules, sizeof *naming->rule))
        return SP_FAIL(SP_EMEM, "%s: out of memory", path);
    rule = &naming->rule[naming->n_rules];
    snprintf(whole, sizeof whole, "^(%s)$", pattern);
    code = regcomp(&rule->pattern, whole, REG_EXTENDED);
    if (code) {
        regerror(code, &rule->pattern, text, sizeof text);
        return SP_FAIL(SP_EUSAGE, "%s:%d: %s: %s", path, line, pattern, text);
    }
    rule->replacement = strdup(replacement);
    naming->n_rules++;
    return rule->replacement ? SP_OK : SP_FAIL(SP_EMEM, "%s: out of memory", path);
}

static sp_status read_rules(sp_naming *naming, const char *path, char *text)
{
    char *rest = NULL, *line;
    int number = 0;

    /* strsep keeps empty lines, so that numbers of lines are right. */
    for (rest = text; (line = strsep(&rest, "\n"));) {
        char pattern[SP_TENSOR_NAME], replacement[SP_TENSOR_NAME], more[2];
        int n;

        number++;
        n = sscanf(line, "%511s %511s %1s", pattern, replacement, more);
        if (n < 1 || pattern[0] == '#')
            continue;
        if (n != 2 && !(n == 3 && more[0] == '#'))
            return SP_FAIL(SP_EUSAGE,
                           "%s:%d: expected a regular expression and a replacement",
                           path, number);
        SP_TRY(add_rule(naming, path, number, pattern, replacement));
    }
    return naming->n_rules ? SP_OK
                           : SP_FAIL(SP_EUSAGE, "%s: has no line with a rule", path);
}

/* Writes a rule's result for a name that it has matched; place 0 is the whole name, 1
 * the group that add_rule put around the pattern. */
static void apply_rule(const sp_naming_rule *rule, const char *name,
                       const regmatch_t *place, char to[SP_TENSOR_NAME])
{
    size_t used = 0;

    for (const char *r = rule->replacement; *r && used + 1 < SP_TENSOR_NAME; r++) {
        const bool is_group = r[0] == '\\' && isdigit((unsigned char)r[1]);
        const regmatch_t *m = is_group ? &place[r[1] - '0' + 1] : NULL;

        if (m && m->rm_so >= 0)
            used += (size_t)snprintf(to + used, SP_TENSOR_NAME - used, "%.*s",
                                     (int)(m->rm_eo - m->rm_so), name + m->rm_so);
        else if (!m)
            to[used++] = *r;
        r += is_group;
        if (used >= SP_TENSOR_NAME)
            used = SP_TENSOR_NAME - 1;
    }
    to[used] = '\0';
}

bool sp_naming_map(const sp_naming *naming, const char *name, char to[SP_TENSOR_NAME])
{
    enum { GROUPS = 11 };
    regmatch_t place[GROUPS];

    for (int i = 0; i < naming->n_rules; i++)
        if (regexec(&naming->rule[i].pattern, name, GROUPS, place, 0) == 0) {
            apply_rule(&naming->rule[i], name, place, to);
            return true;
        }
    return false;
}

sp_status sp_naming_open(sp_naming *naming, const char *word, const sp_layout *layout)
{
    static const char *const words[] = {"ours",    "me",     "pointcept",
                                        "mmdet3d", "spvnas", "openpcseg"};
    SP_FREED char *text = NULL;

    assert(word && layout);
    *naming = (sp_naming){.kind = SP_NAMING_MAP, .layout = *layout};
    for (int i = 0; i < SP_NAMING_MAP; i++)
        if (strcmp(word, words[i]) == 0)
            naming->kind = (sp_naming_kind)i;
    if (naming->kind != SP_NAMING_MAP)
        return SP_OK;
    if (sp_file_read(word, &text, NULL) != SP_OK)
        return SP_FAIL(SP_EUSAGE,
                       "--names %s: expected " SP_NAMING_WORDS ", or a map file: %s",
                       word, sp_error_last()->message);
    return read_rules(naming, word, text);
}

void sp_naming_close(sp_naming *naming)
{
    for (int i = 0; i < naming->n_rules; i++) {
        regfree(&naming->rule[i].pattern);
        free(naming->rule[i].replacement);
    }
    free(naming->rule);
    memset(naming, 0, sizeof *naming);
}
