/* Signs of life of this process, and the word to leave.
 *
 * Work beats: a sample read, a layer computed, an array written, by whichever thread. A
 * collective that waits for other ranks beats by itself, so that who waits can be told
 * from who is waited for. The watchdog (sp_watchdog.h) reads both counts; when a rank
 * is lost it leaves the exit status here, and waits in sp_comm end with it.
 */
#ifndef SP_PULSE_H
#define SP_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sp_pulse {
    int64_t work, waits; /* only grow */
    bool is_waiting;     /* for other ranks, now */
    double waited_s;     /* for other ranks so far */
} sp_pulse;

/* Work advanced. Any thread; one atomic addition. */
void sp_pulse_beat(void);
/* Training thread: a wait for other ranks begins, turns, ends. Ending one is work. */
void sp_pulse_wait_begin(void);
void sp_pulse_wait_turn(void);
void sp_pulse_wait_end(void);

/* Any thread. */
void sp_pulse_read(sp_pulse *pulse);

/* Watchdog: this process is to end with `code`. 0: not so. */
void sp_pulse_leave(int code);
int sp_pulse_leaving(void);
/* For who cannot ask, as a device: *word becomes the code too. NULL: nobody. */
void sp_pulse_hear(uint64_t *word);

#ifdef __cplusplus
}
#endif
#endif
