/* The names that other programs give to the parameters of a network.
 *
 *     ours "block1.0.conv1/weight" --sp_naming_key--> "block1.0.conv1.kernel" (me)
 *
 * A file often has a prefix before all names ("module.", "state_dict.",
 * "module.backbone."), which sp_naming_find_prefix finds. With a map file the names
 * come from its regular expressions.
 */
#ifndef SP_NAMING_H
#define SP_NAMING_H

#include "weights/sp_layout.h"

typedef enum sp_naming_kind {
    SP_NAMING_OURS,
    SP_NAMING_ME,
    SP_NAMING_POINTCEPT,
    SP_NAMING_MMDET3D,
    SP_NAMING_SPVNAS,
    SP_NAMING_OPENPCSEG,
    SP_NAMING_MAP
} sp_naming_kind;
#define SP_NAMING_WORDS "ours, me, pointcept, mmdet3d, spvnas, openpcseg"

struct sp_naming_rule;
typedef struct sp_naming {
    sp_naming_kind kind;
    sp_layout layout; /* mmdet3d's names depend on its backend */
    int n_rules;
    struct sp_naming_rule *rule; /* of a map file */
} sp_naming;

/* Opens a naming by its word, or by the path of a map file. A line of it is a POSIX
 * extended regular expression, blanks, and a replacement with \1 to \9; # begins a
 * comment; the first line that matches a whole name counts. On import it leads from the
 * file's names to ours ("conv1.weight"), on export from ours to the file's. SP_EUSAGE:
 * neither a word nor a file, or a line that is wrong; SP_EIO, SP_EMEM. */
sp_status sp_naming_open(sp_naming *naming, const char *word, const sp_layout *layout);
void sp_naming_close(sp_naming *naming);
/* Writes our name of a parameter or statistic: "conv1.weight". */
void sp_naming_ours(const sp_param *p, char key[SP_TENSOR_NAME]);
/* Writes the name in a file, without a prefix. False if the naming has no name for it:
 * the network is of another family. */
bool sp_naming_key(const sp_naming *naming, const sp_graph *graph, const sp_param *p,
                   char key[SP_TENSOR_NAME]);
/* Applies the rules of a map file to a name; false if no rule matches. */
bool sp_naming_map(const sp_naming *naming, const char *name, char to[SP_TENSOR_NAME]);
/* True if the name means a torch.nn.Linear for a convolution of kernel 1. */
bool sp_naming_is_linear(const sp_naming *naming, const sp_graph *graph,
                         const sp_param *p, const char *key);
/* Writes the prefix that finds most names of the graph in the file; of several the one of
 * no average of the weights ("ema"), then the shortest. other: one more that finds as
 * many names, or "". */
void sp_naming_find_prefix(const sp_naming *naming, const sp_graph *graph,
                           const sp_tensors *file, char prefix[SP_TENSOR_NAME],
                           char other[SP_TENSOR_NAME]);

#endif
