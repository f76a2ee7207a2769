# cmake -D TRIPLE=… -D OBJECTS=<folder> -D STAGE=<folder> -D DESTINATION=<folder> -D VERSION=… -D HALIDE_VERSION=…
#       [-D KERNELS=<pattern>] [-D "SCHEDULES=<kernel>=<device>;…"] -P package.cmake
# Checks a triple's objects, as a linker would look at them, and writes its library, header and manifest: in STAGE, so
# that DESTINATION is either as before or whole. KERNELS takes only some, for the tests.
cmake_minimum_required(VERSION 3.28)
include(${CMAKE_CURRENT_LIST_DIR}/kernel_list.cmake)
set(runtime_dir ${CMAKE_CURRENT_LIST_DIR}/../runtime)
foreach(tool ar nm readobj size)
    find_program(LLVM_${tool} llvm-${tool}-19 REQUIRED)  # what they print is read below: no other version
endforeach()

halyard_targets_of(${TRIPLE} targets)
set(kernels)
foreach(target IN LISTS targets)
    list(FILTER HALYARD_KERNELS_${target} INCLUDE REGEX "${KERNELS}")
    list(APPEND kernels ${HALYARD_KERNELS_${target}})
endforeach()
list(TRANSFORM kernels PREPEND ${OBJECTS}/ OUTPUT_VARIABLE objects)
list(TRANSFORM objects APPEND ${HALYARD_SUFFIX_${TRIPLE}})

function(expect_equal what found expected)
    if(NOT found STREQUAL expected)
        message(FATAL_ERROR "${TRIPLE}: ${what}\n  found:    ${found}\n  expected: ${expected}")
    endif()
endfunction()

# run(<variable> <command> <argument>...): what it prints, without what CMake would take for a list's syntax.
function(run variable)
    execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX REPLACE "[][;]" "|" text "${text}")
    set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# symbols(<variable> <argument>...): the names that nm lists with these arguments, sorted.
function(symbols variable)
    run(text ${LLVM_nm} --format=just-symbols --quiet ${ARGN})
    string(REGEX MATCHALL "[^\n]+" names "${text}")
    list(FILTER names EXCLUDE REGEX ":$")  # a file's heading
    list(SORT names)
    set(${variable} "${names}" PARENT_SCOPE)
endfunction()

# Format, machine and system; no section that is both written and run; on ELF, a stack that need not be run either.
run(text ${LLVM_readobj} --file-headers --sections --macho-version-min ${objects})
string(REGEX REPLACE "\n+File: " ";" files "\n${text}")
list(POP_FRONT files)
foreach(file IN LISTS files)
    string(REGEX MATCH "^[^\n]*" object "${file}")
    string(REGEX MATCH "Format: ([^\n]*)" unused "${file}")
    set(format "${CMAKE_MATCH_1}")
    if(file MATCHES "Platform: ([^\n]*)\n *Version: ([^\n]*)")
        string(APPEND format " ${CMAKE_MATCH_1}")
        set(minimum_os "${CMAKE_MATCH_2}")
    endif()
    expect_equal("the format of ${object}" "${format}" "${HALYARD_FORMAT_${TRIPLE}}")
    if(format MATCHES "^elf" AND NOT file MATCHES "Name: \\.note\\.GNU-stack")
        message(FATAL_ERROR "${TRIPLE}: ${object} does not say that its stack need not be executable")
    endif()
    string(REPLACE "Section {" ";" sections "${file}")
    foreach(section IN LISTS sections)
        if(section MATCHES "SHF_EXECINSTR|IMAGE_SCN_MEM_EXECUTE|Instructions \\(" AND
           section MATCHES "SHF_WRITE|IMAGE_SCN_MEM_WRITE|Segment: __DATA|Name: \\.note\\.GNU-stack")
            message(FATAL_ERROR "${TRIPLE}: ${object} has something executable that should not be:${section}")
        endif()
    endforeach()
endforeach()
list(LENGTH files n_files)
list(LENGTH kernels n_kernels)
expect_equal("the number of objects" "${n_files}" "${n_kernels}")

# Each object defines its kernel and Halide's two companions of it, and needs nothing. (Windows: _fltused is a mark that
# floats are used, and __chkstk touches the stack of a function that takes more than a page of it; both are defined by the
# C runtime. Constants are shared between objects under names made of their bits.)
set(prefix)
if(format MATCHES "^Mach-O")
    set(prefix _)
endif()
set(expected)
foreach(name IN LISTS kernels)
    list(APPEND expected ${prefix}${name} ${prefix}${name}_argv ${prefix}${name}_metadata)
endforeach()
list(SORT expected)
symbols(defined --extern-only --defined-only ${objects})
symbols(undefined --undefined-only ${objects})
if(format MATCHES "^COFF")
    list(FILTER defined EXCLUDE REGEX "^__(real|xmm|ymm|zmm)@[0-9a-f]+$")
    list(FILTER undefined EXCLUDE REGEX "^(_fltused|__chkstk)$")
endif()
expect_equal("the symbols that the objects define" "${defined}" "${expected}")
expect_equal("the symbols that the objects need" "${undefined}" "")

# The library, and that a linker finds every kernel by the library's index.
set(library ${STAGE}/${HALYARD_LIBRARY_${TRIPLE}})
file(REMOVE_RECURSE ${STAGE})
file(MAKE_DIRECTORY ${STAGE})
run(unused ${LLVM_ar} rcsD ${library} ${objects})
run(text ${LLVM_nm} --print-armap --format=just-symbols ${library})
foreach(name IN LISTS kernels)
    if(NOT text MATCHES "\n${prefix}${name} in ${name}\\${HALYARD_SUFFIX_${TRIPLE}}\n")
        message(FATAL_ERROR "${TRIPLE}: the index of ${library} lacks ${name}")
    endif()
endforeach()

# One row for each kernel in the manifest, and one line in the header.
run(sizes ${LLVM_size} ${objects})
set(rows)
set(declarations)
foreach(target IN LISTS targets)
    set(words_of_target "^    {\"${target}\", \"([^\"]*)\"},$")
    file(STRINGS ${runtime_dir}/dispatch.cpp words REGEX "${words_of_target}")
    string(REGEX REPLACE "${words_of_target}" "\\1" isa "${words}")
    if(isa STREQUAL "")
        message(FATAL_ERROR "runtime/dispatch.cpp has no words for ${target}")
    endif()
    string(APPEND declarations "\n/* For ${isa}. */\n")
    foreach(name IN LISTS HALYARD_KERNELS_${target})
        list(POP_FRONT HALYARD_FIELDS_${name} op pairing out_pairing dtype place packed)
        set(in_place false)
        if(place STREQUAL "in_place")
            set(in_place true)
        endif()
        if(NOT sizes MATCHES "\n *([1-9][0-9]*)[^\n]*/${name}\\${HALYARD_SUFFIX_${TRIPLE}}\n")
            message(FATAL_ERROR "${TRIPLE}: llvm-size does not tell the size of ${name}:\n${sizes}")
        endif()
        set(text_bytes ${CMAKE_MATCH_1})
        set(schedule default)
        if(";${SCHEDULES};" MATCHES ";${name}=([^;]*);")
            set(schedule ${CMAKE_MATCH_1})
        endif()
        set(row)
        foreach(field op pairing out_pairing dtype in_place packed target isa schedule)
            list(APPEND row "\"${field}\": \"${${field}}\"")
        endforeach()
        list(JOIN row ", " row)
        string(REGEX REPLACE "\"(null|true|false)\"" "\\1" row "${row}")
        list(APPEND rows "    {\"name\": \"${name}\", \"symbol\": \"${prefix}${name}\", ${row}, \"halide_features\":\
 \"${HALYARD_FEATURES_${target}}\", \"text_bytes\": ${text_bytes}}")
        string(APPEND declarations "halyard_${op}_kernel ${name};\n")
    endforeach()
endforeach()
list(JOIN rows ",\n" rows)
set(minimum)
if(minimum_os)
    set(minimum "\n  \"minimum_os\": \"${minimum_os}\",")
endif()
set(manifest "{
  \"triple\": \"${TRIPLE}\",
  \"halyard\": \"${VERSION}\",
  \"halide\": \"${HALIDE_VERSION}\",
  \"library\": \"${HALYARD_LIBRARY_${TRIPLE}}\",
  \"header\": \"halyard_kernels.h\",
  \"format\": \"${format}\",${minimum}
  \"kernels\": [
${rows}
  ]
}
")
string(JSON n_rows LENGTH "${manifest}" kernels)  # fails unless it is JSON
expect_equal("the number of kernels in the manifest" "${n_rows}" "${n_kernels}")
file(WRITE ${STAGE}/manifest.json "${manifest}")

file(READ ${runtime_dir}/rotate/kernel_abi.h abi)
file(WRITE ${STAGE}/halyard_kernels.h
"/* The kernels of ${HALYARD_LIBRARY_${TRIPLE}} for ${TRIPLE}, Halyard ${VERSION}. */
#ifndef HALYARD_KERNELS_H
#define HALYARD_KERNELS_H

${abi}
#ifdef __cplusplus
extern \"C\" {
#endif
${declarations}
#ifdef __cplusplus
}
#endif

#endif
")

cmake_path(GET DESTINATION PARENT_PATH parent)
file(MAKE_DIRECTORY ${parent})
file(REMOVE_RECURSE ${DESTINATION})
file(RENAME ${STAGE} ${DESTINATION})
file(SIZE ${DESTINATION}/${HALYARD_LIBRARY_${TRIPLE}} n_bytes)
message(STATUS "${DESTINATION}: ${n_kernels} kernels, ${n_bytes} bytes")
