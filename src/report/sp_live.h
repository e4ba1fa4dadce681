/* The live display of a running program:
 *
 *     sp_live     fields --> the live line, as wide as the terminal, the process's own
 *        ^        or the launcher's --> sp_log_live
 *        |
 *     sp_progress counted work: bar, rate, time left
 *     sp_pace     samples per second of a training
 *
 *     sp_events   scalars, texts, pictures --> TensorBoard's event files of a run
 *
 * The live line is one line at the end of the output of rank 0, drawn again and again.
 * It never fills the last column, so it does not wrap; fields are left out if the
 * terminal is narrow. Messages are printed above it. Without a terminal the output has
 * no live line, only lines. */
#ifndef SP_LIVE_H
#define SP_LIVE_H

#include <stdbool.h>

#include "comm/sp_comm.h"
#include "deck/sp_choice.h"

/* Decides whether live lines are drawn: with SP_PROGRESS_AUTO if rank 0's output
 * appears on a terminal and the job is in its foreground, with SP_PROGRESS_ALWAYS in
 * any case. May be called again. Collective over the world; SP_EMPI. */
sp_status sp_live_open(sp_progress_when when, sp_comm *comm);
/* The same for a process without ranks. Local. */
void sp_live_open_alone(sp_progress_when when);
/* The same for a process that draws nothing but may print errors amid a live line: they
 * clear the line first. Local. */
void sp_live_open_errors(void);
/* True if this process draws live lines and is not in the background, so that the
 * user sees them. */
bool sp_live_is_shown(void);

/* A line while it is put together. */
enum { SP_LIVE_FIELDS = 16, SP_LIVE_TEXT = 160 };
typedef struct sp_live {
    int n;
    struct sp_live_field {
        int weight;
        char text[SP_LIVE_TEXT];
    } field[SP_LIVE_FIELDS];
    int bar;      /* the field that the bar replaces; -1: no bar */
    double share; /* of the bar that is filled, 0 to 1 */
} sp_live;

/* Begins an empty line. */
void sp_live_begin(sp_live *line);
/* Appends a field. Fields of the least weight are left out first; the weights of a line
 * differ. The text is shown in printable form. "" appends nothing. */
void sp_live_add(sp_live *line, int weight, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends the bar, once. It fills the rest of the width, up to 40 columns. */
void sp_live_add_bar(sp_live *line, int weight, double share);
/* Writes the line for a terminal of `columns` columns to text; it is at most columns -
 * 1 wide. A character beyond ASCII counts as two columns, as wide ones are. */
void sp_live_layout(const sp_live *line, int columns, char *text, size_t bytes);
/* Draws the line in place of the last one. */
void sp_live_draw(const sp_live *line);
/* Removes the line. */
void sp_live_remove(void);

/* A time as "0:07", "1:02:03" or "3d 04:05"; "?" if it is not finite or negative.
 * Returns text. */
enum { SP_DURATION = 24 };
const char *sp_live_duration(double seconds, char text[SP_DURATION]);
/* Bytes as "812 MiB" or "3.1 GiB". */
const char *sp_live_bytes(double bytes, char text[SP_DURATION]);

#endif
