# SP_CHECK_LIBRARIES: the smaller libraries, all by pkg-config.
#   libconfig (decks), libxxhash (hashes; compiled in, not linked), jansson (reading JSON),
#   cmocka (unit tests; without it make check runs the whole-program tests only)
AC_DEFUN([SP_CHECK_LIBRARIES], [
SP_PKG([LIBCONFIG], [libconfig], [>= 1.5], [libconfig-dev], [decks])
SP_PKG([XXHASH], [libxxhash], [], [libxxhash-dev], [hashes])
SP_PKG([JANSSON], [jansson], [>= 2.10], [libjansson-dev], [reading JSON])
PKG_CHECK_MODULES([CMOCKA], [cmocka >= 1.1],
  [sp_have_cmocka=yes; sp_cmocka_summary="cmocka"],
  [sp_have_cmocka=no; sp_cmocka_summary="left out (no cmocka)"])
AM_CONDITIONAL([HAVE_CMOCKA], [test $sp_have_cmocka = yes])
SP_CPPFLAGS="$SP_CPPFLAGS $LIBCONFIG_CFLAGS $XXHASH_CFLAGS $JANSSON_CFLAGS"
SP_LIBS="$LIBCONFIG_LIBS $JANSSON_LIBS $SP_LIBS"
dnl Not searched for: with -Werror the declaration that this takes fails to compile.
LIBS="-lm $LIBS"
AC_SEARCH_LIBS([pthread_create], [pthread])
AC_SEARCH_LIBS([dlopen], [dl])
])
