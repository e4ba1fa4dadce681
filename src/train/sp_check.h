/* The commands of sptrain that look and change nothing: no run folder is opened.
 *
 *     sptrain check DECK   sp_check: the files that the deck names, network, batch, and
 *                          the memory that a run takes (sp_check_memory: the largest
 *                          samples are planned)
 *     sptrain check MODEL  sp_check_model.h: what a checkpoint holds; needs no ranks
 *     sptrain preflight    sp_preflight: place, device and measured rates of each rank
 */
#ifndef SP_CHECK_H
#define SP_CHECK_H

#include "data/sp_sampler.h"
#include "train/sp_session.h"

/* Collective. They report their own failures and return the exit status. */
sp_status sp_check(const sp_command *command);
sp_status sp_preflight(const sp_command *command);

/* ---- between the files of this module ---- */

/* Opens the resources of a command, lets `work` use them, and closes them. */
sp_status sp_check_run(const sp_command *command, sp_status (*work)(sp_resources *r));

/* Logs the number of micro-batches into which run.memory_mb, or the memory of a device
 * that rank 0 sees, cuts the most expensive step, and the memory that the steps of the
 * deck need, evaluation included. The largest samples are planned on the host.
 * Collective, agreed; reads some samples. val NULL: no evaluation. SP_EDATA, SP_EIO,
 * SP_EMEM. */
sp_status sp_check_memory(sp_resources *resources, sp_sampler *train, sp_sampler *val);

#endif
