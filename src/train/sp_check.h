/* The commands of sptrain that look and change nothing: no run folder is opened.
 *
 *     sptrain check DECK   sp_check: files of the deck, network, batch, and the memory
 *                          of a run (sp_check_memory: the largest samples are planned)
 *     sptrain check MODEL  sp_check_model: what a checkpoint holds; needs no ranks
 *     sptrain preflight    sp_preflight: place, device and measured rates of each rank
 */
#ifndef SP_CHECK_H
#define SP_CHECK_H

#include "api/sp_evaluator.h"
#include "api/sp_learner.h"
#include "train/sp_session.h"

/* Collective. They report their own failures and return the exit status. */
sp_status sp_check(const sp_command *command);
sp_status sp_preflight(const sp_command *command);

/* True if the word names a model (a folder, an HDF5 file or a packed model) and not a
 * deck. Local. */
bool sp_check_is_model(const char *word);
/* Prints the network of a checkpoint, its state, and how scans became the samples of
 * its training. `model` is a checkpoint, a packed model, or a run folder: its best.h5
 * is used, else its newest checkpoint. Local: it needs no ranks. SP_EUSAGE: the folder
 * has no checkpoint; SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_check_model(const char *model);

/* ---- between the files of this module ---- */

/* The parts of these commands; the device is not open in a check. */
typedef struct sp_checked {
    sp_session session;
    sp_device device;
    sp_data_sets data;
    sp_network network; /* its graph, and in no command its weights */
    sp_learner learner;
    sp_evaluator evaluator;
    sp_budgets budgets;
} sp_checked;

/* Opens the session of a command, lets `work` open and use the parts, and closes
 * them. */
sp_status sp_check_run(const sp_command *command, sp_status (*work)(sp_checked *c));

/* Logs the number of micro-batches that the most expensive step is cut into by
 * run.memory_mb or by the memory of a device that rank 0 sees, and the memory that the
 * steps of the deck need, evaluation included. The largest samples are planned on the
 * host. Collective, agreed; reads some samples. The learner's sampler is open, and the
 * evaluator's if there are evaluations. SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_check_memory(sp_checked *c);

#endif
