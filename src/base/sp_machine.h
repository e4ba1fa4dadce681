/* What this process may use of its machine: cores and memory, within the limits of
 * batch systems and containers (affinity, cgroups, resource limits).
 */
#ifndef SP_MACHINE_H
#define SP_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set of cores as bits, wide enough for any machine. */
enum { SP_CORE_WORDS = 128 };

/* Cores that this process may run on; their number, at least 1. */
int sp_machine_cores(uint64_t set[SP_CORE_WORDS]);
/* Cores' worth of time that the cgroup grants, rounded up; INT_MAX where it sets no
 * limit. */
int sp_machine_core_quota(void);
/* Bytes of memory: physical or the cgroup's limit, whichever is less. */
size_t sp_machine_memory(void);
/* Bytes of address space (ulimit -v); SIZE_MAX where there is no limit. */
size_t sp_machine_address_space(void);
/* Private memory: bytes become 0, and whole pages among them come back only when they
 * are touched. */
void sp_machine_zero(void *data, size_t bytes);
/* The processor's name as the system tells it; "unknown" where it does not. */
const char *sp_machine_processor(void);

#ifdef __cplusplus
}
#endif
#endif
