#!/bin/sh
# Install what sptrain builds and tests with, on Debian and Ubuntu.
#   sh install-deps.sh          what the program and make check need
#   sh install-deps.sh --tests  also what the comparisons with Python, the job scripts
#                               (Slurm) and the network of two hosts use: without it
#                               those tests are skipped, and say so
# laspy (pip) is used where it is found, to compare the reading of LAS.
set -eu

need="build-essential pkg-config autoconf automake mpich libmpich-dev libhdf5-mpich-dev
  libconfig-dev libhwloc-dev libxxhash-dev libjansson-dev libcmocka-dev"
tests="python3 python3-numpy python3-h5py
  slurmctld slurmd slurm-client munge iproute2"
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo env DEBIAN_FRONTEND=noninteractive"
export DEBIAN_FRONTEND=noninteractive

$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $need
if [ "${1:-}" = --tests ]; then
    # shellcheck disable=SC2086
    $sudo apt-get install -y -qq --no-install-recommends $tests
fi
