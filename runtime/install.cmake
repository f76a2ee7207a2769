# Defines what cmake --install copies, in these components: runtime has the shared library and licences; development has
# the headers, the static library, and the files for CMake and pkg-config; cuda has all of halyard::cuda, and needs
# these two; tools has the command-line tool. The installed folder may be moved.

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/halyard)
set(package_config_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${package_config_folder}
           OUTPUT_VARIABLE prefix_from_package_config)

# A C program that links the static library needs these C++ libraries too.
set(HALYARD_CXX_LIBRARIES ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER HALYARD_CXX_LIBRARIES INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
list(REMOVE_DUPLICATES HALYARD_CXX_LIBRARIES)

# halyard_install(<name> <component of the shared library> <component of the rest> <private libraries> <requires>
#     <headers>...)
function(halyard_install name runtime development private requires)
    foreach(kind static shared)  # two exports, because a distribution may omit one library
        install(TARGETS ${name}_${kind} EXPORT ${name}_${kind}Targets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${development}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${runtime} NAMELINK_COMPONENT ${development})
        install(EXPORT ${name}_${kind}Targets NAMESPACE halyard::
            DESTINATION ${package_folder} COMPONENT ${development})
    endforeach()
    foreach(header ${ARGN})
        install(FILES include/halyard/${header}.h include/halyard/${header}.hpp
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halyard COMPONENT ${development})
    endforeach()
    # The plain name is the static library, as for find_package, because a program that links the shared library starts
    # only where the loader finds that library.
    list(TRANSFORM private PREPEND -l)
    list(JOIN private " " private)
    set(pc_name ${name})
    set(libraries "\${libdir}/lib${name}.a ${private}")
    configure_file(halyard.pc.in ${pc_name}.pc @ONLY)
    set(pc_name ${name}-shared)
    set(libraries "-L\${libdir} -l${name}")
    set(requires "")  # libhalyard_cuda.so contains the CPU library
    configure_file(halyard.pc.in ${pc_name}.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc ${CMAKE_CURRENT_BINARY_DIR}/${name}-shared.pc
        DESTINATION ${package_config_folder} COMPONENT ${development})
endfunction()

halyard_install(halyard runtime development "${HALYARD_CXX_LIBRARIES};pthread" "" halyard halyard_kv)
if(HALYARD_BUILD_CUDA)
    halyard_install(halyard_cuda cuda cuda "${CMAKE_DL_LIBS}" "halyard = ${PROJECT_VERSION}" halyard_cuda)
endif()

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/LICENSES_OF_OTHERS
    DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/halyard.cdx.json OPTIONAL  # only an archive has it
    DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
configure_package_config_file(halyardConfig.cmake.in halyardConfig.cmake INSTALL_DESTINATION ${package_folder})
# Before 1.0, a new minor version may break programs.
write_basic_package_version_file(halyardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/halyardConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/halyardConfigVersion.cmake
    DESTINATION ${package_folder} COMPONENT development)
