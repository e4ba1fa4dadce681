/* Shared by the files of sp_world.h: sp_world.c is every process's side, and
 * sp_world_server.c rank 0's. */
#ifndef SP_WORLD_INTERNAL_H
#define SP_WORLD_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/sp_launcher.h"

/* PORTS: rank 0 uses the first free one of this many from MASTER_PORT on. LINE: the
 * longest line. ANSWER_MS: how long a port may take to greet, and a connection to
 * identify itself. */
enum { SP_WORLD_PORTS = 16, SP_WORLD_LINE = 512, SP_WORLD_ANSWER_MS = 2000 };

/* A connection and the unfinished line that it has sent. */
typedef struct sp_world_link {
    int fd;         /* -1: closed */
    double until_s; /* of connections without a greeting */
    size_t used;
    char line[SP_WORLD_LINE];
} sp_world_link;

/* The time since the start began. */
typedef struct sp_world_clock {
    double begun_s, limit_s; /* limit 0: no limit */
    bool is_told;
} sp_world_clock;

/* Sends a line, which ends in a line feed. Local. */
void sp_world_say(int fd, const char *line);
/* Removes one line, without its end, from the received bytes. False if no line is
 * complete; closes the link if its other end is closed or a line is too long. Local. */
bool sp_world_hear(sp_world_link *link, char line[SP_WORLD_LINE]);
void sp_world_close(sp_world_link *link);
/* Sends small messages immediately, and detects a lost host. Local. */
void sp_world_options(int fd);
/* The name of this run, so that runs with adjacent ports do not mix. */
uint64_t sp_world_run(const sp_launcher_world *is);
/* Writes this host's name and returns the hash of its node's. Local. */
uint64_t sp_world_node(char host[64]);
/* The first port that rank 0 may listen at. */
int sp_world_port(const sp_launcher_world *is);
double sp_world_now_s(void);
bool sp_world_is_late(const sp_world_clock *clock);
/* True once, after a quarter of the limit. */
bool sp_world_is_time_to_tell(sp_world_clock *clock);

/* Rank 0: listens at the first port that is free; *port is its number. SP_EUSAGE. */
sp_status sp_world_listen(const sp_launcher_world *is, int *listener, int *port);
/* Rank 0: waits at the port, which it closes, for the other processes, and starts the
 * thread that serves them. *tether and *pmi are its own ends. SP_EUSAGE, SP_EMPI,
 * SP_EMEM, SP_ELIMIT. */
sp_status sp_world_serve(const sp_launcher_world *is, sp_world_clock *clock,
                         int listener, int port, int *tether, int *pmi);
/* Rank 0: waits until the others have left, and ends the thread. */
void sp_world_serve_end(void);

#endif
