# Reads kernels.cmake, for CMakeLists.txt and for package.cmake alike, into these variables:
#   HALYARD_TRIPLES               of each: HALYARD_FORMAT_<triple>, HALYARD_SUFFIX_<triple>, HALYARD_LIBRARY_<triple>
#   HALYARD_TARGETS               best first; of each: HALYARD_ARCH_<target>, HALYARD_FEATURES_<target>
#   HALYARD_KERNELS_<target>      of each:
#     HALYARD_FIELDS_<kernel>     op, pairing, out_pairing, dtype, in_place, packed; null where a kernel has none
#     HALYARD_GENERATOR_<kernel>  the generator that makes it, and its parameters

function(halyard_triple triple format suffix library)
    set(HALYARD_TRIPLES ${HALYARD_TRIPLES} ${triple} PARENT_SCOPE)
    set(HALYARD_FORMAT_${triple} ${format} PARENT_SCOPE)
    set(HALYARD_SUFFIX_${triple} ${suffix} PARENT_SCOPE)
    set(HALYARD_LIBRARY_${triple} ${library} PARENT_SCOPE)
endfunction()

function(halyard_target name arch features)
    set(HALYARD_TARGETS ${name} ${HALYARD_TARGETS} PARENT_SCOPE)
    set(HALYARD_ARCH_${name} ${arch} PARENT_SCOPE)
    set(HALYARD_FEATURES_${name} ${features} PARENT_SCOPE)
endfunction()

function(halyard_kernel pairing dtype place)
    set(pairing_in ${pairing})
    set(pairing_out ${pairing})
    if(pairing MATCHES "^(.*)_to_(.*)$")
        set(pairing_in ${CMAKE_MATCH_1})
        set(pairing_out ${CMAKE_MATCH_2})
    endif()
    set(in_place false)
    set(suffix)
    if(place STREQUAL "in_place")
        set(in_place true)
        set(suffix _in_place)
    endif()
    set(packed false)
    if(dtype STREQUAL "bf16" AND pairing MATCHES "^(half|interleaved)$")
        set(packed true)
    endif()

    set(columns ${ARGN})
    while(columns)
        list(POP_FRONT columns target steps)
        string(REPLACE "/" ";" steps ${steps})
        list(GET steps 0 step_fixed)
        list(GET steps 1 step_any)
        set(vector ${step_fixed})
        list(LENGTH steps n_steps)
        if(n_steps GREATER 2)
            list(GET steps 2 vector)
        endif()
        set(by_test false)
        if(target STREQUAL "x86_avx512")
            set(by_test true)
        endif()
        set(name halyard_rotate_${pairing}_${dtype}${suffix}_${target})
        set(HALYARD_KERNELS_${target} ${HALYARD_KERNELS_${target}} ${name} PARENT_SCOPE)
        set(HALYARD_FIELDS_${name} rotate ${pairing_in} ${pairing_out} ${dtype} ${in_place} ${packed} PARENT_SCOPE)
        set(HALYARD_GENERATOR_${name} rope dtype=${dtype} packed=${packed}
            pairing=${pairing_in} out_pairing=${pairing_out} in_place=${in_place}
            elements_per_step=${step_fixed} elements_per_step_any=${step_any} elements_per_vector=${vector}
            round_by_test=${by_test} PARENT_SCOPE)
    endwhile()
endfunction()

function(halyard_row_kernels)
    set(columns ${ARGN})
    while(columns)
        list(POP_FRONT columns target step)
        foreach(source phase factored)
            set(name halyard_rows_${source}_${target})
            list(APPEND HALYARD_KERNELS_${target} ${name})
            set(HALYARD_FIELDS_${name} rows_${source} null null f32 false false PARENT_SCOPE)
            set(HALYARD_GENERATOR_${name} rows_${source} pairs_per_step=${step} PARENT_SCOPE)
        endforeach()
        set(HALYARD_KERNELS_${target} ${HALYARD_KERNELS_${target}} PARENT_SCOPE)
    endwhile()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)

# halyard_targets_of(<triple> <variable>): the targets of its architecture, the best first.
function(halyard_targets_of triple variable)
    set(targets)
    foreach(target IN LISTS HALYARD_TARGETS)
        if(triple MATCHES "^${HALYARD_ARCH_${target}}-")
            list(APPEND targets ${target})
        endif()
    endforeach()
    set(${variable} ${targets} PARENT_SCOPE)
endfunction()
