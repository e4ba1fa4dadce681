"""Recipe of sptrain for Spack 1.0 and later: copy it to a repository's
packages/sptrain/package.py. test_packaging.sh compares the variants with the options of
configure."""

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Sptrain(AutotoolsPackage, CudaPackage):
    """Trains sparse 3D convolutional networks for semantic segmentation of point clouds,
    on any number of MPI ranks."""

    # Give the archive of `make dist`: spack install sptrain@0.1.0, with its URL here.
    manual_download = True

    version("0.1.0")

    variant("png", default=True, description="Draw pictures")
    variant("tiff", default=True, description="Write maps as GeoTIFF")
    # CudaPackage has the variants cuda and cuda_arch.

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10: +mpi")
    depends_on("hwloc@2:")
    depends_on("libconfig")
    depends_on("jansson@2.10:")
    depends_on("xxhash")
    depends_on("libpng", when="+png")
    depends_on("libtiff", when="+tiff")
    # The program opens it at run time, on the path that linking records.
    depends_on("nccl", when="+cuda")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"nccl cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    depends_on("cmocka@1.1:", type="test")

    # The folder that it is built in is gone afterwards.
    build_targets = ["all", "source_folder="]
    install_targets = ["install", "source_folder="]

    def configure_args(self):
        args = self.with_or_without("png")
        args += self.with_or_without("tiff")
        args.append("--with-hdf5=" + self.spec["hdf5"].prefix)
        if self.spec.satisfies("^[virtuals=mpi] openmpi"):
            args.append("--with-mpi=openmpi")
        if self.spec.satisfies("+cuda"):
            args.append("--with-cuda=" + self.spec["cuda"].prefix)
            archs = [a for a in self.spec.variants["cuda_arch"].value if a != "none"]
            if archs:
                args.append("--with-cuda-arch=" + " ".join(archs))
        else:
            args.append("--without-cuda")
        return args
