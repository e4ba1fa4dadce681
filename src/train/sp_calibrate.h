/* `sptrain calibrate RUN [SECTION.KEY=VALUE ...]`. */
#ifndef SP_CALIBRATE_H
#define SP_CALIBRATE_H

#include "comm/sp_comm.h"

/* Runs the command on its own words (argv[0] is "calibrate"): finds the temperature and
 * the classes' features of a run's model on its data.val, and stores them in the
 * checkpoint (checkpoint/sp_calibration.h). Collective; reports its own failures and
 * returns the exit status. */
sp_status sp_calibrate(int argc, char **argv, sp_comm *comm);

#endif
