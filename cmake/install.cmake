# The core as an installed C++ library: find_package(dreamddp), link dreamddp::core.
include(CMakePackageConfigHelpers)
install(TARGETS dreamddp_core EXPORT dreamddp-targets)
install(DIRECTORY include/dreamddp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT dreamddp-targets NAMESPACE dreamddp:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dreamddp
        FILE dreamddp-config.cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dreamddp-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dreamddp-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dreamddp)
