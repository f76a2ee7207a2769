# cmake -D CHECK=<name> -D … -P test_library.cmake: looks at what was built, as a linker or a disassembler would.
# A line that begins with SKIP says that a check could not be made, and why; CTest shows it as skipped.
cmake_minimum_required(VERSION 3.28)

include(${CMAKE_CURRENT_LIST_DIR}/run_command.cmake)

# What the text holds that the pattern matches, each thing once, in order.
function(find_all pattern text output)
    string(REGEX MATCHALL "${pattern}" found "${text}")
    list(REMOVE_DUPLICATES found)
    list(SORT found)
    set(${output} "${found}" PARENT_SCOPE)
endfunction()

function(expect_equal what found expected)
    if(NOT found STREQUAL expected)
        message(FATAL_ERROR "${what}\n  found:    ${found}\n  expected: ${expected}")
    endif()
endfunction()

# Names that nm lists for files, with the arguments given.
function(list_symbols output)
    run_command(text ${NM} -P ${ARGN})
    find_all("[^ \n]+ [A-Za-z] " "${text}" lines)  # name, kind, and perhaps value and size
    set(symbols)
    foreach(line IN LISTS lines)
        string(REGEX REPLACE " .*" "" name "${line}")
        list(APPEND symbols "${name}")
    endforeach()
    list(SORT symbols)
    set(${output} "${symbols}" PARENT_SCOPE)
endfunction()

file(GLOB kernel_objects ${KERNEL_DIR}/*.o)
if(NOT kernel_objects)
    message(FATAL_ERROR "there are no kernels in ${KERNEL_DIR}")
endif()

# The functions of halyard.h, and only those, leave the shared library.
if(CHECK STREQUAL "exports")
    file(READ ${INCLUDE_DIR}/halyard/halyard.h header)
    if(GPU_SHARED)  # which is both libraries in one
        set(SHARED ${GPU_SHARED})
        file(READ ${INCLUDE_DIR}/halyard/halyard_gpu.h gpu_header)
        string(APPEND header "${gpu_header}")
    endif()
    string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" header "${header}")
    find_all("HALYARD_API [^;(]*\\(" "${header}" declarations)
    set(declared)
    foreach(declaration IN LISTS declarations)
        string(REGEX MATCH "halyard_[a-z_]+\\($" name "${declaration}")
        string(REPLACE "(" "" name "${name}")
        list(APPEND declared ${name})
    endforeach()
    list(SORT declared)
    list_symbols(exported -D --defined-only ${SHARED})
    expect_equal("${SHARED} exports something else than its headers declare" "${exported}" "${declared}")

# What Halide's runtime calls its own stays inside, so that a program may have another one.
elseif(CHECK STREQUAL "gpu_symbols")
    list_symbols(global -g --defined-only ${GPU_STATIC})
    list(FILTER global INCLUDE REGEX "halide")
    list(FILTER global EXCLUDE REGEX "^_ZN7halyard")
    expect_equal("${GPU_STATIC} has symbols of Halide's runtime" "${global}" "")

# The shared library needs the C and C++ runtimes, and nothing of Halide.
elseif(CHECK STREQUAL "needs")
    run_command(text ${READELF} -dW ${SHARED})
    find_all("Shared library: \\[[^]]*\\]" "${text}" needed)
    foreach(library IN LISTS needed)
        if(NOT library MATCHES "\\[(lib(c|m|pthread|gcc_s|stdc\\+\\+|c\\+\\+|c\\+\\+abi)|ld-linux-x86-64)\\.so")
            message(FATAL_ERROR "${SHARED} needs ${library}")
        endif()
    endforeach()
    # It cannot print or end the process with what it does not call.
    list_symbols(undefined -D -u ${SHARED})
    foreach(symbol IN LISTS undefined)
        if(symbol MATCHES "^(_*(v?f?d?printf(_chk)?|f?put[cs]|putchar|f?write|perror|syslog|abort|exit|quick_exit|assert_fail|_ZSt4(cout|cerr|clog)))(@|$)")
            message(FATAL_ERROR "${SHARED} calls ${symbol}, which prints or ends the process")
        endif()
    endforeach()

# Nothing in the shared library is both writable and executable, and what the loader has filled in is read-only.
elseif(CHECK STREQUAL "hardened")
    run_command(segments ${READELF} -lW ${SHARED})
    if(NOT segments MATCHES "GNU_STACK[^\n]* RW " OR NOT segments MATCHES "GNU_RELRO" OR segments MATCHES " RWE ")
        message(FATAL_ERROR "${SHARED} has memory that is writable and executable, or no RELRO:\n${segments}")
    endif()
    run_command(dynamic ${READELF} -dW ${SHARED})
    if(NOT dynamic MATCHES "BIND_NOW|Flags: [^\n]*NOW" OR dynamic MATCHES "TEXTREL")
        message(FATAL_ERROR "${SHARED} binds symbols late, or has relocations in its code:\n${dynamic}")
    endif()

# Kernels stand alone.
elseif(CHECK STREQUAL "kernel_objects")
    # Those of GPUs need Halide's runtime, and are joined with it.
    list(FILTER kernel_objects EXCLUDE REGEX "_(cuda_sm80|opencl|runtime|gpu_kernels)[.]o$")
    list_symbols(undefined -u ${kernel_objects})
    expect_equal("the kernels in ${KERNEL_DIR} have undefined symbols" "${undefined}" "")
    set(own)
    foreach(object IN LISTS kernel_objects)
        cmake_path(GET object STEM name)
        list(APPEND own ${name} ${name}_argv ${name}_metadata)
    endforeach()
    list(SORT own)
    list_symbols(defined -g --defined-only ${kernel_objects})
    expect_equal("the kernels in ${KERNEL_DIR} define other symbols than their own" "${defined}" "${own}")
    # An object without this section, or with the flag X on it, would make the stack of the program executable.
    run_command(sections ${READELF} -SW ${kernel_objects})
    string(REGEX MATCHALL "\\.note\\.GNU-stack +PROGBITS +0+ [0-9a-f]+ 0+ 00 +0 " not_executable "${sections}")
    list(LENGTH not_executable n_not_executable)
    list(LENGTH kernel_objects n_objects)
    expect_equal("kernels that say that their stack need not be executable" ${n_not_executable} ${n_objects})

# The header compiles alone: as C11, and with halyard.hpp as C++17 and C++20, under strict warnings.
elseif(CHECK STREQUAL "headers")
    set(strict -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only -I ${INCLUDE_DIR})
    foreach(header halyard halyard_gpu)
        file(WRITE ${SCRATCH}/alone.c "#include <halyard/${header}.h>\n#include <halyard/${header}.h>\n")
        file(WRITE ${SCRATCH}/alone.cpp "#include <halyard/${header}.hpp>\n#include <halyard/${header}.hpp>\n")
        run_command(unused ${C_COMPILER} -std=c11 -Wstrict-prototypes ${strict} ${SCRATCH}/alone.c)
        run_command(unused ${C_COMPILER} -std=c99 ${strict} ${SCRATCH}/alone.c)
        foreach(standard 17 20)
            run_command(unused ${CXX_COMPILER} -std=c++${standard} ${strict} ${SCRATCH}/alone.cpp)
            run_command(unused ${CXX_COMPILER} -std=c++${standard} ${strict} -x c++ ${SCRATCH}/alone.c)
        endforeach()
    endforeach()

# A C program that is linked with the static library, or the shared one, needs nothing else but the C++ runtime.
elseif(CHECK STREQUAL "c_program")
    set(strict -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -I ${INCLUDE_DIR})
    run_command(unused ${C_COMPILER} ${strict} ${SOURCE_DIR}/c_api.c -o ${SCRATCH}/c_api_static ${STATIC} -lstdc++ -lm
                -lpthread -Wl,--no-undefined -Wl,--fatal-warnings)
    run_command(text ${EMULATOR} ${SCRATCH}/c_api_static)
    message(STATUS "${text}")
    run_command(unused ${C_COMPILER} ${strict} ${SOURCE_DIR}/c_api.c -o ${SCRATCH}/c_api_shared ${SHARED} -lm
                -Wl,--no-undefined -Wl,--fatal-warnings)
    cmake_path(GET SHARED PARENT_PATH library_dir)
    run_command(text ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${library_dir} ${EMULATOR} ${SCRATCH}/c_api_shared)
    message(STATUS "${text}")

# The library, and a copy of it as another one, can be loaded, used and unloaded.
elseif(CHECK STREQUAL "load")
    file(REAL_PATH ${SHARED} library)
    file(COPY_FILE ${library} ${SCRATCH}/libhalyard_copy.so)
    run_command(unused ${C_COMPILER} -std=c11 -Wall -Wextra -Werror -Wno-missing-field-initializers -I ${INCLUDE_DIR}
                ${SOURCE_DIR}/load_library.c -o ${SCRATCH}/load_library -ldl)
    run_command(unused ${EMULATOR} ${SCRATCH}/load_library ${library} ${SCRATCH}/libhalyard_copy.so)

# A triple's library, header and manifest. The header is compiled, and where a program for the triple can be linked and
# run, one is.
elseif(CHECK STREQUAL "emitted" OR CHECK STREQUAL "emitted_wrong")
    find_program(LLVM_AR llvm-ar-19)
    if(NOT LLVM_AR)
        message("SKIP: llvm-ar-19 is not installed (Debian: llvm-19)")
        return()
    endif()
    set(package ${CMAKE_COMMAND} -D KERNELS=${KERNELS} -D OBJECTS=${OBJECTS} -D VERSION=1.2.3 -D HALIDE_VERSION=4.5.6)
    if(CHECK STREQUAL "emitted_wrong")
        file(REMOVE_RECURSE ${SCRATCH}/wrong)
        execute_process(COMMAND ${package} -D TRIPLE=arm-64-osx -D STAGE=${SCRATCH}/wrong_stage
                                -D DESTINATION=${SCRATCH}/wrong -P ${PACKAGE}
                        RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE errors)
        if(status EQUAL 0 OR NOT errors MATCHES "found: +Mach-O arm64 ios\n +expected: +Mach-O arm64 macos")
            message(FATAL_ERROR "objects for iOS were taken for macOS's: ${errors}")
        elseif(EXISTS ${SCRATCH}/wrong)
            message(FATAL_ERROR "${SCRATCH}/wrong was written in spite of an error")
        endif()
        return()
    endif()
    set(dist ${SCRATCH}/dist/${TRIPLE})
    run_command(unused ${package} -D TRIPLE=${TRIPLE} -D STAGE=${dist}.stage -D DESTINATION=${dist} -P ${PACKAGE})

    # The manifest has a row for each kernel that the header declares.
    file(READ ${dist}/manifest.json manifest)
    string(JSON library GET "${manifest}" library)
    string(JSON n_kernels LENGTH "${manifest}" kernels)
    math(EXPR last "${n_kernels} - 1")
    set(listed)
    foreach(i RANGE ${last})
        string(JSON name GET "${manifest}" kernels ${i} name)
        string(JSON op GET "${manifest}" kernels ${i} op)
        list(APPEND listed "halyard_${op}_kernel ${name}|")
    endforeach()
    file(STRINGS ${dist}/halyard_kernels.h declared REGEX "^halyard_[a-z_]+_kernel ")
    string(REPLACE "\\;" "|" declared "${declared}")
    expect_equal("the header of ${TRIPLE} declares other kernels than the manifest" "${declared}" "${listed}")

    # The header compiles alone, twice over, and with Halide's, in either order.
    set(strict -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I ${dist} -I ${INCLUDE_DIR})
    set(ours "#include <halyard_kernels.h>\n")
    set(theirs "#include <HalideRuntime.h>\n#include <halyard/halyard.h>\n")
    file(WRITE ${dist}/alone.c "${ours}${ours}")
    file(WRITE ${dist}/before.c "${ours}${theirs}")
    file(WRITE ${dist}/after.c "${theirs}${ours}")
    foreach(order alone before after)
        set(sources -isystem ${HALIDE_INCLUDE_DIR} -fsyntax-only ${dist}/${order}.c)
        run_command(unused ${C_COMPILER} -std=c11 -Wstrict-prototypes ${strict} ${sources})
        run_command(unused ${CXX_COMPILER} -std=c++17 ${strict} -x c++ ${sources})
    endforeach()

    if(TRIPLE STREQUAL "x86-64-linux")
        set(compiler ${C_COMPILER})
        set(emulator)
    elseif(TRIPLE STREQUAL "arm-64-linux")
        find_program(CROSS_COMPILER aarch64-linux-gnu-gcc)
        find_program(QEMU qemu-aarch64)
        if(NOT CROSS_COMPILER OR NOT QEMU)
            message("SKIP: the library is right, but running it needs aarch64-linux-gnu-gcc and qemu-aarch64")
            return()
        endif()
        set(compiler ${CROSS_COMPILER} -static)
        set(emulator ${QEMU} -cpu cortex-a53)
    else()
        return()
    endif()
    run_command(unused ${compiler} -std=c11 ${strict} ${SOURCE_DIR}/emitted.c ${dist}/${library} -o ${dist}/program
                -Wl,--fatal-warnings)
    run_command(text ${emulator} ${dist}/program)
    message(STATUS "${text}")

# Dispatch and the golden data on a CPU that this machine may not be: CPU names it, TARGET is the best that it has. (The
# [kernel] tests don't run there: QEMU 7.2 reads all of a vector where vmaskmovps must not, into their guard pages.)
elseif(CHECK STREQUAL "emulated")
    find_program(QEMU qemu-x86_64)
    if(NOT QEMU)
        message("SKIP: qemu-x86_64 is not installed (Debian: qemu-user)")
        return()
    endif()
    # Emulators from before AVX2 (QEMU 7.2) would only show their own limits.
    execute_process(COMMAND ${QEMU} -cpu ${CPU} ${TESTS} --list-tags RESULT_VARIABLE status OUTPUT_VARIABLE text
                    ERROR_VARIABLE errors)
    if(NOT status EQUAL 0 OR errors MATCHES "doesn't support requested feature: [^\n]*(avx2|fma|f16c|bmi)")
        message("SKIP: ${QEMU} cannot emulate ${CPU}: ${errors}")
        return()
    endif()
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env HALYARD_TEST_EXPECTED_TARGET=${TARGET} --unset=HALYARD_TARGET
                --unset=HALYARD_MAX_TARGET ${QEMU} -cpu ${CPU} ${TESTS} "[emulated],[golden]" --rng-seed ${SEED}
        RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE errors)
    if(NOT status EQUAL 0 OR NOT text MATCHES "All tests passed")
        message(FATAL_ERROR "on ${CPU}: ${text}${errors}")
    endif()
    message(STATUS "on ${CPU}, dispatch takes ${TARGET}: ${text}")

else()
    message(FATAL_ERROR "there is no check named ${CHECK}")
endif()
