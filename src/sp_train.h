/* The commands of sptrain on an open communicator and a resolved config. All collective. */
#ifndef SP_TRAIN_H
#define SP_TRAIN_H

#include "sp_deck.h"

sp_status sp_train(sp_config *config, sp_comm *comm);
sp_status sp_eval(sp_config *config, sp_comm *comm);
sp_status sp_predict(sp_config *config, sp_comm *comm);
sp_status sp_check(sp_config *config, sp_comm *comm);
sp_status sp_preflight(sp_config *config, sp_comm *comm);

#endif
