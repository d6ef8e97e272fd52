"""For Spack: `spack dev-build -d SOURCE plimsoll@0.1.0`, with this folder as packages/plimsoll of a repository of yours."""

from spack.package import *


class Plimsoll(Package):
    """Finds where message processing should run on a machine, runs MPI programs over its message engine, and profiles them."""

    license("Apache-2.0 OR MIT", checked_by="the plimsoll authors")

    version("0.1.0")

    variant("bpf", default=True, description="Programs for driver hooks: needs a clang with the bpf target")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("python@3.11:", type="build")
    depends_on("llvm+clang targets=bpf", type="build", when="+bpf")
    depends_on("binutils", type="build")

    # Each crate that is shipped, and the program that writes manual pages.
    shipped = ("plimsoll", "plimsoll-offcode", "fabric", "mpi-profile", "manual")

    def setup_build_environment(self, env):
        # A clang of the system's would be found otherwise.
        env.set("CLANG", self.spec["llvm"].prefix.bin.clang if self.spec.satisfies("+bpf") else "no-clang")

    def install(self, spec, prefix):
        packages = [word for package in self.shipped for word in ("--package", package)]
        Executable("scripts/build")("build", "--locked", "--profile", "dist", *packages)
        Executable("scripts/licences")("target/dist")
        Executable("scripts/install-tree")("target/dist", prefix)

    def test_version(self):
        """the installed command says its version"""
        plimsoll = which(self.prefix.bin.plimsoll)
        assert str(self.spec.version) in plimsoll("--version", output=str)
