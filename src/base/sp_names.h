/* Tables of words that a user may write: the commands of a program, its options, the
 * operations of a network. A row of such a table is a struct that begins with an
 * sp_named; the functions here find a row, find the one nearest to a misspelt word, and
 * print the table for a help text.
 *
 *     static const struct command {
 *         sp_named word;
 *         sp_status (*run)(int argc, char **argv);
 *     } commands[] = {{{"convert", "FILE", "turns scans into shards"}, convert}};
 *
 *     const struct command *c = sp_names_find(SP_NAMES(commands), argv[1]);
 */
#ifndef SP_NAMES_H
#define SP_NAMES_H

#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sp_named {
    const char *name;
    const char *takes; /* what stands behind the name: "FILE"; NULL: nothing does */
    const char *help;
} sp_named;

/* A table, borrowed. */
typedef struct sp_names {
    const void *first; /* the first row */
    size_t bytes;      /* of one row */
    int n;             /* number of rows, at least 1 */
} sp_names;

#define SP_NAMES(table)                                                                \
    ((sp_names){(table), sizeof *(table), (int)(sizeof(table) / sizeof *(table))})

/* Returns the row of this name, whose case counts; NULL if there is none. */
const void *sp_names_find(sp_names words, const char *name);
/* Returns the word of the row that is nearest to `name`, the first of several. */
const sp_named *sp_names_nearest(sp_names words, const char *name);
/* Prints each row: name, what it takes, and its help broken into lines. */
void sp_names_print(sp_names words, FILE *to);

/* Returns the distance of two names, by which messages choose the nearest; case is
 * ignored. It is the edit distance, but 1 where one name is the beginning of the other:
 * a user who writes "voxel" means "voxel_size", however many letters are left out. */
int sp_names_distance(const char *a, const char *b);
/* Prints text in lines of at most 80 columns, all but the first behind `indent` blanks.
 * The text's own newlines stay. */
void sp_names_wrap(FILE *to, int indent, const char *text);

#ifdef __cplusplus
}
#endif
#endif
