/* The commands of sptrain. All collective; they report their own failures. */
#ifndef SP_TRAIN_H
#define SP_TRAIN_H

#include "train/sp_session.h"

sp_status sp_train(const sp_command *command);
sp_status sp_eval(const sp_command *command);
sp_status sp_predict(const sp_command *command);
sp_status sp_check(const sp_command *command);
sp_status sp_preflight(const sp_command *command);

#endif
