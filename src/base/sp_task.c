#include "base/sp_task.h"

#include <assert.h>
#include <string.h>

#include "base/sp_thread.h"

static void *task_main(void *arg)
{
    sp_task *t = arg;

    t->rc = t->run(t->arg);
    if (t->rc != SP_OK)
        sp_error_save(&t->error);
    return NULL;
}

sp_status sp_task_start(sp_task *t, sp_status (*run)(void *arg), void *arg)
{
    int failed;

    assert(!t->is_started);
    t->run = run;
    t->arg = arg;
    failed = sp_thread_start(&t->thread, task_main, t);
    if (failed)
        return SP_FAIL(SP_EMEM, "cannot start a thread: %s", strerror(failed));
    t->is_started = true;
    return SP_OK;
}

void sp_task_drop(sp_task *t)
{
    if (t->is_started)
        pthread_join(t->thread, NULL);
    t->is_started = false;
}

sp_status sp_task_join(sp_task *t)
{
    if (!t->is_started)
        return SP_OK;
    sp_task_drop(t);
    return t->rc == SP_OK ? SP_OK : sp_error_raise(&t->error);
}
