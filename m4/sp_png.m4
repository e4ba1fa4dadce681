# SP_CHECK_PNG: libpng, which writes pictures, by pkg-config. Without it everything works
#   but spvox view and the pictures of evaluations, which say so.
#   Found elsewhere with PKG_CONFIG_PATH, or PNG_CFLAGS and PNG_LIBS; left out with
#   --without-png.
#   Defines SP_WITH_PNG, sets HAVE_PNG.
AC_DEFUN([SP_CHECK_PNG], [
AC_ARG_WITH([png], [AS_HELP_STRING([--without-png], [leave out pictures])], [],
  [with_png=auto])
sp_png_summary="left out (--without-png)"
sp_have_png=no
AS_IF([test "x$with_png" != xno], [
  PKG_CHECK_MODULES([PNG], [libpng >= 1.6], [
    AC_DEFINE([SP_WITH_PNG], [1], [Define to 1 if pictures are written by libpng.])
    sp_png_summary="libpng"
    sp_have_png=yes
    SP_CPPFLAGS="$SP_CPPFLAGS $PNG_CFLAGS"
    SP_LIBS="$PNG_LIBS $SP_LIBS"
  ], [
    AS_IF([test "x$with_png" = xyes], [AC_MSG_ERROR([--with-png: no libpng found])])
    sp_png_summary="left out (no libpng)"
  ])
])
AM_CONDITIONAL([HAVE_PNG], [test $sp_have_png = yes])
])
