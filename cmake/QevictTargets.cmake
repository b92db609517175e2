# How every library, kernel and test of the project is declared.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(QEVICT_CCACHE ccache)
if(QEVICT_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${QEVICT_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${QEVICT_CCACHE}")
endif()

find_package(Threads REQUIRED)
find_package(tl-expected CONFIG REQUIRED)
find_path(QEVICT_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)

add_library(qevict_options INTERFACE)
# Checks print __FILE__; what is installed must not name the tree that it was built in.
target_compile_options(qevict_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                                                "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(qevict_options INTERFACE -Wno-restrict)  # GCC 12 sees overlaps in std::string that are none
endif()
if(QEVICT_WERROR)
  target_compile_options(qevict_options INTERFACE -Werror)
endif()
if(QEVICT_SANITIZE)
  # GCC takes what it instruments for uninitialised reads that are none; without sanitizers the warning stays.
  target_compile_options(qevict_options INTERFACE -fsanitize=${QEVICT_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  target_link_options(qevict_options INTERFACE -fsanitize=${QEVICT_SANITIZE})
endif()

# qevict_library(NAME DEPENDS lib... SOURCES file...): one folder of src as a library that sees only what it depends on.
# Static, not OBJECT: what a dependency itself depends on must reach the link line of a test.
function(qevict_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;SOURCES" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} tl::expected PRIVATE qevict_options)
endfunction()
