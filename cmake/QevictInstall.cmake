# What `cmake --install` puts where: libqevict with its public headers, its CMake package and its pkg-config file, and beside
# them what an installed `qevict` program needs. tools/ installs the program itself.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/qevict")
install(TARGETS libqevict EXPORT qevict ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/qevict DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT qevict FILE qevictTargets.cmake NAMESPACE qevict:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/qevictConfig.cmake.in "${PROJECT_BINARY_DIR}/qevictConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a new minor version may break the API.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/qevictConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/qevictConfig.cmake" "${PROJECT_BINARY_DIR}/qevictConfigVersion.cmake"
        DESTINATION "${package_dir}")

# Relative to the file's own place, so that the installed tree can be moved. The dependency has no pkg-config file; its
# include folder is named only where a compiler does not look by itself.
file(RELATIVE_PATH QEVICT_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
get_target_property(expected_dirs tl::expected INTERFACE_INCLUDE_DIRECTORIES)
list(REMOVE_DUPLICATES expected_dirs)
list(REMOVE_ITEM expected_dirs ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES} /usr/include)
list(TRANSFORM expected_dirs PREPEND " -I")
string(JOIN "" QEVICT_PC_CFLAGS ${expected_dirs})
configure_file(cmake/qevict.pc.in "${PROJECT_BINARY_DIR}/qevict.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/qevict.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# ggml with run-time CPU levels is a set of shared libraries that only qevict may find: they live in a folder of their own.
if(QEVICT_ENGINE AND QEVICT_LLAMA_SHARED_DIR)
  install(DIRECTORY "${QEVICT_LLAMA_SHARED_DIR}/" DESTINATION "${CMAKE_INSTALL_LIBDIR}/qevict"
          FILES_MATCHING PATTERN "*.so*" PATTERN cmake EXCLUDE PATTERN pkgconfig EXCLUDE)
endif()
