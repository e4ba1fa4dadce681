# SP_CHECK_LIBRARY: how libsptrain is made of the objects that the programs are linked from.
# Adds to SP_CFLAGS what lets one object serve both: code for any address, in which a call of
# a function of this project is a direct one. Sets OBJCOPY.
AC_DEFUN([SP_CHECK_LIBRARY], [
AC_CHECK_TOOL([OBJCOPY], [objcopy])
AC_CHECK_TOOL([LD], [ld])
sp_save_CFLAGS=$CFLAGS
SP_CFLAGS="$SP_CFLAGS -fPIC"
AC_MSG_CHECKING([whether $CC takes -fno-semantic-interposition])
CFLAGS="$CFLAGS -Werror -fno-semantic-interposition"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [sp_direct=yes], [sp_direct=no])
CFLAGS=$sp_save_CFLAGS
AC_MSG_RESULT([$sp_direct])
AS_IF([test $sp_direct = yes], [SP_CFLAGS="$SP_CFLAGS -fno-semantic-interposition"])
AM_CONDITIONAL([HAVE_LIBRARY], [test "x$OBJCOPY" != x && test "x$LD" != x])
AS_IF([test "x$OBJCOPY" != x], [sp_library_summary="libsptrain, static and shared"],
  [sp_library_summary="no libsptrain: needs objcopy and ld of binutils"])
])
