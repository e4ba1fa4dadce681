/* The memory of a run: what it needs (memory/sp_estimate.h), and how its steps are cut
 * for the memory that a rank may use (memory/sp_budget.h). */
#ifndef SP_MEMORY_H
#define SP_MEMORY_H

#include "api/memory/sp_budget.h"
#include "api/sp_data_sets.h"
#include "api/sp_device.h"
#include "api/sp_network.h"

struct sp_evaluator;
struct sp_learner;

/* The inputs of the estimate, without an evaluation's merging; backend is borrowed.
 * Local. */
sp_estimated_run sp_memory_run(const sp_config *config, const sp_comm *comm,
                               const sp_backend *backend, const sp_network *network,
                               const sp_data_sets *data);
/* Cuts steps that do not fit into the memory that a rank may use. That is run.memory_mb
 * if it is set; else the device's memory as sp_budgets_memory_of bounds it, or less if
 * other programs use the device. The bound becomes device->memory_mb, which checkpoints
 * keep: a continued run cuts its steps alike, whatever memory is free by then. Bounds
 * the samplers of the loaders that are open, so it is called once, before these begin.
 * learner NULL: no training. Collective, agreed. */
sp_status sp_memory_bound(sp_budgets *budgets, sp_device *device,
                          const sp_data_sets *data, struct sp_learner *learner,
                          struct sp_evaluator *evaluator);
/* *bytes becomes the bound of a rank if the ranks of its host may together need more
 * memory than it has, else 0, and device->memory_mb likewise. train or eval may be NULL.
 * Rank 0 reads a few samples unless the memory certainly suffices. Collective, agreed.
 * SP_EMPI. */
sp_status sp_memory_bound_host(sp_device *device, const sp_estimated_run *what,
                               sp_sampler *train, sp_sampler *eval, int64_t *bytes);

#endif
