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

typedef struct sp_deck_line {
    int file, line;
} sp_deck_line;

typedef struct sp_deck_text {
    char *text;
    int n_lines;
    sp_deck_line *line; /* [n_lines] where line i + 1 of text stands */
    int n_files;
    char **file; /* [n_files] as messages name them */
} sp_deck_text;

/* SP_EUSAGE for what cannot be read, is no regular file or no text, for includes nested
 * deeper than 10, of more than 200 files or 16 MiB in all, and integers beyond 64 bits;
 * SP_EMEM. Destroy after failure too. */
sp_status sp_deck_text_file(sp_deck_text *text, const char *path);
/* The same of a string; name stands for the file in messages. It may be somebody else's
 * (a checkpoint's deck), so it includes nothing: its @include is SP_EDATA. */
sp_status sp_deck_text_string(sp_deck_text *text, const char *string, const char *name);
void sp_deck_text_destroy(sp_deck_text *text);

/* File and number of a line of text->text (1, 2, ...), clamped to the text. */
const char *sp_deck_text_place(const sp_deck_text *text, int line, int *line_in_file);

#endif
