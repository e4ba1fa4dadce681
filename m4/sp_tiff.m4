# SP_CHECK_TIFF: libtiff, which writes the maps of sptrain label --raster, by pkg-config.
#   Without it everything works but --raster, which says so.
#   Found elsewhere with PKG_CONFIG_PATH, or TIFF_CFLAGS and TIFF_LIBS; left out with
#   --without-tiff.
#   Defines SP_WITH_TIFF, sets HAVE_TIFF and, for the programs only, TIFF_LIBS.
AC_DEFUN([SP_CHECK_TIFF], [
AC_ARG_WITH([tiff], [AS_HELP_STRING([--without-tiff], [leave out maps (GeoTIFF)])], [],
  [with_tiff=auto])
sp_tiff_summary="left out (--without-tiff)"
sp_have_tiff=no
AS_IF([test "x$with_tiff" != xno], [
  PKG_CHECK_MODULES([TIFF], [libtiff-4 >= 4.0], [
    AC_DEFINE([SP_WITH_TIFF], [1], [Define to 1 if maps are written by libtiff.])
    sp_tiff_summary="libtiff"
    sp_have_tiff=yes
    SP_CPPFLAGS="$SP_CPPFLAGS $TIFF_CFLAGS"
  ], [
    AS_IF([test "x$with_tiff" = xyes], [AC_MSG_ERROR([--with-tiff: no libtiff found])])
    sp_tiff_summary="left out (no libtiff)"
  ])
])
AM_CONDITIONAL([HAVE_TIFF], [test $sp_have_tiff = yes])
])
