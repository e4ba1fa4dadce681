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
grep -q 'sptrain:' jobs/mpijob.yaml || complain "jobs/mpijob.yaml names no image"
if python3 -c 'import ast' 2>/dev/null; then
    python3 -c 'import ast; ast.parse(open("packaging/spack/package.py").read())' || bad=1
fi
exit $bad
