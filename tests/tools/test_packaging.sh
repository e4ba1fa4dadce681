#!/bin/sh
# The recipes of packaging/ agree with the build: every --with and --enable of configure is
# known to the Spack recipe or named here, versions are that of configure.ac, all of
# install-deps.sh's libraries are in each recipe, and the scripts are valid.
cd "${SP_SRCDIR-.}" || exit 1
bad=0
complain() {
    echo "$*"
    bad=1
}
version=$(sed -n 's/^AC_INIT(\[sptrain\], \[\([^]]*\)\].*/\1/p' configure.ac)
for file in packaging/debian/changelog packaging/spack/package.py packaging/conda/meta.yaml \
    packaging/modulefile jobs/mpijob.yaml; do
    grep -qF "$version" $file || complain "$file: not version $version"
done
for option in $(grep -ho 'AC_ARG_WITH(\[[a-z0-9-]*' m4/*.m4 configure.ac | sed 's/.*\[//'); do
    grep -q -- "--with-$option\|with_or_without(\"$option\")" packaging/spack/package.py ||
        complain "packaging/spack/package.py: --with-$option is not used"
done
for library in hdf5 hwloc libconfig jansson xxhash libpng libtiff; do
    for recipe in packaging/spack/package.py packaging/conda/meta.yaml packaging/debian/control; do
        grep -q "$(echo $library | sed 's/^lib//')" $recipe || complain "$recipe: no $library"
    done
    grep -q "$(echo $library | sed 's/^lib//')" install-deps.sh ||
        complain "install-deps.sh: no $library"
done
for script in packaging/*.sh packaging/conda/build.sh; do
    sh -n "$script" || complain "$script: not a valid script"
done
# One name of the image, in the recipe that builds it and wherever it is used.
for file in packaging/Dockerfile jobs/mpijob.yaml man/sptrain-clusters.7; do
    names=$(grep -o '[a-z.]*/*sptrain:[0-9][0-9.]*[0-9]' $file | sort -u)
    test "$names" = "sptrain:$version" || complain "$file: names of images: $names"
done
# Images take the MPI that packaging/README says, from the one list of packages.
for mpi in mpich openmpi; do
    grep -q "^$mpi) mpi=" install-deps.sh || complain "install-deps.sh: no --mpi=$mpi"
done
sh install-deps.sh --mpi=lam 2>/dev/null
test $? = 2 || complain "install-deps.sh takes --mpi=lam"
grep -q '^ARG MPI=' packaging/Dockerfile && grep -qF 'install-deps.sh ${MPI:+--mpi=$MPI}' packaging/Dockerfile ||
    complain "packaging/Dockerfile: no argument MPI"
grep -q '^    mpi=' packaging/sptrain.def && grep -qF 'install-deps.sh {{ mpi }}' packaging/sptrain.def ||
    complain "packaging/sptrain.def: no argument mpi"
# Programs of packages do not look for files in the folder that they were built in.
for recipe in packaging/debian/rules packaging/Dockerfile packaging/sptrain.def \
    packaging/conda/build.sh packaging/spack/package.py; do
    test "$(grep -o 'source_folder=' $recipe | grep -c .)" = 2 ||
        complain "$recipe: make and make install without source_folder="
done
if python3 -c 'import ast' 2>/dev/null; then
    python3 -c 'import ast; ast.parse(open("packaging/spack/package.py").read())' || bad=1
fi
exit $bad
