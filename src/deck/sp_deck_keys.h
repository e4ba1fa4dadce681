/* The one table of keys, and what the files of sp_deck share.
 *
 *     sp_deck_text.c   includes, numbers      sp_deck_keys.c    the table, nearest
 * names sp_deck.c        reading, checks        sp_deck_value.c   one value <-> its
 * field sp_deck_layer.c  net.layers             sp_deck_write.c   the config as a deck
 *
 * Included by sp_deck*.c only.
 */
#ifndef SP_DECK_KEYS_H
#define SP_DECK_KEYS_H

#include "deck/sp_deck.h"

typedef enum sp_key_type {
    SP_KEY_TEXT,   /* char * */
    SP_KEY_CHOICE, /* char *, one of names in any case, kept as the table spells it */
    SP_KEY_ENUM,   /* int, index in names */
    SP_KEY_TEXTS,  /* sp_strings; a single text stands for a list of one */
    SP_KEY_BOOL,
    SP_KEY_INT,
    SP_KEY_INT64,
    SP_KEY_REAL, /* double */
    SP_KEY_REALS,
    SP_KEY_INTS,    /* sp_doubles of whole numbers */
    SP_KEY_WEIGHTS, /* a name or numbers: int, then train.class_weight_list */
    SP_KEY_LAYERS
} sp_key_type;

enum sp_origin { SP_FROM_DEFAULT, SP_FROM_DECK, SP_FROM_COMMAND_LINE };

typedef struct sp_key {
    const char *section, *name;
    sp_key_type type;
    size_t offset;        /* of the field in sp_config */
    const char *standard; /* default, as a deck has it */
    const char *range;    /* interval, "(0, inf)"; NULL: any, or one of names */
    const char *unit;
    const char *names; /* "a|b|c" */
    const char *help;
} sp_key;

extern const sp_key sp_deck_key[];
extern const int sp_deck_n_keys;

static inline void *sp_key_field(const sp_config *config, const sp_key *key)
{
    return (char *)(uintptr_t)config + key->offset;
}

/* "section.name"; NULL if there is none. */
const sp_key *sp_deck_find(const char *path);
bool sp_deck_is_section(const char *name);
/* "number", "list of texts", ... */
const char *sp_deck_type_name(sp_key_type type);
/* True if value lies in the interval. */
bool sp_deck_in_range(const char *range, double value);
/* Index of word in "a|b|c", -1: none; case is ignored. name i of it into `to`
 * [SP_NAME]. */
int sp_deck_choice(const char *names, const char *word);
bool sp_deck_choice_name(const char *names, int i, char *to);

/* The nearest of "a|b|c", of the sections, of all keys to "section.name". */
void sp_deck_nearest_choice(const char *names, const char *word, char *to);
const char *sp_deck_nearest_section(const char *word);
const sp_key *sp_deck_nearest_key(const char *path);

/* ---- one value (sp_deck_value.c) ---- */
struct config_setting_t;

/* Where a value is from, for messages. */
typedef struct sp_deck_source {
    const struct sp_deck_text *text; /* NULL: the command line */
} sp_deck_source;

/* "input/a.deck:12" or "command line"; the result is overwritten by the next call of
 * this thread. */
const char *sp_deck_where(const sp_deck_source *from,
                          const struct config_setting_t *setting);
/* Read key's field from setting; the old value is freed. SP_EUSAGE: type, range, name.
 */
sp_status sp_deck_set(sp_config *config, const sp_key *key,
                      const struct config_setting_t *setting,
                      const sp_deck_source *from);
/* The same of a text as it stands (SP_KEY_TEXT, CHOICE, ENUM, TEXTS, WEIGHTS). */
sp_status sp_deck_set_text(sp_config *config, const sp_key *key, const char *text,
                           const char *where);
void sp_deck_free_value(sp_config *config, const sp_key *key);
/* "the text \"abc\"", "1.5", "a list", ... as messages say it; overwritten as above. */
const char *sp_deck_describe(const struct config_setting_t *setting);

sp_status sp_deck_read_layers(sp_config *config, const struct config_setting_t *setting,
                              const sp_deck_source *from);
sp_status sp_deck_read_strings(sp_strings *to, const struct config_setting_t *setting,
                               const char *what, const char *where);
void sp_deck_free_strings(sp_strings *s);

/* ---- writing (sp_deck_write.c) ---- */
void sp_deck_write_text(FILE *to, const char *text);
void sp_deck_write_real(FILE *to, double value);
void sp_deck_write_strings(FILE *to, const sp_strings *s);
void sp_deck_write_layers(FILE *to, const sp_config *config);

#endif
