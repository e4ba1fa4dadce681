/* The instruction sets of x86-64 that this processor has. The file is compiled without
 * the instructions that it tests for, into builds that have kernels with them. */
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/cpu.h"

bool sp_cpu_has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

bool sp_cpu_has_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

/* By CPUID, since compilers that know AVX-512 need not know this name. */
bool sp_cpu_has_avx512bf16(void)
{
    enum { AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;

    return sp_cpu_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           a & AVX512_BF16;
}

/* Linux gives a process the state of tiles only on request (arch_prctl(2),
 * ARCH_REQ_XCOMP_PERM): it makes signal frames larger, so it fails if an alternate
 * signal stack has no room for one. */
bool sp_cpu_has_amx(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;

    return sp_cpu_has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           d & AMX_BF16 && d & AMX_TILE &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
