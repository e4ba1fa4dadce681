/* The text of a deck, made ready for libconfig.
 *
 *     file --@include--> one text --numbers, arrays--> text for libconfig,
 *                                                      place of each line
 *
 * libconfig 1.5 cuts integers above 32 bits silently and refuses [1, 0.5] as
 * "mismatched element type". So every integer gets the suffix L and every array becomes
 * a list; neither moves a line. Includes are resolved here, relative to the file that
 * has them, so that every message can name the file and the line that the user wrote.
 */
#ifndef SP_DECK_TEXT_H
#define SP_DECK_TEXT_H

#include <stddef.h>

#include "base/sp_error.h"

/* The origin of a line: the file's index in sp_deck_text.file, and the line there. */
typedef struct sp_deck_line {
    int file, line;
} sp_deck_line;

/* A deck's text for libconfig. */
typedef struct sp_deck_text {
    char *text;
    char *shown; /* the same lines as they were written, for messages */
    int n_lines;
    sp_deck_line *line; /* [n_lines] origin of line i + 1 of text */
    int n_files;
    char **file; /* [n_files] as messages name them */
} sp_deck_text;

/* Reads a deck with its includes. SP_EUSAGE for a file that cannot be read or is not a
 * regular text file, for includes nested deeper than 10, for more than 200 files or 16
 * MiB in all, and for integers beyond 64 bits; SP_EMEM. The caller destroys text after
 * a failure too. */
sp_status sp_deck_text_file(sp_deck_text *text, const char *path);
/* The same from a string; messages print `name` as the file. The string may come from
 * somebody else (a checkpoint's deck), so it may not include files: an @include is
 * SP_EDATA. */
sp_status sp_deck_text_string(sp_deck_text *text, const char *string, const char *name);
void sp_deck_text_destroy(sp_deck_text *text);

/* Returns the file of a line of text->text (1, 2, ...) and its number there in
 * *line_in_file; a line out of range counts as the nearest one. */
const char *sp_deck_text_place(const sp_deck_text *text, int line, int *line_in_file);

#endif
