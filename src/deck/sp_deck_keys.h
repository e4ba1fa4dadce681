/* The one table of keys, and the declarations that the files of sp_deck share.
 *
 *     sp_deck_text.c   includes, numbers      sp_deck_keys.c   the table, nearest names
 *     sp_deck.c        reading, checks        sp_deck_value.c  one value <-> its field
 *     sp_deck_layer.c  net.layers             sp_deck_write.c  the config as a deck
 *     sp_deck_loss.c   train.loss
 *     sp_deck_take.c   exchange of values     sp_deck_bcast.c  the config on all ranks
 *     sp_deck_check.c  dependent keys
 *     sp_choice.h      keys with a few words
 *
 * Included by sp_deck*.c and by tests of the deck only.
 */
#ifndef SP_DECK_KEYS_H
#define SP_DECK_KEYS_H

#include "deck/sp_deck.h"

typedef enum sp_key_type {
    SP_KEY_TEXT,   /* char * */
    SP_KEY_RESUME, /* sp_resume */
    SP_KEY_CHOICE, /* an enum: an index in names */
    SP_KEY_TEXTS,  /* sp_strings; a single text is a list of one */
    SP_KEY_BOOL,
    SP_KEY_INT,
    SP_KEY_INT64,
    SP_KEY_REAL, /* double */
    SP_KEY_REALS,
    SP_KEY_INTS,    /* sp_doubles of whole numbers */
    SP_KEY_LOSS,    /* sp_loss_mix: one of names, or a list of groups */
    SP_KEY_WEIGHTS, /* sp_class_weighting: one of names, or numbers */
    SP_KEY_LAYERS
} sp_key_type;

/* The place that a value comes from. */
enum sp_origin { SP_FROM_DEFAULT, SP_FROM_DECK, SP_FROM_COMMAND_LINE };

/* One row of the table of keys. */
typedef struct sp_key {
    const char *section, *name;
    sp_key_type type;
    size_t offset, bytes; /* of the field in sp_config */
    const char *standard; /* default, as a deck would have it */
    /* interval such as "(0, inf)"; NULL: any value, or one of names */
    const char *range;
    const char *unit;
    const char *names; /* valid words, "a|b|c" (deck/sp_choice.h) */
    const char *help;
} sp_key;

extern const sp_key sp_deck_key[];
extern const int sp_deck_n_keys;
extern const char *const sp_deck_paths[]; /* keys by name, then NULL */

static inline void *sp_key_field(const sp_config *config, const sp_key *key)
{
    return (char *)(uintptr_t)config + key->offset;
}

/* Finds a key by "section.name"; NULL if there is no such key. */
const sp_key *sp_deck_find(const char *path);
/* True if some key has this section. */
bool sp_deck_is_section(const char *name);
/* Returns the name of a type for messages: "number", "list of texts", ... */
const char *sp_deck_type_name(sp_key_type type);
/* True if value is finite and lies in the interval, such as "(0, inf)"; not NULL. */
bool sp_deck_in_range(const char *range, double value);
/* Return the nearest names, constants and never NULL: the section nearest to word, and
 * the key nearest to a path "section.name". */
const char *sp_deck_nearest_section(const char *word);
const sp_key *sp_deck_nearest_key(const char *path);

/* Ranges of the numbers of batch norms, of the keys and of the fields of layers. A
 * variance of 0 makes 1 / sqrt(eps), and fp32 must be able to square it. */
#define SP_BN_EPS_RANGE      "[1e-12, 1]"
#define SP_BN_MOMENTUM_RANGE "[0, 1]"

/* ---- one value (sp_deck_value.c) ---- */
struct config_setting_t;
struct sp_deck_text;

/* Returns the place of a setting: "input/a.deck:12", or "command line" if its deck
 * `from` is NULL. Overwritten by the next call of this thread. */
const char *sp_deck_where(const struct sp_deck_text *from,
                          const struct config_setting_t *setting);
/* Reads the field of a key from a setting and frees its old value. SP_EUSAGE for a
 * wrong type, range or name. */
sp_status sp_deck_set(sp_config *config, const sp_key *key,
                      const struct config_setting_t *setting,
                      const struct sp_deck_text *from);
/* The same from a text without quotes (SP_KEY_TEXT, RESUME, CHOICE, TEXTS, WEIGHTS,
 * LOSS). */
sp_status sp_deck_set_text(sp_config *config, const sp_key *key, const char *text,
                           const char *where);
/* Replaces "~" and "~/" at the beginning of the values of sp_deck_paths by HOME: no
 * shell does so in the middle of an argument, as in run.dir=~/x. SP_EUSAGE without HOME
 * and for "~user/"; SP_EMEM. */
sp_status sp_deck_expand_home(sp_config *config);
/* Frees the memory of a key's value. Called when config is destroyed. */
void sp_deck_free_value(sp_config *config, const sp_key *key);
/* Describes a setting for messages: "the text \"abc\"", "1.5", "a list", ...;
 * overwritten by the next call of this thread. */
const char *sp_deck_describe(const struct config_setting_t *setting);

/* Read net.layers, and a list of texts (or a single text), from a setting. `what` and
 * `where` name the list in messages. SP_EUSAGE, SP_EMEM. */
sp_status sp_deck_read_layers(sp_config *config, const struct config_setting_t *setting,
                              const struct sp_deck_text *from);
sp_status sp_deck_read_strings(sp_strings *to, const struct config_setting_t *setting,
                               const char *what, const char *where);

/* Read train.loss from a setting, or from the name of one term. SP_EUSAGE. */
sp_status sp_deck_read_loss(sp_loss_mix *mix, const struct config_setting_t *setting,
                            const struct sp_deck_text *from);
sp_status sp_deck_set_loss(sp_loss_mix *mix, const char *name, const char *where);

/* ---- several values (sp_deck_check.c) ---- */
/* SP_EUSAGE for values that exclude each other, and for lists of a wrong length. */
sp_status sp_deck_check_together(const sp_config *config);
/* Warns on rank 0 of keys that network, schedule or optimizer do not use. */
void sp_deck_warn_unused(const sp_config *config);

/* ---- writing (sp_deck_write.c) ---- */
/* Write a value in the deck's grammar. Memory that runs out shows when `to` is closed.
 */
void sp_deck_write_real(FILE *to, double value);
void sp_deck_write_strings(FILE *to, const sp_strings *s);
void sp_deck_write_loss(FILE *to, const sp_loss_mix *mix);
void sp_deck_write_layers(FILE *to, const sp_config *config);
/* Before the key of row i: if a section begins there, ends the one before it and
 * begins it. */
void sp_deck_write_section(FILE *to, int i);

#endif
