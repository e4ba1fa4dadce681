# SP_PROG_MPICC: choose the MPI compiler wrapper before AC_PROG_CC looks for one.
#   CC=... and MPICC=... given by the user win.
AC_DEFUN([SP_PROG_MPICC], [
AC_BEFORE([$0], [AC_PROG_CC])
AC_ARG_VAR([MPICC], [MPI C compiler wrapper])
AS_IF([test "x$CC" = x],
  [AC_CHECK_PROGS([MPICC], [mpicc.mpich mpicc mpiicx mpiicc cc])
   CC=$MPICC],
  [AS_IF([test "x$MPICC" != x], [CC=$MPICC])])
])

# SP_CHECK_MPI: $CC links an MPI 3 program; sets MPIEXEC, the launcher of make check.
AC_DEFUN([SP_CHECK_MPI], [
sp_have_mpi=yes
AC_MSG_CHECKING([whether $CC links an MPI 3 program])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#if MPI_VERSION < 3
#error MPI 3 needed
#endif
]], [[MPI_Init(0, 0); MPI_Finalize();]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   sp_have_mpi=no
   SP_MISSING([libmpich-dev], [mpich], [MPI; or set MPICC to a compiler of another MPI])])
AC_ARG_VAR([MPIEXEC], [MPI launcher used by make check])
AC_PATH_PROGS([MPIEXEC], [mpiexec.mpich mpiexec mpirun], [no])
])
