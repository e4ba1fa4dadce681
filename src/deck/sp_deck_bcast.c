/* Broadcast of the config of rank 0, as text. */
#include "deck/sp_deck.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

sp_status sp_config_bcast(sp_config *config, sp_comm *comm, sp_status rc)
{
    SP_FREED char *text = NULL;
    int64_t bytes = 0;
    unsigned char origin[SP_MAX_KEYS];

    assert(config && comm);
    if (comm->rank != 0)
        rc = SP_OK;
    else if (rc == SP_OK)
        rc = sp_config_to_text(config, &text);
    if (text)
        bytes = (int64_t)strlen(text) + 1;
    SP_TRY(sp_comm_agree(comm, rc));
    SP_TRY(sp_comm_bcast(comm, &bytes, sizeof bytes, 0));
    SP_TRY(sp_comm_bcast_array(comm, (void **)&text, (size_t)bytes, 0));
    if (comm->rank == 0)
        memcpy(origin, config->origin, sizeof origin);
    SP_TRY(sp_comm_bcast(comm, origin, sizeof origin, 0));
    if (comm->rank != 0)
        rc = sp_config_parse(config, text, "deck of rank 0", 0, NULL);
    if (rc == SP_OK)
        memcpy(config->origin, origin, sizeof origin);
    return sp_comm_agree(comm, rc);
}
