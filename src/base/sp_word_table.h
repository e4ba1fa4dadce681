/* Tables of words that a user may write: the commands of a program, its options, the
 * operations of a network. A row of such a table is a struct that begins with an
 * sp_word_entry; the functions here find a row, find the one nearest to a misspelt
 * word, and print the table for a help text.
 *
 *     static const struct command {
 *         sp_word_entry word;
 *         sp_status (*run)(int argc, char **argv);
 *     } commands[] = {{{"convert", "FILE", "turns scans into shards"}, convert}};
 *
 *     const struct command *c = sp_word_table_find(SP_WORD_TABLE(commands), argv[1]);
 */
#ifndef SP_WORD_TABLE_H
#define SP_WORD_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sp_error.h"

typedef struct sp_word_entry {
    const char *name;
    const char *takes; /* the name's argument: "FILE"; NULL: no argument */
    const char *help;
} sp_word_entry;

/* A table, borrowed. */
typedef struct sp_word_table {
    const void *first; /* the first row */
    size_t bytes;      /* of one row */
    int n;             /* number of rows, at least 1 */
} sp_word_table;

/* Its initializer, and the table as a value. */
#define SP_WORD_ROWS(table)                                                            \
    {                                                                                  \
        (table), sizeof *(table), (int)(sizeof(table) / sizeof *(table))               \
    }
#define SP_WORD_TABLE(table) ((sp_word_table)SP_WORD_ROWS(table))

/* Returns the row of this name; case counts. NULL if no row has it. */
const void *sp_word_table_find(sp_word_table words, const char *name);
/* Returns the word of the row that is nearest to `name`, the first of several. */
const sp_word_entry *sp_word_table_nearest(sp_word_table words, const char *name);
/* Prints each row: name, argument, and its help broken into lines. */
void sp_word_table_print(sp_word_table words, FILE *to);

/* Returns the distance of two names, case ignored; messages choose the nearest name. It
 * is the edit distance, but 1 if one name is the beginning of the other: a user who
 * writes "voxel" means "voxel_size", however many letters are left out; and 0 between
 * words of the same meaning, as "gpu" and "cuda". */
int sp_word_distance(const char *a, const char *b);
/* Prints text in lines of at most 80 columns, all but the first after `indent` blanks.
 * The text's own newlines are kept. */
void sp_word_wrap(FILE *to, int indent, const char *text);

/* ---- options: rows that say where a value goes ----
 *
 *     static const sp_option table[] = {
 *         {{"--points", NULL, "stores points"}, SP_OPTION_FLAG, offsetof(set, points)},
 *         {{"--shards", "N", "files"}, SP_OPTION_WHOLE, offsetof(set, shards), 1, 9}};
 *
 *     sp_options_read(&set, SP_WORD_TABLE(table), "spvox", argc, argv, &n_words);
 */
typedef enum sp_option_kind {
    SP_OPTION_FLAG,  /* bool, which becomes true; has no value */
    SP_OPTION_WHOLE, /* int64_t, from least to most */
    /* double above 0, and below `most` if the row has it; with `or_0` both ends too */
    SP_OPTION_REAL,
    SP_OPTION_TEXT, /* const char *, which points into argv */
    /* int, or an enum: the index, from `least` on, of the word in word.takes
     * ("top|oblique") */
    SP_OPTION_WORD,
    SP_OPTION_READ, /* whatever `read` makes of it */
    SP_OPTION_HELP  /* --help, which sp_usage_asked answers before options are read */
} sp_option_kind;

typedef struct sp_option {
    sp_word_entry word;
    sp_option_kind kind;
    size_t offset;       /* of the value in the caller's struct */
    int64_t least, most; /* of a number; least: the number of the first word */
    bool or_0;
    sp_status (*read)(void *to, const struct sp_option *option, const char *text);
    const char *only; /* the commands that have it, "ops, plan"; NULL: all */
} sp_option;

#define SP_OPTION_HELP_ROW                                                             \
    {                                                                                  \
        .word = {"--help", NULL, "this text"}, .kind = SP_OPTION_HELP                  \
    }

/* What --help prints of a command. */
typedef struct sp_usage {
    const char *line;          /* "usage: spvox info [--samples] SHARD..." */
    const char *text;          /* what it does; broken into lines */
    sp_word_table options;     /* follows the text */
    void (*formats)(FILE *to); /* prints what stands between the two; NULL: nothing */
} sp_usage;

/* True if --help or -h is among argv[1] .. argv[argc - 1], before "--". */
bool sp_usage_asked(int argc, char **argv);
void sp_usage_print(const sp_usage *usage, FILE *to);

/* Reads the options among argv[1] .. argv[argc - 1] into the struct `to`. argv[0] is
 * the command's name, "--option VALUE" and "--option=VALUE" are the same, and "--"
 * ends the options. Words that are not options become argv[1] ..
 * argv[*n_words], in their order. SP_EUSAGE: an unknown option, with the nearest one,
 * one of other commands, or a wrong value. */
sp_status sp_options_read(void *to, sp_word_table table, const char *program, int argc,
                          char **argv, int *n_words);
/* Reads a whole number of the option's range. *end points after it; NULL: the text must
 * end there. SP_EUSAGE. */
sp_status sp_option_whole(const sp_option *option, const char *text, char **end,
                          int64_t *value);
/* Reads a real number of the option's range. SP_EUSAGE. */
sp_status sp_option_real(const sp_option *option, const char *text, double *value);
/* Fails if anything follows the program's one word argv[1], as --version. SP_EUSAGE.
 */
sp_status sp_option_alone(int argc, char **argv);

#endif
