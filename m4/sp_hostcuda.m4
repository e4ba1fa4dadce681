# SP_CHECK_HOSTCUDA: whether the tests can run the CUDA kernels on this machine's processor.
# Needs a C++17 compiler and a context switch written for the processor; the race checker needs
# clang++ too; running nvcc's PTX there needs nvcc, for capability 9.0, and python3. Sets
# HAVE_HOSTCUDA, SP_HOSTCUDA_CXXFLAGS, HAVE_CLANGXX, CLANGXX, HAVE_PTX and PYTHON3.
AC_DEFUN([SP_CHECK_HOSTCUDA], [
AC_REQUIRE([AC_PROG_CXX])
AC_ARG_VAR([CLANGXX], [clang++, for the race checker of the CUDA tests])
sp_have_hostcuda=no
sp_have_clangxx=no
sp_hostcuda_summary="left out (needs C++17 on x86-64 or aarch64)"
AC_LANG_PUSH([C++])
sp_save_CXXFLAGS=$CXXFLAGS
CXXFLAGS="$CXXFLAGS -std=c++17"
AC_MSG_CHECKING([whether $CXX can build the CUDA emulator of the tests])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#if !defined __x86_64__ && !defined __aarch64__
#error no context switch
#endif
#include <tuple>
]], [[return std::apply([](int a) { return a; }, std::make_tuple(0));]])],
  [sp_have_hostcuda=yes])
AC_MSG_RESULT([$sp_have_hostcuda])
dnl Without the instruction every fmaf is a call of the C library. The compiler is not to fuse
dnl other products and sums.
SP_HOSTCUDA_CXXFLAGS=
AS_IF([test $sp_have_hostcuda = yes], [
  AC_MSG_CHECKING([whether this processor has the FMA instruction])
  CXXFLAGS="$CXXFLAGS -mfma -ffp-contract=off"
  AC_RUN_IFELSE([AC_LANG_PROGRAM([[
#include <cmath>
]], [[volatile float a = 2; return std::fma((float)a, (float)a, -4.0f) != 0;]])],
    [SP_HOSTCUDA_CXXFLAGS="-mfma -ffp-contract=off"], [], [:])
  AC_MSG_RESULT([${SP_HOSTCUDA_CXXFLAGS:-no}])])
AC_SUBST([SP_HOSTCUDA_CXXFLAGS])
CXXFLAGS=$sp_save_CXXFLAGS
AC_LANG_POP([C++])
AC_CHECK_PROGS([CLANGXX], [clang++], [no])
AS_IF([test $sp_have_hostcuda = yes && test "x$CLANGXX" != xno], [
  AC_MSG_CHECKING([whether $CLANGXX can instrument for the race checker])
  echo 'int sum(int *p) { return *p; }' >conftest.cc
  AS_IF([$CLANGXX -std=c++17 -fsanitize=thread -c -o conftest_cc.o conftest.cc >&AS_MESSAGE_LOG_FD 2>&1],
    [sp_have_clangxx=yes])
  rm -f conftest.cc conftest_cc.o
  AC_MSG_RESULT([$sp_have_clangxx])])
AS_IF([test $sp_have_hostcuda = yes],
  [sp_hostcuda_summary="kernels run on the CPU"
   AS_IF([test $sp_have_clangxx = yes],
     [sp_hostcuda_summary="$sp_hostcuda_summary, with race checker"],
     [sp_hostcuda_summary="$sp_hostcuda_summary; no race checker without clang++"])])
AC_PATH_PROG([PYTHON3], [python3], [no])
sp_have_ptx=no
AS_IF([test $sp_have_hostcuda = yes && test $sp_have_cuda = yes && test "x$PYTHON3" != xno],
  [AS_CASE([" $with_cuda_arch "],
    [*" 90 "*|*" 90a "*],
    [sp_have_ptx=yes
     sp_hostcuda_summary="$sp_hostcuda_summary; make check-ptx runs what nvcc made of them"],
    [sp_hostcuda_summary="$sp_hostcuda_summary; no make check-ptx without 90 in --with-cuda-arch"])])
AM_CONDITIONAL([HAVE_PTX], [test $sp_have_ptx = yes])
AM_CONDITIONAL([HAVE_HOSTCUDA], [test $sp_have_hostcuda = yes])
AM_CONDITIONAL([HAVE_CLANGXX], [test $sp_have_clangxx = yes])
])
