# cmake [-D TRIPLES=<list> -D KERNELS=<build>/kernels -D ASSEMBLY=<folder of x86-64-linux's> -D EMITTED=<build>/emit
#       -D HALIDE_LICENSE=<file>] [-D PACKAGES=<list of folders>] -D JSON=<include folder> -D VERSION=…
#       -D STAGE=<folder> -D DESTINATION=<folder> -P dist.cmake
# Writes the source archive, halyard-<version>.tar.gz, with the triples' kernels as assembly and objects: to build it
# takes a C++ compiler and CMake alone. And for each package of ./run emit an archive of the sources with it in place of
# those. The same files give the same bytes.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/kernel_list.cmake)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)

# pack(<folder> <archive>): names in order, and nobody's name or time in it (1980, the oldest that zip could tell).
function(pack folder archive)
    cmake_path(GET folder PARENT_PATH parent)
    cmake_path(GET folder FILENAME name)
    execute_process(
        COMMAND tar -C ${parent} --format=gnu --sort=name --mtime=@315532800 --owner=0 --group=0 --numeric-owner
                    --mode=u=rwX,go=rX -cf - ${name}
        COMMAND gzip -9 -n
        OUTPUT_FILE ${archive}.part COMMAND_ERROR_IS_FATAL ANY)
    file(RENAME ${archive}.part ${archive})
    file(SIZE ${archive} n_bytes)
    message(STATUS "${archive}: ${n_bytes} bytes")
endfunction()

# copy_sources(<tree>): all but kernels.
function(copy_sources tree)
    foreach(path CMakeLists.txt LICENSE README.md CHANGELOG.md CONTRIBUTING.md)
        file(COPY ${root}/${path} DESTINATION ${tree})
    endforeach()
    file(COPY ${root}/bench/llama-3-8b.svg ${root}/bench/README.md DESTINATION ${tree}/bench)  # the README leads there
    file(COPY ${CMAKE_CURRENT_LIST_DIR}/CMakeLists.txt ${CMAKE_CURRENT_LIST_DIR}/kernels.cmake
        ${CMAKE_CURRENT_LIST_DIR}/kernel_list.cmake ${CMAKE_CURRENT_LIST_DIR}/gpu.cmake DESTINATION ${tree}/generators)
    foreach(folder runtime examples)
        file(COPY ${root}/${folder} DESTINATION ${tree}
            FILES_MATCHING REGEX "/(CMakeLists[.]txt|[^.][^/]*[.](c|cpp|h|hpp|md|map|in|cmake))$")
    endforeach()
    file(COPY ${JSON}/nlohmann DESTINATION ${tree}/third_party)
    file(COPY ${JSON}/../share/doc/nlohmann-json3-dev/copyright DESTINATION ${tree}/third_party/nlohmann)
endfunction()

file(REMOVE_RECURSE ${STAGE})
file(MAKE_DIRECTORY ${DESTINATION})
if(TRIPLES)
    set(tree ${STAGE}/halyard-${VERSION})
    copy_sources(${tree})
    foreach(triple IN LISTS TRIPLES)
        set(folder ${EMITTED}/${triple})
        if(triple STREQUAL "x86-64-linux")
            set(folder ${ASSEMBLY})
        endif()
        halyard_targets_of(${triple} targets)
        foreach(target IN LISTS targets)
            foreach(name IN LISTS HALYARD_NON_TEMPORAL_KERNELS_${target} HALYARD_KERNELS_${target})
                file(COPY ${folder}/${name}.s DESTINATION ${tree}/kernels/${triple})
            endforeach()
        endforeach()
    endforeach()
    # Those of GPUs are objects, as Halide's own runtime is, which it emits in no other form.
    foreach(target IN LISTS HALYARD_GPU_TARGETS)
        foreach(name IN LISTS HALYARD_KERNELS_${target})
            file(COPY ${KERNELS}/${name}.o DESTINATION ${tree}/kernels/x86-64-linux)
        endforeach()
    endforeach()
    file(COPY ${KERNELS}/halide_runtime.o DESTINATION ${tree}/kernels/x86-64-linux)
    file(COPY ${HALIDE_LICENSE} DESTINATION ${tree}/third_party/halide)
    pack(${tree} ${DESTINATION}/halyard-${VERSION}.tar.gz)
endif()

foreach(package IN LISTS PACKAGES)
    cmake_path(GET package FILENAME triple)
    set(tree ${STAGE}/halyard-${VERSION}-${triple})
    copy_sources(${tree})
    file(COPY ${package}/ DESTINATION ${tree}/kernels/${triple})
    pack(${tree} ${DESTINATION}/halyard-${VERSION}-${triple}.tar.gz)
endforeach()
file(REMOVE_RECURSE ${STAGE})
