"""For Spack: `spack repo add packaging/spack`, then `spack install varve`. It builds the clone that it lies in."""

import pathlib

from spack.package import *


class Varve(CMakePackage):
    """Checkpoint/restart for parallel scientific programs, which stores only what is new."""

    git = pathlib.Path(__file__).resolve().parents[4].as_uri()

    version("main", branch="main")

    variant("mpi", default=True, description="Ranks over MPI")
    variant("fortran", default=True, description="The Fortran modules")
    variant("python", default=False, description="The Python package")
    variant("hdf5", default=True, description="Read the layout of HDF5 files")
    variant("s3", default=True, description="Stores in buckets")
    variant("tls", default=True, description="Stores on servers over TCP")
    variant("hwloc", default=True, description="Find cores for checkpoint threads")
    variant("fuse", default=False, description="Mounts of stores")
    variant("metrics", default=False, description="Metrics over HTTP")
    variant("peers", default=True, when="+mpi", description="The functions of VELOC and SCR over Varve")
    variant("tar", default=False, description="Sets as tar archives")
    variant("toml", default=True, description="Options of a run in a file")
    variant("lz4", default=True, description="The fastest codec")
    variant("blake3", default=True, description="BLAKE3 scores (else SHA-256)")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.20:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("fmt")
    depends_on("nlohmann-json")
    depends_on("cli11@2:")
    depends_on("zstd")
    depends_on("xz")
    depends_on("isa-l")
    depends_on("libdeflate")
    depends_on("openssl")
    depends_on("mpi", when="+mpi")
    depends_on("hdf5~mpi", when="+hdf5")
    depends_on("curl@7.85:", when="+s3")
    depends_on("expat", when="+s3")
    depends_on("hwloc@2.1:2", when="+hwloc")
    depends_on("libfuse@3:", when="+fuse")
    depends_on("libmicrohttpd", when="+metrics")
    depends_on("libarchive", when="+tar")
    depends_on("tomlplusplus", when="+toml")
    depends_on("lz4", when="+lz4")
    depends_on("blake3", when="+blake3")
    extends("python@3.10:", when="+python")
    depends_on("py-pybind11@2.6:", type="build", when="+python")
    depends_on("py-numpy", type=("build", "run"), when="+python")

    conflicts("%gcc@:11", msg="C++20 as GCC 12 has it")

    def cmake_args(self):
        optional = ("mpi", "fortran", "python", "hdf5", "s3", "tls", "hwloc", "fuse", "metrics", "tar", "toml", "lz4",
                    "blake3")
        return [
            *(self.define_from_variant(f"VARVE_WITH_{name.upper()}", name) for name in optional),
            self.define("VARVE_WITH_PEERS", self.spec.satisfies("+peers")),
            self.define("VARVE_TESTS", False),
            self.define("VARVE_WITH_CHARTS", False),
        ]
