/* The progress of counted work, such as the samples of an evaluation or the scans of a
 * command, as the live line of rank 0:
 *
 *     evaluating [########........]  52 % 104/200 samples 38.1/s left 0:02 miou=0.61
 *
 *     sp_progress_begin(&progress, "labelling", "scans", n_scans);
 *     for (i = 0; i < n_scans; i++) {
 *         ...
 *         sp_progress_at(&progress, i + 1, "%s", scan[i].path);
 *     }
 *     sp_progress_end(&progress);
 *
 * Nothing is drawn if no live line is shown (sp_live.h), nor on other ranks. Work that
 * is divided among ranks counts rank 0's share, or the samples of all ranks if each
 * rank knows them. All functions are local, cannot fail and allocate nothing; the
 * thread that calls them is always the same. */
#ifndef SP_PROGRESS_H
#define SP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds between two drawings of a live line. */
#define SP_PROGRESS_EVERY_S 0.2

typedef struct sp_progress {
    const char *what, *unit;
    int64_t total;
    double begin_s, drawn_s;
} sp_progress;

/* Begins. what: a word or two for the work, unit: its plural noun, both string
 * constants. total 0: not known, so there is no bar and no time left. */
void sp_progress_begin(sp_progress *progress, const char *what, const char *unit,
                       int64_t total);
/* True if the next sp_progress_at draws, so that its text is worth putting together. */
bool sp_progress_is_due(const sp_progress *progress);
/* States how many units are done; the text (may be "") follows if the terminal is wide
 * enough. It is shown in printable form. Draws at most five times a second; a call that
 * does not draw only reads the clock. */
void sp_progress_at(sp_progress *progress, int64_t done, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Removes the line. */
void sp_progress_end(sp_progress *progress);

/* The pace of work with a changing speed: a mean of about the last minute; older
 * seconds count less. Zeroed at the start. */
#define SP_PACE_S 60.0
typedef struct sp_pace {
    double samples, seconds; /* weighted */
} sp_pace;

void sp_pace_add(sp_pace *pace, double samples, double seconds);
/* NAN before anything was added. */
double sp_pace_per_second(const sp_pace *pace);

#endif
