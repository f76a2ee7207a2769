# GPU kernels: host code and device code (PTX, OpenCL C) of each, joined with Halide's runtime for both APIs and with
# what calls them into one object, gpu_object, whose only global symbols are ours: another Halide runtime in the same
# program stays another.

set(gpu_objects)
set(gpu_ptx)
set(gpu_rows)
foreach(target IN LISTS HALYARD_GPU_TARGETS)
    halyard_target_string(${HALYARD_ARCH_${target}}-linux ${target} target_string)
    string(APPEND gpu_rows "HALYARD_GPU_HELPERS(${target})\n")
    set(device_suffix cl)
    if(target MATCHES "^cuda")
        set(device_suffix ptx)
    endif()
    foreach(name IN LISTS HALYARD_KERNELS_${target})
        halyard_generator_of(${name} OWN)
        if(HALYARD_FIELDS_${name})
            list(JOIN HALYARD_FIELDS_${name} ", " fields)
            string(APPEND gpu_rows "HALYARD_GPU_KERNEL(${name}, ${target}, ${fields}, \"${schedule}\")\n")
        endif()
        if(HALYARD_EMITTED)
            list(APPEND gpu_objects ${emitted_folder}/${own_triple}/${name}.o)
            continue()
        endif()
        set(path ${own_folder}/${name})
        add_custom_command(
            OUTPUT ${path}.o ${path}.stmt ${path}.${device_suffix}
            COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_SOURCE_DIR}/emit.cmake --
                $<TARGET_FILE:halyard_generator> -f ${name} -n ${name} -o ${own_folder} -e object,stmt,device_code
                target=${target_string}
                -g ${generator}
            # Halide ends the text with a zero byte.
            COMMAND tr -d "\\000" < ${path}.device_code > ${path}.${device_suffix}
            COMMAND ${CMAKE_COMMAND} -E rm ${path}.device_code
            DEPENDS halyard_generator emit.cmake
            COMMENT "Emitting ${name}"
            VERBATIM)
        list(APPEND gpu_objects ${path}.o)
        if(device_suffix STREQUAL "ptx")
            list(APPEND gpu_ptx ${path}.ptx)
        endif()
    endforeach()
endforeach()

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/gpu_kernel_list.inc CONTENT "${gpu_rows}")

if(HALYARD_EMITTED)
    list(APPEND gpu_objects ${emitted_folder}/${own_triple}/halide_runtime.o)
else()
    add_custom_command(
        OUTPUT ${own_folder}/halide_runtime.o
        COMMAND halyard_generator -r halide_runtime -o ${own_folder} -e object target=x86-64-linux-cuda-opencl
        COMMENT "Emitting Halide's runtime"
        VERBATIM)
    list(APPEND gpu_objects ${own_folder}/halide_runtime.o)
endif()

set(gpu_runtime ${PROJECT_SOURCE_DIR}/runtime/gpu)
add_library(halyard_gpu_callers OBJECT ${gpu_runtime}/halide_runtime.cpp ${gpu_runtime}/gpu_kernels.cpp)
target_include_directories(halyard_gpu_callers PRIVATE
    ${PROJECT_SOURCE_DIR}/runtime ${PROJECT_SOURCE_DIR}/runtime/include ${CMAKE_BINARY_DIR}/generated)
target_compile_options(halyard_gpu_callers PRIVATE -Wall -Wextra -Wconversion -Wshadow)
set_target_properties(halyard_gpu_callers PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

set(gpu_object ${own_folder}/halyard_gpu_kernels.o)
add_custom_command(
    OUTPUT ${gpu_object}
    # No section stays in a group, of which a program that has a Halide runtime of its own would keep only one.
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${gpu_object} $<TARGET_OBJECTS:halyard_gpu_callers> ${gpu_objects}
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=_ZN7halyard* ${gpu_object}
    DEPENDS $<TARGET_OBJECTS:halyard_gpu_callers> ${gpu_objects}
    COMMENT "Joining the GPU kernels"
    COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(halyard_gpu_object DEPENDS ${gpu_object})
