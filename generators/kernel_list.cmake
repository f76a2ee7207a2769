# Reads kernels.cmake, for CMakeLists.txt, into these variables:
#   HALYARD_TRIPLES               of each: HALYARD_FORMAT_<triple>, HALYARD_SUFFIX_<triple>, HALYARD_LIBRARY_<triple>
#   HALYARD_PARAMETERS            of each: HALYARD_LOOPS_<parameter>, HALYARD_LIMIT_<parameter>,
#                                 HALYARD_VALUES_<parameter>
#   HALYARD_CPU_OPTIONS           of Halide's target, the same for all kernels of CPUs
#   HALYARD_CPU_TARGETS           best first; of each: HALYARD_ARCH_<target>, HALYARD_FEATURES_<target>
#   HALYARD_KERNELS_<target>, HALYARD_NON_TEMPORAL_KERNELS_<target>   of each:
#     HALYARD_FIELDS_<kernel>     op, pairing, out_pairing, dtype, place, packed; null where a kernel has none
#     HALYARD_GENERATOR_<kernel>  the generator that makes it, and its parameters
#   HALYARD_TUNABLE_KERNELS_<target>  of all these, those that can be tuned: in the HALYARD_PARAMETERS that their
#                                     generator is told
#   HALYARD_GPU_TARGETS           of each: HALYARD_ARCH_<target>, HALYARD_FEATURES_<target>, HALYARD_KERNELS_<target>, and
#                                 HALYARD_TUNABLE_KERNELS_<target>, of each of which:
#     HALYARD_FIELDS_<kernel>     table or phase, pairing, dtype, whether in place
#   HALYARD_PAST_CACHES_MIB       from how much output on runs store past the caches
#   HALYARD_GPU_OPTIONS           of Halide's target, the same for all kernels of GPUs

function(halyard_triple triple format suffix library)
    set(HALYARD_TRIPLES ${HALYARD_TRIPLES} ${triple} PARENT_SCOPE)
    set(HALYARD_FORMAT_${triple} ${format} PARENT_SCOPE)
    set(HALYARD_SUFFIX_${triple} ${suffix} PARENT_SCOPE)
    set(HALYARD_LIBRARY_${triple} ${library} PARENT_SCOPE)
endfunction()

set(HALYARD_CPU_OPTIONS no_runtime-no_asserts-no_bounds_query-strict_float)
# Asserts stay in: without them Halide returns success when there is no driver.
set(HALYARD_GPU_OPTIONS no_runtime-no_bounds_query-strict_float-user_context)

set(HALYARD_PAST_CACHES_MIB 32)  # where a device's schedule says nothing else: see halyard_parameter

function(halyard_parameter name loops limit)
    set(HALYARD_PARAMETERS ${HALYARD_PARAMETERS} ${name} PARENT_SCOPE)
    set(HALYARD_LOOPS_${name} ${loops} PARENT_SCOPE)
    set(HALYARD_LIMIT_${name} ${limit} PARENT_SCOPE)
    set(HALYARD_VALUES_${name} ${ARGN} PARENT_SCOPE)
endfunction()

function(halyard_target name arch features)
    set(HALYARD_CPU_TARGETS ${name} ${HALYARD_CPU_TARGETS} PARENT_SCOPE)
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
    set(non_temporal)
    set(suffix _${place})
    if(place STREQUAL "in_place")
        set(in_place true)
    elseif(place STREQUAL "non_temporal")
        set(non_temporal _NON_TEMPORAL)
    else()
        set(suffix)
    endif()
    set(packed false)
    if(dtype STREQUAL "bf16" AND pairing MATCHES "^(half|interleaved)$")
        set(packed true)
    endif()

    set(columns ${ARGN})
    while(columns)
        list(POP_FRONT columns target steps)
        string(REPLACE "/" ";" steps ${steps})
        set(by_test false)
        if(target STREQUAL "x86_avx512")
            set(by_test true)
        endif()
        if(pairing STREQUAL "strided")  # which goes element by element, at any size
            set(numbers elements_per_step_any=${steps})
        else()
            list(POP_FRONT steps step_fixed step_any)
            set(numbers elements_per_step=${step_fixed} elements_per_step_any=${step_any})
            list(APPEND steps ${step_fixed})  # where no other is given for a vector
            list(GET steps 0 vector)
            list(APPEND numbers elements_per_vector=${vector})
        endif()
        list(APPEND numbers heads_per_step=1 hoist_rows=1)
        if(place STREQUAL "non_temporal")
            list(APPEND numbers past_caches_mib=${HALYARD_PAST_CACHES_MIB})
        endif()
        if(pairing STREQUAL "interleaved" AND NOT packed)
            # Swapping converts each f16 twice, which costs NEON more than taking pairs apart.
            set(swap_members 1)
            if(dtype STREQUAL "f16" AND target STREQUAL "arm_neon")
                set(swap_members 0)
            endif()
            list(APPEND numbers swap_members=${swap_members})
        endif()
        set(name halyard_rotate_${pairing}_${dtype}${suffix}_${target})
        set(list HALYARD${non_temporal}_KERNELS_${target})
        set(${list} ${${list}} ${name} PARENT_SCOPE)
        set(HALYARD_TUNABLE_KERNELS_${target} ${HALYARD_TUNABLE_KERNELS_${target}} ${name} PARENT_SCOPE)
        set(HALYARD_FIELDS_${name} rotate ${pairing_in} ${pairing_out} ${dtype} ${place} ${packed} PARENT_SCOPE)
        set(HALYARD_GENERATOR_${name} rope dtype=${dtype} packed=${packed}
            pairing=${pairing_in} out_pairing=${pairing_out} in_place=${in_place} round_by_test=${by_test} ${numbers}
            PARENT_SCOPE)
    endwhile()
endfunction()

function(halyard_row_kernels)
    set(columns ${ARGN})
    while(columns)
        list(POP_FRONT columns target step)
        foreach(source phase factored)
            set(name halyard_rows_${source}_${target})
            list(APPEND HALYARD_KERNELS_${target} ${name})
            list(APPEND HALYARD_TUNABLE_KERNELS_${target} ${name})
            set(HALYARD_FIELDS_${name} rows_${source} null null f32 out_of_place false PARENT_SCOPE)
            set(HALYARD_GENERATOR_${name} rows_${source} pairs_per_step=${step} PARENT_SCOPE)
        endforeach()
        set(HALYARD_KERNELS_${target} ${HALYARD_KERNELS_${target}} PARENT_SCOPE)
        set(HALYARD_TUNABLE_KERNELS_${target} ${HALYARD_TUNABLE_KERNELS_${target}} PARENT_SCOPE)
    endwhile()
endfunction()

function(halyard_gpu_target name features)
    set(HALYARD_GPU_TARGETS ${HALYARD_GPU_TARGETS} ${name} PARENT_SCOPE)
    set(HALYARD_ARCH_${name} x86-64 PARENT_SCOPE)  # of the host
    set(HALYARD_FEATURES_${name} ${features} PARENT_SCOPE)
endfunction()

function(halyard_gpu_kernel pairing dtype place angles)
    set(in_place false)
    set(suffix)
    if(place STREQUAL "in_place")
        set(in_place true)
        set(suffix _in_place)
    endif()
    if(angles STREQUAL "phase")
        string(APPEND suffix _phase)
    endif()
    set(packed false)
    set(threads element_threads=8 head_threads=16)
    if(pairing STREQUAL "strided")
        set(threads element_threads=32 head_threads=4)
    elseif(NOT dtype STREQUAL "f32")
        set(packed true)
    endif()
    foreach(target IN LISTS HALYARD_GPU_TARGETS)
        set(name halyard_rotate_${pairing}_${dtype}${suffix}_${target})
        set(HALYARD_KERNELS_${target} ${HALYARD_KERNELS_${target}} ${name} PARENT_SCOPE)
        set(HALYARD_GENERATOR_${name} rope dtype=${dtype} packed=${packed} pairing=${pairing} out_pairing=${pairing}
            in_place=${in_place} angles=${angles} ${threads} heads_per_thread=4 few_tokens=64 PARENT_SCOPE)
        set(HALYARD_TUNABLE_KERNELS_${target} ${HALYARD_TUNABLE_KERNELS_${target}} ${name} PARENT_SCOPE)
        set(HALYARD_FIELDS_${name} ${angles} ${pairing} ${dtype} ${in_place} PARENT_SCOPE)
    endforeach()
endfunction()

function(halyard_gpu_helpers)
    foreach(target IN LISTS HALYARD_GPU_TARGETS)
        set(name halyard_check_positions_${target})
        list(APPEND HALYARD_KERNELS_${target} ${name})
        set(HALYARD_GENERATOR_${name} check_positions PARENT_SCOPE)
        foreach(bits 16 32 128)
            set(name halyard_copy_${bits}_${target})
            list(APPEND HALYARD_KERNELS_${target} ${name})
            set(HALYARD_GENERATOR_${name} copy_columns bits=${bits} PARENT_SCOPE)
        endforeach()
        set(HALYARD_KERNELS_${target} ${HALYARD_KERNELS_${target}} PARENT_SCOPE)
    endforeach()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)

# halyard_target_string(<triple> <target> <variable>): what a generator is told that its kernels are for.
function(halyard_target_string triple target variable)
    if(target IN_LIST HALYARD_GPU_TARGETS)
        set(${variable} ${triple}-sse41-${HALYARD_FEATURES_${target}}-${HALYARD_GPU_OPTIONS} PARENT_SCOPE)
    else()
        set(${variable} ${triple}-${HALYARD_FEATURES_${target}}-${HALYARD_CPU_OPTIONS} PARENT_SCOPE)
    endif()
endfunction()

# halyard_targets_of(<triple> <variable>): the targets of its architecture, the best first.
function(halyard_targets_of triple variable)
    set(targets)
    foreach(target IN LISTS HALYARD_CPU_TARGETS)
        if(triple MATCHES "^${HALYARD_ARCH_${target}}-")
            list(APPEND targets ${target})
        endif()
    endforeach()
    set(${variable} ${targets} PARENT_SCOPE)
endfunction()
