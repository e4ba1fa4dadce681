# SP_CHECK_HDF5_PARALLEL: a parallel HDF5 built with the same MPI.
#   --with-hdf5=DIR   its prefix; by default pkg-config is asked (hdf5-mpich or hdf5-openmpi,
#                     as the MPI is; hdf5-mpi, hdf5)
# Where pkg-config knows hdf5-mpich, say, and not what that requires (mpich.pc), that is
# missing and HDF5 is not; without an MPI, only pkg-config can tell. HDF5 is tried
# without what it requires too (SP_FIRST_LIBRARY), since the compiler knows its MPI. Sets
# HDF5_CFLAGS, HDF5_LIBS.
AC_DEFUN([SP_CHECK_HDF5_PARALLEL], [
AC_ARG_WITH([hdf5], [AS_HELP_STRING([--with-hdf5=DIR], [prefix of a parallel HDF5])],
  [], [with_hdf5=auto])
sp_have_hdf5=yes
AS_CASE([$with_hdf5],
  [yes|auto|no],
    [PKG_CHECK_MODULES([HDF5], [hdf5-$sp_mpi], [],
      [PKG_CHECK_MODULES([HDF5], [hdf5-mpi], [],
        [PKG_CHECK_MODULES([HDF5], [hdf5], [], [HDF5_LIBS=-lhdf5; sp_have_hdf5=unknown])])])],
  [HDF5_CFLAGS="-I$with_hdf5/include"
   HDF5_LIBS="-L$with_hdf5/lib -L$with_hdf5/lib64 -Wl,-rpath,$with_hdf5/lib:$with_hdf5/lib64 -lhdf5"])
AC_SUBST([HDF5_CFLAGS])
AC_SUBST([HDF5_LIBS])
sp_save_CPPFLAGS=$CPPFLAGS
sp_save_LIBS=$LIBS
CPPFLAGS="$HDF5_CFLAGS $SP_CPPFLAGS $CPPFLAGS"
sp_hdf5_first=SP_FIRST_LIBRARY([$HDF5_LIBS])
sp_hdf5=no
AC_MSG_CHECKING([for parallel HDF5])
for sp_hdf5_libs in "$HDF5_LIBS" "$sp_hdf5_first"; do
  AS_IF([test $sp_hdf5 = yes], [break])
  LIBS="$sp_hdf5_libs $SP_LIBS $sp_save_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#include <hdf5.h>
#ifndef H5_HAVE_PARALLEL
#error serial HDF5
#endif
]], [[hid_t p = H5Pcreate(H5P_FILE_ACCESS);
return H5Pset_fapl_mpio(p, MPI_COMM_WORLD, MPI_INFO_NULL) < 0;]])],
    [sp_hdf5=yes
     HDF5_LIBS=$sp_hdf5_libs])
done
AC_MSG_RESULT([$sp_hdf5])
AS_IF([test $sp_hdf5 = no],
  [sp_required=
   AS_IF([test "x$PKG_CONFIG" != x && test $sp_have_hdf5 = unknown],
     [sp_required=`$PKG_CONFIG --errors-to-stdout --print-errors --exists hdf5-$sp_mpi |
        sed -n "s/^Package '\([[^']]*\)', required by .*/\1/p" | head -n 1`])
   AS_CASE([$with_hdf5],
     [yes|auto|no], [],
     [AC_MSG_WARN([--with-hdf5=$with_hdf5 has no parallel HDF5 of this MPI])])
   AS_CASE([$sp_required],
     [mpich|ompi*], [SP_MISSING([lib$sp_mpi-dev], [$sp_required], [MPI, which hdf5-$sp_mpi requires])],
     [?*], [SP_MISSING([lib$sp_required-dev], [$sp_required], [hdf5-$sp_mpi requires it])],
     [AS_IF([test "x$PKG_CONFIG" = x],
       [SP_MISSING([pkg-config], [itself], [configure finds the libraries with it])],
       [test $sp_have_mpi = yes || test $sp_have_hdf5 = unknown],
       [SP_MISSING([libhdf5-$sp_mpi-dev], [hdf5-$sp_mpi], [parallel HDF5; or give --with-hdf5=DIR])])])])
CPPFLAGS=$sp_save_CPPFLAGS
LIBS=$sp_save_LIBS
SP_CPPFLAGS="$SP_CPPFLAGS $HDF5_CFLAGS"
SP_LIBS="$SP_LIBS $HDF5_LIBS"
])
