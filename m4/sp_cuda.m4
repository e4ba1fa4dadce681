# SP_CHECK_CUDA: the CUDA backend.
#   --with-cuda[=DIR]       CUDA toolkit (default: used where nvcc is found)
#   --without-cuda          CPU backend only
#   --with-cuda-arch=LIST   architectures, default "80 90"; PTX of the last plain one is added
# cudart is linked statically, so that one binary starts on
# machines without driver, toolkit or NCCL and trains there on the CPU.
# cuda_conv_wgmma.cu is compiled for 90a in place of 90: wgmma is no part of the latter.
# Sets NVCC, NVCC_GENCODE, NVCC_WGMMA (the same for that file), CUDA_LDFLAGS, CUDA_LIBS, and
# CUDA_CPPFLAGS, which alone tell the C files of cuda/ the toolkit's folder, and SP_WITH_NVTX
# where it has NVTX's headers: config.h is that of a build without CUDA, and what else is
# compiled serves both builds.
AC_DEFUN([SP_CHECK_CUDA], [
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
  [build the CUDA backend (default: where nvcc is found)])], [], [with_cuda=auto])
AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST],
  [architectures, e.g. "80 90a" (default "80 90")])], [], [with_cuda_arch="80 90"])
AC_ARG_VAR([NVCCFLAGS], [flags for nvcc])
: ${NVCCFLAGS="-O3 -lineinfo"}
sp_have_cuda=no
sp_cuda_summary="left out (CPU backend only)"
AS_IF([test "x$with_cuda" != xno], [
  AS_CASE([$with_cuda],
    [yes|auto], [sp_cuda_path="$PATH:${CUDA_HOME:+$CUDA_HOME/bin:}/usr/local/cuda/bin"],
    [sp_cuda_path="$with_cuda/bin"])
  AC_PATH_PROG([NVCC], [nvcc], [no], [$sp_cuda_path])
  AS_IF([test "x$NVCC" != xno], [
    CUDA_ROOT=`dirname \`dirname "$NVCC"\``
    for sp_dir in lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib lib; do
      AS_IF([test -f "$CUDA_ROOT/$sp_dir/libcudart_static.a"],
        [CUDA_LDFLAGS="-L$CUDA_ROOT/$sp_dir"; break])
    done
    CUDA_LIBS="-lcudart_static -ldl -lrt -lpthread -lstdc++"
    sp_ptx=
    NVCC_WGMMA=
    for sp_arch in $with_cuda_arch; do
      NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$sp_arch,code=sm_$sp_arch"
      AS_CASE([$sp_arch], [*[[a-z]]], [], [sp_ptx=$sp_arch])
      AS_CASE(["$sp_arch $NVCC_WGMMA"],
        [90*SP_WITH_WGMMA*], [],
        [90\ *|90a\ *],
        [NVCC_WGMMA="$NVCC_WGMMA -gencode arch=compute_90a,code=sm_90a -DSP_WITH_WGMMA"],
        [NVCC_WGMMA="$NVCC_WGMMA -gencode arch=compute_$sp_arch,code=sm_$sp_arch"])
    done
    AS_IF([test "x$sp_ptx" != x],
      [sp_ptx="-gencode arch=compute_$sp_ptx,code=compute_$sp_ptx"
       NVCC_GENCODE="$NVCC_GENCODE $sp_ptx"
       NVCC_WGMMA="$NVCC_WGMMA $sp_ptx"])
    AC_MSG_CHECKING([whether $NVCC builds for: $with_cuda_arch])
    cat >conftest.cu <<'_CU'
__global__ void fill(int *p) { p[[threadIdx.x]] = 1; }
extern "C" int conftest_cuda(void) { fill<<<1, 1>>>(0); return (int)cudaGetLastError(); }
_CU
    AS_IF([$NVCC -std=c++17 $NVCC_GENCODE -c -o conftest_cu.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
      [sp_save_LIBS=$LIBS
       LIBS="conftest_cu.o $CUDA_LDFLAGS $CUDA_LIBS $LIBS"
       AC_LINK_IFELSE([AC_LANG_PROGRAM([[int conftest_cuda(void);]], [[return conftest_cuda();]])],
         [sp_have_cuda=yes])
       LIBS=$sp_save_LIBS])
    rm -f conftest.cu conftest_cu.o
    AC_MSG_RESULT([$sp_have_cuda])
  ])
  AS_IF([test $sp_have_cuda = yes],
    [CUDA_CPPFLAGS="-DSP_CUDA_ROOT='\"$CUDA_ROOT\"'"
     sp_nvtx="without NVTX"
     AS_IF([test -f "$CUDA_ROOT/include/nvtx3/nvToolsExt.h"],
       [CUDA_CPPFLAGS="$CUDA_CPPFLAGS -DSP_WITH_NVTX=1 -isystem $CUDA_ROOT/include"
        sp_nvtx="ranges for profilers (NVTX)"])
     sp_cuda_summary="$NVCC for $with_cuda_arch; run.device=cuda; NCCL is looked for at run time; $sp_nvtx"],
    [AS_IF([test "x$with_cuda" = xauto],
      [AC_MSG_WARN([no working CUDA toolkit: CPU backend only])],
      [test "x$NVCC" = xno],
      [AC_MSG_ERROR([--with-cuda was given, but there is no nvcc in $sp_cuda_path])],
      [AC_MSG_ERROR([--with-cuda was given, but nvcc does not build a program (config.log)])])])
])
AM_CONDITIONAL([HAVE_CUDA], [test $sp_have_cuda = yes])
AC_SUBST([NVCC])
AC_SUBST([NVCC_GENCODE])
AC_SUBST([NVCC_WGMMA])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LDFLAGS])
AC_SUBST([CUDA_LIBS])
])
