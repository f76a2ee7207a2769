"""Conan's recipe for Halyard. In an unpacked source archive: conan create packages/conan"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

ROOT = os.path.join("..", "..")


class Halyard(ConanFile):
    name = "halyard"
    package_type = "static-library"  # and the shared one, which CMake takes with BUILD_SHARED_LIBS
    license = "MIT"
    description = "Rotary position embedding (RoPE) for inference engines"
    topics = ("rope", "rotary-embedding", "inference", "simd", "halide")
    settings = "os", "arch", "compiler", "build_type"
    options = {"gpu": [True, False]}
    default_options = {"gpu": False}

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, ROOT, "runtime/include/halyard/halyard.h"))
        self.version = ".".join(re.findall(r"#define HALYARD_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)", header))

    def validate(self):
        check_min_cppstd(self, 20)

    def export_sources(self):
        copy(self, "*", os.path.join(self.recipe_folder, ROOT), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["HALYARD_BUILD_GPU"] = bool(self.options.gpu)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package has files of its own for CMake
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "halyard")]
        self.cpp_info.libs = ["halyard_gpu", "halyard"] if self.options.gpu else ["halyard"]
        self.cpp_info.system_libs = ["pthread", "m", "dl"]
