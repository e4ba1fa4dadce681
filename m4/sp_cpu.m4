# SP_CHECK_OPENMP: threads inside a rank (run.threads). --disable-openmp leaves them out.
AC_DEFUN([SP_CHECK_OPENMP], [
AC_OPENMP
SP_CFLAGS="$SP_CFLAGS $OPENMP_CFLAGS"
AS_IF([test "x$OPENMP_CFLAGS" = x],
  [sp_openmp_summary="one per rank (no OpenMP)"
   SP_CPPFLAGS="$SP_CPPFLAGS -I\$(srcdir)/src/base/no_openmp"
   SP_CFLAGS="$SP_CFLAGS -Wno-unknown-pragmas"],
  [sp_openmp_summary="OpenMP"])
])

# SP_CHECK_SIMD: compile the vector versions of the kernels where the compiler knows the flags;
# which one runs is decided at start by what the processor has.
# Sets HAVE_SIMD_X86, HAVE_AVX512BF16, HAVE_AMX, SP_AVX512_CFLAGS, SP_AVX2_CFLAGS, and
# defines the lists of what is compiled in, the best first.
AC_DEFUN([SP_CHECK_SIMD], [
SP_AVX512_CFLAGS="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vpopcntdq -mfma -mbmi -mbmi2 -mpopcnt -mprefer-vector-width=512"
SP_AVX2_CFLAGS="-mavx2 -mfma -mbmi -mbmi2 -mpopcnt"
AC_MSG_CHECKING([whether $CC compiles AVX-512 and AVX2 kernels])
sp_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS $SP_AVX512_CFLAGS"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
  [[__m512i a = _mm512_popcnt_epi32(_mm512_set1_epi32(7)); (void)a;
    return (int)_mm_crc32_u64(1, 2); /* x86-64 has it, i386 has not */]])],
  [sp_simd=yes], [sp_simd=no])
CFLAGS=$sp_save_CFLAGS
AC_MSG_RESULT([$sp_simd])
AM_CONDITIONAL([HAVE_SIMD_X86], [test $sp_simd = yes])
AC_MSG_CHECKING([whether $CC compiles AVX512_BF16 kernels])
CFLAGS="$CFLAGS $SP_AVX512_CFLAGS -mavx512bf16"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
  [[__m512 a = _mm512_setzero_ps();
    a = _mm512_dpbf16_ps(a, (__m512bh)a, (__m512bh)a);
    return _mm512_reduce_add_ps(a) != 0;]])],
  [sp_bf16=$sp_simd], [sp_bf16=no])
CFLAGS=$sp_save_CFLAGS
AC_MSG_RESULT([$sp_bf16])
AM_CONDITIONAL([HAVE_AVX512BF16], [test $sp_bf16 = yes])
AC_MSG_CHECKING([whether $CC compiles AMX_BF16 kernels])
CFLAGS="$CFLAGS $SP_AVX512_CFLAGS -mamx-tile -mamx-bf16"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
  [[_tile_zero(0);
    _tile_dpbf16ps(0, 1, 2);
    _tile_release();]])],
  [sp_amx=$sp_simd], [sp_amx=no])
CFLAGS=$sp_save_CFLAGS
AC_MSG_RESULT([$sp_amx])
AM_CONDITIONAL([HAVE_AMX], [test $sp_amx = yes])
sp_crc_forms="X(table)"
sp_cpu_isas="X(portable)"
sp_plan_loops="X(portable)"
sp_simd_summary="portable only"
AS_IF([test $sp_simd = yes],
  [sp_crc_forms="X(product) X(instruction) $sp_crc_forms"
   sp_cpu_isas="X(avx512) X(avx2) $sp_cpu_isas"
   sp_plan_loops="X(avx512) $sp_plan_loops"
   sp_simd_summary="AVX-512, AVX2 and portable, chosen at start"])
AS_IF([test $sp_bf16 = yes],
  [sp_cpu_isas="X(avx512bf16) $sp_cpu_isas"
   sp_simd_summary="AVX512_BF16, $sp_simd_summary"])
AS_IF([test $sp_amx = yes],
  [sp_cpu_isas="X(amx) $sp_cpu_isas"
   sp_simd_summary="AMX_BF16, $sp_simd_summary"])
AC_DEFINE_UNQUOTED([SP_CRC_FORMS(X)], [$sp_crc_forms], [base/sp_crc.h])
AC_DEFINE_UNQUOTED([SP_CPU_ISAS(X)], [$sp_cpu_isas], [cpu/cpu_isa.h])
AC_DEFINE_UNQUOTED([SP_PLAN_LOOPS(X)], [$sp_plan_loops], [cpu/plan/cpu_plan.h])
# Fused operations are spelled out where they are meant: a sum must not depend on which loop
# (vector body or tail) the compiler put an element into. Nobody reads errno or the flags of
# floating-point exceptions, which would keep square roots and choices from being vectorised.
sp_math_flags="-ffp-contract=off -fno-math-errno -fno-trapping-math"
AC_MSG_CHECKING([whether $CC takes $sp_math_flags])
CFLAGS="$CFLAGS -Werror $sp_math_flags"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [sp_contract=yes], [sp_contract=no])
CFLAGS=$sp_save_CFLAGS
AC_MSG_RESULT([$sp_contract])
AS_IF([test $sp_contract = yes], [SP_CFLAGS="$SP_CFLAGS $sp_math_flags"])
# Plain loops become vectors with CFLAGS=-O2 too, which leaves them to gcc's cheapest model;
# clang makes them at -O2 anyway. A build for diagnosis compiles without.
sp_loop_flags="-ftree-vectorize -fvect-cost-model=dynamic"
AC_MSG_CHECKING([whether $CC takes $sp_loop_flags])
CFLAGS="$CFLAGS -Werror $sp_loop_flags"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [sp_loops=yes], [sp_loops=no])
CFLAGS=$sp_save_CFLAGS
AC_MSG_RESULT([$sp_loops])
AS_IF([test $sp_loops = yes && test "x$enable_debug" != xyes],
  [SP_CFLAGS="$SP_CFLAGS $sp_loop_flags"])
# Ubuntu's mpicc asks for optimisation at link time, which would compile each of the programs
# and tests again as a whole. CFLAGS=-flto still does: gcc links no such objects with both.
AC_MSG_CHECKING([whether $CC takes -fno-lto])
CFLAGS="$CFLAGS -Werror -fno-lto"
AS_CASE([" $sp_save_CFLAGS"],
  [*" -flto"*], [sp_no_lto="no: CFLAGS has -flto"],
  [AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [sp_no_lto=yes], [sp_no_lto=no])])
CFLAGS=$sp_save_CFLAGS
AC_MSG_RESULT([$sp_no_lto])
AS_IF([test "$sp_no_lto" = yes], [SP_CFLAGS="$SP_CFLAGS -fno-lto"])
AC_SUBST([SP_AVX512_CFLAGS])
AC_SUBST([SP_AVX2_CFLAGS])
])

# SP_ENABLE_DEBUG: assertions and stale-memory checks. --enable-debug
AC_DEFUN([SP_ENABLE_DEBUG], [
AC_ARG_ENABLE([debug], [AS_HELP_STRING([--enable-debug],
  [fill recycled memory with NaN])], [], [enable_debug=no])
AS_IF([test "x$enable_debug" = xyes],
  [sp_debug=1 sp_debug_summary="assertions, recycled memory filled with NaN"],
  [sp_debug=0 sp_debug_summary="assertions"])
AC_DEFINE_UNQUOTED([SP_DEBUG], [$sp_debug], [Is recycled memory filled with NaN?])
])

# SP_WARNING_FLAGS: warnings that the sources are clean of.
AC_DEFUN([SP_WARNING_FLAGS], [
SP_CFLAGS="$SP_CFLAGS -std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes"
SP_CFLAGS="$SP_CFLAGS -Wmissing-prototypes -Wpointer-arith"
# clang warns of each loop that it was asked to vectorise and found no gain in.
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#ifndef __clang__
#error another compiler
#endif
]], [])], [SP_CFLAGS="$SP_CFLAGS -Wno-pass-failed"])
])
