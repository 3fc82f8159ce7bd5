"""The four parts of flatout that are compiled; everything else about the package is in pyproject.toml."""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildExt(build_ext):
    """Passes what compilers that speak GCC's language need: speed, and no products fused with sums."""

    def build_extensions(self) -> None:
        """Compile, with those arguments where the compiler knows them."""
        if self.compiler.compiler_type != "msvc":
            for extension in self.extensions:
                extension.extra_compile_args = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
        super().build_extensions()


setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=[
        Extension(
            "flatout.native._native",
            ["src/flatout/native/native.c"],
            py_limited_api=True,  # one build for all Pythons from 3.11 on
            optional=True,  # without a compiler flatout installs all the same, and Pillow and torch do the work
        ),
        Extension(
            "flatout.watch.memory._memory",
            ["src/flatout/watch/memory/memory.c"],
            py_limited_api=True,
            optional=True,  # without it nothing tells cheaply whether a data set has changed: nothing is kept
        ),
        Extension(
            "flatout.probe._ticks",
            ["src/flatout/probe/ticks.c"],
            py_limited_api=True,
            optional=True,  # a thread of Python samples lines then, which under-counts plain Python
        ),
        Extension(
            "flatout.optimizers._steps",
            ["src/flatout/optimizers/steps.c"],
            py_limited_api=True,
            optional=True,  # the fix that needs it is not offered then
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
