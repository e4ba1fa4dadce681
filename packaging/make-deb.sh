#!/bin/sh
# Builds the Debian packages from an archive of `make dist`:
#   make-deb.sh ARCHIVE.tar.xz FOLDER [mpich|openmpi]
# The packages come into FOLDER. Needs dpkg-dev and debhelper. DEBFULLNAME and DEBEMAIL name
# who answers for them. The packages for Open MPI have the same names and the version
# VERSION+openmpi, so one of the two is installed at a time.
set -eu
archive=$(readlink -f "${1:?make-deb.sh ARCHIVE FOLDER [MPI]}")
folder=${2:?make-deb.sh ARCHIVE FOLDER [MPI]}
mpi=${3:-mpich}
case $mpi in
mpich | openmpi) ;;
*)
    echo "make-deb.sh: MPI $mpi: expected mpich or openmpi" >&2
    exit 2
    ;;
esac
command -v dpkg-buildpackage dh >/dev/null || {
    echo "make-deb.sh: dpkg-buildpackage or dh is missing: apt-get install dpkg-dev debhelper" >&2
    exit 2
}
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xf "$archive"
source=$(ls -d "$work"/*/)
debian=$source/debian
cp -R "$source/packaging/debian" "$debian"
version=$(sed -n "s/^PACKAGE_VERSION='\(.*\)'/\1/p" "$source/configure")
profiles=
[ "$mpi" = mpich ] || {
    profiles=pkg.sptrain.openmpi
    version=$version+openmpi
}
sed -i "1s/(.*)/($version)/" "$debian/changelog"
[ -z "${DEBEMAIL:-}" ] ||
    sed -i "/^Maintainer:\|^ -- / s|\(: \|-- \).*<.*>|\1${DEBFULLNAME:-$DEBEMAIL} <$DEBEMAIL>|" \
        "$debian/control" "$debian/changelog"
options=nocheck
[ -z "${DEB_BUILD_OPTIONS:-}" ] || options="$options $DEB_BUILD_OPTIONS"
(cd "$source" && DEB_BUILD_OPTIONS="$options" DEB_BUILD_PROFILES="$profiles" \
    dpkg-buildpackage -b -us -uc)
cp "$work"/*.deb "$folder"
ls "$folder"/*.deb
