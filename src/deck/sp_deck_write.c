/* Writes the config as a deck that reads back to the same config. */
#include "deck/sp_deck_keys.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"
#include "deck/sp_deck_text.h"

static void deck_write_text(FILE *to, const char *text)
{
    putc('"', to);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(to, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(to, "\\x%02X", *p);
        else
            putc(*p, to);
    }
    putc('"', to);
}

/* Writes the fewest digits that read back to the same number. */
void sp_deck_write_real(FILE *to, double value)
{
    char text[32];

    for (int digits = 15; digits <= 17; digits++) {
        sp_text_from_number(text, sizeof text, digits, value);
        if (sp_text_to_number(text, NULL) == value)
            break;
    }
    /* as an integer, a number beyond 64 bits would be refused */
    fprintf(to, strpbrk(text, ".e") ? "%s" : "%s.0", text);
}

void sp_deck_write_strings(FILE *to, const sp_strings *s)
{
    assert(s->n >= 0 && (s->at || s->n == 0));
    putc('[', to);
    for (int i = 0; i < s->n; i++) {
        fputs(i ? ", " : "", to);
        deck_write_text(to, s->at[i]);
    }
    putc(']', to);
}

static void write_numbers(FILE *to, const sp_key *key, const sp_doubles *d)
{
    putc('[', to);
    for (int i = 0; i < d->n; i++) {
        fputs(i ? ", " : "", to);
        if (key->type == SP_KEY_INTS)
            fprintf(to, "%.0f", d->at[i]);
        else
            sp_deck_write_real(to, d->at[i]);
    }
    putc(']', to);
}

static void write_name(FILE *to, const sp_key *key, int i)
{
    char name[SP_NAME] = "";

    sp_choice_name(key->names, i, name);
    fprintf(to, "\"%s\"", name);
}

static void write_value(FILE *to, const sp_config *config, const sp_key *key)
{
    const void *field = sp_key_field(config, key);

    switch (key->type) {
    case SP_KEY_TEXT:
        deck_write_text(to, *(char *const *)field);
        break;
    case SP_KEY_RESUME:
        deck_write_text(to, config->run.resume.text);
        break;
    case SP_KEY_CHOICE:
        write_name(to, key, *(const int *)field);
        break;
    case SP_KEY_TEXTS:
        sp_deck_write_strings(to, field);
        break;
    case SP_KEY_BOOL:
        fputs(*(const bool *)field ? "true" : "false", to);
        break;
    case SP_KEY_INT:
        fprintf(to, "%d", *(const int *)field);
        break;
    case SP_KEY_INT64:
        fprintf(to, "%lld", (long long)*(const int64_t *)field);
        break;
    case SP_KEY_REAL:
        sp_deck_write_real(to, *(const double *)field);
        break;
    case SP_KEY_REALS:
    case SP_KEY_INTS:
        write_numbers(to, key, field);
        break;
    case SP_KEY_LOSS:
        sp_deck_write_loss(to, field);
        break;
    case SP_KEY_WEIGHTS:
        if (config->train.class_weights.kind == SP_CW_LIST)
            write_numbers(to, key, &config->train.class_weights.list);
        else
            write_name(to, key, (int)config->train.class_weights.kind);
        break;
    case SP_KEY_LAYERS:
        sp_deck_write_layers(to, config);
        break;
    }
}

void sp_deck_write_section(FILE *to, int i)
{
    const sp_key *k = &sp_deck_key[i];

    assert(i >= 0 && i < sp_deck_n_keys);
    if (i == 0 || strcmp(k->section, k[-1].section) != 0)
        fprintf(to, "%s%s : {\n", i ? "};\n" : "", k->section);
}

sp_status sp_config_to_text(const sp_config *config, char **text)
{
    size_t size;
    FILE *to;

    assert(config && text);
    *text = NULL;
    to = open_memstream(text, &size);
    if (!to)
        return SP_FAIL(SP_EMEM, "deck: out of memory");
    for (int i = 0; i < sp_deck_n_keys; i++) {
        const sp_key *k = &sp_deck_key[i];

        sp_deck_write_section(to, i);
        if (k->type == SP_KEY_LAYERS && config->net.n_layers == 0)
            continue;
        fprintf(to, "    %s = ", k->name);
        write_value(to, config, k);
        fprintf(to, ";\n");
    }
    fprintf(to, "};\n");
    if (fclose(to))
        return SP_FAIL(SP_EMEM, "deck: out of memory");
    return SP_OK;
}

char *sp_config_value(const sp_config *config, const char *key)
{
    const sp_key *k = sp_deck_find(key);
    char *text = NULL;
    size_t size;
    FILE *to = k ? open_memstream(&text, &size) : NULL;

    assert(config && key);
    if (!to)
        return NULL;
    write_value(to, config, k);
    if (fclose(to)) {
        free(text);
        return NULL;
    }
    return text;
}
