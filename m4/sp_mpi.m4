# SP_PROG_MPICC: choose the MPI compiler wrapper before AC_PROG_CC looks for one.
#   --with-mpi=mpich|openmpi   which one of two that are installed (default: MPICH)
#   CC=... and MPICC=... given by the user win.
AC_DEFUN([SP_PROG_MPICC], [
AC_BEFORE([$0], [AC_PROG_CC])
AC_ARG_VAR([MPICC], [MPI C compiler wrapper])
AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=mpich|openmpi],
  [the MPI to use where both are installed])], [], [with_mpi=auto])
AS_CASE([$with_mpi],
  [auto|yes], [sp_mpiccs="mpicc.mpich mpicc mpiicx mpiicc cc"],
  [mpich], [sp_mpiccs="mpicc.mpich mpicc cc"],
  [openmpi], [sp_mpiccs="mpicc.openmpi mpicc cc"],
  [AC_MSG_ERROR([--with-mpi=$with_mpi: mpich and openmpi are known; set MPICC for another])])
AS_IF([test "x$CC" = x],
  [AC_CHECK_PROGS([MPICC], [$sp_mpiccs])
   CC=$MPICC],
  [AS_IF([test "x$MPICC" != x], [CC=$MPICC])])
])

# SP_FIRST_LIBRARY(LIBS): the first library of what pkg-config says, and the folders named
# ahead of it. Ubuntu's mpich.pc names others (pmix, ucp) that only libmpich.so itself is
# linked with, and that libmpich-dev does not install.
AC_DEFUN([SP_FIRST_LIBRARY],
[`AS_ECHO(["$1"]) | tr ' ' '\n' | sed -n '/^-L/p; /^-l/{p;q;}' | tr '\n' ' '`])

# SP_CHECK_MPI: $CC links an MPI 3 program, by itself (mpicc) or with what pkg-config says of
# an MPI (CC=clang). Sets sp_mpi to openmpi or mpich (any other MPI), by which HDF5 is
# chosen, and MPIEXEC, the launcher of make check.
AC_DEFUN([SP_CHECK_MPI], [
m4_pushdef([sp_mpi_program], [AC_LANG_PROGRAM([[#include <mpi.h>
#if MPI_VERSION < 3
#error MPI 3 needed
#endif
]], [[MPI_Init(0, 0); MPI_Finalize();]])])
sp_have_mpi=yes
sp_mpi_save_CPPFLAGS=$CPPFLAGS
AC_MSG_CHECKING([whether $CC links an MPI 3 program])
AC_LINK_IFELSE([sp_mpi_program],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   sp_have_mpi=no
   AS_CASE([$with_mpi],
     [openmpi], [sp_mpi_pcs="ompi-c"], [mpich], [sp_mpi_pcs="mpich"],
     [sp_mpi_pcs="mpich ompi-c"])
   AS_IF([test "x$PKG_CONFIG" = x], [sp_mpi_pcs=])
   for sp_pc in $sp_mpi_pcs; do
     AS_IF([test $sp_have_mpi = no && $PKG_CONFIG --exists $sp_pc], [
       sp_mpi_cflags=`$PKG_CONFIG --cflags $sp_pc`
       sp_mpi_all=`$PKG_CONFIG --libs $sp_pc`
       sp_mpi_first=SP_FIRST_LIBRARY([$sp_mpi_all])
       sp_save_LIBS=$LIBS
       CPPFLAGS="$sp_mpi_cflags $sp_mpi_save_CPPFLAGS"
       AC_MSG_CHECKING([whether $CC does so with pkg-config $sp_pc])
       for sp_mpi_libs in "$sp_mpi_all" "$sp_mpi_first"; do
         AS_IF([test $sp_have_mpi = yes], [break])
         LIBS="$sp_mpi_libs $sp_save_LIBS"
         AC_LINK_IFELSE([sp_mpi_program],
           [sp_have_mpi=yes
            SP_CPPFLAGS="$SP_CPPFLAGS $sp_mpi_cflags"
            SP_LIBS="$sp_mpi_libs $SP_LIBS"])
       done
       LIBS=$sp_save_LIBS
       AC_MSG_RESULT([$sp_have_mpi])])
   done])
m4_popdef([sp_mpi_program])
AC_MSG_CHECKING([whether it is Open MPI])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#ifndef OPEN_MPI
#error another MPI
#endif
]], [])], [sp_is_openmpi=yes], [sp_is_openmpi=no])
AC_MSG_RESULT([$sp_is_openmpi])
CPPFLAGS=$sp_mpi_save_CPPFLAGS
AS_IF([test $sp_have_mpi = no],
  [sp_mpi=mpich
   AS_IF([test "x$with_mpi" = xopenmpi], [sp_mpi=openmpi])],
  [sp_mpi=mpich
   AS_IF([test $sp_is_openmpi = yes], [sp_mpi=openmpi])
   AS_CASE(["$with_mpi $sp_mpi"], ["mpich openmpi"|"openmpi mpich"],
     [AC_MSG_ERROR([--with-mpi=$with_mpi, but $CC belongs to another MPI])])])
AS_IF([test $sp_mpi = openmpi],
  [sp_mpi_pc=ompi-c
   sp_mpiexecs="mpiexec.openmpi mpiexec mpirun"],
  [sp_mpi_pc=mpich
   sp_mpiexecs="mpiexec.mpich mpiexec mpirun"])
AS_IF([test $sp_have_mpi = no],
  [SP_MISSING([lib$sp_mpi-dev], [$sp_mpi_pc], [MPI; or set MPICC to a compiler of another MPI])])
AC_ARG_VAR([MPIEXEC], [MPI launcher of make check and sptrain launch])
AC_PATH_PROGS([MPIEXEC], [$sp_mpiexecs], [no])
AC_DEFINE_UNQUOTED([SP_MPIEXEC], ["$MPIEXEC"], [the launcher of sptrain launch])
AS_IF([test $sp_is_openmpi = yes], [sp_openmpi=1], [sp_openmpi=0])
AC_DEFINE_UNQUOTED([SP_IS_OPENMPI], [$sp_openmpi], [1: MPI is Open MPI])
])
