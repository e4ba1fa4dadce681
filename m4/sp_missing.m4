# SP_MISSING(PACKAGE, PKG-CONFIG-NAME, NEED): remember that something is not there; PACKAGE is
# Debian's name, NEED says what needs it. Configure goes on, so that one run finds all.
AC_DEFUN([SP_MISSING], [
AS_CASE(["$sp_missing"], [*"missing: $1 "*], [],
  [sp_missing="${sp_missing}missing: $1 (pkg-config $2): $3
"])
])

# SP_PKG(VARIABLE, PKG-CONFIG-NAME, VERSION, PACKAGE, NEED): a library that must be there.
#   VERSION is a condition such as ">= 2.0", or empty.
#   Sets VARIABLE_CFLAGS and VARIABLE_LIBS, which the user can set too.
AC_DEFUN([SP_PKG], [
PKG_CHECK_MODULES([$1], m4_normalize([[$2 $3]]), [],
  [AS_IF([test "x$PKG_CONFIG" = x],
    [SP_MISSING([pkg-config], [itself], [configure finds the libraries with it])],
    [SP_MISSING([$4], [$2], [$5])])])
])

# SP_REPORT_MISSING: name all that SP_MISSING remembered, one line each, and end.
AC_DEFUN([SP_REPORT_MISSING], [
AS_IF([test "x$sp_missing" != x],
  [AS_ECHO_N(["$sp_missing"]) >&2
   AS_ECHO_N(["$sp_missing"]) >&AS_MESSAGE_LOG_FD
   AC_MSG_ERROR([not all that is needed was found: run install-deps.sh, or see the lines above])])
])
