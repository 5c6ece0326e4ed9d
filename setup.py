"""Builds the compiled module nativepath.native, which is optional: without Cython, a compiler or Python's headers everything
else is installed, and works."""

from __future__ import annotations

import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

OLDEST_PYTHON = "0x030B0000"
"""One build serves this one, 3.11, and all later ones."""


class BuildOptional(build_ext):
    """Leaves out what cannot be compiled here."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except (CCompilerError, ExecError, PlatformError, OSError) as error:
            print(f"nativepath.native is left out, which costs speed alone: {error}", file=sys.stderr)
            self.extensions = []


def modules() -> list[Extension]:
    if cythonize is None:
        return []
    native = Extension(
        "nativepath.native",
        ["nativepath/native.pyx"],
        define_macros=[("Py_LIMITED_API", OLDEST_PYTHON)],
        extra_compile_args=["-O2"],
        py_limited_api=True,
    )
    found: list[Extension] = cythonize([native], include_path=["nativepath"], quiet=True)
    return found


setup(
    ext_modules=modules(),
    cmdclass={"build_ext": BuildOptional},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
