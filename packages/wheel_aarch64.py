"""wheel_aarch64.py HOST_BUILD SYSROOT DESTINATION: cross-compiles the Python package for AArch64 Linux, and tests it.

HOST_BUILD is the build folder that has the kernels. SYSROOT is a root file system with an AArch64 Python, of the version
that runs this script, and its headers; SYSROOT/wheels has the packages that tests need. TESTS, which need only NumPy and
ml_dtypes, run under qemu.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TESTS = ["test_cases.py", "test_rotate.py", "test_errors.py", "test_frequencies.py", "test_linear_angles.py",
         "test_prepare.py", "records/test_groups.py"]


def build_wheel(host_build, sysroot, folder):
    """Builds the wheel and returns its path. scikit-build-core names a wheel by the environment variables set here."""
    soabi = f"cpython-{VERSION.replace('.', '')}-aarch64-linux-gnu"
    defined = {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "aarch64", "HALYARD_HOST_BUILD": host_build,
               "CMAKE_C_COMPILER": "aarch64-linux-gnu-gcc", "CMAKE_CXX_COMPILER": "aarch64-linux-gnu-g++",
               "CMAKE_CXX_FLAGS": f"-I{sysroot}/usr/include", "Python_INCLUDE_DIR": f"{sysroot}/usr/include/python{VERSION}",
               "Python_SOABI": soabi}
    options = [option for name, value in defined.items() for option in ("-C", f"cmake.define.{name}={value}")]
    shutil.rmtree(folder, ignore_errors=True)
    suffix = ".abi3.so" if sys.version_info >= (3, 12) else f".{soabi}.so"
    subprocess.run([sys.executable, "-I", "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "--quiet",
                    "--disable-pip-version-check", "-w", folder, "-C", f"build-dir={folder}/build", *options], check=True,
                   env=os.environ | {"_PYTHON_HOST_PLATFORM": "linux-aarch64", "SETUPTOOLS_EXT_SUFFIX": suffix})
    return next(folder.glob("*.whl"))


def test(wheels, sysroot, folder):
    """Runs TESTS by the AArch64 Python, under qemu."""
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(folder)
    libraries = f"{sysroot}/usr/lib/aarch64-linux-gnu:{sysroot}/lib/aarch64-linux-gnu"
    paths = f"{folder}:{sysconfig.get_path('purelib')}"
    subprocess.run(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={libraries}", "-E",
                    f"PYTHONHOME={sysroot}/usr", "-E", f"PYTHONPATH={paths}", f"{sysroot}/usr/bin/python{VERSION}", "-m",
                    "pytest", "-q", "-p", "no:cacheprovider", *(ROOT / "python/tests" / name for name in TESTS)], check=True)


def main(host_build, sysroot, destination):
    host_build, sysroot = pathlib.Path(host_build).resolve(), pathlib.Path(sysroot).resolve()
    folder = ROOT / "build/wheel-aarch64"
    wheel = build_wheel(host_build, sysroot, folder)
    test([wheel, *(sysroot / "wheels").glob("*.whl")], sysroot, folder / "site")
    subprocess.run([sys.executable, "-I", "-m", "auditwheel", "repair", "-w", destination, wheel], check=True)


main(*sys.argv[1:])
