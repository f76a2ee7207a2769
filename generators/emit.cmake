# cmake -P emit.cmake -- <generator> <arguments…>: runs the generator, and fails on what it would only warn about.
set(command)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 4 ${last})
    list(APPEND command "${CMAKE_ARGV${i}}")
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${text}")
endif()
# Only sse41 has no f16 instructions; anywhere else a kernel would be several times slower than it should be.
if(text MATCHES "type operation is emulated" AND NOT "${command}" MATCHES "target=x86-64-[a-z]+-sse41-no_runtime")
    message(FATAL_ERROR "A conversion is emulated that the target has instructions for:\n${text}")
endif()
