# SP_CHECK_ZLIB: zlib, which unpacks compressed shards, by pkg-config.
#   Found elsewhere with PKG_CONFIG_PATH, or ZLIB_CFLAGS and ZLIB_LIBS.
AC_DEFUN([SP_CHECK_ZLIB], [
PKG_CHECK_MODULES([ZLIB], [zlib >= 1.2.3])
SP_CPPFLAGS="$SP_CPPFLAGS $ZLIB_CFLAGS"
SP_LIBS="$ZLIB_LIBS $SP_LIBS"
])
