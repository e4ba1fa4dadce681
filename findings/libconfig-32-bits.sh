#!/bin/sh
# libconfig 1.5 reads an integer that needs more than 32 bits as its lower 32 bits, without an
# error, also if it is then looked up as an integer of 64 bits; with the suffix L it is right.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download libconfig9=1.5-0.4 libconfig-dev=1.5-0.4 >/dev/null 2>&1 || { echo "needs Debian 12's apt-get"; exit 77; }
for deb in *.deb; do dpkg -x "$deb" root; done
LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
echo "libconfig 1.5"
cat >read.c <<'C'
#include <libconfig.h>
#include <stdio.h>
int main(void)
{
    config_t config;
    long long plain = -1, suffixed = -1;

    config_init(&config);
    printf("read: %d\n", config_read_string(&config, "a = 4294967297; b = 4294967297L;"));
    config_lookup_int64(&config, "a", &plain);
    config_lookup_int64(&config, "b", &suffixed);
    printf("4294967297 is %lld, 4294967297L is %lld\n", plain, suffixed);
    config_destroy(&config);
    return 0;
}
C
gcc -Iroot/usr/include read.c -o read root/usr/lib/x86_64-linux-gnu/libconfig.so.9
./read | tee out
grep -qx '4294967297 is 1, 4294967297L is 4294967297' out || { echo 'this has changed'; exit 1; }
