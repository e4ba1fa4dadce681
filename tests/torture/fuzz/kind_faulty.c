/* A reader with deliberate faults, each of which must be found (test_fuzz_finds.sh). It
 * runs only where it is named. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torture/fuzz/fuzz.h"

enum { MIB = 1 << 20 };

static sp_status die(void *context)
{
    (void)context;
    raise(SIGKILL);
    return SP_OK;
}

static void grow(void)
{
    volatile char *much = calloc(400, MIB);

    mutate_check(much, "out of memory");
    for (size_t i = 0; i < (size_t)400 * MIB; i += 4096)
        much[i] = 1;
    free((void *)(uintptr_t)much);
}

static bool run(uint64_t *rng)
{
    static const sp_status none[] = {SP_OK};
    volatile int forever = 1;

    fuzz_put("input", (blob){(unsigned char *)rng, sizeof *rng});
    switch (mutate_below(rng, 6)) {
    case 0:
        raise(SIGSEGV);
        return true;
    case 1:
        while (forever)
            ;
        return true;
    case 2:
        grow();
        return true;
    case 3:
        fuzz_fault("content changed");
    case 4:
        fuzz_command(die, NULL, none);
        return true;
    default:
        return true;
    }
}

const fuzz_kind fuzz_faulty = {"faulty", 0, NULL, run};
