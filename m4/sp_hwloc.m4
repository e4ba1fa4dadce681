# SP_CHECK_HWLOC: hwloc (which cores there are, and what is near them), by pkg-config.
#   Found elsewhere with PKG_CONFIG_PATH, or HWLOC_CFLAGS and HWLOC_LIBS.
AC_DEFUN([SP_CHECK_HWLOC], [
SP_PKG([HWLOC], [hwloc], [>= 2.0], [libhwloc-dev], [which cores a rank has])
SP_CPPFLAGS="$SP_CPPFLAGS $HWLOC_CFLAGS"
SP_LIBS="$HWLOC_LIBS $SP_LIBS"
])
