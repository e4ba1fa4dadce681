/* Text that comes from files and command lines and goes to a terminal or a log: class
 * names, paths and attributes may hold bytes that control a terminal. */
#ifndef SP_TEXT_H
#define SP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Number of bytes of the UTF-8 character at `text`; 0 if it is not valid. */
size_t sp_text_character(const char *text);

/* Copies `text` into to [bytes] so that a terminal shows it and does nothing else;
 * returns `to`, which ends with a NUL. Valid UTF-8 and tabs are unchanged. Control
 * characters (C0, DEL, C1), line separators, characters that reverse the direction of
 * text, and bytes that are not UTF-8 become \xNN, byte by byte; a newline becomes \n,
 * or is kept if keeps_lines is true. Text that does not fit is cut between characters.
 */
char *sp_text_printable(char *to, size_t bytes, const char *text, bool keeps_lines);

/* A column of a table: the number of characters of the longest of these texts in
 * printable form, from `least` to SP_TEXT_WIDEST. A wide character counts as one. */
enum { SP_TEXT_WIDEST = 64 };
int sp_text_width(int n, char *const *text, int least);
/* Copies text as sp_text_printable does, and fills it with blanks to `width`
 * characters. */
char *sp_text_cell(char *to, size_t bytes, const char *text, int width);

/* Writes the text to `to` as one word of a shell, in quotes: 'it'\''s'. Returns the NUL
 * after it. `to` has room for 4 strlen(text) + 3 bytes. */
char *sp_text_quote(char *to, const char *text);

/* True if text [bytes] holds a NUL and only printable ASCII before it: a host's name
 * from a file or a peer can then be printed unchanged. */
bool sp_text_is_ascii(const char *text, size_t bytes);

/* Numbers of decks and files, as strtod and "%.*g" have them in the C locale. A program
 * that uses the library may have chosen a locale with a decimal comma. */
double sp_text_to_number(const char *text, char **end);
void sp_text_from_number(char *to, size_t bytes, int digits, double value);

/* The first of n names that is `wanted`; -1: no name. */
int sp_text_find(int n, char *const *name, const char *wanted);
/* Two of n names that are the same: *twice is one of them, NULL if all differ. False
 * without memory. */
bool sp_text_twice(int n, char *const *name, const char **twice);

#endif
