# cmake -D CHECK=<name> -D … -P test_packages.cmake: builds programs as users would, and compares what they print with
# what the README says. A line that begins with SKIP says that a check could not be made, and why.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/run_command.cmake)

# expect_output(<command>...): that it prints the rows of the README's example.
file(READ ${EXPECTED} expected)
function(expect_output)
    run_command(text ${ARGN})
    if(NOT text STREQUAL expected)
        message(FATAL_ERROR "${ARGN} printed\n${text}instead of\n${expected}")
    endif()
endfunction()

# build_consumer(<folder> <option>...): configures and builds tests/consumer.
set(own_tools -G ${GENERATOR} -D CMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -D CMAKE_C_COMPILER=${C_COMPILER})
set(own_cxx -D CMAKE_CXX_COMPILER=${CXX_COMPILER} -D README_EXAMPLE=${README_EXAMPLE})
if(CROSSCOMPILING)
    list(APPEND own_cxx -D CMAKE_SYSTEM_NAME=${SYSTEM_NAME} -D CMAKE_SYSTEM_PROCESSOR=${SYSTEM_PROCESSOR})
endif()
set(without_packages -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -D CMAKE_DISABLE_FIND_PACKAGE_Halide=ON)
function(build_consumer folder)
    file(REMOVE_RECURSE ${folder})
    run_command(unused ${CMAKE_COMMAND} -S ${SOURCE_DIR}/consumer -B ${folder} ${own_tools} ${ARGN})
    run_command(unused ${CMAKE_COMMAND} --build ${folder} --parallel 2)
endfunction()

# Installed by components, and moved: the tests that follow find it at its new place.
set(prefix ${SCRATCH}/prefix)
set(library_dir ${prefix}/${LIBDIR})
set(here ${SCRATCH}/${CHECK})
if(CHECK STREQUAL "install")
    file(REMOVE_RECURSE ${prefix} ${prefix}.before)
    set(n_before 0)
    foreach(component IN LISTS COMPONENTS)
        run_command(unused ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix}.before --component ${component})
        file(GLOB_RECURSE files ${prefix}.before/*)
        list(LENGTH files n)
        if(n EQUAL n_before)
            message(FATAL_ERROR "the component ${component} is empty")
        endif()
        set(n_before ${n})
    endforeach()
    run_command(unused ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
    file(GLOB_RECURSE all RELATIVE ${prefix} ${prefix}/*)
    file(GLOB_RECURSE parts RELATIVE ${prefix}.before ${prefix}.before/*)
    if(NOT all STREQUAL parts)
        message(FATAL_ERROR "the components together are not the whole:\n${parts}\n${all}")
    endif()
    foreach(file IN LISTS all)
        if(file MATCHES "[.](cmake|pc)$")
            file(STRINGS ${prefix}/${file} paths REGEX "(${prefix}|${BUILD_DIR}|nlohmann)")
            if(paths)
                message(FATAL_ERROR "${file} has a path of this machine, or a dependency of the build: ${paths}")
            endif()
        endif()
    endforeach()
    file(REMOVE_RECURSE ${prefix})
    file(RENAME ${prefix}.before ${prefix})

elseif(CHECK MATCHES "^find_package_(static|shared)$")
    set(shared OFF)
    if(CHECK MATCHES "shared")
        set(shared ON)
    endif()
    build_consumer(${here} ${own_cxx} -D CMAKE_PREFIX_PATH=${prefix} -D BUILD_SHARED_LIBS=${shared})
    expect_output(${here}/consumer_c)
    expect_output(${here}/consumer_cpp)
    run_command(text ${READELF} -dW ${here}/consumer_cpp)
    if(shared AND NOT text MATCHES "libhalyard[.]so[.]${SOVERSION}\\]" OR NOT shared AND text MATCHES "libhalyard")
        message(FATAL_ERROR "consumer_cpp was not linked with the ${CHECK} library:\n${text}")
    endif()

elseif(CHECK STREQUAL "find_package_readme")
    build_consumer(${here} ${own_cxx} -D CMAKE_PREFIX_PATH=${prefix} -D README_CMAKE=${README_CMAKE})
    expect_output(${here}/app)

elseif(CHECK STREQUAL "find_package_c_alone")
    build_consumer(${here} -D CMAKE_PREFIX_PATH=${prefix} -D LANGUAGES=C)
    expect_output(${here}/consumer_c)

elseif(CHECK STREQUAL "find_package_lto")
    build_consumer(${here} ${own_cxx} -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_INTERPROCEDURAL_OPTIMIZATION=ON
                   -D CMAKE_BUILD_TYPE=Release)
    expect_output(${here}/consumer_c)
    expect_output(${here}/consumer_cpp)

# An older version or a component that is not there is refused.
elseif(CHECK STREQUAL "find_package_refuses")
    foreach(wanted "0.0" "0.2" "0.1 COMPONENTS tpu")
        file(WRITE ${here}/CMakeLists.txt
            "cmake_minimum_required(VERSION 3.25)\nproject(p C)\nfind_package(halyard ${wanted} CONFIG REQUIRED)\n")
        execute_process(COMMAND ${CMAKE_COMMAND} -S ${here} -B ${here}/build ${own_tools}
                                -D CMAKE_PREFIX_PATH=${prefix}
                        RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE errors)
        if(status EQUAL 0 OR NOT errors MATCHES "halyard")
            message(FATAL_ERROR "find_package(halyard ${wanted}) was not refused: ${errors}")
        endif()
    endforeach()

elseif(CHECK STREQUAL "another_halide_runtime")
    build_consumer(${here} ${own_cxx} -D CMAKE_PREFIX_PATH=${prefix} -D OTHER_RUNTIME=${OTHER_RUNTIME})
    build_consumer(${here}_shared ${own_cxx} -D CMAKE_PREFIX_PATH=${prefix} -D OTHER_RUNTIME=${OTHER_RUNTIME}
                   -D BUILD_SHARED_LIBS=ON)
    foreach(folder ${here} ${here}_shared)
        run_command(text ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${FAKE_CUDA_DIR} ${folder}/consumer_gpu)
        if(NOT text STREQUAL "heard 1\n")
            message(FATAL_ERROR "another Halide runtime in the program was disturbed: it ${text}")
        endif()
    endforeach()

# Of the checkout: it configures, and says which targets it cannot build.
elseif(CHECK STREQUAL "add_subdirectory")
    set(configure ${CMAKE_COMMAND} -S ${SOURCE_DIR}/consumer -B ${here} ${own_tools} ${own_cxx}
        -D HALYARD_SOURCE_DIR=${PROJECT_DIR} -D Halide_DIR=${HALIDE_DIR} -D CMAKE_PREFIX_PATH=${PREFIX_PATH})
    foreach(targets x86_sse41,x86_avx3 x86_sse41,cuda_sm80 arm_neon)
        file(REMOVE_RECURSE ${here})
        string(REPLACE "," ";" list ${targets})
        execute_process(COMMAND ${configure} -D "HALYARD_TARGETS=${list}"
                        RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE errors)
        if(status EQUAL 0 OR NOT errors MATCHES "HALYARD_TARGETS holds (\"(x86_avx3|cuda_sm80)\", which is )?none of")
            message(FATAL_ERROR "HALYARD_TARGETS took ${targets}: ${errors}")
        endif()
    endforeach()
    run_command(unused ${configure} -D HALYARD_TARGETS=reference)

# Made twice, with the same bytes; then built by add_subdirectory where neither Halide nor nlohmann_json can be found, and
# with the kernels of one target.
elseif(CHECK STREQUAL "source_archive")
    file(REMOVE_RECURSE ${here})
    foreach(i 1 2)
        run_command(unused ${CMAKE_COMMAND} -D TRIPLES=x86-64-linux -D KERNELS=${KERNELS} -D EMITTED=${EMITTED}
                    -D ASSEMBLY=${KERNELS} -D JSON=${JSON} -D VERSION=${VERSION} -D HALIDE_LICENSE=${HALIDE_LICENSE}
                    -D STAGE=${here}/stage${i} -D DESTINATION=${here}/${i} -P ${DIST})
        file(SHA256 ${here}/${i}/halyard-${VERSION}.tar.gz digest${i})
    endforeach()
    if(NOT digest1 STREQUAL digest2)
        message(FATAL_ERROR "the same files gave two source archives: ${digest1} and ${digest2}")
    endif()
    file(ARCHIVE_EXTRACT INPUT ${here}/1/halyard-${VERSION}.tar.gz DESTINATION ${here})
    find_program(MAKE NAMES gmake make)
    if(MAKE)  # as users have it; what its targets lack, Ninja finds all the same
        set(own_tools -G "Unix Makefiles" -D CMAKE_MAKE_PROGRAM=${MAKE} -D CMAKE_C_COMPILER=${C_COMPILER})
    endif()
    build_consumer(${here}/build ${own_cxx} -D HALYARD_SOURCE_DIR=${here}/halyard-${VERSION} -D HALYARD_BUILD_GPU=ON
                   -D "HALYARD_TARGETS=x86_sse41\;arm_neon" ${without_packages})
    expect_output(${here}/build/consumer_c)
    expect_output(${here}/build/consumer_cpp)
    run_command(symbols ${NM} ${here}/build/consumer_cpp)
    string(REGEX MATCHALL " halyard_rotate_half_f32_x86_[a-z0-9]+\n" kernels "${symbols}")
    if(NOT kernels STREQUAL " halyard_rotate_half_f32_x86_sse41\n")
        message(FATAL_ERROR "the library was to have the kernels of x86_sse41, and has: ${kernels}")
    endif()

    foreach(text README.md CONTRIBUTING.md CHANGELOG.md runtime/README.md)
        file(READ ${here}/halyard-${VERSION}/${text} links)
        string(REGEX REPLACE "[][;]" "|" links "${links}")  # which have a meaning in lists
        string(REGEX MATCHALL "\\|\\([^)#:]+\\)" links "${links}")
        cmake_path(GET text PARENT_PATH folder)
        foreach(link IN LISTS links)
            string(REGEX REPLACE "[|()]" "" link "${link}")
            if(NOT EXISTS ${here}/halyard-${VERSION}/${folder}/${link})
                message(FATAL_ERROR "the source archive lacks ${link}, where ${text} leads")
            endif()
        endforeach()
    endforeach()

# The archive of this build's own triple: made twice, then built like the other.
elseif(CHECK STREQUAL "triple_archive")
    find_program(LLVM_AR llvm-ar-19)
    if(NOT LLVM_AR)
        message("SKIP: llvm-ar-19 is not installed (Debian: llvm-19)")
        return()
    endif()
    file(REMOVE_RECURSE ${here})
    foreach(i 1 2)
        run_command(unused ${CMAKE_COMMAND} -D TRIPLE=${TRIPLE} -D OBJECTS=${KERNELS} -D VERSION=${VERSION}
                    -D HALIDE_VERSION=${HALIDE_VERSION} -D STAGE=${here}/stage -D DESTINATION=${here}/${TRIPLE}
                    -P ${PACKAGE})
        run_command(unused ${CMAKE_COMMAND} -D PACKAGES=${here}/${TRIPLE} -D JSON=${JSON} -D VERSION=${VERSION}
                    -D STAGE=${here}/stage -D DESTINATION=${here}/${i} -P ${DIST})
        file(SHA256 ${here}/${i}/halyard-${VERSION}-${TRIPLE}.tar.gz digest${i})
    endforeach()
    if(NOT digest1 STREQUAL digest2)
        message(FATAL_ERROR "the same files gave two archives: ${digest1} and ${digest2}")
    endif()
    file(ARCHIVE_EXTRACT INPUT ${here}/1/halyard-${VERSION}-${TRIPLE}.tar.gz DESTINATION ${here})
    build_consumer(${here}/build ${own_cxx} -D HALYARD_SOURCE_DIR=${here}/halyard-${VERSION}-${TRIPLE}
                   ${without_packages})
    expect_output(${EMULATOR} ${here}/build/consumer_c)
    expect_output(${EMULATOR} ${here}/build/consumer_cpp)
    run_command(symbols ${NM} ${here}/build/consumer_cpp)
    if(NOT symbols MATCHES " halyard_rotate_half_f32_(x86_avx2|arm_neon)\n")
        message(FATAL_ERROR "the program lacks the kernels of the archive: ${symbols}")
    endif()

# Kernels for several devices in one library: each CPU takes its own, and else the default.
elseif(CHECK STREQUAL "several_devices")
    file(REMOVE_RECURSE ${here})
    foreach(part CMakeLists.txt generators runtime)
        file(COPY ${PROJECT_DIR}/${part} DESTINATION ${here}/halyard)
    endforeach()
    set(HALYARD_HALIDE_VERSION ${HALIDE_VERSION})
    include(${here}/halyard/generators/kernel_list.cmake)
    include(${here}/halyard/generators/schedules.cmake)
    halyard_target_string(arm-64-linux arm_neon target)
    foreach(tuned cortex_a53/half/elements_per_step=32 neoverse_n1/half/elements_per_step=64
                  cortex_a72/strided/elements_per_step_any=8)
        string(REGEX MATCH "^(.*)/(.*)/(.*)=(.*)$" unused ${tuned})
        set(device ${CMAKE_MATCH_1})
        set(kernel halyard_rotate_${CMAKE_MATCH_2}_f32_arm_neon)
        set(parameters ${HALYARD_GENERATOR_${kernel}})
        list(TRANSFORM parameters REPLACE "^${CMAKE_MATCH_3}=.*" "${CMAKE_MATCH_3}=${CMAKE_MATCH_4}")
        list(JOIN HALYARD_PARAMETERS "|" names)
        list(FILTER parameters INCLUDE REGEX "^(${names})=")
        list(TRANSFORM parameters REPLACE "(.*)=(.*)" "\"\\1\": \\2")
        list(JOIN parameters ", " parameters)
        set(schedule "{\"schema\": 2, \"checksum\": \"\", \"kernel\": \"${kernel}\", \"kind\": \"modelled\",
            \"device\": {\"name\": \"${device}\"}, \"halide\": \"${HALIDE_VERSION}\", \"target\": \"${target}\",
            \"generators\": \"${HALYARD_GENERATORS_HASH}\", \"parameters\": {${parameters}}}")
        string(SHA256 checksum "${schedule}")
        string(REPLACE "\"checksum\": \"\"" "\"checksum\": \"${checksum}\"" schedule "${schedule}")
        file(WRITE ${here}/halyard/generators/schedules/${kernel}.${device}.json "${schedule}")
    endforeach()
    file(WRITE ${here}/explain.cpp "#include <halyard/halyard.hpp>
        #include <cstdio>
        int main() {
            const auto tensor = halyard::describe_tensor(halyard::dtype::f32, 128);
            std::puts(halyard::explain(halyard::describe_plan(128, {tensor})).c_str());
        }")
    # A list in a list that two functions take apart.
    build_consumer(${here}/build ${own_cxx} -D README_EXAMPLE=${here}/explain.cpp -D CMAKE_PREFIX_PATH=${PREFIX_PATH}
                   -D HALYARD_SOURCE_DIR=${here}/halyard -D HALYARD_HOST_BUILD=${HOST_BUILD}
                   -D "HALYARD_SCHEDULES=cortex_a53\\\\;neoverse_n1\\\\;cortex_a72")
    foreach(taken cortex-a53/half_f32_cortex_a53/strided_f32 neoverse-n1/half_f32_neoverse_n1/strided_f32
                  cortex-a72/half_f32/strided_f32_cortex_a72 cortex-a57/half_f32/strided_f32)
        string(REGEX MATCH "^(.*)/(.*)/(.*)$" unused ${taken})
        set(emulator ${EMULATOR} -cpu ${CMAKE_MATCH_1})
        run_command(text ${emulator} ${here}/build/consumer_cpp)
        foreach(kernel ${CMAKE_MATCH_2} ${CMAKE_MATCH_3})
            if(NOT text MATCHES "[*] halyard_rotate_${kernel}_arm_neon: taken")
                message(FATAL_ERROR "on ${taken} another kernel is taken:\n${text}")
            endif()
        endforeach()
        expect_output(${emulator} ${here}/build/consumer_c)
    endforeach()

elseif(CHECK STREQUAL "pkg_config")
    find_program(PKG_CONFIG pkg-config)
    if(NOT PKG_CONFIG)
        message("SKIP: pkg-config is not installed")
        return()
    endif()
    file(MAKE_DIRECTORY ${here})
    set(pkg_config ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${library_dir}/pkgconfig ${PKG_CONFIG})
    foreach(name halyard halyard_gpu)
        if(NOT EXISTS ${library_dir}/pkgconfig/${name}.pc)
            continue()
        endif()
        run_command(shared ${pkg_config} --cflags --libs "${name} = ${VERSION}")
        run_command(static ${pkg_config} --static --cflags --libs ${name})
        separate_arguments(shared UNIX_COMMAND "${shared}")
        separate_arguments(static UNIX_COMMAND "${static}")
        set(compile ${C_COMPILER} -std=c11 ${SOURCE_DIR}/consumer/consumer.c -Wl,--no-undefined)
        run_command(unused ${compile} -o ${here}/${name}_shared ${shared})
        expect_output(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${library_dir} ${here}/${name}_shared)
        run_command(unused ${compile} -o ${here}/${name}_static -static ${static})
        expect_output(${here}/${name}_static)
    endforeach()

elseif(CHECK STREQUAL "dlopen")
    file(MAKE_DIRECTORY ${here})
    run_command(unused ${C_COMPILER} -std=c11 -D DLOPEN -I ${prefix}/include ${SOURCE_DIR}/consumer/consumer.c
                -o ${here}/consumer -ldl)
    expect_output(${here}/consumer ${library_dir}/libhalyard.so.${SOVERSION})

else()
    message(FATAL_ERROR "there is no check named ${CHECK}")
endif()
