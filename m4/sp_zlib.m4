# SP_CHECK_ZLIB: zlib, which unpacks compressed shards, by pkg-config.
#   Found elsewhere with PKG_CONFIG_PATH, or ZLIB_CFLAGS and ZLIB_LIBS.
AC_DEFUN([SP_CHECK_ZLIB], [
SP_PKG([ZLIB], [zlib], [>= 1.2.3], [zlib1g-dev], [compressed shards])
SP_CPPFLAGS="$SP_CPPFLAGS $ZLIB_CFLAGS"
SP_LIBS="$ZLIB_LIBS $SP_LIBS"
])
