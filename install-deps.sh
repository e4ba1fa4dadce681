#!/bin/sh
# Install what sptrain builds and tests with, on Debian and Ubuntu.
#   sh install-deps.sh          what the program and make check need
#   sh install-deps.sh --tests  also what the comparisons with Python, the job scripts
#                               (Slurm) and the network of two hosts use: without it
#                               those tests are skipped, and say so; and ccache, which
#                               .ci/run builds with
#   sh install-deps.sh --mpi=mpich|openmpi    the MPI; it may stand before --tests
# laspy (pip) is used if it is found, to compare the reading of LAS.
# The MPI is MPICH, but Open MPI on Ubuntu 24.04, whose MPICH was built for launchers that
# speak PMIx and has mpiexec without it: each rank would see a world of one.
set -eu

mpi=mpich
if grep -qs '^ID=ubuntu' /etc/os-release && grep -qs '^VERSION_ID="24.04' /etc/os-release; then
    mpi=openmpi
fi
case ${1:-} in
--mpi=*)
    mpi=${1#--mpi=}
    shift
    ;;
esac
case $mpi in
mpich) mpi="mpich libmpich-dev libhdf5-mpich-dev" ;;
openmpi) mpi="openmpi-bin libopenmpi-dev libhdf5-openmpi-dev" ;;
*)
    echo "install-deps.sh: --mpi=$mpi: expected mpich or openmpi" >&2
    exit 2
    ;;
esac
need="build-essential pkg-config autoconf automake $mpi
  libpng-dev libtiff-dev libconfig-dev libhwloc-dev libxxhash-dev libjansson-dev libcmocka-dev"
tests="python3 python3-numpy python3-h5py ccache codespell
  slurmctld slurmd slurm-client munge iproute2"
[ "${1:-}" != --tests ] || need="$need $tests"

# Packages that are installed already need neither the network nor the rights of root.
missing=
for package in $need; do
    case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
    *' ok installed') ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

export DEBIAN_FRONTEND=noninteractive
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "install-deps.sh: without sudo only root can do this:" \
            "apt-get install --no-install-recommends$missing" >&2
        exit 1
    }
    sudo="sudo env DEBIAN_FRONTEND=noninteractive"
fi
# A list that does not come, of somebody else's packages perhaps, is said and is no end.
$sudo apt-get update -qq || echo "install-deps.sh: going on with the lists there are" >&2
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=600 $missing
